"""Products: packed where both operands are integers times a scale, in NumPy otherwise, exact on integers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array, integers
from ...ops.creation.creation import from_codes
from ..operators.windows import Windows, grid
from .building import Builder
from .laws import Constant, Link, Operand, Shape, Source, Tensor, check_dtypes, scaling
from .reading import Step
from .tensors import Refused

_MOST_SUM = 2**62
_FLOATS = 2**53
_MOST_WEIGHTS = 256  # levels of packed weights
_FEW_CHANNELS = 4  # of images of bytes


class Weights(NamedTuple):
    """A constant's integers, outputs on axis 0, with one scale for all or one for each output."""

    integers: Array
    scale: Array


def weights_of(w: Operand, axis: int) -> Weights | None:
    """Return integers and scale of constant weights whose outputs are on `axis`; None if they have none."""
    if not isinstance(w, Constant):
        return None
    whole, scale = w.integers, w.scale
    if w.value.dtype.kind == "f" and not np.isfinite(w.value).all():
        raise Refused("its weights hold a NaN or an infinity")
    if whole is None or scale is None:
        if w.value.dtype.kind == "f" and (w.value.size == 0 or not _few_integers(w.value)):
            return None
        whole, scale = w.value.astype(np.int64), np.ones(())
    if scale.size > 1:
        wide = np.broadcast_to(scale, np.broadcast_shapes(scale.shape, (1,) * whole.ndim))
        if any(n > 1 for i, n in enumerate(wide.shape) if i != axis):
            return None
        scale = wide.reshape(-1)
    else:
        scale = scale.reshape(())
    return Weights(np.moveaxis(whole, axis, 0), scale)


def _few_integers(a: Array) -> bool:
    return bool(np.isfinite(a).all() and (a == np.rint(a)).all() and a.max() - a.min() < _MOST_WEIGHTS)


def packed_weights(w: Array, axis: int) -> Any:
    """Pack integers on `axis` as a QuantArray; None if they span more than 256 even levels."""
    low, high = int(w.min()), int(w.max())
    step = int(np.gcd.reduce(w - low, axis=None)) or 1
    if (high - low) // step >= _MOST_WEIGHTS:
        return None
    if step > 1 and high - low > 2:  # odd ones, as DoReFa has them, take a bit less
        return from_codes(((w - low) // step).astype(np.uint8), integers(range(low, high + 1, step)), axis)
    if low == -1 and high == 1 and not (w == 0).any():
        return from_codes((w > 0).astype(np.uint8), integers(-1, 1), axis)
    high = max(high, low + 1)
    count = 1 << (high - low).bit_length()
    if low >= -(count // 2) and high < count // 2 and high - low > 2:
        low, high = -(count // 2), count // 2 - 1  # a dtype of whole bits, which has kernels of its own
    return from_codes((w - low).astype(np.uint8), integers(range(low, high + 1)), axis)


def summed(source: Source, w: Array, extra: int = 0) -> tuple[int, int]:
    """Bound the sums of products of the source's integers and rows of w, with padding as 0, widened by `extra`."""
    low, high = source.bounds
    flat = w.reshape(len(w), -1).astype(np.float64)
    up, down = np.maximum(flat, 0).sum(axis=1), np.minimum(flat, 0).sum(axis=1)
    top = float((max(high, 0) * up + min(low, 0) * down).max(initial=0)) + extra
    bottom = float((min(low, 0) * up + max(high, 0) * down).min(initial=0)) - extra
    if max(top, -bottom) >= _MOST_SUM:
        raise Refused("its sums may pass 64 bits")
    return int(bottom), int(top)


def operand(b: Builder, source: Source, axis: int) -> str | None:
    """Return the source as packed products take it: codes, bytes, or packed on `axis`; None if it is too wide."""
    if source.levels is not None or source.dtype in (np.int8, np.uint8):
        return source.name
    low, high = source.bounds
    if high - low >= 256:
        return None
    if high - low > 15 and ((low >= -128 and high < 128) or (low >= 0 and high < 256)):
        return b.emit("Cast", [source.name], f"{source.name}.bytes", to="int8" if low < 0 else "uint8")
    high = max(high, low + 1)
    return b.emit(
        "pack", [source.name], f"{source.name}.packed", levels=tuple(range(low, high + 1)), shift=0, axis=axis
    )


def _integer_product(
    b: Builder, x: Operand, w: Weights, axis: int, op: str, packed: dict[str, Any] | None, plain: dict[str, Any],
    shape: Shape,
) -> Source | None:  # fmt: skip
    """Sum products of integers by the packed operation, or else by NumPy; None if x has no integers."""
    if not isinstance(x, Tensor) or x.pure is None or x.pure.size > 1 or not w.integers.size or 0 in shape:
        return None
    low, high = summed(x.source, w.integers)
    weight, name = packed_weights(w.integers, 0 if op == "depthwise" else 1), None
    small = -(2**31) < low and high < 2**31
    if packed is not None and weight is not None and small:
        name = operand(b, x.source, axis)
    if packed is not None and name is not None:
        op = op if op == "linear" else f"conv{len(shape) - 2}d"
        dense, zero = b.packed.get(x.source.name, (x.source, 0))
        of_bytes = zero and dense.dtype in (np.int8, np.uint8)
        if op != "linear" and of_bytes and packed["groups"] == 1 and x.shape[1] <= _FEW_CHANNELS:
            name, packed = dense.name, {**packed, "zero": zero}  # as bytes: packed pixels would be mostly empty
        out = b.emit(op, [name, b.constant(weight, f"{b.hint}.weight")], f"{b.hint}.sums", **(packed or {}))
        return Source(out, shape, np.dtype(np.int32), None, low, high)
    matrix = w.integers.T if op == "linear" else w.integers
    held = np.dtype(np.int32 if small else np.int64)
    names = [b.integers(x), b.constant(np.ascontiguousarray(matrix), f"{b.hint}.weight")]
    out = b.emit("MatMul" if op == "linear" else "Conv", names, f"{b.hint}.sums", **plain, to=str(held))
    return Source(out, shape, held, None, low, high)


def product(
    b: Builder, x: Operand, w: Weights | None, axis: int, op: str, packed: dict[str, Any] | None,
    plain: dict[str, Any], shape: Shape, dtype: Any,
) -> Tensor | None:  # fmt: skip
    """x times w as integers and a scale; None where one of them has none."""
    source = _integer_product(b, x, w, axis, op, packed, plain, shape) if w is not None else None
    if source is None or w is None or not isinstance(x, Tensor) or x.pure is None:
        return None
    at = 1 if axis == 1 else len(shape) - 1
    scale = x.pure.reshape(()) * (w.scale if w.scale.ndim == 0 else w.scale.reshape(-1, *(1,) * (len(shape) - at - 1)))
    if np.dtype(dtype).kind != "f":
        return Tensor(shape, np.dtype(dtype), source) if (scale == 1).all() else None
    return Tensor(shape, np.dtype(dtype), source, (scaling(scale, np.dtype(dtype)),))


def _matmul(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    check_dtypes(operands)
    x, w = operands[:2]
    check_batch(b, x, w)
    assert x is not None and w is not None
    if isinstance(w, Constant) and len(w.shape) == 2 and len(x.shape) >= 2:
        out = product(b, x, weights_of(w, 1), len(x.shape) - 1, "linear", {}, {}, shapes[0], x.dtype)
        if out is not None:
            return [out]
    both = exact_pair(b, x, w)
    if both is not None:
        source, scale = both(shapes[0])
        return [Tensor(shapes[0], x.dtype, source, (scaling(scale, x.dtype),) if x.dtype.kind == "f" else ())]
    return [*b.numpy(step._replace(op="MatMul", attributes={}), operands[:2], shapes, x.dtype)]


def check_batch(b: Builder, x: Operand, w: Operand) -> None:
    """Raise NotPerSample if a matrix product sums over the batch, or has it in the wrong place."""
    assert x is not None and w is not None
    if isinstance(x, Constant):
        b.per_sample(
            len(w.shape) >= 3 and len(x.shape) <= len(w.shape) and (len(x.shape) < len(w.shape) or x.shape[0] == 1)
        )
    elif isinstance(w, Constant):
        b.per_sample(len(x.shape) >= 2 and (len(w.shape) <= 2 or (len(w.shape) == len(x.shape) and w.shape[0] == 1)))
    else:
        b.per_sample(len(x.shape) == len(w.shape) >= 3)


def exact_pair(b: Builder, x: Operand, w: Operand) -> Any:
    """Return a function that multiplies two integer values by NumPy in int64; None if that is not exact."""
    if not isinstance(x, Tensor) or not isinstance(w, Tensor) or x.pure is None or w.pure is None:
        return None
    if x.pure.size > 1 or w.pure.size > 1 or x.dtype != w.dtype:
        return None
    most = max(map(abs, x.source.bounds)) * max(map(abs, w.source.bounds)) * x.shape[-1]
    if most >= _FLOATS:
        return None
    left, right, scale = x, w, x.pure * w.pure

    def multiply(shape: Shape) -> tuple[Source, Array]:
        name = b.emit("MatMul", [b.integers(left), b.integers(right)], f"{b.hint}.sums", to="int64")
        return Source(name, shape, np.dtype(np.int64), None, -most, most), scale

    return multiply


def conv_arguments(a: dict[str, Any], windows: Windows) -> dict[str, Any]:
    """Return the arguments of a packed convolution for these windows."""
    return {
        "stride": windows.strides,
        "padding": windows.counted,
        "dilation": windows.dilations,
        "groups": a.get("group", 1),
    }


def integer_conv(b: Builder, step: Step, x: Operand, w: Weights | None, shape: Shape, dtype: Any) -> Tensor | None:
    """Convolve integers, packed if the image has one to three axes; None if x or w has no integers."""
    if w is None or x is None:
        return None
    a = {name: v for name, v in step.attributes.items() if name in _CONV}
    groups, packed = a.get("group", 1), None
    windows = grid(a, x.shape[2:], w.integers.shape[2:])
    if len(shape) <= 5:
        packed = conv_arguments(a, windows)
    depthwise = groups > 1 and groups == x.shape[1]
    return product(b, x, w, 1, "depthwise" if depthwise else "conv", packed, a, shape, dtype)


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _conv(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    check_dtypes(operands)
    x, w, bias = [*operands, None][:3]
    assert x is not None
    b.per_sample(isinstance(x, Tensor) and not isinstance(w, Tensor))
    out: Tensor | None = integer_conv(b, step, x, weights_of(w, 0), shapes[0], x.dtype)
    if out is None:
        out = b.numpy(step, operands[:2], shapes, x.dtype)[0]
    if bias is None:
        return [out]
    if not isinstance(bias, Constant):
        return [*b.numpy(step, operands, shapes, x.dtype)]
    column = bias.value.reshape(-1, *(1,) * (len(shapes[0]) - 2))
    return [out.then(Link("Add", {}, (None, column)))]


def _gemm(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    check_dtypes(operands)
    x, w, c = [*operands, None][:3]
    a = step.attributes
    assert x is not None and w is not None
    if isinstance(x, Tensor) and isinstance(w, Constant) and not a.get("transA") and x.dtype.kind == "f":
        matrix = transposed(w, (1, 0)) if a.get("transB") else w
        y = _matmul(b, step, [x, matrix], shapes)[0]
        assert isinstance(y, Tensor)
        if a.get("alpha", 1.0) != 1:
            y = y.then(Link("Mul", {}, (None, np.array(a["alpha"], y.dtype))))
        if c is None:
            return [y]
        if isinstance(c, Constant):
            b.per_sample(len(c.shape) < 2 or c.shape[0] == 1)
            value = c.value if a.get("beta", 1.0) == 1 else c.value * c.dtype.type(a["beta"])
            return [y.then(Link("Add", {}, (None, value)))]
    b.per_sample(isinstance(x, Tensor) and isinstance(w, Constant) and not a.get("transA") and c is None)
    return [*b.numpy(step, operands, shapes, x.dtype)]


def transposed(w: Constant, perm: tuple[int, ...]) -> Constant:
    """Permute the axes of a constant, of its integers and of its scale."""
    value = w.value.transpose(perm)
    if w.integers is None or w.scale is None:
        return Constant(value)
    scale = w.scale
    if scale.size > 1:
        scale = scale.reshape((1,) * (w.value.ndim - scale.ndim) + scale.shape).transpose(perm)
    return Constant(value, w.integers.transpose(perm), scale)


def _batch_norm(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = operands[0]
    if step.attributes.get("training_mode") or len([o for o in step.outputs if o]) > 1:
        raise Refused("it computes batch statistics (training mode), which depend on the batch")
    rest = operands[1:5]
    if isinstance(rest[3], Constant) and not (rest[3].value + step.attributes.get("epsilon", 1e-5) > 0).all():
        raise Refused("its variance plus epsilon must be positive")
    if isinstance(x, Tensor) and all(isinstance(c, Constant) for c in rest) and x.dtype.kind == "f":
        values = tuple(c.value for c in rest if isinstance(c, Constant))
        attributes = {"epsilon": step.attributes.get("epsilon", 1e-5), "rank": len(x.shape)}
        return [x.then(Link("BatchNormalization", attributes, (None, *values)))]
    b.per_sample(all(isinstance(c, Constant) for c in rest))
    assert x is not None
    return [*b.numpy(step, operands[:5], shapes, x.dtype)]


LOWER = {"MatMul": _matmul, "Conv": _conv, "Gemm": _gemm, "BatchNormalization": _batch_norm}
