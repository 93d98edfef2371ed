"""ONNX's products of integers with zero points: ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators import OPERATORS
from .building import Builder
from .laws import Constant, Link, Operand, Shape, Source, Tensor, scaling
from .products import Weights, check_batch, integer_conv, product, summed
from .quantizers import minus
from .reading import Step
from .tensors import Refused

_INT32 = np.dtype(np.int32)


def _zero(c: Operand) -> Array:
    return c.value.astype(np.int64) if isinstance(c, Constant) else np.zeros((), np.int64)


def _shifted(b: Builder, x: Operand, zero: Operand) -> Tensor | None:
    """x minus its zero point as integers of no scale; None where it is none, or the zero point is not one number."""
    if not isinstance(x, Tensor) or x.chain or not x.source.whole or isinstance(zero, Tensor) or _zero(zero).size != 1:
        return None
    source = minus(b, x, int(_zero(zero).reshape(())))
    return None if source is None else Tensor(x.shape, _INT32, source)


def _weights(w: Operand, zero: Operand, axis: int) -> Weights | None:
    """Subtract zero points from constant integers and move the outputs to axis 0; None if either is not constant."""
    if not isinstance(w, Constant) or isinstance(zero, Tensor) or w.value.ndim < 2:
        return None
    z = _zero(zero)
    whole = np.moveaxis(w.value.astype(np.int64), axis, 0)
    if z.size == 1:
        return Weights(whole - z.reshape(()), np.ones(()))
    if z.size != len(whole):
        raise Refused(f"{z.size} zero points for {len(whole)} outputs")
    return Weights(whole - z.reshape(-1, *(1,) * (whole.ndim - 1)), np.ones(()))


def _conv_sums(b: Builder, step: Step, x: Operand, w: Operand, zeros: tuple[Operand, Operand], shape: Shape) -> Any:
    if isinstance(w, Constant):
        b.per_sample(isinstance(x, Tensor))
        values = _shifted(b, x, zeros[0])
        return integer_conv(b, step, values, _weights(w, zeros[1], 0), shape, _INT32)
    return None


def _matmul_sums(b: Builder, x: Operand, w: Operand, zeros: tuple[Operand, Operand], shape: Shape) -> Any:
    check_batch(b, x, w)
    if x is not None and isinstance(w, Constant) and w.value.ndim == 2 and len(x.shape) >= 2:
        values, weights = _shifted(b, x, zeros[0]), _weights(w, zeros[1], 1)
        return product(b, values, weights, len(x.shape) - 1, "linear", {}, {}, shape, _INT32)
    return None


def _sums(b: Builder, step: Step, x: Operand, w: Operand, zeros: tuple[Operand, Operand], shape: Shape) -> Any:
    if step.op in ("ConvInteger", "QLinearConv"):
        return _conv_sums(b, step, x, w, zeros, shape)
    return _matmul_sums(b, x, w, zeros, shape)


def _of_computed_zero(b: Builder, step: Step, operands: list[Operand], shape: Shape) -> Tensor | None:
    """Multiply integers without their zero point, and subtract that times the product of ones, a constant.

    So dynamic quantisation runs on bytes. None if the zero point is no computed number, or the sums pass 32 bits.
    """
    x, w, zero, w_zero = [*operands, None, None][:4]
    weights = _weights(w, w_zero, 0 if step.op == "ConvInteger" else 1)
    if not isinstance(x, Tensor) or not isinstance(zero, Tensor) or weights is None or math.prod(zero.shape) != 1:
        return None
    if x.chain or zero.chain or not x.source.whole or not zero.source.whole:
        return None
    (low, high), (least, most) = x.source.bounds, zero.source.bounds
    ends = summed(replace(x.source, low=min(low, low - most), high=max(high, high - least)), weights.integers)
    if max(-ends[0], ends[1]) >= 2**31:
        return None
    sums = _sums(b, step, x, w, (None, w_zero), shape)
    if sums is None:
        return None
    b.per_sample(False)
    ones = np.ones((1, *x.shape[1:]) if step.op == "ConvInteger" else (1, x.shape[-1]), np.int8)
    b.check_fold([shape[1:]])
    value = w.value if isinstance(w, Constant) else None
    of_ones = OPERATORS[step.op].run(step.attributes, ones, value, None, _zero(w_zero))
    number = b.emit("Reshape", [b.integer_value(zero, _INT32).source.name], f"{b.hint}.zero", shape=())
    part = b.emit("Mul", [number, b.constant(of_ones, f"{b.hint}.ones")], f"{b.hint}.shift")
    name = b.emit("Sub", [sums.source.name, part], f"{b.hint}.shifted")
    return Tensor(shape, _INT32, Source(name, shape, _INT32, None, *ends))


def _integer(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, w, *zeros = [*operands, None, None][:4]
    out = _of_computed_zero(b, step, operands, shapes[0]) or _sums(b, step, x, w, (zeros[0], zeros[1]), shapes[0])
    if out is not None:
        return [out]
    b.per_sample(isinstance(x, Tensor) and all(not isinstance(c, Tensor) for c in operands[1:]))
    return [*b.numpy(step, operands, shapes, _INT32)]


def _qlinear(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = [*operands, None][:9]
    held, sums = np.dtype(step.attributes["held"]), None
    params = (x_scale, w_scale, y_scale, y_zero)
    if all(isinstance(c, Constant) for c in params) and not isinstance(bias, Tensor):
        sums = _sums(b, step, x, w, (x_zero, w_zero), shapes[0])
    if sums is None:
        b.per_sample(isinstance(x, Tensor) and all(not isinstance(c, Tensor) for c in operands[1:]))
        return [*b.numpy(step, operands, shapes, held)]
    scales = [c.value for c in (x_scale, w_scale, y_scale) if isinstance(c, Constant)]
    factor = (scales[0] * scales[1] / scales[2]).astype(np.float64)
    if not (np.isfinite(factor).all() and (factor != 0).all()) or scales[0].size != 1 or scales[2].size != 1:
        raise Refused("its scales must be finite and not 0, and those of x and y one number")
    ones = (1,) * (len(shapes[0]) - 2) if step.op == "QLinearConv" else ()
    factor = factor.reshape(-1, *ones) if factor.size > 1 else factor.reshape(())
    double = np.dtype(np.float64)
    y = replace(sums, dtype=double, chain=(scaling(1.0, double),))
    if isinstance(bias, Constant):
        y = y.then(Link("Add", {}, (None, bias.value.astype(np.float64).reshape(-1, *ones))))
    y = y.then(Link("Mul", {}, (None, factor)))
    low, high = step.attributes["low"], step.attributes["high"]
    last = Link("quantize_linear", {"low": low, "high": high, "to": "int64"}, (None, np.ones(()), _zero(y_zero)))
    return [b.quantised(y, last, range(low, high + 1), 0, (), held)]


LOWER = {"ConvInteger": _integer, "MatMulInteger": _integer, "QLinearConv": _qlinear, "QLinearMatMul": _qlinear}
