"""Other shapes of the same elements: views where no bit has to move, copies of words where bits do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, kernel, reshaped
from ...core.dtypes import Array, Constants
from ...core.format import WORD_BITS, word_count
from ...core.hints import Axes
from ..words.bit_rows import derived

_Block = tuple[int, int, int, int]  # old axes i0 .. i1 hold the same elements as new axes j0 .. j1


def reshape(q: QuantArray, *shape: Axes) -> QuantArray:
    """Give the same elements, in C order, another shape; one length may be -1.

    A view if only unpacked axes change, or if packed lengths are multiples of 64; a copy of words if the bits of
    the packed axis must move. Axes after the packed one may not merge with it: `repack` first.

    >>> import quantarray as qa, numpy as np
    >>> qa.reshape(qa.encode(np.ones((2, 4, 4, 100), int), values=(-1, 1)), (2, -1)).shape
    (2, 1600)
    """
    q = checks.packed("reshape", "q", q)
    new = _new_shape(q, shape)
    blocks, packed = _packed_block(q, new)
    axis = packed[3] - 1
    constants = _reshape_constants(q, blocks, packed, new)
    words = _reshape_words(q, packed, new)
    return derived(q, words, new, axis, constants)


def ravel(q: QuantArray) -> QuantArray:
    """Flatten all elements in C order along one axis, which the packed one has to end; a view where `reshape` is one.

    >>> import quantarray as qa
    >>> qa.ravel(qa.encode([[1, -1], [-1, -1]], values=(-1, 1))).dequantize()
    array([ 1, -1, -1, -1], dtype=int32)
    """
    return reshape(checks.packed("ravel", "q", q), -1) if q.size else reshape(q, 0)


def _new_shape(q: QuantArray, shape: tuple[Any, ...]) -> tuple[int, ...]:
    asked = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    lengths = [checks.integer("reshape", "a length", n, -1) for n in asked]
    checks.dimensions("reshape", len(lengths))
    known = math.prod(n for n in lengths if n >= 0)
    if lengths.count(-1) > 1:
        raise ValueError(f"reshape: at most one length may be -1, got {tuple(asked)}")
    if -1 in lengths and known and q.size % known == 0:
        lengths[lengths.index(-1)] = q.size // known
    if -1 in lengths or math.prod(lengths) != q.size or not lengths:
        raise ValueError(f"reshape: an array of shape {q.shape} does not fit the shape {tuple(asked)}")
    return tuple(lengths)


def packed_axis(q: Any, new: tuple[int, ...]) -> int:
    """Return the axis on which `reshape` packs its result, from the shape and axis of q alone."""
    return _packed_block(q, new)[1][3] - 1


def _packed_block(q: Any, new: tuple[int, ...]) -> tuple[list[_Block], _Block]:
    """Return the blocks, and the one that ends with the packed axis: nothing after that axis may join it."""
    front, after = q.shape[: q.axis + 1], q.shape[q.axis + 1 :]
    cuts = [
        j
        for j in range(1, len(new) + 1)
        if math.prod(new[:j]) == math.prod(front) and math.prod(new[j:]) == math.prod(after)
    ]
    if not cuts:
        raise ValueError(
            f"reshape: {q.shape} packed on axis {q.axis} cannot become {new}: axes after the packed one would merge "
            f"with it; pack the last axis first, with repack(q)"
        )
    # Lengths of 1 leave a choice: the packed axis keeps its length if it can, and is the last if it was
    same = [j for j in cuts if new[j - 1] == front[-1]]
    cut = (same or cuts)[-1 if not after else 0]
    blocks = list(_blocks(front, new[:cut]))
    while len(blocks) > 1 and (blocks[-1][0] == blocks[-1][1] or blocks[-1][2] == blocks[-1][3]):
        blocks[-2:] = [(blocks[-2][0], blocks[-1][1], blocks[-2][2], blocks[-1][3])]
    i, j = len(front), cut
    return blocks + [(i + i0, i + i1, j + j0, j + j1) for i0, i1, j0, j1 in _blocks(after, new[cut:])], blocks[-1]


def _blocks(old: tuple[int, ...], new: tuple[int, ...]) -> Iterator[_Block]:
    """Find the shortest stretches (old[i0:i1], new[j0:j1]) of equal products, in order."""
    if 0 in old:
        yield 0, len(old), 0, len(new)
        return
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0, a, b = i, j, 1, 1
        if i < len(old):
            a, i = old[i], i + 1
        if j < len(new):
            b, j = new[j], j + 1
        while a != b:
            if a < b:
                a, i = a * old[i], i + 1
            else:
                b, j = b * new[j], j + 1
        yield i0, i, j0, j


def _reshape_words(q: QuantArray, block: _Block, new: tuple[int, ...]) -> Array:
    i0, i1, j0, j1 = block
    length, new_length = q.shape[i1 - 1], new[j1 - 1]
    outer_new = (*new[: j1 - 1], *new[j1:])
    if length == new_length:
        return reshaped(q.words, (q.bits, *outer_new, q.words.shape[-1]))
    # [bits, before, segments, after, word] -> [bits, before, after, segments, word]
    before, segments = math.prod(q.shape[:i0]), math.prod(q.shape[i0 : i1 - 1])
    after = math.prod(q.shape[i1:])
    words = q.words.reshape(q.bits, before, segments, after, q.words.shape[-1]).swapaxes(2, 3)
    new_segments = math.prod(new[j0 : j1 - 1])
    new_before, new_after = math.prod(new[:j0]), math.prod(new[j1:])
    shape = (q.bits, new_before, new_after, new_segments, word_count(new_length))
    if length % WORD_BITS == 0 and new_length % WORD_BITS == 0:
        cut = reshaped(words, shape)
    else:
        cut = empty(q.device, shape)
        if cut.size:
            source = contiguous(words).reshape(-1, segments, words.shape[-1])
            rows = cut.reshape(-1, new_segments, cut.shape[-1])
            kernel(q.device, "rebit")(source, length, 0, new_length, rows)
    return reshaped(cut.swapaxes(2, 3), (q.bits, *outer_new, cut.shape[-1]))


def reshaped_constants(q: QuantArray, new: tuple[int, ...]) -> Constants:
    """Return the constants that `reshape(q, new)` has, without its words."""
    return _reshape_constants(q, *_packed_block(q, new), new)


def _reshape_constants(q: QuantArray, blocks: list[_Block], packed: _Block, new: tuple[int, ...]) -> Constants:
    if not q.size:
        return q.constants.map(lambda a, lead: _one_constant(a, lead, len(new)))
    i0, i1, j0, j1 = packed
    along = any(math.prod(a.shape[lead + i0 : lead + i1]) > 1 for _, a, lead in q.constants.items())
    same = q.shape[i1 - 1] == new[j1 - 1]
    unchanged = same and tuple(n for n in q.shape[i0:i1] if n != 1) == tuple(n for n in new[j0:j1] if n != 1)
    group = (q.group or q.shape[i1 - 1]) if along and not unchanged else q.group
    if along and not unchanged and (not group or q.shape[i1 - 1] % group or new[j1 - 1] % group):
        raise ValueError(
            f"reshape: the constants of {q.shape} vary along axes that merge into the packed one, in runs of {group}, "
            f"which do not fit its new length {new[j1 - 1]}; quantise with constants that don't vary there"
        )

    def change(a: Array, lead: int) -> Array:
        inner, lengths = a.shape[lead:], []
        for b in blocks:
            old, out = list(q.shape[b[0] : b[1]]), list(new[b[2] : b[3]])
            if b[0] <= q.axis < b[1] and group:
                old[-1], out[-1] = -(-old[-1] // group), -(-out[-1] // group)
            varies = math.prod(inner[b[0] : b[1]]) > 1
            lengths.append((old if varies else [1] * len(old), out if varies else [1] * len(out)))
        full = [n for old, _ in lengths for n in old]
        return np.broadcast_to(a, (*a.shape[:lead], *full)).reshape(
            *a.shape[:lead], *(n for _, o in lengths for n in o)
        )

    return q.constants.map(change, group)


def _one_constant(a: Array, lead: int, ndim: int) -> Array:
    """Keep one constant for an array without elements: the first, or 1 where there is none."""
    first = a.reshape(*a.shape[:lead], -1)[..., :1] if a.size else np.ones((*a.shape[:lead], 1), a.dtype)
    return first.reshape(*a.shape[:lead], *[1] * ndim)
