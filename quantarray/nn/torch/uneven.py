"""Products of codes or weights of uneven levels: one packed product with real constants, float32 out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...core.dtypes import Array, Constants, basis
from ...ops.creation.creation import from_codes
from .. import levels
from ..onnx.building import Builder
from ..onnx.laws import Constant, Operand, Shape, Tensor
from ..onnx.products import Weights, conv_arguments, operand, packed_weights
from ..onnx.reading import Step
from ..operators.windows import grid

_MOST = 1 << 26  # weights whose levels are looked for


class Right(NamedTuple):
    """A set of constant weights, outputs on axis 0 and packed on `axis`; `whole` where they are integers and scales."""

    value: Array
    whole: Weights | None
    axis: int


def product(b: Builder, op: str, attributes: dict[str, Any], x: Operand, w: Right, shape: Shape) -> Tensor | None:
    """Multiply codes by weights where the levels of one of them are uneven; None where an operand has no levels."""
    if not isinstance(x, Tensor) or x.dtype != np.float32 or 0 in shape or not w.value.size:
        return None
    pure = x.pure if x.pure is not None and x.pure.size == 1 else None
    if x.table is None and pure is None:
        return None
    name = (
        x.source.name if x.table is not None else operand(b, x.source, 1 if op.startswith("conv") else len(shape) - 1)
    )
    weight = None if name is None else _packed(w, 1.0 if pure is None else float(pure.reshape(())))
    if name is None or weight is None:
        return None
    names = [name, b.constant(weight, f"{b.hint}.weight")]
    if x.table is not None:
        names += ["", b.constant(x.table.astype(np.float32), f"{b.hint}.levels")]
    return b.value(b.emit(op, names, f"{b.hint}.sums", **attributes), shape, np.float32)


def convolution(b: Builder, step: Step, x: Operand, w: Right, shape: Shape) -> Tensor | None:
    """Convolve as `product` multiplies, images of one to three axes."""
    if x is None or not 3 <= len(shape) <= 5:
        return None
    groups = step.attributes.get("group", 1)
    windows = grid(step.attributes, x.shape[2:], w.value.shape[2:])
    depthwise = groups > 1 and groups == x.shape[1]
    right = w._replace(axis=0 if depthwise else 1)
    return product(b, f"conv{len(shape) - 2}d", conv_arguments(step.attributes, windows), x, right, shape)


def right_of(w: Constant, axis: int, whole: Weights | None) -> Right:
    """Return constant weights whose outputs are on `axis`."""
    return Right(np.moveaxis(w.value, axis, 0), whole, 1)


def _packed(w: Right, factor: float) -> Any:
    """Pack weights times a number: integers with scales, or a basis for each output; None where they have neither."""
    outputs, ones = len(w.value), (1,) * (w.value.ndim - 1)
    if w.whole is not None:
        q = packed_weights(w.whole.integers, w.axis)
        if q is None:
            return None
        scale = (np.broadcast_to(w.whole.scale.reshape(-1), outputs) * factor).astype(np.float32)
        return QuantArray(q.words, q.dtype, q.shape, q.axis, Constants(scale.reshape(outputs, *ones)))
    if w.value.size > _MOST or not np.isfinite(w.value).all():
        return None
    fitted = levels.weights(w.value.reshape(outputs, -1))
    if fitted is None:
        return None
    codes, v, offset = fitted
    scale = (v * factor).astype(np.float32).reshape(len(v), outputs, *ones)
    start = (offset * factor).astype(np.float32).reshape(outputs, *ones)
    return from_codes(codes.reshape(w.value.shape), basis(len(v)), w.axis, scale=scale, offset=start)
