"""Axes reordered, added, removed, broadcast: views of the words."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import namespace
from ...core.dtypes import Constants, uint1
from ...core.hints import Axes
from ..words.bit_rows import Run, derived, lay
from .indexing import index


def permute_dims(q: QuantArray, axes: tuple[int, ...] | list[int]) -> QuantArray:
    """Permute the axes; a view: axis d of the result is axis axes[d] of q.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, -1, 1]], values=(-1, 1))
    >>> qa.permute_dims(q, (1, 0)).shape, qa.permute_dims(q, (1, 0)).axis
    ((3, 1), 0)
    """
    return _permuted("permute_dims", checks.packed("permute_dims", "q", q), axes)


def transpose(q: QuantArray, *axes: SupportsIndex | tuple[int, ...] | list[int] | None) -> QuantArray:
    """Permute the axes, by default to the reverse order; a view. `permute_dims` by NumPy's name.

    >>> import quantarray as qa
    >>> qa.transpose(qa.encode([[1, -1, 1]], values=(-1, 1))).shape
    (3, 1)
    """
    q = checks.packed("transpose", "q", q)
    order = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
    return _permuted("transpose", q, order or range(q.ndim)[::-1])


def _permuted(op: str, q: QuantArray, axes: Any) -> QuantArray:
    order = checks.axes(op, axes, q.ndim)
    if sorted(order) != list(range(q.ndim)):
        raise ValueError(f"{op}: needs each of the {q.ndim} axes once, got {axes}")
    place = [d if d < q.axis else d - 1 for d in order if d != q.axis]
    words = q.words.transpose(0, *(1 + d for d in place), q.words.ndim - 1)
    constants = q.constants.map(lambda a, lead: a.transpose(*range(lead), *(lead + d for d in order)), q.group)
    return derived(q, words, tuple(q.shape[d] for d in order), order.index(q.axis), constants)


def moveaxis(q: QuantArray, source: Axes, destination: Axes) -> QuantArray:
    """Move the axes `source` to the places `destination`, the others in their order; a view.

    >>> import quantarray as qa, numpy as np
    >>> image = qa.encode(np.ones((2, 8, 9, 3), int), values=(-1, 1))
    >>> qa.moveaxis(image, -1, 1).shape
    (2, 3, 8, 9)
    """
    op = "moveaxis"
    q = checks.packed(op, "q", q)
    old, new = checks.axes(op, source, q.ndim), checks.axes(op, destination, q.ndim)
    if len(old) != len(new):
        raise ValueError(f"{op}: needs as many places as axes, got {len(old)} axes and {len(new)} places")
    order = [d for d in range(q.ndim) if d not in old]
    for place, d in sorted(zip(new, old, strict=True)):
        order.insert(place, d)
    return _permuted(op, q, order)


def swapaxes(q: QuantArray, axis1: int, axis2: int) -> QuantArray:
    """Swap two axes; a view.

    >>> import quantarray as qa, numpy as np
    >>> qa.swapaxes(qa.encode(np.ones((2, 3, 4), int), values=(-1, 1)), 0, 2).shape
    (4, 3, 2)
    """
    op = "swapaxes"
    q = checks.packed(op, "q", q)
    a, b = checks.axis(op, axis1, q.ndim, "axis1"), checks.axis(op, axis2, q.ndim, "axis2")
    order = list(range(q.ndim))
    order[a], order[b] = b, a
    return _permuted(op, q, order)


def matrix_transpose(q: QuantArray) -> QuantArray:
    """Swap the last two axes; a view.

    >>> import quantarray as qa, numpy as np
    >>> qa.matrix_transpose(qa.encode(np.ones((2, 3, 4), int), values=(-1, 1))).shape
    (2, 4, 3)
    """
    op = "matrix_transpose"
    q = checks.packed(op, "q", q)
    if q.ndim < 2:
        raise ValueError(f"{op}: needs at least two axes, got the shape {q.shape}")
    return swapaxes(q, -1, -2)


def planes(q: QuantArray) -> tuple[QuantArray, ...]:
    """Return the bits of each code as uint1 arrays, plane 0 first: code = sum_k 2**k * planes[k]. Views of the words.

    >>> import quantarray as qa
    >>> low, high = qa.planes(qa.from_codes([0, 1, 2, 3], qa.uint2))
    >>> low.codes(), high.codes()
    (array([0, 1, 0, 1], dtype=uint8), array([0, 0, 1, 1], dtype=uint8))
    """
    words = checks.packed("planes", "q", q).words
    return tuple(QuantArray(words[k : k + 1], uint1, q.shape, q.axis) for k in range(q.bits))


def expand_dims(q: QuantArray, axis: Axes = 0) -> QuantArray:
    """Insert axes of length 1 at the places `axis` of the result; a view.

    >>> import quantarray as qa
    >>> q = qa.encode([1, -1, 1], values=(-1, 1))
    >>> qa.expand_dims(q).shape, qa.expand_dims(q, (0, -1)).shape
    ((1, 3), (1, 3, 1))
    """
    op = "expand_dims"
    q = checks.packed(op, "q", q)
    new = checks.axes(op, axis, q.ndim + np.size(axis))  # type: ignore[arg-type]
    return index(q, tuple(None if d in new else slice(None) for d in range(q.ndim + len(new))), op)


def squeeze(q: QuantArray, axis: Axes | None = None) -> QuantArray:
    """Remove the axes `axis`, of length 1, by default all of these; a view if the packed axis stays.

    If the packed axis goes, words are copied and the last axis left is packed. An axis has to be left.

    >>> import quantarray as qa
    >>> q = qa.encode([[[1, -1, 1]]], values=(-1, 1))
    >>> qa.squeeze(q).shape, qa.squeeze(q, 0).shape
    ((3,), (1, 3))
    """
    op = "squeeze"
    q = checks.packed(op, "q", q)
    gone = [d for d in range(q.ndim) if q.shape[d] == 1] if axis is None else checks.axes(op, axis, q.ndim)
    if any(q.shape[d] != 1 for d in gone):
        raise ValueError(f"{op}: only axes of length 1 can go, got axis {axis} of the shape {q.shape}")
    if len(gone) == q.ndim:
        raise ValueError(
            f"{op}: a packed array needs an axis to pack, and none of {q.shape} would be left; "
            f"index with {q.ndim} integers for the value"
        )
    return index(q, tuple(0 if d in gone else slice(None) for d in range(q.ndim)), op)


def broadcast_to(q: QuantArray, shape: Axes) -> QuantArray:
    """Repeat the array along new axes and axes of length 1 to `shape`.

    A view: unpacked axes repeat their words by a stride of 0. A packed axis of length 1 that gets longer is a copy.

    >>> import quantarray as qa
    >>> qa.broadcast_to(qa.encode([1, -1], values=(-1, 1)), (3, 2)).dequantize().tolist()
    [[1, -1], [1, -1], [1, -1]]
    """
    op = "broadcast_to"
    q = checks.packed(op, "q", q)
    new = checks.lengths(op, shape)
    more = len(new) - q.ndim
    if more < 0 or any(n not in (1, m) for n, m in zip(q.shape, new[max(more, 0) :], strict=True)):
        raise ValueError(f"{op}: an array of shape {q.shape} does not broadcast to {new}")
    if max(new) >= 2**63:
        raise ValueError(f"{op}: a length of shape must be below 2**63, got {new}")
    q = index(q, (None,) * more + (...,), op)
    words, length = q.words, new[q.axis]
    if length != q.shape[q.axis]:
        checks.array_room(op, q, (*q.shape[: q.axis], length, *q.shape[q.axis + 1 :]))
        words = lay(q.device, [(words, Run(0, 0, length))])
    outer = new[: q.axis] + new[q.axis + 1 :]
    wide = namespace(q.device).broadcast_to(words, (q.bits, *outer, words.shape[-1]))
    return derived(q, wide, new, q.axis, _of_one(q))


def _of_one(q: QuantArray) -> Constants:
    """Share one constant along an axis of length 1, as all its copies do. It need not be stored with a group."""
    return q.constants.with_group(q.group if q.constants.varies(q.axis) else None)


def broadcast_shapes(*shapes: Axes) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes broadcast to; ValueError where there is none.

    >>> import quantarray as qa
    >>> qa.broadcast_shapes((3, 1), 4)
    (3, 4)
    """
    return _common_shape("broadcast_shapes", [checks.lengths("broadcast_shapes", s) for s in shapes])


def _common_shape(op: str, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{op}: the shapes {', '.join(map(str, shapes))} do not broadcast") from None


def broadcast_arrays(*arrays: QuantArray) -> tuple[QuantArray, ...]:
    """Broadcast all arrays to their common shape; see `broadcast_to`.

    >>> import quantarray as qa, numpy as np
    >>> row, column = (qa.encode(np.ones(s, int), values=(-1, 1)) for s in ((1, 3), (2, 1)))
    >>> [q.shape for q in qa.broadcast_arrays(row, column)]
    [(2, 3), (2, 3)]
    """
    op = "broadcast_arrays"
    checked = [checks.packed(op, "each array", q) for q in arrays]
    shape = _common_shape(op, [q.shape for q in checked])
    return tuple(broadcast_to(q, shape) for q in checked)
