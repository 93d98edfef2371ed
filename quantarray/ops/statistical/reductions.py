"""Sums, means, extremes and counts over axes, made of popcounts: nothing is unpacked.

Results are NumPy arrays. Their types follow from dtypes and shapes alone:

| function                          | integer levels without a scale            | float constants          |
|-----------------------------------|-------------------------------------------|--------------------------|
| sum, cumulative_sum               | int32; int64 where n * max|level| >= 2^31 | float32                  |
| prod                              | likewise, with max|level| ** n            | refused                  |
| min, max                          | int32                                     | float32                  |
| mean, var, std                    | float32                                   | float32                  |
| count_nonzero, counts             | int64                                     | int64                    |
| any, all                          | bool                                      | bool                     |

Integers are exact. Floats are computed in float64 from exact counts and the float32 levels, in the order that
`counting/reducers.py` states, and rounded once.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, Literal, cast, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.launched import on_gpu
from ...backends.registry import contiguous, empty, kernel
from ...core.dtypes import Array
from ...core.hints import Axes, OutType
from ..counting.histograms import Job, field, fold
from ..counting.reducers import Extreme, IntegerSum, Occurrences, Product, RealSum, Variance
from ..words.level_tables import LevelTable, level_table, mapped


def axes(op: str, ndim: int, axis: Any) -> tuple[int, ...]:
    """Return the axes to reduce, each once; all for None."""
    if axis is None:
        return tuple(range(ndim))
    listed = axis if isinstance(axis, (tuple, list)) else (axis,)
    numbers = tuple(checks.axis(op, a, ndim) for a in listed)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{op}: axis must name each axis once, got {axis}")
    return numbers


def elements(q: QuantArray, over: tuple[int, ...]) -> int:
    """Count the elements that a result is made of."""
    return math.prod(q.shape[d] for d in over)


def restored(result: Array, over: tuple[int, ...], keepdims: bool, lead: int = 0) -> Array:
    """Restore reduced axes as 1 with keepdims; return a NumPy scalar where no axis is left (see `hints`)."""
    if keepdims:
        return np.expand_dims(result, tuple(sorted(lead + d for d in over)))
    return cast(Array, result[()]) if result.ndim == 0 else result


def exact(q: QuantArray) -> bool:
    """True where results are integers."""
    return q.dtype.is_integer and not q.constants.has_scale


def integer_type(op: str, bound: int) -> type[np.signedinteger[Any]]:
    """int32 or int64 by the largest magnitude that a result may have."""
    if bound >= 2**63:
        raise OverflowError(f"{op}: the exact result may reach {bound}, beyond 2**63; reduce fewer elements")
    return np.int32 if bound < 2**31 else np.int64


def sum_type(op: str, q: QuantArray, n: int, dtype: Any = None) -> Any:
    """Return the type of a sum of n elements, or the one that was asked for."""
    return _asked(op, integer_type(op, n * q.dtype.max_abs) if exact(q) else np.float32, dtype)


def product_type(op: str, q: QuantArray, n: int, dtype: Any = None) -> Any:
    """Return the type of a product of n elements, or the one that was asked for."""
    if not exact(q):
        return _asked(op, np.float32, dtype)
    most = q.dtype.max_abs
    if most > 1 and n * math.log2(most) >= 63:
        raise OverflowError(f"{op}: the product of {n} levels up to {most} may not fit int64; multiply fewer elements")
    return _asked(op, integer_type(op, most**n if most > 1 else 1), dtype)


def _asked(op: str, default: Any, dtype: Any) -> Any:
    """Check the type that a caller names, which must hold what the type by the rules holds."""
    if dtype is None:
        return default
    asked = checks.dtype(op, "dtype", dtype, (np.int32, np.int64, np.float32, np.float64))
    if asked.kind == "i" and default is np.float32:
        raise TypeError(f"{op}: float constants give float32 or float64, got dtype={asked}; round the result")
    if asked == np.int32 and default is np.int64:
        raise OverflowError(f"{op}: the exact result may not fit int32; leave dtype out, or pass np.int64")
    return asked.type


def _reduced(op: str, q: QuantArray, over: tuple[int, ...], keepdims: Any, job: Job) -> Array:
    keep = checks.flag(op, "keepdims", keepdims)
    return restored(fold(field(q), over, q.group, [job])[0], over, keep)


@overload
def sum(
    q: QuantArray, axis: None = None, *, dtype: OutType = None, keepdims: Literal[False] = False
) -> np.number[Any]: ...
@overload
def sum(q: QuantArray, axis: None = None, *, dtype: OutType = None, keepdims: Literal[True]) -> Array: ...
@overload
def sum(q: QuantArray, axis: Axes, *, dtype: OutType = None, keepdims: bool = False) -> Array: ...
def sum(
    q: QuantArray, axis: Axes | None = None, *, dtype: OutType = None, keepdims: bool = False
) -> Array | np.number[Any]:
    """out = sum of the values over `axis`: one, several, or all for None.

    Integer levels give int32, or int64 where elements * max|level| does not fit; exact. Others give float32. dtype:
    int32, int64, float32 or float64 instead, where it holds that.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    >>> qa.sum(q), qa.sum(q, axis=0), qa.sum(q, axis=1, keepdims=True).tolist()
    (np.int32(4), array([2, 0, 2], dtype=int32), [[1], [3]])
    """
    return cast(Array, on_gpu(_sum, q, axis, dtype, keepdims))


def _sum(q: QuantArray, axis: Any, dtype: Any, keepdims: Any) -> Array:
    op = "sum"
    q = checks.packed(op, "q", q)
    over = axes(op, q.ndim, axis)
    return _summed(op, q, over, keepdims, sum_type(op, q, elements(q, over), dtype))


@overload
def mean(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.float32: ...
@overload
def mean(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def mean(q: QuantArray, axis: Axes, *, keepdims: bool = False) -> Array: ...
def mean(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.float32:
    """out = sum / number of elements, float32: divided in float64 and rounded once; NaN of no elements.

    >>> import quantarray as qa
    >>> qa.mean(qa.encode([[1, -1, 1, 1], [0, 0, 0, 1]], values=(-1, 0, 1)), axis=1)
    array([0.5 , 0.25], dtype=float32)
    """
    return cast(Array, on_gpu(_mean, q, axis, keepdims))


def _mean(q: QuantArray, axis: Any, keepdims: Any) -> Array:
    op = "mean"
    q = checks.packed(op, "q", q)
    over = axes(op, q.ndim, axis)
    n = elements(q, over)
    sum_type(op, q, n)
    if not n:
        return _nan(op, q, over, keepdims)
    return _summed(op, q, over, keepdims, np.float32, n)


def _summed(op: str, q: QuantArray, over: tuple[int, ...], keepdims: Any, dtype: Any, n: int | None = None) -> Array:
    """Sum up values in the type `dtype`, and divide by n if that is given."""
    table = level_table(q)
    of_rows = q.device != "cpu" and q.axis in over and not isinstance(table, LevelTable) and q.size > 0
    if not of_rows or builtins.any(table.shape[1 + d] > 1 for d in over):
        kind = IntegerSum if exact(q) else RealSum
        return _reduced(op, q, over, keepdims, kind(table, dtype, n))
    assert not isinstance(table, LevelTable)
    keep = checks.flag(op, "keepdims", keepdims)
    left, rest = ([d for d in range(q.ndim) if d != q.axis and (d in over) == inside] for inside in (False, True))
    place = [1 + (d if d < q.axis else d - 1) for d in left + rest]
    shape, tables = tuple(q.shape[d] for d in left), table.transpose(*(1 + d for d in left + rest), 1 + q.axis, 0)
    tables = np.ascontiguousarray(tables.reshape(-1, len(table)))
    row = np.arange(len(tables))
    if row.size > 1:
        row = np.array(np.broadcast_to(row.reshape([table.shape[1 + d] for d in left]), shape)).reshape(-1)
    words = contiguous(q.words.transpose(0, *place, q.words.ndim - 1))
    out = empty(q.device, shape, dtype)
    flat = words.reshape(q.bits, math.prod(shape), -1, words.shape[-1])
    kernel(q.device, "total")(flat, q.shape[q.axis], tables, row, n or 0, out.reshape(-1))
    return restored(out, over, keep)


def _nan(op: str, q: QuantArray, over: tuple[int, ...], keepdims: Any) -> Array:
    """Return the mean of no elements."""
    shape = tuple(n for d, n in enumerate(q.shape) if d not in over)
    return restored(np.full(shape, np.nan, np.float32), over, checks.flag(op, "keepdims", keepdims))


@overload
def var(q: QuantArray, axis: None = None, *, correction: float = 0, keepdims: Literal[False] = False) -> np.float32: ...
@overload
def var(q: QuantArray, axis: None = None, *, correction: float = 0, keepdims: Literal[True]) -> Array: ...
@overload
def var(q: QuantArray, axis: Axes, *, correction: float = 0, keepdims: bool = False) -> Array: ...
def var(
    q: QuantArray, axis: Axes | None = None, *, correction: float = 0, keepdims: bool = False
) -> Array | np.float32:
    """out = sum (value - mean)^2 / (number of elements - correction), float32.

    NaN of no elements, and where `correction` leaves nothing to divide by.

    >>> import quantarray as qa
    >>> q = qa.encode([0, 1, 2, 3], values=range(4))
    >>> qa.var(q), qa.var(q, correction=1)
    (np.float32(1.25), np.float32(1.6666666))
    """
    return _variance("var", q, axis, correction, keepdims, False)


@overload
def std(q: QuantArray, axis: None = None, *, correction: float = 0, keepdims: Literal[False] = False) -> np.float32: ...
@overload
def std(q: QuantArray, axis: None = None, *, correction: float = 0, keepdims: Literal[True]) -> Array: ...
@overload
def std(q: QuantArray, axis: Axes, *, correction: float = 0, keepdims: bool = False) -> Array: ...
def std(
    q: QuantArray, axis: Axes | None = None, *, correction: float = 0, keepdims: bool = False
) -> Array | np.float32:
    """out = sqrt(var), float32; arguments as in `var`.

    >>> import quantarray as qa
    >>> qa.std(qa.encode([1, 1, -3, -3], values=(-3, 1)))
    np.float32(2.0)
    """
    return _variance("std", q, axis, correction, keepdims, True)


def _variance(op: str, q: Any, axis: Any, correction: Any, keepdims: Any, root: bool) -> Array:
    q = checks.packed(op, "q", q)
    over = axes(op, q.ndim, axis)
    less = checks.number(op, "correction", correction)
    n = elements(q, over)
    if n <= 0 or n - less <= 0:
        return _nan(op, q, over, keepdims)
    return _reduced(op, q, over, keepdims, Variance(level_table(q), np.float32, n - less, root))


@overload
def prod(
    q: QuantArray, axis: None = None, *, dtype: OutType = None, keepdims: Literal[False] = False
) -> np.number[Any]: ...
@overload
def prod(q: QuantArray, axis: None = None, *, dtype: OutType = None, keepdims: Literal[True]) -> Array: ...
@overload
def prod(q: QuantArray, axis: Axes, *, dtype: OutType = None, keepdims: bool = False) -> Array: ...
def prod(
    q: QuantArray, axis: Axes | None = None, *, dtype: OutType = None, keepdims: bool = False
) -> Array | np.number[Any]:
    """out = product of the values, of integer levels whose product surely fits: max|level| ** elements < 2**63.

    int32, int64 where it may not fit that, or the `dtype` given, as in `sum`.

    Raises OverflowError where it may not, TypeError for float constants.

    >>> import quantarray as qa
    >>> qa.prod(qa.encode([[1, -1, 1], [-1, -1, 1]], values=(-1, 1)), axis=1)
    array([-1,  1], dtype=int32)
    """
    op = "prod"
    q = checks.packed(op, "q", q)
    over = axes(op, q.ndim, axis)
    if not exact(q):
        raise TypeError(
            f"{op}: products of float levels depend on their order; needs integer levels without a scale, got "
            f"{q.dtype}; np.prod takes .dequantize()"
        )
    return _reduced(op, q, over, keepdims, Product(level_table(q), product_type(op, q, elements(q, over), dtype)))


@overload
def count_nonzero(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.int64: ...
@overload
def count_nonzero(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def count_nonzero(q: QuantArray, axis: Axes, *, keepdims: bool = False) -> Array: ...
def count_nonzero(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.int64:
    """out = number of values that are not 0, int64.

    >>> import quantarray as qa
    >>> qa.count_nonzero(qa.encode([[1, 0, -1], [0, 0, 1]], values=(-1, 0, 1)), axis=0)
    array([1, 0, 2])
    """
    op = "count_nonzero"
    q = checks.packed(op, "q", q)
    table = mapped(_nonzero, level_table(q))
    return _reduced(op, q, axes(op, q.ndim, axis), keepdims, IntegerSum(table, np.int64))


@overload
def any(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.bool: ...
@overload
def any(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def any(q: QuantArray, axis: Axes, *, keepdims: bool = False) -> Array: ...
def any(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.bool:
    """True where a value is not 0.

    >>> import quantarray as qa
    >>> qa.any(qa.encode([[1, 0, -1], [0, 0, 0]], values=(-1, 0, 1)), axis=1)
    array([ True, False])
    """
    op = "any"
    q = checks.packed(op, "q", q)
    return _reduced(op, q, axes(op, q.ndim, axis), keepdims, IntegerSum(mapped(_nonzero, level_table(q)), bool))


@overload
def all(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.bool: ...
@overload
def all(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def all(q: QuantArray, axis: Axes, *, keepdims: bool = False) -> Array: ...
def all(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.bool:
    """True where no value is 0.

    >>> import quantarray as qa
    >>> qa.all(qa.encode([[1, 0, -1], [1, 1, 1]], values=(-1, 0, 1)), axis=1)
    array([False,  True])
    """
    op = "all"
    q = checks.packed(op, "q", q)
    zeros = mapped(_zero, level_table(q))
    return np.logical_not(_reduced(op, q, axes(op, q.ndim, axis), keepdims, IntegerSum(zeros, bool)))


@overload
def max(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.number[Any]: ...
@overload
def max(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def max(q: QuantArray, axis: Axes, *, keepdims: bool = False) -> Array: ...
def max(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.number[Any]:
    """out = the largest value, int32 or float32. Levels may be in any order. Raises ValueError for no elements.

    >>> import quantarray as qa
    >>> qa.max(qa.encode([[5, -2, 0], [0, -2, -2]], values=(0, 5, -2)), axis=1)
    array([5, 0], dtype=int32)
    """
    return _extreme("max", q, axis, keepdims, True)


@overload
def min(q: QuantArray, axis: None = None, *, keepdims: Literal[False] = False) -> np.number[Any]: ...
@overload
def min(q: QuantArray, axis: None = None, *, keepdims: Literal[True]) -> Array: ...
@overload
def min(q: QuantArray, axis: Axes, *, keepdims: bool = False) -> Array: ...
def min(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array | np.number[Any]:
    """out = the smallest value, int32 or float32; as `max`.

    >>> import quantarray as qa
    >>> qa.min(qa.encode([[5, -2, 0], [0, 5, 0]], values=(0, 5, -2)), axis=1)
    array([-2,  0], dtype=int32)
    """
    return _extreme("min", q, axis, keepdims, False)


def _extreme(op: str, q: Any, axis: Any, keepdims: Any, largest: bool) -> Array:
    q = checks.packed(op, "q", q)
    over = axes(op, q.ndim, axis)
    if not elements(q, over):
        raise ValueError(f"{op}: no elements have no {op}: {q.shape} over axis {axis}")
    return _reduced(op, q, over, keepdims, Extreme(level_table(q), np.int32 if exact(q) else np.float32, largest))


def counts(q: QuantArray, axis: Axes | None = None, *, keepdims: bool = False) -> Array:
    """out[c, ..] = how often code c occurs, int64 [n_levels, *axes that are left].

    With `q.levels` this is the histogram, of which all other reductions are made.

    >>> import quantarray as qa
    >>> qa.counts(qa.encode([[0, 1, 1], [3, 3, 3]], values=range(4)), axis=1)
    array([[1, 0],
           [2, 0],
           [0, 0],
           [0, 3]])
    """
    op = "counts"
    q = checks.packed(op, "q", q)
    over, keep = axes(op, q.ndim, axis), checks.flag(op, "keepdims", keepdims)
    occurrences = fold(field(q), over, None, [Occurrences(q.bits, q.dtype.n_levels, q.ndim)])[0]
    return restored(occurrences, over, keep, 1)


def _nonzero(table: Array) -> Array:
    return np.not_equal(table, 0).astype(np.int64)


def _zero(table: Array) -> Array:
    return np.equal(table, 0).astype(np.int64)
