"""Places and orders of values: what needs elements in order."""

from __future__ import annotations

from typing import Any, Literal, SupportsIndex, cast, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.blocks import blocks
from ...backends.registry import empty, namespace, to_host
from ...core.dtypes import Array
from ...core.hints import Number, OutType, Side, Values, Vector
from ..manipulation.flattening import flattened
from ..manipulation.indexing import index
from ..manipulation.joining import concatenated
from ..manipulation.views import moveaxis
from ..words.conversion import dequantize
from ..words.level_tables import levels
from .lines import Lines, by_parts, by_values, steps, words_by_parts
from .reductions import count_nonzero, exact, integer_type, product_type, restored, sum_type
from .reductions import max as largest
from .reductions import min as smallest
from .sets import isin, tallied

_BLOCK = 1 << 16  # elements of a block whose values are computed
_PACKED_BLOCK = 1 << 22  # of one whose words are looked at


@overload
def argmax(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
@overload
def argmax(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def argmax(q: QuantArray, axis: SupportsIndex, *, keepdims: bool = False) -> Array: ...
def argmax(q: QuantArray, axis: SupportsIndex | None = None, *, keepdims: bool = False) -> Array | np.int64:
    """out = the first place of the largest value along an axis, or in C order for None; int64.

    Values count, not codes: levels may be in any order. Raises ValueError where there are no elements.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, 3, 3], [2, 0, 1]], values=range(4))
    >>> qa.argmax(q, axis=1), qa.argmax(q)
    (array([1, 0]), np.int64(1))
    """
    return _place("argmax", q, axis, keepdims, True)


@overload
def argmin(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
@overload
def argmin(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def argmin(q: QuantArray, axis: SupportsIndex, *, keepdims: bool = False) -> Array: ...
def argmin(q: QuantArray, axis: SupportsIndex | None = None, *, keepdims: bool = False) -> Array | np.int64:
    """out = the first place of the smallest value; as `argmax`.

    >>> import quantarray as qa
    >>> qa.argmin(qa.encode([[1, 3, 3], [2, 0, 1]], values=range(4)), axis=0)
    array([0, 1, 1])
    """
    return _place("argmin", q, axis, keepdims, False)


def _place(op: str, q: Any, axis: Any, keepdims: Any, high: bool) -> Array:
    q, keep = checks.packed(op, "q", q), checks.flag(op, "keepdims", keepdims)
    over = tuple(range(q.ndim)) if axis is None else (checks.axis(op, axis, q.ndim),)
    if 0 in (q.shape[d] for d in over):
        raise ValueError(f"{op}: no elements have no {op}: {q.shape} over axis {axis}")
    if axis is None and q.ndim > 1:
        first = _first_of_all(q, to_host(largest(q) if high else smallest(q)))
        return restored(namespace(q.device).asarray(first), over, keep)

    place = np.argmax if high else np.argmin
    by_value = by_values(q, over[0], lambda v: np.asarray(place(v, axis=-1, keepdims=True)))
    if by_value is not None:
        return restored(np.squeeze(by_value, over[0]), over, keep)

    def places(part: QuantArray) -> Array:
        table = levels(part).astype(np.float64)
        return Lines(part, over[0]).argmax(table if high else -table, -np.inf)

    return restored(by_parts(q, over[0], places, removes=True), over, keep)


def _first_of_all(q: QuantArray, value: Any) -> int:
    """Find the first place of a value in C order, by blocks of rows along the packed axis."""
    strides = np.cumprod((1, *q.shape[:0:-1]))[::-1]
    outer = [d for d in range(q.ndim) if d != q.axis]
    best = q.size
    for block in blocks(tuple(q.shape[d] for d in outer), max(1, _PACKED_BLOCK // max(1, q.shape[q.axis]))):
        starts = sum(s.start * strides[d] for d, s in zip(outer, block, strict=True))
        if starts >= best:
            continue
        key: list[slice] = [slice(None)] * q.ndim
        for d, s in zip(outer, block, strict=True):
            key[d] = s
        part = index(q, tuple(key))
        places = _first_in_rows(part, value)
        rows_with = np.argwhere(places >= 0)
        if len(rows_with):
            flat = starts + rows_with @ strides[outer] + places[tuple(rows_with.T)] * strides[q.axis]
            best = min(best, int(flat.min()))
    return best


def _first_in_rows(q: QuantArray, value: Any) -> Array:
    """Find the first place of a value in each row along the packed axis, -1 where there is none."""

    def in_values(values: Array) -> Array:
        hit = values == value
        return np.where(hit.any(axis=-1), hit.argmax(axis=-1), -1)[..., None]

    def in_codes(part: QuantArray) -> Array:
        return Lines(part, q.axis).argmax((levels(part) == value).astype(np.float64), 0.0)

    first = by_values(q, q.axis, in_values)
    return to_host(by_parts(q, q.axis, in_codes, removes=True) if first is None else np.squeeze(first, q.axis))


def cumulative_sum(
    q: QuantArray, *, axis: int | None = None, dtype: OutType = None, include_initial: bool = False
) -> Array:
    """out[.., i, ..] = sum of the values up to and with element i along `axis`, which may be left out if it is the one.

    Types, and `dtype`, as of `sum` over the axis. With `include_initial` a 0 goes before each line. Floats are added
    one after the other in float64, and each sum is rounded once.

    >>> import quantarray as qa
    >>> q = qa.encode([1, -1, 1, 1], values=(-1, 1))
    >>> qa.cumulative_sum(q), qa.cumulative_sum(q, include_initial=True)
    (array([1, 0, 1, 2], dtype=int32), array([0, 1, 0, 1, 2], dtype=int32))
    """
    op = "cumulative_sum"
    q, more = checks.packed(op, "q", q), checks.flag(op, "include_initial", include_initial)
    at = _only_axis(op, q, axis)
    kind = sum_type(op, q, q.shape[at], dtype)
    line_sums = by_values(q, at, lambda v: _cumulated(v, more, kind))
    if line_sums is not None:
        return line_sums

    def sums(part: QuantArray) -> Array:
        lines = Lines(part, at)
        out, rest = steps(lines, int(more), kind)
        if rest.size:
            lines.fill("cumulate", levels(part), rest)
        return lines.in_order(out)

    return by_parts(q, at, sums)


def _cumulated(values: Array, initial: bool, kind: Any) -> Array:
    """Sum [.., n] up to each element, added one after the other in float64; a 0 before each line if `initial`."""
    out = np.zeros((*values.shape[:-1], int(initial) + values.shape[-1]))
    out[..., int(initial) :] = values
    out[..., 0] += 0.0  # a line begins with 0 + value: no -0
    return np.add.accumulate(out, axis=-1, out=out).astype(kind, copy=False)


def cumulative_prod(
    q: QuantArray, *, axis: int | None = None, dtype: OutType = None, include_initial: bool = False
) -> Array:
    """out[.., i, ..] = product of the values up to and with element i along `axis`; a 1 first with `include_initial`.

    Integer levels give int32, or int64 where max|level| ** n asks for it, exact; OverflowError where that may not fit.
    Floats are multiplied one after the other in float64, and each product is rounded once. `dtype` as in `sum`.

    >>> import quantarray as qa
    >>> qa.cumulative_prod(qa.encode([2, -1, 2, -1], values=(-1, 2)))
    array([ 2, -2, -4,  4], dtype=int32)
    """
    op = "cumulative_prod"
    q, more = checks.packed(op, "q", q), int(checks.flag(op, "include_initial", include_initial))
    at = _only_axis(op, q, axis)
    rows, n = moveaxis(q, at, -1), q.shape[at]
    out = empty(q.device, (*rows.shape[:-1], more + n), product_type(op, q, n, dtype))
    out[..., :more] = 1
    last: Any = 1
    for block in blocks(rows.shape, arrays=(rows,)):  # the parts of a line one after the other
        values = dequantize(index(rows, block)).astype(np.int64 if exact(q) else np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            if block[-1].start:
                values[..., 0] *= last
            np.multiply.accumulate(values, axis=-1, out=values)
            out[..., more:][block] = values
        last = values[..., -1]
    return np.moveaxis(out, -1, at)


def _only_axis(op: str, q: QuantArray, axis: Any) -> int:
    if axis is None and q.ndim > 1:
        raise ValueError(f"{op}: needs axis= for an array of {q.ndim} axes")
    return checks.axis(op, 0 if axis is None else axis, q.ndim)


def diff(
    q: QuantArray, *, axis: int = -1, n: int = 1, prepend: QuantArray | None = None, append: QuantArray | None = None
) -> Array:
    """out[.., i, ..] = value i + 1 less value i along an axis; of these differences again, n times in all.

    n=0 gives the values themselves, as `dequantize` does. prepend, append: arrays that `concatenate` joins with q
    first, unless n is 0. Integer levels give int32, or int64 where 2**n * max|level| >= 2**31, and OverflowError from
    2**63 on. Others give float32, each difference rounded once.

    >>> import quantarray as qa
    >>> qa.diff(qa.encode([1, -1, 1, 1], values=(-1, 1)))
    array([-2,  2,  0], dtype=int32)
    """
    op = "diff"
    q = checks.packed(op, "q", q)
    at, times = checks.axis(op, axis, q.ndim), checks.integer(op, "n", n, 0)
    if not times:
        return dequantize(q)
    if prepend is not None or append is not None:
        ends = [None if a is None else checks.packed(op, n, a) for n, a in (("prepend", prepend), ("append", append))]
        q = concatenated(op, [a for a in (ends[0], q, ends[1]) if a is not None], at)
    dtype = _difference_type(op, q, times, q.shape[at] > times)
    times = min(times, max(q.shape[at], 1))
    rows, length = moveaxis(q, at, -1), q.shape[at]
    out = empty(q.device, (*rows.shape[:-1], max(length - times, 0)), dtype)
    before: Any = None  # of a line the last n values of the part before
    for block in blocks(rows.shape, _BLOCK, (rows,)):  # the parts of a line one after the other
        part = dequantize(index(rows, block)).astype(dtype, copy=False)
        start, stop = block[-1].start, block[-1].stop
        if start:
            part = np.concatenate([before, part], axis=-1)
            start -= before.shape[-1]
        out[(*block[:-1], slice(start, max(stop - times, start)))] = np.diff(part, times, -1)
        before = part[..., -times:]
    return np.moveaxis(out, -1, at)


def _difference_type(op: str, q: QuantArray, times: int, some: bool) -> Any:
    """Return the type of differences of differences, so many times; where none are left, no bound is too large."""
    if not exact(q):
        return np.float32
    return integer_type(op, 2**times * q.dtype.max_abs if some else min(2 ** min(times, 62) * q.dtype.max_abs, 2**62))


def sort(q: QuantArray, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> QuantArray:
    """Sort the values along an axis, as a packed array of the same law: codes are counted, and written in order.

    Equal values cannot be told apart, so every sort is stable. With axis=None the array is flattened first. Raises
    ValueError where constants vary along the axis.

    >>> import quantarray as qa
    >>> qa.sort(qa.encode([2, 0, 3, 2, 1], values=range(4)), descending=True).dequantize()
    array([3, 2, 2, 1, 0], dtype=int32)
    """
    op = "sort"
    q, at, down = _sorting(op, q, axis, descending, stable)
    if q.shape[at] > 1 and q.constants.varies(at):
        raise ValueError(
            f"{op}: the constants of {q.shape} vary along axis {at}, so a value may have no code where it would go; "
            f"np.sort takes .dequantize()"
        )

    def ordered(part: QuantArray) -> Array:
        order = np.argsort(levels(part), axis=0, kind="stable")
        return Lines(part, at).sort((order[::-1] if down else order).astype(np.uint8))

    words = words_by_parts(q, q.bits, ordered, at)
    return QuantArray(words, q.dtype, q.shape, q.axis, q.constants, q.scheme)


def argsort(q: QuantArray, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Array:
    """Sort the places along an axis by their values, int64; equal values in the order of their places.

    With axis=None they are places in C order.

    >>> import quantarray as qa
    >>> qa.argsort(qa.encode([2, 0, 3, 2, 1], values=range(4)))
    array([1, 4, 0, 3, 2])
    """
    q, at, down = _sorting("argsort", q, axis, descending, stable)
    sorted_values = by_values(q, at, lambda v: np.argsort(-v if down else v, axis=-1, kind="stable"))
    if sorted_values is not None:
        return sorted_values

    def places(part: QuantArray) -> Array:
        table = levels(part)
        varies = part.constants.varies(at)
        ranks = np.unique(table, return_inverse=True)[1].reshape(table.shape) if varies else _dense_ranks(table)
        lines = Lines(part, at)
        out, rest = steps(lines, 0, np.int64)
        if out.size:
            lines.fill("argsort", (ranks.max() - ranks if down else ranks).astype(np.int64), rest)
        return lines.in_order(out)

    return by_parts(q, at, places)


def _sorting(op: str, q: Any, axis: Any, descending: Any, stable: Any) -> tuple[QuantArray, int, bool]:
    q = checks.packed(op, "q", q)
    checks.flag(op, "stable", stable)
    if axis is None:
        q, axis = flattened(q), 0
    return q, checks.axis(op, axis, q.ndim), checks.flag(op, "descending", descending)


def _dense_ranks(table: Array) -> Array:
    """Rank each level among those of its column, equal levels having equal ranks."""
    order = np.argsort(table, axis=0, kind="stable")
    ascending = np.take_along_axis(table, order, 0)
    steps_up = np.concatenate([np.zeros_like(order[:1]), ascending[1:] != ascending[:-1]]).cumsum(axis=0)
    return np.take_along_axis(steps_up, np.argsort(order, axis=0), 0)


@overload
def searchsorted(q: QuantArray, values: Number, *, side: Side = "left", sorter: Values | None = None) -> np.int64: ...
@overload
def searchsorted(
    q: QuantArray, values: QuantArray | Vector, *, side: Side = "left", sorter: Values | None = None
) -> Array: ...
def searchsorted(
    q: QuantArray, values: QuantArray | Values, *, side: Side = "left", sorter: Values | None = None
) -> Array | np.int64:
    """Find where `values` would go into q, which has one axis and ascends: the number of elements below each, int64.

    With side="right" equal elements count too. values: numbers, or a packed array. Since elements are counted, not
    compared, this takes as long as a sum, and an array in any order has the places of its sorted self: a `sorter`, the
    places that sort it, changes nothing and is taken for NumPy's sake.

    >>> import quantarray as qa
    >>> q = qa.encode([0, 0, 1, 3], values=range(4))
    >>> qa.searchsorted(q, [0, 1, 2.5]), qa.searchsorted(q, [0, 1, 2.5], side="right")
    (array([0, 2, 3]), array([2, 3, 3]))
    """
    op = "searchsorted"
    q = checks.packed(op, "q", q)
    checks.choice(op, "side", side, ("left", "right"))
    if q.ndim != 1:
        raise ValueError(f"{op}: needs an array of one axis, got {q.shape}")
    # 8 bytes come out for each value, so that 4 may go in
    wanted = dequantize(values) if isinstance(values, QuantArray) else checks.numbers(op, "values", values)
    if sorter is not None and checks.numbers(op, "sorter", sorter).shape != q.shape:
        raise ValueError(f"{op}: sorter must have the shape {q.shape} of q, as argsort gives it")
    xp, tally = namespace(q.device), tallied(op, q)
    below = xp.asarray(np.concatenate([[0], np.cumsum(tally.counts)]))
    rank = xp.searchsorted(xp.asarray(tally.values), xp.asarray(wanted), "left" if side == "left" else "right")
    return cast(Array, below[rank])


def nonzero(q: QuantArray) -> tuple[Array, ...]:
    """Find the places of values that are not 0, an int64 array for each axis, in C order.

    >>> import quantarray as qa
    >>> qa.nonzero(qa.encode([[0, 1, 0], [1, 0, 1]], values=range(2)))
    (array([0, 1, 1]), array([1, 0, 2]))
    """
    mask = isin(q, 0, invert=True)
    out = empty(q.device, (q.ndim, int(count_nonzero(mask))), np.int64)
    done = 0
    for block in blocks(q.shape, _BLOCK):
        within = index(mask, block).codes().nonzero()
        for d, places in enumerate(within):
            out[d, done : done + len(places)] = places + block[d].start
        done += len(within[0])
    return tuple(out)
