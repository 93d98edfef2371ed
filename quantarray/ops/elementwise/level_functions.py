"""Functions of levels: NumPy evaluates them once a level, not once an element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.launched import both_on_gpu
from ...core.dtypes import Array, ternary
from ...core.hints import OutType, Values
from ..statistical.lines import words_by_parts
from ..words.conversion import recode
from ..words.levels import is_exact, levels_of, operand, pointwise, with_levels
from .dense_results import dense_result
from .mapping import table_function
from .planes import extreme


def abs(q: QuantArray) -> QuantArray:
    """abs(q): integer levels stay integers, equal ones merged; real ones become a table.

    >>> import quantarray as qa
    >>> q = qa.encode([-2, -1, 1], values=range(-2, 2))
    >>> abs(q).dequantize(), abs(q).dtype
    (array([2, 1, 1], dtype=int32), quantarray.integers(0, 1, 2))
    """
    return pointwise("abs", np.abs, checks.packed("abs", "q", q))


def relu(q: QuantArray) -> QuantArray:
    """max(q, 0): integer levels stay integers, equal ones merged; real ones become a table.

    >>> import quantarray as qa
    >>> qa.relu(qa.encode([-2, -1, 1], values=range(-2, 2))).dtype
    quantarray.uint1
    """
    return pointwise("relu", lambda v: np.maximum(v, v.dtype.type(0)), checks.packed("relu", "q", q))


def sign(q: QuantArray) -> QuantArray:
    """-1, 0 or 1: integers, those of them that the dtype can give; `ternary` for real levels.

    >>> import quantarray as qa
    >>> qa.sign(qa.from_codes([0, 1, 3], qa.uniform(2), scale=0.5, offset=-0.5)).dequantize()
    array([-1,  0,  1], dtype=int32)
    """
    op = "sign"
    if is_exact(checks.packed(op, "q", q)):
        return pointwise(op, np.sign, q)

    def signs(part: QuantArray) -> Array:
        return recode(part, np.sign(levels_of(op, part, part.group)).astype(np.int64) + 1, 2)

    return QuantArray(words_by_parts(q, 2, signs), ternary, q.shape, q.axis)


def square(q: QuantArray) -> QuantArray:
    """q * q: integer levels stay integers, equal ones merged; real ones become a table.

    >>> import quantarray as qa
    >>> qa.square(qa.encode([-2, 1], values=range(-2, 2))).dequantize()
    array([4, 1], dtype=int32)
    """
    return pointwise("square", np.square, checks.packed("square", "q", q))


def clip(q: QuantArray, min: Values | None = None, max: Values | None = None) -> QuantArray:
    """min(max(q, min), max); None leaves a side open. Numbers, or vectors that broadcast to q's shape.

    Integer levels between integers stay integers, equal ones merged; else a table.

    >>> import quantarray as qa
    >>> qa.clip(qa.encode([0, 2, 7], values=range(8)), 1, 4).dequantize()
    array([1, 2, 4], dtype=int32)
    """
    array = checks.packed("clip", "q", q)
    for f, bound in ((np.maximum, min), (np.minimum, max)):
        array = array if bound is None else table_function("clip", f, array, bound)
    return array


@overload
def maximum(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: None = None) -> QuantArray: ...
@overload
def maximum(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: DTypeLike) -> Array: ...
def maximum(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: OutType = None) -> QuantArray | Array:
    """Return the larger of a and b, one of them packed, the other a number, a vector, or packed (see `map2`).

    Integer levels beside integers stay integers, equal ones merged; else a table. Two packed arrays of integer levels
    may have any bits, others 8 together. out_dtype: a NumPy type gives a dense array of it, as of `add`.

    >>> import quantarray as qa
    >>> qa.maximum(qa.encode([0, 2, 3], values=range(4)), 2).dequantize()
    array([2, 2, 3], dtype=int32)
    """
    return _extreme("maximum", np.maximum, True, a, b, out_dtype)


@overload
def minimum(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: None = None) -> QuantArray: ...
@overload
def minimum(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: DTypeLike) -> Array: ...
def minimum(a: QuantArray | Values, b: QuantArray | Values, *, out_dtype: OutType = None) -> QuantArray | Array:
    """Return the smaller of a and b; see `maximum`.

    >>> import quantarray as qa
    >>> qa.minimum(qa.encode([0, 2, 3], values=range(4)), 2.5).dequantize()
    array([0. , 2. , 2.5], dtype=float32)
    """
    return _extreme("minimum", np.minimum, False, a, b, out_dtype)


def _extreme(op: str, f: np.ufunc, largest: bool, a: Any, b: Any, out_dtype: OutType) -> QuantArray | Array:
    if out_dtype is not None:
        return dense_result(op, f, a, b, out_dtype)
    if isinstance(a, QuantArray) and isinstance(b, QuantArray):
        result: QuantArray = both_on_gpu(extreme, a, b, op, f, largest)
        return result
    return table_function(op, f, a, b)


def floor_divide(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """floor(a / b), one of them packed; integers of integers. Raises ValueError for a division by 0.

    >>> import quantarray as qa
    >>> (qa.encode([0, 5, 7], values=range(8)) // 2).dequantize()
    array([0, 2, 3], dtype=int32)
    """
    return table_function("floor_divide", _whole(np.floor_divide), a, b)


def remainder(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a % b with the sign of b, one of them packed; integers of integers. Raises ValueError for a division by 0.

    >>> import quantarray as qa
    >>> (qa.encode([0, 5, 7], values=range(8)) % 4).dequantize()
    array([0, 1, 3], dtype=int32)
    """
    return table_function("remainder", _whole(np.remainder), a, b)


def pow(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a ** b, one of them packed. Integer levels to an integer power from 0 on stay integers; else a table.

    Raises ValueError for levels that are not finite.

    >>> import quantarray as qa
    >>> q = qa.encode([-1, 2], values=range(-2, 3))
    >>> (q**2).dequantize(), (2.0**q).dequantize()
    (array([1, 4], dtype=int32), array([0.5, 4. ], dtype=float32))
    """
    op = "pow"
    if isinstance(a, QuantArray) and not isinstance(b, QuantArray) and is_exact(a):
        exponent = operand(op, "the exponent", b, a)
        if isinstance(exponent, int) and exponent >= 0:
            least = min(exponent, 32 + exponent % 2)  # which leaves int32 as well, or is the power of -1, 0 or 1
            return with_levels(op, a, [v**least for v in a.dtype.levels or ()])
    return table_function(op, _real, a, b)


def round(q: QuantArray, decimals: int = 0) -> QuantArray:
    """Round levels to `decimals` digits after the point, halves to even; integer levels do not change.

    >>> import quantarray as qa
    >>> qa.round(qa.from_codes([0, 1, 3], qa.uniform(2), scale=0.5)).dequantize()
    array([0., 0., 2.], dtype=float32)
    """
    digits = checks.integer("round", "decimals", decimals, -(2**31))
    if is_exact(checks.packed("round", "q", q)) and digits >= 0:
        return q
    return pointwise("round", lambda v: np.round(v, digits), q)


def signbit(q: QuantArray) -> QuantArray:
    """uint1 ones where the sign is minus; for integer levels q < 0.

    >>> import quantarray as qa
    >>> qa.signbit(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([0, 1], dtype=int32)
    """
    return pointwise("signbit", lambda v: np.signbit(v), checks.packed("signbit", "q", q))


def isfinite(q: QuantArray) -> QuantArray:
    """uint1 ones: levels are finite.

    >>> import quantarray as qa
    >>> qa.isfinite(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([1, 1], dtype=int32)
    """
    return pointwise("isfinite", lambda v: np.ones(v.shape, bool), checks.packed("isfinite", "q", q))


def isnan(q: QuantArray) -> QuantArray:
    """uint1 zeros: no level is NaN.

    >>> import quantarray as qa
    >>> qa.isnan(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([0, 0], dtype=int32)
    """
    return pointwise("isnan", lambda v: np.zeros(v.shape, bool), checks.packed("isnan", "q", q))


def isinf(q: QuantArray) -> QuantArray:
    """uint1 zeros: no level is infinite.

    >>> import quantarray as qa
    >>> qa.isinf(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([0, 0], dtype=int32)
    """
    return pointwise("isinf", lambda v: np.zeros(v.shape, bool), checks.packed("isinf", "q", q))


def _whole(f: np.ufunc) -> Callable[[Any, Any], Any]:
    """Divide, and say so where NumPy gives 0 for an integer divided by 0."""
    return lambda a, b: f(a, b) if np.all(b) else np.where(np.equal(b, 0), np.nan, f(a, b))


def _real(a: Any, b: Any) -> Any:
    """a ** b of integers in float64, where their own arithmetic would wrap around."""
    return np.power(*(np.asarray(v, np.float64) if np.asarray(v).dtype.kind in "iu" else v for v in (a, b)))


def _function(
    name: str, f: Callable[[Any], Any], meaning: str, levels: str, shown: str, whole: bool = False
) -> Callable[[QuantArray], QuantArray]:
    """Return a thin use of `map`: f of every level. The docstring's example is f of two levels."""

    def apply(q: QuantArray) -> QuantArray:
        checks.packed(name, "q", q)
        return q if whole and is_exact(q) else pointwise(name, f, q)

    apply.__name__ = apply.__qualname__ = name
    what = "integer levels are left alone, real ones become a table" if whole else "a `table` of the same words"
    apply.__doc__ = f"""{meaning} of every element: {what}, rounded to float32.

    Raises ValueError where a level's result is not finite; levels that do not occur count too.

    >>> import quantarray as qa
    >>> qa.{name}(qa.from_codes([0, 1], qa.table(1), table={levels})).dequantize().round(3)
    array({shown}, dtype=float32)
    """
    return apply


floor = _function("floor", np.floor, "The largest integer not above it,", "[-0.5, 1.5]", "[-1.,  1.]", True)
ceil = _function("ceil", np.ceil, "The smallest integer not below it,", "[-1.5, 1.5]", "[-1.,  2.]", True)
trunc = _function("trunc", np.trunc, "The integer part", "[-1.5, 1.5]", "[-1.,  1.]", True)
exp = _function("exp", np.exp, "e ** x", "[0.0, 1.0]", "[1.   , 2.718]")
expm1 = _function("expm1", np.expm1, "e ** x - 1", "[0.0, 1.0]", "[0.   , 1.718]")
log = _function("log", np.log, "The natural logarithm", "[1.0, 0.5]", "[ 0.   , -0.693]")
log1p = _function("log1p", np.log1p, "log(1 + x)", "[0.0, 1.0]", "[0.   , 0.693]")
log2 = _function("log2", np.log2, "The logarithm to base 2", "[1.0, 8.0]", "[0., 3.]")
log10 = _function("log10", np.log10, "The logarithm to base 10", "[1.0, 100.0]", "[0., 2.]")
sqrt = _function("sqrt", np.sqrt, "The square root", "[1.0, 4.0]", "[1., 2.]")
reciprocal = _function("reciprocal", lambda v: np.divide(1, v), "1 / x", "[2.0, -4.0]", "[ 0.5 , -0.25]")
sin = _function("sin", np.sin, "The sine", "[0.0, 1.0]", "[0.   , 0.841]")
cos = _function("cos", np.cos, "The cosine", "[0.0, 1.0]", "[1.  , 0.54]")
tan = _function("tan", np.tan, "The tangent", "[0.0, 1.0]", "[0.   , 1.557]")
asin = _function("asin", np.arcsin, "The arc sine", "[0.0, 1.0]", "[0.   , 1.571]")
acos = _function("acos", np.arccos, "The arc cosine", "[1.0, 0.0]", "[0.   , 1.571]")
atan = _function("atan", np.arctan, "The arc tangent", "[0.0, 1.0]", "[0.   , 0.785]")
sinh = _function("sinh", np.sinh, "The hyperbolic sine", "[0.0, 1.0]", "[0.   , 1.175]")
cosh = _function("cosh", np.cosh, "The hyperbolic cosine", "[0.0, 1.0]", "[1.   , 1.543]")
tanh = _function("tanh", np.tanh, "The hyperbolic tangent", "[0.0, 1.0]", "[0.   , 0.762]")
asinh = _function("asinh", np.arcsinh, "The inverse hyperbolic sine", "[0.0, 1.0]", "[0.   , 0.881]")
acosh = _function("acosh", np.arccosh, "The inverse hyperbolic cosine", "[1.0, 2.0]", "[0.   , 1.317]")
atanh = _function("atanh", np.arctanh, "The inverse hyperbolic tangent", "[0.0, 0.5]", "[0.   , 0.549]")


def _function_of_two(
    name: str, f: Callable[[Any, Any], Any], meaning: str, levels: str, other: str, shown: str
) -> Callable[[QuantArray | Values, QuantArray | Values], QuantArray]:
    """Return a thin use of `map`, or of `map2` where both operands are packed."""

    def apply(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
        return table_function(name, lambda x, y: f(*(np.asarray(v, np.float64) for v in (x, y))), a, b)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"""{meaning}, one of a and b packed, the other a number, a vector or packed: a table.

    Computed in float64 and rounded to float32. Raises ValueError where a level's result is not finite.

    >>> import quantarray as qa
    >>> qa.{name}(qa.from_codes([0, 1], qa.table(1), table={levels}), {other}).dequantize().round(3)
    array({shown}, dtype=float32)
    """
    return apply


atan2 = _function_of_two("atan2", np.arctan2, "The angle of (b, a)", "[0.0, 1.0]", "1.0", "[0.   , 0.785]")
hypot = _function_of_two("hypot", np.hypot, "sqrt(a * a + b * b)", "[3.0, 0.0]", "4.0", "[5., 4.]")
copysign = _function_of_two("copysign", np.copysign, "a with the sign of b", "[3.0, -1.0]", "-1.0", "[-3., -1.]")
logaddexp = _function_of_two("logaddexp", np.logaddexp, "log(exp(a) + exp(b))", "[0.0, 1.0]", "0.0", "[0.693, 1.313]")
