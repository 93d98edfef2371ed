"""Elements chosen one by one along an axis."""

from __future__ import annotations

import math

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, kernel
from ...core.dtypes import Array
from ...core.format import word_count
from ...core.hints import Values
from ..words.bit_rows import derived, flat, words_axis
from .flattening import flattened
from .views import broadcast_to


def take_along_axis(q: QuantArray, indices: Values, axis: int | None = -1) -> QuantArray:
    """Take the elements of an axis that `indices` name, for each place of the other axes by itself.

    out[i, j, k] = q[i, indices[i, j, k], k] for axis 1 of 3. indices: integers with as many axes as q, whose other
    axes broadcast against q's; with axis=None places in C order, of one axis. Bits are moved one by one. Raises
    IndexError for an index out of bounds, ValueError for shapes that do not broadcast and where constants vary along
    the axis.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, -1, 0], [0, 1, -1]], values=(-1, 0, 1))
    >>> qa.take_along_axis(q, [[2, 0], [1, 1]]).dequantize().tolist()
    [[0, 1], [1, 1]]
    >>> qa.take_along_axis(q, [[1, 0, 1]], axis=0).dequantize().tolist()
    [[0, -1, -1]]
    """
    op = "take_along_axis"
    q = checks.packed(op, "q", q)
    if axis is None:
        q, axis = flattened(q), 0
    d = checks.axis(op, axis, q.ndim)
    a = checks.numbers_beside(op, "indices", indices, q)
    if a.dtype.kind not in "iu" and a.size:
        raise TypeError(f"{op}: indices must be integers, got {a.dtype}")
    checks.indices_within(op, a, q.shape[d], d)
    q, a = _alike(op, q, a if a.size else a.astype(np.int64), d)
    if q.constants.varies(d):
        raise ValueError(
            f"{op}: constants vary along axis {d}, and the result has none that go with single elements; compute on "
            f".dequantize()"
        )
    return derived(q, _chosen_bits(q, a) if d == q.axis else _chosen_rows(q, a, d), a.shape, q.axis, q.constants)


def _alike(op: str, q: QuantArray, a: Array, d: int) -> tuple[QuantArray, Array]:
    """Broadcast both to one shape but for axis d."""
    try:
        if a.ndim != q.ndim:
            raise ValueError
        rest = np.broadcast_shapes(*((*s[:d], 1, *s[d + 1 :]) for s in (q.shape, a.shape)))
    except ValueError:
        raise ValueError(
            f"{op}: indices must have {q.ndim} axes that broadcast against {q.shape} but for axis {d}, got {a.shape}"
        ) from None
    wide, wide_a = ((*rest[:d], n, *rest[d + 1 :]) for n in (q.shape[d], a.shape[d]))
    return q if q.shape == wide else broadcast_to(q, wide), np.broadcast_to(a, wide_a)


def _chosen_bits(q: QuantArray, a: Array) -> Array:
    length = a.shape[q.axis]
    out = empty(q.device, (*q.words.shape[:-1], word_count(length)))
    if out.size:
        rows = np.moveaxis(a, q.axis, -1).reshape(-1, length)
        shared = rows[:1] if not rows.strides[0] else rows  # the same for all rows, which go faster together
        kernel(q.device, "gather")(flat(q.words), q.shape[q.axis], shared, flat(out))
    return out


def _chosen_rows(q: QuantArray, a: Array, d: int) -> Array:
    at = words_axis(q, d)
    last = np.moveaxis(a, q.axis, -1)
    out = empty(q.device, (q.bits, *last.shape[:-1], q.words.shape[-1]))
    if out.size:
        before, after = math.prod(out.shape[1:at]), math.prod(out.shape[at + 1 : -1])
        rows_out = out.reshape(q.bits, before, -1, after, out.shape[-1])
        words = contiguous(q.words).reshape(q.bits, before, -1, after, out.shape[-1])
        kernel(q.device, "gather_rows")(words, last.reshape(before, -1, after, last.shape[-1]), rows_out)
    return out
