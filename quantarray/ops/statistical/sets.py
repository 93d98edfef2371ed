"""Sets of values: which occur, how often, and where, by counting codes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.blocks import blocks
from ...backends.registry import device_of, empty, namespace, to_host
from ...core.dtypes import Array, Constants, uint1
from ...core.hints import Values
from ..counting.histograms import field, fold
from ..counting.reducers import Tally
from ..manipulation.indexing import index
from ..words.conversion import dequantize, looked_up, recode
from ..words.level_tables import is_small, level_table, levels
from .lines import words_by_parts
from .reductions import exact

_BLOCK = 1 << 16  # elements


class UniqueCounts(NamedTuple):
    """A result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """A result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


class UniqueAll(NamedTuple):
    """A result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


def unique_values(q: QuantArray) -> Array:
    """Find the values that occur, ascending: int32 or float32 [values].

    >>> import quantarray as qa
    >>> qa.unique_values(qa.encode([[3, 0], [3, 3]], values=range(4)))
    array([0, 3], dtype=int32)
    """
    return _placed("unique_values", q).values


def unique_counts(q: QuantArray) -> UniqueCounts:
    """Find the values that occur, ascending, and how often each does, int64.

    >>> import quantarray as qa
    >>> qa.unique_counts(qa.encode([[3, 0], [3, 3]], values=range(4)))
    UniqueCounts(values=array([0, 3], dtype=int32), counts=array([1, 3]))
    """
    return _placed("unique_counts", q)


def unique_inverse(q: QuantArray) -> UniqueInverse:
    """Find the values that occur, ascending, and which of them each element has, int64 in the shape of q.

    >>> import quantarray as qa
    >>> qa.unique_inverse(qa.encode([[3, 0], [3, 3]], values=range(4))).inverse_indices
    array([[1, 0],
           [1, 1]])
    """
    placed = _placed("unique_inverse", _with_places("unique_inverse", q))
    return UniqueInverse(placed.values, _inverse(q, to_host(placed.values)))


def unique_all(q: QuantArray) -> UniqueAll:
    """Find the values that occur, ascending; the first place of each in C order; which one each element has; how often.

    Places and counts are int64. What the result has of each element is 8 bytes: `unique_counts` does without.

    >>> import quantarray as qa
    >>> found = qa.unique_all(qa.encode([[3, 0], [3, 3]], values=range(4)))
    >>> found.values, found.indices, found.counts
    (array([0, 3], dtype=int32), array([1, 0]), array([1, 3]))
    """
    placed = _placed("unique_all", _with_places("unique_all", q))
    inverse = _inverse(q, to_host(placed.values))
    return UniqueAll(placed.values, _first(inverse, len(placed.values)), inverse, placed.counts)


def _with_places(op: str, q: Any) -> QuantArray:
    """Check that a packed array's elements' places have room."""
    q = checks.packed(op, "q", q)
    checks.room(op, f"int64 places of shape {q.shape}", 8 * q.size)
    places: QuantArray = q
    return places


def _inverse(q: QuantArray, values: Array) -> Array:
    """Return the place of each element's value among `values`, int64."""
    out = empty(q.device, q.shape, np.int64)
    for block in blocks(q.shape, _BLOCK, (q,)):
        part = index(q, block)
        if q.device == "cpu" and not is_small(part):
            out[block] = np.searchsorted(values, dequantize(part))
        else:
            out[block] = looked_up(np.searchsorted(values, levels(part).astype(values.dtype)), part)
    return out


def _first(inverse: Array, n: int) -> Array:
    """Find where each of the numbers below n comes first in C order."""
    flat, out = inverse.reshape(-1), np.zeros(n, np.int64)
    if not isinstance(flat, np.ndarray):  # of several values for one place CuPy keeps any
        first: Array = namespace(device_of(flat)).unique(flat, return_index=True)[1]
        return first
    for start in reversed(range(0, flat.size, _BLOCK)):
        part = flat[start : start + _BLOCK]
        # From the end to the front, so that what is written last is first
        out[part[::-1]] = np.arange(start + len(part) - 1, start - 1, -1)
    return out


def _placed(op: str, q: Any) -> UniqueCounts:
    """`tallied` on q's device."""
    tally = tallied(op, q)
    return UniqueCounts(*map(namespace(q.device).asarray, tally))


def tallied(op: str, q: Any) -> UniqueCounts:
    """`unique_counts` on the CPU for q on any device: both are made there, from counts."""
    q = checks.packed(op, "q", q)
    tally = Tally(level_table(q), np.int32 if exact(q) else np.float32)
    fold(field(q), tuple(range(q.ndim)), q.group, [tally])
    return UniqueCounts(*tally.merged())


def isin(q: QuantArray, values: QuantArray | Values, *, invert: bool = False) -> QuantArray:
    """1 where an element is one of `values`, a uint1 array packed as q is; 0 there with `invert`.

    >>> import quantarray as qa
    >>> qa.isin(qa.encode([1, 0, -1], values=(-1, 0, 1)), [0, 1]).dequantize()
    array([1, 1, 0], dtype=int32)
    """
    op = "isin"
    q = checks.packed(op, "q", q)
    wanted, inverted = checks.numbers(op, "values", values), checks.flag(op, "invert", invert)
    words = words_by_parts(q, 1, lambda part: recode(part, np.isin(levels(part), wanted, invert=inverted), 1))
    return QuantArray(words, uint1, q.shape, q.axis, Constants())
