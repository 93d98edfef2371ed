"""ONNX's operators on integers with scales and zero points, as values of the graph."""

from __future__ import annotations

import math

import numpy as np

from ...core.dtypes import Array
from . import products
from .quantizing import numbers
from .record import Attributes, Constants, Operator, Shapes, always, array, named


def spread(v: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """Return scales or zero points so that they broadcast to x: one, one along an axis, or one for each block of it."""
    if v.size == 1:
        return v.reshape(())
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} is not one of {len(shape)}")
    axis %= len(shape)
    if v.ndim == 1 and not block:
        if len(v) != shape[axis]:
            raise ValueError(f"{len(v)} scales or zero points for an axis of {shape[axis]}")
        return v.reshape(-1, *(1,) * (len(shape) - axis - 1))
    wanted = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape)) if block > 0 else ()
    if v.shape != wanted:
        raise ValueError(f"scales or zero points {v.shape} for {shape} in blocks of {block} along axis {axis}")
    return np.repeat(v, block, axis=axis)[tuple(slice(n) for n in shape)]


def _whole(x: Array, zero: Array | None, axis: int | None = None) -> Array:
    """x minus its zero point, int64; several points are along `axis`."""
    if zero is None:
        return x.astype(np.int64)
    z = zero.astype(np.int64)
    if z.ndim == 1 and z.size > 1 and axis is not None:
        z = z.reshape(-1, *(1,) * (x.ndim - axis - 1))
    return array(x.astype(np.int64) - (z.reshape(()) if z.size == 1 else z))


def _conv_integer(a: Attributes, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None) -> Array:
    return products.conv({**a, "to": "int32"}, _whole(x, x_zero), _whole(w, w_zero, 0))


def _matmul_integer(
    a: Attributes, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    rows = x_zero.reshape(-1, 1) if x_zero is not None and x_zero.ndim == 1 and x_zero.size > 1 else x_zero
    return products.matmul({"to": "int32"}, _whole(x, rows), _whole(w, w_zero))


def _requantized(a: Attributes, sums: Array, factor: Array, zero: Array | None) -> Array:
    y = np.rint(numbers("QLinear", sums * factor, "its products")) + (0 if zero is None else zero.astype(np.int64))
    return array(np.clip(y, a["low"], a["high"]).astype(a["held"]))


def _qlinear_conv(a: Attributes, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
                  y_scale: Array, y_zero: Array, bias: Array | None = None) -> Array:  # fmt: skip
    sums = products.conv({**a, "to": "int64"}, _whole(x, x_zero), _whole(w, w_zero, 0), bias)
    factor = (x_scale * w_scale / y_scale).astype(np.float64)
    factor = factor.reshape(-1, *(1,) * (x.ndim - 2)) if factor.size > 1 else factor.reshape(())
    return _requantized(a, sums, factor, y_zero)


def _qlinear_matmul(a: Attributes, x: Array, x_scale: Array, x_zero: Array, w: Array, w_scale: Array, w_zero: Array,
                    y_scale: Array, y_zero: Array) -> Array:  # fmt: skip
    sums = products.matmul({"to": "int64"}, _whole(x, x_zero), _whole(w, w_zero))
    return _requantized(a, sums, (x_scale * w_scale / y_scale).astype(np.float64), y_zero)


def _quantize_linear(a: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    axis, block = a.get("axis", 1), a.get("block_size", 0)
    s = spread(scale, x.shape, axis, block).astype(np.float32 if x.dtype.kind != "f" else x.dtype)
    z = spread(zero, x.shape, axis, block).astype(np.int64) if zero is not None else 0
    y = np.rint(numbers("QuantizeLinear", x / s).astype(np.float64)) + z
    return array(np.clip(y, a["low"], a["high"]).astype(a["held"]))


def _dynamic_quantize_linear(a: Attributes, x: Array) -> tuple[Array, Array, Array]:
    """(clip(rint(x / scale) + zero, 0, 255), scale, zero), of the range of x and 0, as in ONNX's reference."""
    numbers("DynamicQuantizeLinear", x)
    high, low = np.maximum(np.float32(0), np.max(x)), np.minimum(np.float32(0), np.min(x))
    scale = np.float32(1.0 if high == low else high - low) / np.float32(255)
    zero = np.rint(max(np.float32(0), min(np.float32(255), np.float32(0) - low / scale)))
    y = np.clip(np.rint(numbers("DynamicQuantizeLinear", x / scale)) + zero, 0, 255)
    return y.astype(np.uint8), np.asarray(scale), np.asarray(zero.astype(np.uint8))


def _dequantize_linear(a: Attributes, x: Array, scale: Array, zero: Array | None = None) -> Array:
    axis, block = a.get("axis", 1), a.get("block_size", 0)
    s = spread(scale, x.shape, axis, block)
    z = spread(zero, x.shape, axis, block).astype(np.int64) if zero is not None else 0
    return array(((x.astype(np.int64) - z) * s.astype(np.float64)).astype(a["held"]))


def _linear_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    for s in shapes[1:3]:
        if s is not None:
            spread(np.broadcast_to(np.int8(0), s), shapes[0], a.get("axis", 1), a.get("block_size", 0))
    return [shapes[0]]


def _matmul_integer_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    at = [i for i in (2, 3) if i < len(shapes) and shapes[i] is not None]
    out: Shapes = products.matmul_shape(a, shapes[:2], constants[:2])
    x, w = shapes[:2]
    for i in at:
        most = x[-2] if i == 2 and len(x) > 1 else w[-1]
        if shapes[i] not in ((), (1,), (most,)) and np.broadcast_shapes(shapes[i], (x, w)[i - 2]) != (x, w)[i - 2]:
            raise ValueError(f"zero points {shapes[i]} do not fit {(x, w)[i - 2]}")
    return out


def _check_numbers(shapes: Shapes, one: tuple[int, ...], each: tuple[int, ...], outputs: int) -> None:
    """Raise ValueError unless operands are one number, or in the places `each` one for each output."""
    for i in (*one, *each):
        shape = shapes[i] if i < len(shapes) else None
        if shape is not None and math.prod(shape) != 1 and not (i in each and shape == (outputs,)):
            raise ValueError(f"operand {i}, of shape {shape}, must be one number{' for each output' * (i in each)}")


def _conv_integer_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    out: Shapes = products.conv_shape(a, shapes[:2], constants)
    _check_numbers(shapes, (2,), (3,), out[0][1])
    return out


def _qconv_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    out: Shapes = products.conv_shape(a, [shapes[0], shapes[3], *shapes[8:9]], [])
    _check_numbers(shapes, (1, 2, 6, 7), (4, 5), out[0][1])
    return out


_HELD = ("low", "high", "held")
OPERATORS = {
    "ConvInteger": Operator(run=_conv_integer, shape=_conv_integer_shape, dtype=always("int32"), gpu=False),
    "MatMulInteger": Operator(run=_matmul_integer, shape=_matmul_integer_shape, dtype=always("int32"), gpu=False),
    "QLinearConv": Operator(run=_qlinear_conv, shape=_qconv_shape, dtype=named("held"), needs=_HELD, gpu=False),
    "QLinearMatMul": Operator(
        run=_qlinear_matmul,
        shape=lambda a, s, c: products.matmul_shape(a, [s[0], s[3]], []),
        dtype=named("held"),
        needs=_HELD,
        gpu=False,
    ),
    "QuantizeLinear": Operator(run=_quantize_linear, shape=_linear_shape, dtype=named("held"), needs=_HELD),
    "DynamicQuantizeLinear": Operator(
        run=_dynamic_quantize_linear,
        shape=lambda a, s, c: [s[0], (), ()],
        dtype=always("uint8"),
        others=("float32", "uint8"),
        gpu=False,
    ),
    "DequantizeLinear": Operator(run=_dequantize_linear, shape=_linear_shape, dtype=named("held"), needs=("held",)),
}
