"""All elements along one axis, and back, whatever axis is packed."""

from __future__ import annotations

import math

from ...arrays.array import QuantArray
from ...backends.registry import empty
from ...core.dtypes import Constants
from ...core.format import WORD_BITS, word_count
from ..words.bit_rows import derived
from .indexing import index
from .repacking import repack, repacked_constants
from .reshaping import ravel, reshape, reshaped_constants

_AT_ONCE = 1 << 16  # elements, each of which may fill a word for each bit


def flattened(q: QuantArray) -> QuantArray:
    """Return all elements in C order along one axis: `ravel`, whatever axis is packed."""
    steps = _steps(q.shape, q.axis)
    if steps is None:
        return ravel(repack(q))
    bare, rest = without_constants(q), q.size // q.shape[0]
    words = empty(q.device, (q.bits, word_count(q.size)))
    for rows in steps:
        part = ravel(repack(index(bare, (rows,), "repack"))).words
        first = rows.start * rest // WORD_BITS
        words[:, first : first + part.shape[-1]] = part
    last = q.ndim - 1
    repacked = derived(q, q.words, q.shape, last, repacked_constants(q, last))  # its words are never read
    return derived(q, words, (q.size,), 0, reshaped_constants(repacked, (q.size,)))


def unflattened(q: QuantArray, shape: tuple[int, ...], axis: int) -> QuantArray:
    """Return a flat array in another shape, packed along `axis`: the inverse of `flattened`."""
    steps = _steps(shape, axis)
    if steps is None:
        return repack(reshape(q, shape), axis)
    bare, rest, last = without_constants(q), q.size // shape[0], len(shape) - 1
    outer = (*shape[:axis], *shape[axis + 1 :])
    words = empty(q.device, (q.bits, *outer, word_count(shape[axis])))
    for rows in steps:
        part = index(bare, (slice(rows.start * rest, rows.stop * rest),), "repack")
        part_words = repack(reshape(part, (rows.stop - rows.start, *shape[1:])), axis).words
        if axis:
            words[:, rows] = part_words
        else:
            words[..., rows.start // WORD_BITS : -(-rows.stop // WORD_BITS)] = part_words
    repacked = derived(q, words, shape, last, reshaped_constants(q, shape))  # its words are never read
    return derived(q, words, shape, axis, repacked_constants(repacked, axis))


def _steps(shape: tuple[int, ...], axis: int) -> list[slice] | None:
    """Count the rows of axis 0 to repack one after the other; None where it takes little memory to repack all at once.

    Packed along a short last axis, each row fills a word of 64 bits: up to 64 times the operand's bytes.
    """
    if axis == len(shape) - 1 or shape[-1] >= WORD_BITS // 2 or math.prod(shape) <= _AT_ONCE:
        return None
    rows = max(1, _AT_ONCE // (math.prod(shape[1:]) * WORD_BITS)) * WORD_BITS  # so that parts begin on words
    return [slice(i, min(i + rows, shape[0])) for i in range(0, shape[0], rows)]


def without_constants(q: QuantArray) -> QuantArray:
    """Return the same codes without constants: for moving words alone."""
    return derived(q, q.words, q.shape, q.axis, Constants())
