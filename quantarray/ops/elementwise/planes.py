"""Sums and extremes of two arrays of integer levels of any widths, from their planes.

Codes u of both arrays are brought to one grid, low + step * u, where

    a + b = (low_a + low_b) + step * (u_a + u_b)        full adders, plane by plane
    max(a, b) = low + step * max(u_a, u_b)               comparators, from the highest plane down
"""

from __future__ import annotations

import math

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import contiguous, empty, kernel
from ...core.dtypes import Array, integers
from ...core.format import MAX_BITS, bits_for
from ..words.conversion import recode
from ..words.levels import check_reach, is_exact
from ..words.word_ops import chosen, order, widened
from .mapping import of_pairs
from .pairs import aligned


def added(p: QuantArray, q: QuantArray, op: str, f: np.ufunc) -> QuantArray:
    """f(p, q), a sum or a difference, of integer levels plane by plane; through a table of pairs where few allow it.

    A table has the sums that occur, a grid all in a row: they are the same where both arrays have one step.
    """
    few = p.bits + q.bits <= MAX_BITS
    same_step = p.dtype.step is not None and q.dtype.step is not None and abs(p.dtype.step) == abs(q.dtype.step)
    if not (is_exact(p) and is_exact(q)) or (few and (p.device != "cpu" or not same_step)):
        return of_pairs(p, q, op, f)
    p, q = aligned(op, a=p, b=q)
    levels = np.array(p.dtype.levels, np.int64), np.array(q.dtype.levels, np.int64) * (1 if f is np.add else -1)
    lows = [int(v.min()) for v in levels]
    step = math.gcd(*(int(v) - low for each, low in zip(levels, lows, strict=True) for v in each)) or 1
    count = 1 + sum((int(v.max()) - low) // step for v, low in zip(levels, lows, strict=True))
    _fits(op, count, sum(lows), sum(lows) + step * (count - 1))
    a, turned = _on_grid(p, (levels[0] - lows[0]) // step)
    b, other_turned = _on_grid(q, (levels[1] - lows[1]) // step)
    words = empty(p.device, (bits_for(count), *p.words.shape[1:]))
    if words.size:
        rows = [x.reshape(len(x), -1, x.shape[-1]) for x in (contiguous(a), contiguous(b), words)]
        kernel(p.device, "add_codes")(*rows[:2], (turned, other_turned), p.shape[p.axis], rows[2])
    return QuantArray(words, integers(range(sum(lows), sum(lows) + step * count, step)), p.shape, p.axis)


def extreme(p: QuantArray, q: QuantArray, op: str, f: np.ufunc, largest: bool) -> QuantArray:
    """f(p, q), the larger or the smaller of integer levels, by comparators; of real ones through a table of pairs.

    On a GPU a table is one launch, so that at most 8 bits together have one.
    """
    if not (is_exact(p) and is_exact(q)) or (p.device != "cpu" and p.bits + q.bits <= MAX_BITS):
        return of_pairs(p, q, op, f)
    p, q = aligned(op, a=p, b=q)
    mine, theirs = (np.array(x.dtype.levels, np.int64) for x in (p, q))
    # One array's levels are all on this side of the bound, so that the other's beyond it never show
    bound = max(mine.min(), theirs.min()) if largest else min(mine.max(), theirs.max())
    values = np.unique(np.concatenate([mine, theirs]))
    values = values[values >= bound] if largest else values[values <= bound]
    _fits(op, len(values), int(values[0]), int(values[-1]))
    a, b = (_ranked(x, np.searchsorted(values, np.clip(v, values[0], values[-1])), len(values))
            for x, v in ((p, mine), (q, theirs)))  # fmt: skip
    smaller, _ = order(a, b)
    words = chosen(smaller, b, a) if largest else chosen(smaller, a, b)
    return QuantArray(words, integers(values), p.shape, p.axis)


def _ranked(q: QuantArray, ranks: Array, count: int) -> Array:
    """Return words of the bits of `count` ranks, whose bits do not move where codes are ranks."""
    bits = bits_for(count)
    if q.bits <= bits and (ranks == np.arange(len(ranks))).all():
        return widened(q.words, bits)
    return recode(q, ranks.reshape(-1, *(1,) * q.ndim), bits)


def _on_grid(q: QuantArray, codes: Array) -> tuple[Array, bool]:
    """Return words whose codes are codes[c] for each code c, and whether they are those of the inverted words."""
    every = np.arange(len(codes))
    if (codes == every).all():
        return q.words, False
    if len(codes) == 2**q.bits and (codes == every[::-1]).all():
        return q.words, True
    return recode(q, codes.reshape(-1, *(1,) * q.ndim), bits_for(int(codes.max()) + 1)), False


def _fits(op: str, count: int, low: int, high: int) -> None:
    check_reach(op, low, high)
    if count > 2**MAX_BITS:
        dense = "int16" if -(2**15) <= low and high < 2**15 else "int32"
        raise ValueError(
            f"{op}: the result would have {count} integer levels from {low} to {high}, {MAX_BITS} bits hold "
            f"{2**MAX_BITS}; out_dtype=np.{dense} returns a dense array, or map one of them to fewer levels first"
        )
