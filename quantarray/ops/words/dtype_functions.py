"""Between dtypes: which holds the values of which, and arrays under another law of the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import DType, integers, uint1
from ...core.format import MAX_BITS
from .conversion import recode
from .levels import levels_of, with_law, with_table
from .word_ops import constant_rows, widened

_KINDS = ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric")


def astype(q: QuantArray, dtype: DType) -> QuantArray:
    """Return the same values under another dtype, where it holds them all; see `can_cast`.

    Integer levels get other codes and keep a scale. A law that becomes uniform or a table keeps its codes: constants
    are float32, so that integers beyond 2**24 are rounded. Raises ValueError where `can_cast` is False, whatever the
    codes in the array are: nothing is decided by looking at data, and nothing is rounded to other levels.

    >>> import quantarray as qa
    >>> q = qa.encode([1, -1], values=(-1, 1))
    >>> qa.astype(q, qa.int4).dequantize(), qa.astype(q, qa.table(2)).dequantize()
    (array([ 1, -1], dtype=int32), array([ 1., -1.], dtype=float32))
    """
    op = "astype"
    checks.packed(op, "q", q)
    to = _dtype(op, "dtype", dtype)
    if not _holds(to, q.dtype, q.constants.has_scale):
        raise ValueError(
            f"{op}: {to} does not have all levels of {q.dtype} ({_why_not(to, q)}); encode(q.dequantize(), dtype) "
            f"keeps values that happen to fit, quantize(q.dequantize(), quantizer) rounds"
        )
    return cast(q, to)


def can_cast(from_: Any, to: DType) -> bool:
    """True where `astype` takes an array, or arrays of a dtype, to a dtype: it has all their levels.

    Integer levels go to integer dtypes that have them, with or without a scale, and to `table`; without one to
    `uniform` too, if they have an even step and float32 has the step and the first. Real levels go to more of their
    kind and to `table`.

    >>> import quantarray as qa
    >>> qa.can_cast(qa.bipolar, qa.int2), qa.can_cast(qa.uint2, qa.int2), qa.can_cast(qa.uint2, qa.uniform(2))
    (True, False, True)
    """
    op = "can_cast"
    scaled = isinstance(from_, QuantArray) and from_.dtype.is_integer and from_.constants.has_scale
    return _holds(_dtype(op, "to", to), _dtype(op, "from_", from_), scaled)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that holds the values of all: what `where` gives of arrays of integer levels.

    The first dtype that has all the integer levels, else one of all of them in ascending order. Equal dtypes of real
    levels are their own. Raises ValueError for more than 256 levels together, and for different real ones: their
    levels are constants of arrays.

    >>> import quantarray as qa
    >>> qa.result_type(qa.bipolar, qa.ternary), qa.result_type(qa.uint2, qa.encode([1, -1], values=(-1, 1)))
    (quantarray.ternary, quantarray.integers(range(-1, 4)))
    """
    op = "result_type"
    if not arrays_and_dtypes:
        raise ValueError(f"{op}: needs at least one array or dtype")
    return common_dtype(op, [_dtype(op, "an argument", x) for x in arrays_and_dtypes])


def isdtype(dtype: DType, kind: str | DType | tuple[str | DType, ...]) -> bool:
    """True where a dtype is of a kind, or is it, or one of several; the kinds are the array API's.

    "bool" is uint1, which comparisons give, and an "unsigned integer" too. "real floating" are real levels.

    >>> import quantarray as qa
    >>> qa.isdtype(qa.bipolar, "signed integer"), qa.isdtype(qa.table(2), ("integral", "bool"))
    (True, False)
    """
    op = "isdtype"
    one = _dtype(op, "dtype", dtype)
    if isinstance(kind, tuple):
        return any(isdtype(one, k) for k in kind)
    if isinstance(kind, DType):
        return one == kind
    checks.choice(op, "kind", kind, _KINDS)
    negative = one.levels is not None and min(one.levels) < 0
    return {
        "bool": one == uint1,
        "signed integer": negative,
        "unsigned integer": one.is_integer and not negative,
        "integral": one.is_integer,
        "real floating": not one.is_integer,
        "complex floating": False,
        "numeric": True,
    }[kind]


class IntegerInfo(NamedTuple):
    """A record of bits, smallest and largest level of an integer dtype."""

    bits: int
    min: int
    max: int
    dtype: DType


def iinfo(dtype: DType) -> IntegerInfo:
    """Return bits, smallest and largest level of an integer dtype. Raises TypeError for real levels, which constants
    give.

    >>> import quantarray as qa
    >>> qa.iinfo(qa.int4).min, qa.iinfo(qa.bipolar).max
    (-8, 1)
    """
    law = _dtype("iinfo", "dtype", dtype)
    if law.levels is None:
        raise TypeError(f"iinfo: dtype must have integer levels, got {law}; q.levels are those of an array")
    return IntegerInfo(law.bits, min(law.levels), max(law.levels), law)


def common_dtype(op: str, dtypes: Sequence[DType]) -> DType:
    """`result_type`, and what says so by another name."""
    different = list(dict.fromkeys(dtypes))
    if len(different) == 1:
        return different[0]
    listed = ", ".join(map(str, different))
    if any(d.levels is None for d in different):
        raise ValueError(
            f"{op}: {listed} have no common dtype, because real levels are an array's constants; "
            f"astype(q, table(bits)) gives an array's own"
        )
    union = set().union(*(d.levels or () for d in different))
    if len(union) > 2**MAX_BITS:
        raise ValueError(
            f"{op}: {listed} have {len(union)} levels together, {MAX_BITS} bits hold {2**MAX_BITS}; map one to fewer "
            f"levels first"
        )
    return next((d for d in different if len(d.levels or ()) == len(union)), None) or integers(sorted(union))


def cast(q: QuantArray, to: DType) -> QuantArray:
    """`astype` to a dtype that holds the levels."""
    if q.dtype == to:
        return q
    if to.levels is not None and q.dtype.levels is not None:
        place = {level: code for code, level in enumerate(to.levels)}
        codes = [place[level] for level in q.dtype.levels]
        if q.bits == to.bits and codes == list(range(len(codes))):
            return QuantArray(q.words, to, q.shape, q.axis, q.constants)
        if len(codes) == 1:
            words = constant_rows(codes[0], to.bits, q.words.shape[1:-1], q.shape[q.axis], q.device)
            return QuantArray(words, to, q.shape, q.axis, q.constants)
        words = recode(q, np.array(codes).reshape(-1, *(1,) * q.ndim), to.bits)
        return QuantArray(words, to, q.shape, q.axis, q.constants)
    words, more = widened(q.words, to.bits), to.n_levels - q.dtype.n_levels
    if to.kind == "table":
        levels = levels_of("astype", q, q.group)
        levels = np.concatenate([levels, np.repeat(levels[-1:], more, axis=0)])
        return with_table("astype", words, levels, q, q.group, to)
    constants = {name: getattr(q.constants, name) for name, _, _ in q.constants.items()}
    if q.dtype.levels is not None:
        constants = {"scale": q.dtype.step, "offset": q.dtype.levels[0]}
    elif to.kind == "basis":
        constants["scale"] = np.concatenate(
            [constants["scale"], np.zeros((to.bits - q.bits, *constants["scale"].shape[1:]))]
        )
    return with_law("astype", words, to, q, q.group, **constants)


def _holds(to: DType, from_: DType, scaled: bool) -> bool:
    if to == from_:
        return True
    if to.levels is not None:
        return from_.levels is not None and set(from_.levels) <= set(to.levels)
    if to.bits < from_.bits or to.n_levels < from_.n_levels:
        return False
    if from_.levels is None or to.kind != "uniform":
        return to.kind in ("table", from_.kind)
    return from_.step is not None and not scaled and _is_float32(from_.step) and _is_float32(from_.levels[0])


def _is_float32(n: int) -> bool:
    return int(np.float32(n)) == n


def _why_not(to: DType, q: QuantArray) -> str:
    from_ = q.dtype
    if to.levels is None:
        scaled = " with a scale" if from_.is_integer and q.constants.has_scale else ""
        return f"{from_.n_levels} levels of the kind {from_.kind}{scaled} to {to.n_levels} of the kind {to.kind}"
    if from_.levels is None:
        return "they are real"
    missing = sorted(set(from_.levels) - set(to.levels))
    more = ", .." if len(missing) > 4 else ""
    return f"it lacks {', '.join(map(str, missing[:4]))}{more}"


def _dtype(op: str, name: str, value: Any) -> DType:
    if isinstance(value, QuantArray):
        return value.dtype
    if not isinstance(value, DType):
        raise TypeError(
            f"{op}: {name} must be one of quantarray's dtypes (bipolar, uint4, uniform(3), ..), got {value!r}"
        )
    return value
