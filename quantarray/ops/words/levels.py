"""Levels of an array, other values for its codes, and operands laid out beside them.

A function of one array is a function of its levels: at most 256 of them, or that many for each index along which
constants vary. What it gives becomes the new law, and words move only where codes fall together:

| values              | law                            | words                                              |
|---------------------|--------------------------------|----------------------------------------------------|
| bools               | `uint1`                        | codes through a table                              |
| integers            | `integers`, ascending if words | the same where every code keeps a value of its own |
|                     | move, else in code order       | and none varies; else codes through a table        |
| floats              | `table` of as many levels      | the same                                           |

So dtypes follow from dtypes, operands and, where a function of real levels gives integers, from constants: never from
the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.constants import make_constants
from ...core.code_values import level_values
from ...core.dtypes import Array, DType, integers, table, uint1
from ...core.format import WORD_BITS
from .conversion import Pair, recode

FARTHEST = 2**31 - 1
_LEAST = 1 << 16  # bytes of constants that no array is too small for


def is_exact(q: QuantArray) -> bool:
    """True for integer levels without a scale."""
    return q.dtype.is_integer and not q.constants.has_scale


def operand(op: str, name: str, value: Any, q: QuantArray) -> Any:
    """Check for a number, or an array with q's axes that broadcasts to its shape."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(
            f"{op}: {name} must fit in 64 bits, got an integer of {value.bit_length()}; a float may be that large"
        )
    a = checks.numbers_beside(op, name, value, q)
    if a.ndim == 0:
        return int(a) if a.dtype == np.bool_ else a.item()
    if a.ndim > q.ndim or any(n not in (1, m) for n, m in zip(a.shape[::-1], q.shape[::-1], strict=False)):
        raise ValueError(
            f"{op}: {name} must be a number or broadcast to the packed array's shape {q.shape}, got {a.shape}; the "
            f"packed array is not repeated"
        )
    a = a.reshape((1,) * (q.ndim - a.ndim) + a.shape)
    if not a.size:  # along an axis of length 0: keep one, so that shapes broadcast
        a = np.ones([max(n, 1) for n in a.shape], a.dtype)
    return a.astype(np.int64) if a.dtype == np.bool_ else a


def group_beside(q: QuantArray, operands: Iterable[Any]) -> int | None:
    """Count the elements of the packed axis that share constants in a function of q and operands: 1 beside a vector
    along it."""
    along = any(isinstance(a, np.ndarray) and a.shape[q.axis] > 1 for a in operands)
    return 1 if along else q.group


def regroup(op: str, a: Array, lead: int, q: QuantArray, group: int | None) -> Array:
    """Cut a constant's groups along the packed axis into groups of a divisor of their length."""
    at = lead + q.axis
    if q.group is None or group is None or q.group == group or a.shape[at] == 1:
        return a
    affordable(op, q, (*a.shape[:at], -(-q.shape[q.axis] // group), *a.shape[at + 1 :]))
    return np.asarray(np.take(a, np.arange(0, q.shape[q.axis], group) // q.group, axis=at))


def levels_of(op: str, q: QuantArray, group: int | None) -> Array:
    """Return levels [n_levels, *axes of q], in groups of `group`: int64 where they are exact, else float32."""
    levels = level_values(q.dtype, q.constants)
    return regroup(op, levels.reshape(len(levels), *(levels.shape[1:] or (1,) * q.ndim)), 1, q, group)


def affordable(op: str, q: QuantArray, *shapes: tuple[int, ...]) -> None:
    """Refuse constants of broadcast shapes that take more memory than the array's, or its values in float32."""
    nbytes = 4 * math.prod(np.broadcast_shapes(*shapes))
    if nbytes > max(_LEAST, 4 * q.size, 2 * q.constants.nbytes):  # twice: bfloat16 comes back as float32
        raise ValueError(
            f"{op}: the result's constants would vary so much that they take {nbytes:,} bytes, more than the values in "
            f"float32, {4 * q.size:,}; compute on .dequantize() in parts and quantize them again"
        )


def smaller(op: str, q: QuantArray, group: int | None, value: Any) -> None:
    """Refuse a vector whose numbers, as constants of q, would make a packed array larger than its float32 values.

    Not of fewer elements than a word has bits, for which the words are larger already.
    """
    if not isinstance(value, np.ndarray) or value.size == 1 or q.size < WORD_BITS:
        return
    old = math.prod(_level_shape(q, q.group)[1:])
    entries = math.prod(np.broadcast_shapes(_level_shape(q, group)[1:], value.shape))
    numbers = {"table": q.dtype.n_levels, "basis": q.bits + 1, "uniform": 2}.get(q.dtype.kind, 1)
    if entries > old and 4 * numbers * entries + q.size * q.bits / 8 > 4 * q.size:
        raise ValueError(
            f"{op}: the result's constants would vary so much that with its codes it is larger than its values in "
            f"float32, {4 * q.size:,} bytes; out_dtype=np.float32 returns these"
        )


def _level_shape(q: QuantArray, group: int | None) -> tuple[int, ...]:
    """Return the shape of `levels_of`, before they are computed."""
    dims = list(np.broadcast_shapes((1,) * q.ndim, *(a.shape[lead:] for _, a, lead in q.constants.stored())))
    if dims[q.axis] > 1 and group is not None:
        dims[q.axis] = -(-q.shape[q.axis] // group)
    return (q.dtype.n_levels, *dims)


def pointwise(op: str, f: Callable[..., Any], q: QuantArray, *operands: Any) -> QuantArray:
    """f(levels, *operands) as the values of q's codes; operands as `operand` gives them."""
    group = group_beside(q, operands)
    count, *along = _level_shape(q, group)
    dims = np.broadcast_shapes(tuple(along), *(np.shape(a) for a in operands))
    affordable(op, q, (count, *dims))
    levels = levels_of(op, q, group)
    with np.errstate(all="ignore"):  # what is not finite is refused by name
        values = f(levels, *operands)
    return with_values(op, q, checked(op, values, (len(levels), *dims), levels, *operands), group)


def checked(op: str, values: Any, shape: tuple[int, ...], *inputs: Any) -> Array:
    """Check what a function returned: numbers, finite, one for each level."""
    a = checks.numbers(op, "what the function returns", values)
    if a.shape != shape:
        raise ValueError(
            f"{op}: the function must return an array of the shape it was given, one value a level: {shape}, got "
            f"{a.shape}"
        )
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(a.astype(np.float32)) if a.dtype.kind == "f" else np.zeros(1, bool)
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        shown = ", ".join(str(np.broadcast_to(x, shape)[at]) for x in inputs)
        raise ValueError(f"{op}: levels must be finite and fit in float32, got {a[at]} for {shown}")
    return a


def with_values(op: str, q: QuantArray | Pair, values: Array, group: int | None) -> QuantArray:
    """Return the array whose code c has the value values[c], [n_levels, *axes of q] in groups of `group`; see the table
    above."""
    if values.dtype == np.bool_:
        return QuantArray(recode(q, values, 1, group), uint1, q.shape, q.axis)
    if values.dtype.kind == "f":
        return with_table(op, q.words, values, q, group)
    return _with_integers(op, q, values, group)


def with_table(
    op: str, words: Array, values: Array, q: QuantArray | Pair, group: int | None, dtype: DType | None = None
) -> QuantArray:
    """Wrap words of q's shape, and a float32 table for their codes."""
    return with_law(op, words, dtype or table(len(words), len(values)), q, group, table=values)


def with_law(
    op: str, words: Array, dtype: DType, q: QuantArray | Pair, group: int | None, **constants: Any
) -> QuantArray:
    """Wrap words of q's shape under another law."""
    constants_of_law = make_constants(op, dtype, q.shape, q.axis, **constants, group=group)
    return QuantArray(words, dtype, q.shape, q.axis, constants_of_law)


def with_levels(op: str, q: QuantArray, levels: Sequence[int]) -> QuantArray:
    """Return the array whose code c has the value levels[c], Python integers of which any two may be the same."""
    check_reach(op, min(levels), max(levels))
    return _with_integers(op, q, np.array(levels, np.int64).reshape(-1, *(1,) * q.ndim), q.group)


def _with_integers(op: str, q: QuantArray | Pair, values: Array, group: int | None) -> QuantArray:
    if not values.size:  # constants along an axis of length 0
        values = np.zeros((1,) * values.ndim, np.int64)
    different = np.unique(values)
    check_reach(op, int(different[0]), int(different[-1]))
    if len(different) > 256:
        raise ValueError(
            f"{op}: the result would have {len(different)} different integer levels, 8 bits hold 256; a function that "
            f"returns floats gives every index levels of its own"
        )
    if len(different) == len(values) == values.size:
        dtype = integers(values.ravel())
        if dtype.bits == q.bits:
            return QuantArray(q.words, dtype, q.shape, q.axis)
    dtype = integers(different)
    return QuantArray(recode(q, np.searchsorted(different, values), dtype.bits, group), dtype, q.shape, q.axis)


def check_reach(op: str, low: int, high: int) -> None:
    if max(-low, high) > FARTHEST:
        raise ValueError(
            f"{op}: integer levels must be within +-(2**31 - 1), the result's would go from {low} to {high}; a float "
            f"operand gives float32 levels"
        )
