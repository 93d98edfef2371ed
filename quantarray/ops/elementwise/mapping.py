"""Any function of one array or two: evaluated once a level, or once a pair of levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...core.format import MAX_BITS, bits_for
from ..words.conversion import Pair, recode
from ..words.levels import affordable, checked, is_exact, levels_of, operand, pointwise, with_table, with_values
from .pairs import aligned, common_group, pair_codes


def map(f: Callable[[Array], Any], q: QuantArray) -> QuantArray:
    """f of every element, evaluated once a level: f(q.dequantize()) in as many bits, or fewer.

    f takes an array of levels and returns one of the same shape, element by element: int64 levels where they are
    exact integers, else float32 with the axes of q after the first. Floats give a `table` of the same words,
    rounded to float32; integers an integer dtype, equal ones merged; bools uint1. It is called for levels that do not
    occur too. Raises ValueError where it gives NaN, an infinity, or another shape.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.encode([-2, 0, 1], values=range(-2, 2))
    >>> qa.map(lambda v: v * v - 1, q).dequantize(), qa.map(np.tanh, q).dtype
    (array([ 3, -1,  0], dtype=int32), quantarray.table(2))
    """
    return pointwise("map", checks.function("map", "f", f), checks.packed("map", "q", q))


def map2(f: Callable[[Array, Array], Any], p: QuantArray, q: QuantArray) -> QuantArray:
    """f(p, q) element by element, evaluated once for each pair of levels: a table of the pairs.

    p and q broadcast to one shape, have one packed axis, and 8 bits an element together at most. Integers from f give
    an integer dtype of the different values among all pairs, bools uint1, floats a `table` with one entry a pair.
    Raises ValueError for more bits, for NaN and for infinities.

    >>> import quantarray as qa, numpy as np
    >>> a, b = qa.encode([1, -1, 1], values=(-1, 1)), qa.encode([3, 2, 0], values=range(4))
    >>> c = qa.map2(np.multiply, a, b)
    >>> c.dequantize(), c.dtype, c.bits
    (array([ 3, -2,  0], dtype=int32), quantarray.integers(range(-3, 4)), 3)
    """
    op = "map2"
    return of_pairs(checks.packed(op, "p", p), checks.packed(op, "q", q), op, checks.function(op, "f", f))


def of_pairs(p: QuantArray, q: QuantArray, op: str, f: Callable[[Array, Array], Any]) -> QuantArray:
    """`map2`, and what says so by another name."""
    p, q = aligned(op, a=p, b=q)
    if p.bits + q.bits > MAX_BITS:
        raise ValueError(
            f"{op}: two packed arrays go through a table of their pairs, of at most {MAX_BITS} bits, got {p.bits} + "
            f"{q.bits} = {p.bits + q.bits}; map one of them to fewer levels first, or {_otherwise(op)}"
        )
    group = common_group(p, q)
    codes_p, codes_q = pair_codes(p, q)
    left, right = levels_of(op, p, group)[codes_p], levels_of(op, q, group)[codes_q]
    shape = np.broadcast_shapes(left.shape, right.shape)
    affordable(op, p, shape)
    with np.errstate(all="ignore"):  # what is not finite is refused by name
        values = checked(op, f(left, right), shape, left, right)
    both = Pair(p, q, group)
    pairs = p.dtype.n_levels * q.dtype.n_levels
    if values.dtype.kind != "f" or pairs == len(values):
        return with_values(op, both, values, group)
    # A table has one entry a pair: number the pairs that occur without gaps
    number = codes_p + p.dtype.n_levels * codes_q
    words = recode(both, number.reshape(-1, *(1,) * p.ndim), bits_for(pairs))
    _, first = np.unique(number, return_index=True)
    return with_table(op, words, values[first], p, group)


def _otherwise(op: str) -> str:
    """Say how else values are computed: `quantarray.ops.elementwise.dense_results` has these operations."""
    dense = op in ("add", "subtract", "multiply", "maximum", "minimum")
    return "out_dtype=np.float32 returns a dense array" if dense else "compute on .dequantize() in parts"


def table_function(op: str, f: Callable[..., Any], a: Any, b: Any) -> QuantArray:
    """f(a, b) through a table: of levels where one operand is a number or a vector, of pairs where both are packed.

    Vectors are float32 numbers, so that results have float32 levels for every index.
    """
    if isinstance(a, QuantArray) and isinstance(b, QuantArray):
        return of_pairs(a, b, op, f)
    q = a if isinstance(a, QuantArray) else checks.packed(op, "one operand", b)
    value = operand(op, "the operand", b if q is a else a, q)
    if isinstance(value, np.ndarray):
        value = value.astype(np.float64 if is_exact(q) else np.float32)
    return pointwise(op, f if q is a else lambda levels, left: f(left, levels), q, value)
