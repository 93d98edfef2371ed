"""Elements by their numbers: along unpacked axes whole words, along the packed one bits."""

from __future__ import annotations

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import empty, kernel, namespace
from ...core.dtypes import Array, Constants
from ...core.format import WORD_BITS, word_count
from ...core.hints import Values
from ..words.bit_rows import derived, flat, index_constants, words_axis
from .reshaping import ravel, reshape

_PART = 1 << 16  # elements of the packed axis whose indices are in memory at once


def take(q: QuantArray, indices: Values, axis: int | None = None) -> QuantArray:
    """Take the elements `indices` of an axis, [.. *indices.shape ..] in its place; of the array in C order without one.

    Copies words along unpacked axes, and bits along the packed one. Constants move with their elements; those that
    come in groups of the packed axis must stay whole groups, or IndexError is raised.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, -1, 0], [0, 1, 1]], values=(-1, 0, 1))
    >>> qa.take(q, [2, 0], axis=1).dequantize().tolist()
    [[0, 1], [1, 0]]
    >>> qa.take(q, [1, 1], axis=0).dequantize().tolist()
    [[0, 1, 1], [0, 1, 1]]
    """
    op = "take"
    q = checks.packed(op, "q", q)
    if axis is None:
        q, axis = ravel(q), 0
    d = checks.axis(op, axis, q.ndim)
    a = checks.numbers_beside(op, "indices", indices, q)
    if a.dtype.kind not in "iu" and a.size:
        raise TypeError(f"{op}: indices must be integers, got {a.dtype}")
    if a.ndim == 0:
        if q.ndim == 1:
            raise ValueError(f"{op}: a packed array needs an axis, and none would be left; q[{int(a)}] gives the value")
        element: QuantArray = q[(slice(None),) * d + (int(checks.indices(op, a, q.shape[d], d)),)]
        return element
    if d != q.axis or q.constants.varies(d):
        return take_along(op, q, checks.indices(op, a, q.shape[d], d), d)
    checks.indices_within(op, a, q.shape[d], d)
    return _take_bits(op, q, a)


def take_along(op: str, q: QuantArray, indices: Array, d: int) -> QuantArray:
    """`take` of int64 indices, one axis or more, within bounds and not negative."""
    if d == q.axis:
        return _take_bits(op, q, indices)
    shape = (*q.shape[:d], *indices.shape, *q.shape[d + 1 :])
    xp = namespace(q.device)
    checks.room(op, f"an array of shape {shape}", q.words.nbytes // max(1, q.shape[d]) * indices.size)
    words = xp.take(q.words, xp.asarray(indices), axis=words_axis(q, d))
    axis = q.axis if q.axis < d else q.axis + indices.ndim - 1
    return derived(q, words, shape, axis, taken_constants(q, indices, d))


def taken_constants(q: QuantArray, indices: Array, d: int) -> Constants:
    """Take the constants of the elements `indices` of an unpacked axis."""

    def change(a: Array, lead: int) -> Array:
        at = lead + d
        if a.shape[at] == 1:
            return a.reshape(*a.shape[:at], *[1] * indices.ndim, *a.shape[at + 1 :])
        return np.take(a, indices, axis=at)

    return q.constants.map(change, q.group, rows=True)  # super-blocks are along the packed axis


def _take_bits(op: str, q: QuantArray, indices: Array) -> QuantArray:
    listed = indices.reshape(-1)
    constants = index_constants(op, q, listed)
    shape = (*q.shape[: q.axis], len(listed), *q.shape[q.axis + 1 :])
    taken = derived(q, gathered(q, listed), shape, q.axis, constants)
    if indices.ndim == 1:
        return taken
    return reshape(taken, (*q.shape[: q.axis], *indices.shape, *q.shape[q.axis + 1 :]))


def gathered(q: QuantArray, indices: Array) -> Array:
    """Gather the words of the elements `indices` of the packed axis, counted from the end if negative."""
    out = empty(q.device, (*q.words.shape[:-1], word_count(len(indices))))
    if not out.size:
        return out
    if len(indices) > _PART and indices.itemsize < 8:  # of 1 byte they would be 8 times as large, all at once
        for first in range(0, len(indices), _PART):
            part = gathered(q, indices[first : first + _PART].astype(np.int64))
            out[..., first // WORD_BITS :][..., : part.shape[-1]] = part
        return out
    named = indices.astype(np.int64, copy=False).reshape(1, -1)
    kernel(q.device, "gather")(flat(q.words), q.shape[q.axis], named, flat(out))
    return out


def repeat(q: QuantArray, repeats: Values, axis: int | None = None) -> QuantArray:
    """Repeat each element of an axis `repeats` times, or repeats[i] times the i-th; of the array in C order without an
    axis.

    >>> import quantarray as qa
    >>> qa.repeat(qa.encode([1, -1], values=(-1, 1)), 2).dequantize().tolist()
    [1, 1, -1, -1]
    """
    op = "repeat"
    q = checks.packed(op, "q", q)
    if axis is None:
        q, axis = ravel(q), 0
    d = checks.axis(op, axis, q.ndim)
    counts = checks.numbers_beside(op, "repeats", repeats, q)
    if counts.size and (counts.dtype.kind not in "iu" or counts.min() < 0):
        raise ValueError(f"{op}: repeats must be integers that are not negative, got {repeats!r}")
    if counts.shape not in ((), (1,), (q.shape[d],)):
        raise ValueError(f"{op}: repeats must be one integer or {q.shape[d]}, one an element, got {counts.shape}")
    length = int(counts.item()) * q.shape[d] if counts.size == 1 else int(counts.sum(dtype=np.float64))  # or nearly
    checks.array_room(op, q, (*q.shape[:d], length, *q.shape[d + 1 :]))
    checks.room(op, f"an axis of {length} elements", length // WORD_BITS)  # however little else there is
    counts = counts.reshape(-1) if counts.size else np.zeros(0, np.int64)
    if d != q.axis:
        each = np.broadcast_to(counts.astype(np.int64), q.shape[d])
        return take_along(op, q, np.repeat(np.arange(q.shape[d]), each), d)
    return _repeat_bits(q, counts)


def _repeat_bits(q: QuantArray, counts: Array) -> QuantArray:
    n = q.shape[q.axis]
    length = int(counts.sum(dtype=np.int64)) if counts.size == n else n * int(counts[0])
    out = empty(q.device, (*q.words.shape[:-1], word_count(length)))
    if out.size and (counts == counts[0]).all():
        kernel(q.device, "spread")(flat(q.words), int(counts[0]), flat(out))
    elif out.size:
        _repeat_each(q, counts, out)
    shape = (*q.shape[: q.axis], length, *q.shape[q.axis + 1 :])
    return derived(q, out, shape, q.axis, _repeated_constants(q, counts))


def _repeat_each(q: QuantArray, counts: Array, out: Array) -> None:
    """Repeat a part of q at a time: 8 bytes for each count or result are never in memory."""
    waiting, done = np.zeros(0, np.int64), 0  # indices that do not fill a word yet, words laid
    for first in range(0, len(counts), _PART):
        ends = np.cumsum(counts[first : first + _PART], dtype=np.int64)
        for start in range(0, int(ends[-1]), _PART):
            part = np.arange(start, min(start + _PART, int(ends[-1])))
            waiting = np.concatenate([waiting, first + np.searchsorted(ends, part, side="right")])
            words = len(waiting) // WORD_BITS
            out[..., done : done + words] = gathered(q, waiting[: words * WORD_BITS])
            waiting, done = waiting[words * WORD_BITS :], done + words
    out[..., done:] = gathered(q, waiting)


def _repeated_constants(q: QuantArray, counts: Array) -> Constants:
    if not q.group or not counts.any():
        return index_constants("repeat", q, np.arange(0))
    if counts.size == 1 or (counts == counts[0]).all():
        return q.constants.map(lambda a, lead: a, q.group * int(counts[0]))
    return index_constants("repeat", q, np.repeat(np.arange(q.shape[q.axis]), counts.astype(np.int64)))
