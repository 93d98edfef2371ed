"""Sums and products with numbers and vectors: other constants for the same words.

| law of q                | q * s, q / s, -q               | q + t, q - t, t - q                             |
|-------------------------|--------------------------------|-------------------------------------------------|
| integers, integer s, t  | integers; q / s is scaled      | integers                                        |
| integers, float s, t    | integers with a scale          | uniform if each level is rounded once so, or a table |
| integers, vectors       | integers with a scale          | uniform if the step is even and a float32, or a table |
| scaled integers         | the same, other scale          | uniform if the step is a power of two, or a table |
| uniform, basis          | the same, other scale, offset  | the same, other offset                          |
| table                   | table                          | table                                           |

Constants and operands are numbers of float64; a constant of the result is rounded to float32 once, an offset at the
size of the first level. docs/type-rules.md has the error that this leaves. An operand that is a packed array goes
through the joint table of `map2`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast, overload

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.launched import both_on_gpu, on_gpu
from ...core.dtypes import Array, DType, uniform
from ...core.hints import OutType, Values
from ..words.levels import (
    affordable,
    group_beside,
    is_exact,
    operand,
    regroup,
    smaller,
    with_law,
    with_levels,
    with_table,
)
from .dense_results import dense_result
from .mapping import of_pairs, table_function
from .planes import added


def positive(q: QuantArray) -> QuantArray:
    """+q: the array itself.

    >>> import quantarray as qa
    >>> qa.positive(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([ 1, -1], dtype=int32)
    """
    return checks.packed("positive", "q", q)


def conj(q: QuantArray) -> QuantArray:
    """Return the array itself, since levels are real.

    >>> import quantarray as qa
    >>> qa.conj(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([ 1, -1], dtype=int32)
    """
    return checks.packed("conj", "q", q)


def real(q: QuantArray) -> QuantArray:
    """Return the array itself, since levels are real.

    >>> import quantarray as qa
    >>> qa.real(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([ 1, -1], dtype=int32)
    """
    return checks.packed("real", "q", q)


def negative(q: QuantArray) -> QuantArray:
    """-q: keep the words, with constants or integer levels of the other sign; exact.

    >>> import quantarray as qa
    >>> q = qa.encode([0, 1, 3], values=range(4))
    >>> (-q).dequantize(), (-q).dtype
    (array([ 0, -1, -3], dtype=int32), quantarray.integers(0, -1, -2, -3))
    """
    op = "negative"
    checks.packed(op, "q", q)
    if is_exact(q):
        return with_levels(op, q, [-v for v in q.dtype.levels or ()])
    return _times(op, q, -1, operator.mul)


@overload
def add(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: None = None) -> QuantArray: ...
@overload
def add(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: DTypeLike) -> Array: ...
def add(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: OutType = None) -> QuantArray | Array:
    """a + b, one of them packed and the other a number, or a vector that broadcasts to the packed array's shape.

    Integer levels plus an integer stay integers. Else float32 constants, each rounded once: an offset moves, and
    what has none becomes uniform, or a table where its levels have no even step. So every level is within an ulp of
    the largest level, the spacing of float32 there; `map(lambda v: v + t, q)` rounds each level at its own size. Two
    packed arrays of integer levels are added plane by plane, others go through `map2`.

    out_dtype: a NumPy type of integers or floats gives a dense array of it: exact for integers, else the sum in float64
    rounded once. Raises ValueError for levels beyond +-(2**31 - 1) or float32, for more than 256 levels, and where the
    result would be larger than its values in float32; OverflowError for integers that out_dtype does not hold.

    >>> import quantarray as qa
    >>> q = qa.encode([[1, -1], [1, 1]], values=(-1, 1))
    >>> (q + 3).dequantize().tolist(), (q + 3).dtype
    ([[4, 2], [4, 4]], quantarray.integers(2, 4))
    >>> (q + [[0.5], [10.0]]).dequantize().tolist(), (q + q).dtype
    ([[1.5, -0.5], [11.0, 11.0]], quantarray.integers(-2, 0, 2))

    Levels from -64e6 to 63e6, with an ulp of 4:

    >>> wide = qa.from_codes([64, 65], qa.int7, scale=1e6)
    >>> (wide + 1.7936).dequantize().tolist(), qa.map(lambda v: v + 1.75, wide).dequantize().tolist()
    ([0.0, 1000000.0], [1.75, 1000001.75])
    """
    if out_dtype is not None:
        return dense_result("add", np.add, a, b, out_dtype)
    if isinstance(a, QuantArray) and isinstance(b, QuantArray):
        return cast(QuantArray, both_on_gpu(added, a, b, "add", np.add))
    q, t = (a, b) if isinstance(a, QuantArray) else (checks.packed("add", "one operand", b), a)
    return cast(QuantArray, on_gpu(_added_to, q, t))


def _added_to(q: QuantArray, t: Any) -> QuantArray:
    return _plus("add", q, operand("add", "the operand", t, q))


@overload
def subtract(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: None = None) -> QuantArray: ...
@overload
def subtract(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: DTypeLike) -> Array: ...
def subtract(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: OutType = None) -> QuantArray | Array:
    """a - b, one of them packed; laws and errors as in `add`.

    >>> import quantarray as qa
    >>> q = qa.encode([0, 3], values=range(4))
    >>> (q - 1).dequantize(), (1 - q).dequantize(), (q - 0.5).dequantize()
    (array([-1,  2], dtype=int32), array([ 1, -2], dtype=int32), array([-0.5,  2.5], dtype=float32))
    """
    op = "subtract"
    if out_dtype is not None:
        return dense_result(op, np.subtract, a, b, out_dtype)
    if isinstance(a, QuantArray) and isinstance(b, QuantArray):
        return cast(QuantArray, both_on_gpu(added, a, b, op, np.subtract))
    if isinstance(a, QuantArray):
        return cast(QuantArray, on_gpu(_less, a, b))
    return cast(QuantArray, on_gpu(_taken_from, checks.packed(op, "one operand", b), a))


def _less(q: QuantArray, t: Any) -> QuantArray:
    return _plus("subtract", q, _negated(operand("subtract", "the operand", t, q)))


def _taken_from(q: QuantArray, t: Any) -> QuantArray:
    return _plus("subtract", negative(q), operand("subtract", "the operand", t, q))


@overload
def multiply(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: None = None) -> QuantArray: ...
@overload
def multiply(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: DTypeLike) -> Array: ...
def multiply(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: OutType = None) -> QuantArray | Array:
    """a * b, one of them packed and the other a number, or a vector that broadcasts to the packed array's shape.

    Integer levels times an integer stay integers; times a float or a vector they get it as their scale. Else scale,
    offset and table are multiplied, rounded once: a level within 2**-22 of the largest level, of integers within 1.5
    ulp of itself. Two packed arrays go through `map2`. Raises ValueError as `add` does.

    >>> import numpy as np, quantarray as qa
    >>> q = qa.encode([[1, -1], [1, 1]], values=(-1, 1))
    >>> (q * 3).dtype, (q * 0.5).dequantize().tolist(), (q * [[2.0], [3.0]]).scale.ravel().tolist()
    (quantarray.integers(-3, 3), [[0.5, -0.5], [0.5, 0.5]], [2.0, 3.0])
    >>> qa.multiply(q, [[2.0, 3.0], [4.0, 5.0]], out_dtype=np.float32).tolist()
    [[2.0, -3.0], [4.0, 5.0]]
    """
    op = "multiply"
    if out_dtype is not None:
        return dense_result(op, np.multiply, a, b, out_dtype)
    if isinstance(a, QuantArray) and isinstance(b, QuantArray):
        return cast(QuantArray, both_on_gpu(of_pairs, a, b, op, np.multiply))
    q, s = (a, b) if isinstance(a, QuantArray) else (checks.packed(op, "one operand", b), a)
    return cast(QuantArray, on_gpu(_multiplied, q, s))


def _multiplied(q: QuantArray, s: Any) -> QuantArray:
    op = "multiply"
    factor = operand(op, "the operand", s, q)
    if is_exact(q) and isinstance(factor, int):
        return with_levels(op, q, [v * factor for v in q.dtype.levels or ()])
    return _times(op, q, factor, operator.mul)


def divide(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a / b in real numbers, one of them packed. q / s divides constants and keeps the law; s / q gives a table.

    Integer levels L get the scale 1 / s: L / s within 1.5 ulp of float32. Raises ValueError for a
    division by 0, packed or not, because constants are finite.

    >>> import quantarray as qa
    >>> q = qa.encode([1, 3], values=range(1, 5))
    >>> (q / 2).dequantize(), (q / 2).dtype, (6 / q).dequantize()
    (array([0.5, 1.5], dtype=float32), quantarray.integers(1, 2, 3, 4), array([6., 2.], dtype=float32))
    """
    op = "divide"
    if isinstance(a, QuantArray) and not isinstance(b, QuantArray):
        divisor = operand(op, "the divisor", b, a)
        if np.any(np.equal(divisor, 0)):
            raise ValueError(f"{op}: division by 0 gives no finite constants; take the zeros out of the divisor")
        return _times(op, a, divisor, operator.truediv)
    return table_function(op, np.divide, a, b)


def _times(op: str, q: QuantArray, factor: Any, change: Callable[[Array, Any], Any]) -> QuantArray:
    """Multiply every constant of q by a factor, or divide it."""
    group = group_beside(q, [factor])
    smaller(op, q, group, factor)
    changed = {name: _beside(op, q, change, a, factor) for name, a in _constants(op, q, group).items()}
    return with_law(op, q.words, q.dtype, q, group, **changed)


def _plus(op: str, q: QuantArray, t: Any) -> QuantArray:
    """q + t; see the table above."""
    if is_exact(q) and isinstance(t, int):
        return with_levels(op, q, [v + t for v in q.dtype.levels or ()])
    group = group_beside(q, [t])
    smaller(op, q, group, t)
    constants = _constants(op, q, group)
    if q.dtype.levels is None:
        moved = "table" if q.dtype.kind == "table" else "offset"
        constants[moved] = _beside(op, q, operator.add, constants[moved], t)
        return with_law(op, q.words, q.dtype, q, group, **constants)
    scale = constants["scale"]
    if not _keeps_step(q, t):
        levels = np.array(q.dtype.levels, np.float64).reshape(-1, *(1,) * q.ndim)
        affordable(op, q, levels.shape, scale.shape, np.shape(t))
        return with_table(op, q.words, _beside(op, q, operator.add, scale * levels, t), q, group)
    offset = _beside(op, q, operator.add, scale * q.dtype.levels[0], t)
    dtype = uniform(q.bits, q.dtype.n_levels)
    return with_law(op, q.words, dtype, q, group, scale=scale * (q.dtype.step or 1), offset=offset)


def _keeps_step(q: QuantArray, t: Any) -> bool:
    """True where integer levels plus t may be a uniform law: no rounding but that of the offset moves a level.

    Looks at q's dtype, at whether it has a scale, and at t: never at the scale, which data may have given.
    """
    step = q.dtype.step
    if step is None:
        return False
    if q.scale is not None:  # times a power of two it is exact; another step would be rounded once for every code
        return abs(step).bit_count() == 1
    if isinstance(t, np.ndarray):
        return float(np.float32(step)) == step
    return _rounds_once(q.dtype, float(t))


def _rounds_once(dtype: DType, t: float) -> bool:
    """True where the float32 offset and step give every integer level plus t, rounded once."""
    levels = np.array(dtype.levels, np.float64)
    with np.errstate(over="ignore"):  # an offset beyond float32 is refused by name
        offset, step = (np.float32(v).astype(np.float64) for v in (levels[0] + t, dtype.step))
        uniform_levels = (offset + step * np.arange(len(levels))).astype(np.float32)
        return bool((uniform_levels == (levels + t).astype(np.float32)).all())


def _constants(op: str, q: QuantArray, group: int | None) -> dict[str, Array]:
    """Return every constant of q in float64, in groups of `group`; the scale 1 of integers without one."""
    if is_exact(q):
        return {"scale": np.ones((1,) * q.ndim)}
    read = ((name, getattr(q.constants, name).astype(np.float64), lead) for name, _, lead in q.constants.items())
    return {name: regroup(op, a, lead, q, group) for name, a, lead in read}


def _beside(op: str, q: QuantArray, change: Callable[[Array, Any], Any], a: Array, value: Any) -> Array:
    """change(a, value) in float64; what is not finite is refused by name when constants are made of it."""
    affordable(op, q, a.shape, np.shape(value))
    with np.errstate(all="ignore"):
        return np.asarray(change(a, np.asarray(value, np.float64)))


def _negated(value: Any) -> Any:
    """Return -value, of unsigned integers too."""
    return -value.astype(np.float64) if isinstance(value, np.ndarray) else -value
