"""Operators along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.registry import contiguous
from ...core.dtypes import Array
from .movement import axes_of, axis_of
from .record import Attributes, Constants, Operator, Shapes, always, array


def _softmax(a: Attributes, x: Array) -> Array:
    """exp(x) / sum(exp(x)) along an axis; before opset 13, along all axes from one on."""
    shape, axis = x.shape, axis_of(a.get("axis", -1), x.ndim)
    wide = x.astype(np.float64, order="C")
    if a.get("flat"):
        wide, axis = wide.reshape(int(np.prod(shape[:axis])), -1), 1
    e = np.exp(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf))
    return array((e / e.sum(axis=axis, keepdims=True)).reshape(shape).astype(x.dtype))


LAYER_NORM = "Y", "Mean", "InvStdDev"  # its results, in ONNX's order


def _layer_norm(a: Attributes, x: Array, scale: Array, bias: Array | None = None) -> Array | tuple[Array, ...]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, with the statistics of all axes from `axis` on.

    `gives` names the results: y, and the mean and 1 / sqrt(variance + epsilon) in float32, with axes of length 1.
    Statistics of float16 are computed in float32, as ONNX's stash_type 1 says; its reference evaluator has float16.
    """
    at = axis_of(a.get("axis", -1), x.ndim)
    lead = x.shape[:at]
    rows = contiguous(x).reshape(math.prod(lead), math.prod(x.shape[at:]))
    rows = rows.astype(np.result_type(x.dtype, np.float32), copy=False)
    count, epsilon = rows.shape[1], float(np.float32(a.get("epsilon", 1e-5)))  # files hold epsilon in float32
    mean = rows.sum(axis=1, keepdims=True) / count
    centred = rows - mean
    variance = (centred * centred).sum(axis=1, keepdims=True) / count
    inverse = np.reciprocal(np.sqrt(variance + epsilon))
    y = (centred * inverse).astype(x.dtype, copy=False).reshape(x.shape) * scale
    y = y if bias is None else y + bias
    each = (*lead, *(1,) * (x.ndim - at))
    results = dict(zip(LAYER_NORM, (y, *(s.reshape(each).astype(np.float32) for s in (mean, inverse))), strict=True))
    wanted = tuple(results[name] for name in a.get("gives", LAYER_NORM[:1]))
    return wanted if len(wanted) > 1 else wanted[0]


def _extreme(a: Attributes, x: Array, largest: bool) -> Array:
    axis = axis_of(a.get("axis", 0), x.ndim)
    pick = np.argmax if largest else np.argmin
    if a.get("select_last_index"):
        at = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis)
    else:
        at = pick(x, axis=axis)
    return array(np.expand_dims(at, axis) if a.get("keepdims", 1) else at)


def _top(a: Attributes, x: Array, k: Array) -> tuple[Array, Array]:
    """Return the k largest or smallest elements along an axis in order, and their places; of equal ones the first.

    A NaN counts as larger than any number.
    """
    axis = axis_of(a.get("axis", -1), x.ndim)
    n, largest = x.shape[axis], a.get("largest", 1)
    at = np.argsort(np.flip(x, axis) if largest else x, axis=axis, kind="stable")
    if largest:
        at = n - 1 - np.flip(at, axis)
    at = np.take(at, np.arange(count_of(k, n)), axis=axis)
    return np.take_along_axis(x, at, axis=axis), at.astype(np.int64, copy=False)


def count_of(k: Any, length: int) -> int:
    """Return k, a number of elements of an axis; raise ValueError if it is none."""
    a = np.asarray(k)
    if a.dtype.kind not in "iu" or a.size != 1 or not 0 <= int(a.reshape(())) <= length:
        raise ValueError(f"k must be one integer from 0 to {length}, got {a.tolist()!r:.80}")
    return int(a.reshape(()))


def _axes(a: Attributes, ndim: int, axes: Any) -> tuple[int, ...]:
    listed = a.get("axes") if axes is None else axes
    if listed is None or not np.asarray(listed).size:
        return () if a.get("noop_with_empty_axes") else tuple(range(ndim))
    return axes_of(listed, ndim)


def _reduce(f: Callable[..., Array]) -> Callable[..., Array]:
    """Return an operator that reduces axes in C order, so that sums of floats depend on no order in memory."""

    def run(a: Attributes, x: Array, axes: Array | None = None) -> Array:
        at, keep = _axes(a, x.ndim, axes), bool(a.get("keepdims", 1))
        return array(f(contiguous(x), axis=at, keepdims=keep)).astype(x.dtype, copy=False)

    return run


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], keep: Any) -> tuple[int, ...]:
    if keep:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def _softmax_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    axis_of(a.get("axis", -1), len(shapes[0]))
    return [shapes[0]]


def _layer_norm_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x, *others = shapes
    at, gives = axis_of(a.get("axis", -1), len(x)), tuple(a.get("gives", LAYER_NORM[:1]))
    if gives not in (LAYER_NORM[:1], LAYER_NORM[:2], LAYER_NORM[::2], LAYER_NORM):
        raise ValueError(f"its results {gives} must be Y, and Mean and InvStdDev where they are needed")
    if any(s is not None and np.broadcast_shapes(x, s) != x for s in others):
        raise ValueError(f"scale and bias {others} must broadcast to {x}")
    return [x, *[(*x[:at], *(1,) * (len(x) - at))] * (len(gives) - 1)]


def _extreme_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    axis = axis_of(a.get("axis", 0), len(shapes[0]))
    if not shapes[0] or shapes[0][axis] == 0:
        raise ValueError(f"axis {axis} of {shapes[0]} has no element")
    return [_reduced(shapes[0], (axis,), a.get("keepdims", 1))]


def _top_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x = shapes[0]
    if not x:
        raise ValueError("a number has no axis")
    axis = axis_of(a.get("axis", -1), len(x))
    return [(*x[:axis], count_of(constants[1], x[axis]), *x[axis + 1 :])] * 2


def _reduce_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    axes = constants[1] if len(constants) > 1 else None
    return [_reduced(shapes[0], _axes(a, len(shapes[0]), axes), a.get("keepdims", 1))]


OPERATORS = {
    "Softmax": Operator(run=_softmax, shape=_softmax_shape),
    "LayerNormalization": Operator(run=_layer_norm, shape=_layer_norm_shape, others=("float32", "float32"), gpu=False),
    "ArgMax": Operator(run=lambda a, x: _extreme(a, x, True), shape=_extreme_shape, dtype=always("int64")),
    "ArgMin": Operator(run=lambda a, x: _extreme(a, x, False), shape=_extreme_shape, dtype=always("int64")),
    "TopK": Operator(run=_top, shape=_top_shape, others=("int64",), gpu=False),
    "ReduceMean": Operator(run=_reduce(np.mean), shape=_reduce_shape, host=(1,)),
    "ReduceSum": Operator(run=_reduce(np.sum), shape=_reduce_shape, host=(1,)),
    "ReduceMax": Operator(run=_reduce(np.max), shape=_reduce_shape, host=(1,)),
    "ReduceMin": Operator(run=_reduce(np.min), shape=_reduce_shape, host=(1,)),
}
