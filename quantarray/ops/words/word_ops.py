"""Whole words: what comparisons, masks and bit logic share."""

from __future__ import annotations

import numpy as np

from ...backends.registry import device_of, empty, namespace, zeros
from ...core.dtypes import Array
from ...core.format import tail_mask, word_count


def clear_tail(words: Array, length: int) -> Array:
    """Clear the bits after the last element, in place; return the words."""
    if words.size:
        words[..., -1] &= np.uint64(tail_mask(length))
    return words


def inverted(words: Array, length: int) -> Array:
    """~words, tails zero."""
    return clear_tail(~words, length)


def constant(code: int, bits: int, outer: tuple[int, ...], length: int, device: str = "cpu") -> Array:
    """Fill words [bits, *outer, word] of rows of `length` elements that all have one code."""
    words = zeros(device, (bits, *outer, word_count(length)))
    for k in range(bits):
        if code >> k & 1:
            words[k] = ~words[k]
    return clear_tail(words, length)


def constant_rows(code: int, bits: int, outer: tuple[int, ...], length: int, device: str = "cpu") -> Array:
    """`constant` as a view of one row."""
    row = constant(code, bits, (1,) * len(outer), length, device)
    rows: Array = namespace(device).broadcast_to(row, (bits, *outer, row.shape[-1]))
    return rows


def widened(words: Array, bits: int) -> Array:
    """Put planes of zeros above the planes."""
    if len(words) == bits:
        return words
    device = device_of(words)
    more = zeros(device, (bits - len(words), *words.shape[1:]))
    joined: Array = namespace(device).concatenate([words, more])
    return joined


def chosen(mask: Array, yes: Array, no: Array) -> Array:
    """Choose planes of yes where mask is one, of no elsewhere: no ^ ((yes ^ no) & mask), a plane at a time."""
    out = empty(device_of(yes), np.broadcast_shapes(yes.shape, no.shape))
    for k in range(len(out)):
        np.bitwise_xor(yes[k], no[k], out=out[k])
        out[k] &= mask
        out[k] ^= no[k]
    return out


def order(p: Array, q: Array) -> tuple[Array, Array]:
    """Compare p and q: return one plane of p < q and one of p == q, of codes in as many planes; the tail is equal.

    From the highest bit down: smaller where all bits above are equal and this one is 0 in p and 1 in q.
    """
    smaller = zeros(device_of(p), p.shape[1:])
    same = ~smaller
    for a, b in zip(p[::-1], q[::-1], strict=True):
        differs = (a ^ b) & same
        same ^= differs
        differs &= b
        smaller |= differs
    return smaller, same
