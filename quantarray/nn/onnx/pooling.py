"""Pools, and operators along axes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.dtypes import uint1
from ...ops.creation.creation import from_codes
from ..operators.movement import axis_of
from ..operators.pooling import counts
from ..operators.windows import grid
from .building import Builder, packed_pool
from .laws import Constant, Link, Operand, Shape, Source, Tensor, check_dtypes, scaling
from .reading import Step
from .tensors import Refused

_MOST_COUNTS = 1 << 22  # elements of an image that windows at its edge are counted for


def _max_pool(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, a = operands[0], step.attributes
    assert isinstance(x, Tensor)
    if len(shapes) > 1:
        b.per_sample(False)  # indices count through the batch
        out = b.numpy(step, operands, shapes, [x.dtype, np.dtype(np.int64)])
        return [*out]
    scale = x.pure
    if scale is not None and (scale > 0).all() and by_channel(scale, len(x.shape)):
        return [replace(x, shape=shapes[0], source=b.pooled(x.source, a))]
    if x.dtype.kind == "f" and x.chain:
        return [x.then(Link("MaxPool", a, (None,)), shapes[0])]
    packed = packed_pool(a, x.shape)
    if packed is not None:
        return [b.value(b.emit(f"max_pool{len(x.shape) - 2}d", [b.dense(x)], b.hint, **packed), shapes[0], x.dtype)]
    return [*b.numpy(step, operands, shapes, x.dtype)]


def by_channel(scale: Any, ndim: int) -> bool:
    """Return True if a scale differs at most between channels, so that it is the same in every place of a window."""
    lead = ndim - scale.ndim
    return all(n == 1 or lead + i == 1 for i, n in enumerate(scale.shape))


def _average_pool(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, a = operands[0], dict(step.attributes)
    assert isinstance(x, Tensor)
    if step.op == "GlobalAveragePool":
        a = {"kernel_shape": x.shape[2:]}
    scale = x.pure
    if scale is None or scale.size > 1 or x.dtype.kind != "f":
        return [*b.numpy(step, operands, shapes, x.dtype)]
    taps = math.prod(a["kernel_shape"])
    low, high = (n * taps for n in x.source.bounds)
    if max(-low, high) >= 2**53 or (math.prod(x.shape[2:]) > _MOST_COUNTS and any(a.get("pads") or (1,))):
        return [*b.numpy(step, operands, shapes, x.dtype)]
    source = _sums(b, x, a, shapes[0], (min(low, 0), max(high, 0)))
    inside = counts(a, x.shape[2:])
    if (inside == inside.reshape(-1)[0]).all():
        return [Tensor(shapes[0], x.dtype, source, (scaling(scale / inside.reshape(-1)[0], x.dtype),))]
    return [Tensor(shapes[0], x.dtype, source, (scaling(scale / inside, x.dtype),))]


def _sums(b: Builder, x: Tensor, a: dict[str, Any], shape: Shape, bounds: tuple[int, int]) -> Source:
    """Sum the integers of each window: codes by a depthwise convolution with weights of 1, others by NumPy."""
    channels, axes, kernel = x.shape[1], len(shape) - 2, tuple(a["kernel_shape"])
    if x.source.levels is None or axes > 3 or not channels or max(-bounds[0], bounds[1]) >= 2**31:
        name = b.emit("sum_pool", [b.integers(x)], f"{b.hint}.sums", **a)
        return Source(name, shape, np.dtype(np.int64), None, *bounds)
    windows = grid(a, x.shape[2:], kernel)
    ones = from_codes(np.ones((channels, 1, *kernel), np.uint8), uint1, axis=0)
    how: dict[str, Any] = {"stride": windows.strides, "padding": windows.pads, "dilation": windows.dilations}
    name = b.emit(
        f"conv{axes}d", [x.source.name, b.constant(ones, f"{b.hint}.ones")], f"{b.hint}.sums", **how, groups=channels
    )
    return Source(name, shape, np.dtype(np.int32), None, *bounds)


def _global_max(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = operands[0]
    assert isinstance(x, Tensor)
    return _max_pool(b, step._replace(op="MaxPool", attributes={"kernel_shape": x.shape[2:]}), operands, shapes)


def _along(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert Softmax, ArgMax or a reduction to NumPy; ArgMax of integers times a positive scale takes the integers."""
    x, a = operands[0], step.attributes
    assert isinstance(x, Tensor)
    if any(isinstance(y, Tensor) for y in operands[1:]):
        raise Refused("its axes must be a constant")
    axes: Any = a.get("axis", -1 if step.op == "Softmax" else 0)
    if step.op.startswith("Reduce"):
        second = operands[1] if len(operands) > 1 else None
        axes = second.value if isinstance(second, Constant) else a.get("axes", ())
        b.per_sample(np.asarray(axes).size > 0 or bool(a.get("noop_with_empty_axes")))
    at = [axis_of(int(i), len(x.shape)) for i in np.asarray(axes).reshape(-1)]
    b.per_sample(0 not in at)
    if step.op in ("ArgMax", "ArgMin"):
        if x.pure is not None and x.pure.size == 1 and (x.pure > 0).all():
            name = b.emit(step.op, [b.integers(x)], b.hint, **a)
            return [b.value(name, shapes[0], np.int64)]
        return [*b.numpy(step, operands, shapes, np.int64)]
    return [*b.numpy(step, operands, shapes, x.dtype)]


def _top(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert TopK to NumPy, on the values: unequal integers may be equal once they are multiplied by a scale."""
    x = operands[0]
    assert isinstance(x, Tensor)
    b.per_sample(axis_of(step.attributes.get("axis", -1), len(x.shape)) != 0)
    return [*b.numpy(step, operands, shapes, [x.dtype, np.dtype(np.int64)])]


def _layer_norm(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert a layer norm to NumPy; its scale and bias may be computed values."""
    x = operands[0]
    assert x is not None
    check_dtypes(operands)
    if x.dtype.kind != "f":
        raise Refused(f"it normalises {x.dtype}, not floats")
    b.per_sample(isinstance(x, Tensor) and axis_of(step.attributes.get("axis", -1), len(x.shape)) > 0)
    for y in operands[1:]:
        if isinstance(y, Tensor):
            b.per_sample(len(y.shape) == len(x.shape))
        elif y is not None:
            b.per_sample(len(y.shape) < len(x.shape) or y.shape[0] == 1)
    kinds = [x.dtype, *[np.dtype(np.float32)] * (len(shapes) - 1)]
    results = iter(b.numpy(step._replace(outputs=tuple(filter(None, step.outputs))), operands, shapes, kinds))
    return [next(results) if name else None for name in step.outputs]


LOWER: dict[str, Any] = {
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _average_pool,
    "GlobalMaxPool": _global_max,
    **dict.fromkeys("Softmax ArgMax ArgMin ReduceMean ReduceSum ReduceMax ReduceMin".split(), _along),
    "TopK": _top,
    "LayerNormalization": _layer_norm,
}
