"""Another packed axis."""

from __future__ import annotations

import math

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, kernel, namespace
from ...core.dtypes import Array, Constants
from ...core.format import word_count
from ..words.bit_rows import derived, words_axis
from ..words.conversion import expand


def repack(q: QuantArray, axis: int = -1) -> QuantArray:
    """Pack the same values in the same shape along another axis; return the array itself where it is packed so.

    Bits move as matrices of 64 x 64 that are transposed. Constants that come in groups of the old packed axis become
    one an element there; those that vary along the new one become groups of one element.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, -1, 1], [-1, -1, 1]], values=(-1, 1))
    >>> qa.repack(q, 0).axis, qa.repack(q, 0).words.tolist()
    (0, [[[1], [0], [3]]])
    """
    op = "repack"
    q = checks.packed(op, "q", q)
    new = checks.axis(op, axis, q.ndim)
    if new == q.axis:
        return q
    return derived(q, _repacked_words(q, new), q.shape, new, repacked_constants(q, new))


def _repacked_words(q: QuantArray, new: int) -> Array:
    at = words_axis(q, new)
    before, after = q.words.shape[1:at], q.words.shape[at + 1 : -1]
    length, new_length = q.shape[q.axis], q.shape[new]
    out = empty(q.device, (q.bits, *before, length, *after, word_count(new_length)))
    if out.size:
        rows, between = q.bits * math.prod(before), math.prod(after)
        words = contiguous(q.words).reshape(rows, new_length, between, -1)
        kernel(q.device, "repack")(words, out.reshape(rows, length, between, -1))
    # The old packed axis is at the new one's old place among the words; move it to its place in the shape
    moved: Array = namespace(q.device).moveaxis(out, at, 1 + (q.axis if q.axis < new else q.axis - 1))
    return moved


def repacked_constants(q: QuantArray, new: int) -> Constants:
    return q.constants.map(lambda a, lead: expand(a, lead, q), 1 if q.constants.varies(new) else None)
