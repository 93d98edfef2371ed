"""Operators that move elements."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np

from ...backends.registry import contiguous, device_of, empty, kernel
from ...core.dtypes import Array
from .record import Attributes, Constants, Operator, Shapes, always, array, common, of_first


def order_in_memory(x: Array) -> tuple[int, ...]:
    """Return the axes of an array in order of memory, the one of the largest stride first."""
    return tuple(sorted(range(x.ndim), key=lambda d: (-x.strides[d], d)))


def axis_of(axis: int, ndim: int) -> int:
    """Return the axis counted from the front; raise ValueError if there is none."""
    if not -ndim <= axis < max(ndim, 1):
        raise ValueError(f"axis {axis} is not one of {ndim}")
    return axis % max(ndim, 1)


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front; raise ValueError if one does not exist or is named twice."""
    listed = tuple(axis_of(int(i), ndim) for i in np.asarray(axes).reshape(-1))
    if len(set(listed)) < len(listed):
        raise ValueError(f"axes {listed} name one of them twice")
    return listed


def reshaped(shape: tuple[int, ...], target: Any, allowzero: int = 0) -> tuple[int, ...]:
    """Return the shape that Reshape gives: 0 copies a length, -1 takes the remaining elements."""
    lengths = [int(n) for n in np.asarray(target).reshape(-1)]
    if not allowzero:
        if any(n == 0 and i >= len(shape) for i, n in enumerate(lengths)):
            raise ValueError(f"shape {lengths} copies an axis that {shape} lacks")
        lengths = [shape[i] if n == 0 else n for i, n in enumerate(lengths)]
    rest = math.prod(n for n in lengths if n != -1)
    if lengths.count(-1) > 1 or any(n < -1 for n in lengths):
        raise ValueError(f"shape {lengths} is none")
    if -1 in lengths:
        if rest == 0 or math.prod(shape) % rest:
            raise ValueError(f"{shape} cannot be reshaped to {lengths}")
        lengths[lengths.index(-1)] = math.prod(shape) // rest
    if math.prod(lengths) != math.prod(shape):
        raise ValueError(f"{shape} cannot be reshaped to {lengths}")
    return tuple(lengths)


def _reshape(a: Attributes, x: Array, shape: Array | None = None) -> Array:
    return x.reshape(reshaped(x.shape, a["shape"] if shape is None else shape, a.get("allowzero", 0)))


def flat_shape(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """Return the shape that Flatten gives: the products of the lengths before `axis` and from `axis` on."""
    if not -len(shape) <= axis <= len(shape):
        raise ValueError(f"axis {axis} is not one of {len(shape)}")
    at = axis + len(shape) if axis < 0 else axis
    return math.prod(shape[:at]), math.prod(shape[at:])


def _permutation(a: Attributes, ndim: int) -> tuple[int, ...]:
    perm = tuple(a.get("perm", range(ndim)[::-1]))
    if sorted(perm) != list(range(ndim)):
        raise ValueError(f"perm {perm} is none of {ndim} axes")
    return perm


def squeezed(shape: tuple[int, ...], axes: Any) -> tuple[int, ...]:
    """Return the shape without the axes of length 1 that `axes` lists; None lists all of them."""
    at = axes_of(axes, len(shape)) if axes is not None else tuple(i for i, n in enumerate(shape) if n == 1)
    if any(shape[i] != 1 for i in at):
        raise ValueError(f"axes {at} of {shape} are not all of length 1")
    return tuple(n for i, n in enumerate(shape) if i not in at)


def unsqueezed(shape: tuple[int, ...], axes: Any) -> tuple[int, ...]:
    """Return the shape with new axes of length 1 at `axes`."""
    at = axes_of(axes, len(shape) + np.asarray(axes).size)
    rest = iter(shape)
    return tuple(1 if i in at else next(rest) for i in range(len(shape) + len(at)))


def parts(a: Attributes, length: int, sizes: Any, outputs: int) -> list[int]:
    """Return the lengths of the parts that Split gives."""
    if sizes is not None:
        lengths = [int(n) for n in np.asarray(sizes).reshape(-1)]
    else:
        each = -(-length // outputs)
        lengths = [max(0, min(each, length - i * each)) for i in range(outputs)]
    if sum(lengths) != length or min(lengths, default=0) < 0 or len(lengths) != outputs:
        raise ValueError(f"split {lengths} is none of length {length} in {outputs}")
    return lengths


def _split(a: Attributes, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    axis = axis_of(a.get("axis", 0), x.ndim)
    lengths = parts(a, x.shape[axis], a.get("split") if sizes is None else sizes, a["outputs"])
    return tuple(np.split(x, list(accumulate(lengths[:-1])), axis=axis))


def slices(shape: tuple[int, ...], starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> tuple[slice, ...]:
    """Return the slices that Slice takes, one for each axis."""
    first, last = ([int(i) for i in np.asarray(v).reshape(-1)] for v in (starts, ends))
    at = axes_of(axes, len(shape)) if axes is not None else tuple(range(len(first)))
    by = [int(i) for i in np.asarray(steps).reshape(-1)] if steps is not None else [1] * len(first)
    if not len(first) == len(last) == len(at) == len(by) <= len(shape) or 0 in by:
        raise ValueError(f"starts {first}, ends {last}, axes {at} and steps {by} do not go together")
    index = [slice(None)] * len(shape)
    for i, start, end, step in zip(at, first, last, by, strict=True):
        index[i] = slice(start, None if step < 0 and end < -shape[i] else end, step)
    return tuple(index)


def _slice(a: Attributes, x: Array, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Array:
    bounds = (a["starts"], a["ends"], a.get("axes")) if starts is None else (starts, ends, axes, steps)
    return x[slices(x.shape, *bounds)]


def pads_of(a: Attributes, ndim: int, pads: Any = None, axes: Any = None) -> list[tuple[int, int]]:
    """(before, after) of each axis."""
    listed = [int(n) for n in np.asarray(a.get("pads", ()) if pads is None else pads).reshape(-1)]
    at = axes_of(axes, ndim) if axes is not None else tuple(range(ndim))
    if len(listed) != 2 * len(at):
        raise ValueError(f"pads {listed} are not two for each of {len(at)} axes")
    widths = [(0, 0)] * ndim
    for i, before, after in zip(at, listed[: len(at)], listed[len(at) :], strict=True):
        widths[i] = (before, after)
    return widths


def _pad(a: Attributes, x: Array, pads: Any = None, value: Any = None, axes: Any = None) -> Array:
    widths = pads_of(a, x.ndim, pads, axes)
    cropped = x[tuple(slice(max(0, -b), n - max(0, -e)) for (b, e), n in zip(widths, x.shape, strict=True))]
    grown = [(max(0, b), max(0, e)) for b, e in widths]
    mode = a.get("mode", "constant")
    if mode != "constant":
        return np.pad(cropped, grown, mode={"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])  # type: ignore[call-overload, no-any-return]
    fill = a.get("value", 0) if value is None else np.asarray(value).reshape(-1)[0]
    return np.pad(cropped, grown, constant_values=fill)


def _gather(a: Attributes, x: Array, at: Array) -> Array:
    axis = axis_of(a.get("axis", 0), x.ndim)
    n = x.shape[axis]
    if isinstance(at, np.ndarray) and at.size and not (-n <= at.min() and at.max() < n):
        raise ValueError(f"indices reach from {at.min()} to {at.max()}, the axis has {n}")
    return array(np.take(x, at, axis=axis))


def repeated(shape: tuple[int, ...], repeats: Any) -> tuple[int, ...]:
    """Return the shape that Tile gives: each length times its number of copies."""
    a = np.asarray(repeats)
    copies = [int(n) for n in a.reshape(-1)] if a.dtype.kind in "iu" else []
    if len(copies) != len(shape) or a.ndim != 1 or min(copies, default=0) < 0:
        raise ValueError(f"repeats {a.tolist()!r:.80} are not one integer from 0 for each axis of {shape}")
    return tuple(n * count for n, count in zip(shape, copies, strict=True))


def _tile(a: Attributes, x: Array, repeats: Array) -> Array:
    repeated(x.shape, repeats)  # fewer or more numbers than axes would have a meaning in NumPy
    return np.tile(x, repeats.tolist())


def _depth_to_space(a: Attributes, x: Array) -> Array:
    n, c, h, w = x.shape
    b = a["blocksize"]
    if a.get("mode", "DCR") == "DCR":
        return x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)
    return x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)


def _space_to_depth(a: Attributes, x: Array) -> Array:
    n, c, h, w = x.shape
    b = a["blocksize"]
    order = (0, 3, 5, 1, 2, 4) if a.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)


def _concat(a: Attributes, *x: Array) -> Array:
    """Return arrays joined along an axis, in memory in the order of the first one's axes."""
    order = order_in_memory(x[0])
    axis = order.index(axis_of(a.get("axis", 1), x[0].ndim))
    parts = [one.transpose(order) for one in x]
    rest = {(one.dtype, one.shape[:axis], one.shape[axis + 1 :]) for one in parts}
    fit = len(rest) == 1 and parts[0].dtype == np.float32  # NumPy says what does not fit
    joined = _joined(parts, axis) if fit else np.concatenate(parts, axis=axis)
    return joined.transpose([order.index(d) for d in range(x[0].ndim)])


def _joined(parts: list[Array], axis: int) -> Array:
    """Join float32 arrays by a kernel, which a prepared network launches like others."""
    shape = parts[0].shape
    out = empty(
        device_of(parts[0]), (*shape[:axis], sum(one.shape[axis] for one in parts), *shape[axis + 1 :]), np.float32
    )
    rows, first = math.prod(shape[:axis]), 0
    for one in parts:
        columns = math.prod(one.shape[axis:])
        if out.size:
            kernel(device_of(one), "join")(contiguous(one).reshape(rows, columns), first, out.reshape(rows, -1))
        first += columns
    return out


def _concat_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    axis = axis_of(a.get("axis", 1), len(shapes[0]))
    rest = {(len(s), s[:axis], s[axis + 1 :]) for s in shapes}
    if len(rest) > 1:
        raise ValueError(f"{shapes} differ beside axis {axis}")
    return [(*shapes[0][:axis], sum(s[axis] for s in shapes), *shapes[0][axis + 1 :])]


def _split_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    axis = axis_of(a.get("axis", 0), len(shapes[0]))
    sizes = constants[1] if len(constants) > 1 and constants[1] is not None else a.get("split")
    lengths = parts(a, shapes[0][axis], sizes, a["outputs"])
    return [(*shapes[0][:axis], n, *shapes[0][axis + 1 :]) for n in lengths]


def _slice_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    bounds = constants[1:] or [a["starts"], a["ends"], a.get("axes")]
    index = slices(shapes[0], *bounds)
    return [tuple(len(range(*s.indices(n))) for s, n in zip(index, shapes[0], strict=True))]


def _pad_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    rest = [*constants[1:], None, None, None]
    widths = pads_of(a, len(shapes[0]), rest[0], rest[2])
    lengths = tuple(b + n + e for (b, e), n in zip(widths, shapes[0], strict=True))
    mode = a.get("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(f"mode {mode!r} is none of constant, reflect, edge and wrap")
    if min(lengths, default=0) < 0:
        raise ValueError(f"pads {widths} leave nothing of {shapes[0]}")
    return [lengths]


def _gather_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    axis, at = axis_of(a.get("axis", 0), len(shapes[0])), constants[1]
    n = shapes[0][axis] if shapes[0] else 0
    if at is not None and (at.dtype.kind not in "iu" or (at.size and not (-n <= at.min() and at.max() < n))):
        raise ValueError(f"its indices must be integers from {-n} to {n - 1}")
    return [(*shapes[0][:axis], *shapes[1], *shapes[0][axis + 1 :])]


def _depth_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    (n, c, h, w), b = shapes[0], a["blocksize"]
    if b < 1 or c % b**2 or a.get("mode", "DCR") not in ("DCR", "CRD"):
        raise ValueError(f"blocksize {b} does not divide {shapes[0]}")
    return [(n, c // b**2, h * b, w * b)]


def _space_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    (n, c, h, w), b = shapes[0], a["blocksize"]
    if b < 1 or h % b or w % b:
        raise ValueError(f"blocksize {b} does not divide {shapes[0]}")
    return [(n, c * b**2, h // b, w // b)]


def _operand(a: Attributes, name: str, constants: Constants, at: int = 1) -> Any:
    return constants[at] if len(constants) > at and constants[at] is not None else a.get(name)


OPERATORS = {
    "Reshape": Operator(
        run=_reshape,
        shape=lambda a, s, c: [reshaped(s[0], _operand(a, "shape", c), a.get("allowzero", 0))],
        host=(1,),
        launches=True,
        rows=of_first,
    ),
    "Flatten": Operator(
        run=lambda a, x: x.reshape(flat_shape(x.shape, a.get("axis", 1))),
        shape=lambda a, s, c: [flat_shape(s[0], a.get("axis", 1))],
        launches=True,
        rows=of_first,
    ),
    "Transpose": Operator(
        run=lambda a, x: x.transpose(_permutation(a, x.ndim)),
        shape=lambda a, s, c: [tuple(s[0][i] for i in _permutation(a, len(s[0])))],
        launches=True,
        rows=lambda a, s: (0,) if _permutation(a, len(s[0] or ()))[:1] == (0,) else (),
    ),
    "Squeeze": Operator(
        run=lambda a, x, axes=None: x.reshape(squeezed(x.shape, a.get("axes") if axes is None else axes)),
        shape=lambda a, s, c: [squeezed(s[0], _operand(a, "axes", c))],
        host=(1,),
        launches=True,
        rows=of_first,
    ),
    "Unsqueeze": Operator(
        run=lambda a, x, axes=None: x.reshape(unsqueezed(x.shape, a["axes"] if axes is None else axes)),
        shape=lambda a, s, c: [unsqueezed(s[0], _operand(a, "axes", c))],
        host=(1,),
        launches=True,
        rows=of_first,
    ),
    "Concat": Operator(
        run=_concat,
        shape=_concat_shape,
        dtype=common,
        order="kept",
        launches=True,
        rows=lambda a, s: range(len(s)) if axis_of(a.get("axis", 1), len(s[0] or ())) else (),
    ),
    "Split": Operator(run=_split, shape=_split_shape, host=(1,)),
    "Slice": Operator(run=_slice, shape=_slice_shape, host=(1, 2, 3, 4)),
    "Pad": Operator(run=_pad, shape=_pad_shape, host=(1, 2, 3)),
    "Gather": Operator(run=_gather, shape=_gather_shape, broadcasts=False),
    "Tile": Operator(run=_tile, shape=lambda a, s, c: [repeated(s[0], c[1])], host=(1,)),
    "DepthToSpace": Operator(run=_depth_to_space, shape=_depth_shape),
    "SpaceToDepth": Operator(run=_space_to_depth, shape=_space_shape),
    "Shape": Operator(
        run=lambda a, x: np.array(x.shape[slice(a.get("start"), a.get("end"))], np.int64),
        shape=lambda a, s, c: [(len(s[0][slice(a.get("start"), a.get("end"))]),)],
        dtype=always("int64"),
        gpu=False,
    ),
}
