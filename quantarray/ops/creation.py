"""Making packed arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array import QuantArray, validate, validate_constants
from ..dtypes import Array, Constants, DType, integers
from ..format import WORD, word_count
from . import checks
from .conversion import pack_codes


def make_constants(
    op: str,
    dtype: DType,
    shape: tuple[int, ...],
    axis: int,
    scale: Any = None,
    offset: Any = None,
    table: Any = None,
    group: int | None = None,
) -> Constants:
    """Constants in their stored form: float32, read-only, one axis for each of the array's."""
    if group is not None:
        group = checks.integer(op, "group", group, 1)
    lead = {"table": 1, "scale": int(dtype.kind == "basis"), "offset": 0}
    made: dict[str, Array] = {}
    for name, value in (("scale", scale), ("offset", offset), ("table", table)):
        if value is None:
            continue
        a = checks.numbers(op, name, value)
        if a.ndim == lead[name]:  # one value for the whole array
            a = a.reshape(a.shape + (1,) * len(shape))
        a = np.atleast_1d(checks.float32(op, name, a)) + np.float32(0)  # no -0: equal constants, equal digests
        a.flags.writeable = False
        made[name] = a
    if dtype.kind in ("uniform", "basis"):
        if "scale" not in made:
            raise ValueError(f"{op}: {dtype} needs a scale; its offset is 0 if none is given")
        if "offset" not in made:
            made["offset"] = np.zeros((1,) * len(shape), np.float32)
            made["offset"].flags.writeable = False
    constants = Constants(made.get("scale"), made.get("offset"), made.get("table"), group)
    try:
        validate_constants(dtype, shape, axis, constants)
    except ValueError as error:
        raise ValueError(f"{op}: {error}") from None
    varies = any(a.shape[n + axis] > 1 for _, a, n in constants.items())
    return Constants(constants.scale, constants.offset, constants.table, group if varies else None)


def from_codes(
    codes: Any,
    dtype: DType,
    axis: int = -1,
    *,
    scale: Any = None,
    offset: Any = None,
    table: Any = None,
    group: int | None = None,
) -> QuantArray:
    """Pack integer codes: value = the law of `dtype` at each code.

    codes: integers in 0 .. dtype.n_levels - 1, any shape with at least one axis. `axis` is packed. Constants are
    scalars, or broadcast against the shape (a basis' scale and a table have their codes' axis first).
    Raises TypeError for codes that are not integers, ValueError for codes or constants out of range.

    >>> import quantarray as qa
    >>> qa.from_codes([0, 1, 3], qa.uniform(2), scale=0.5, offset=-1.0).dequantize()
    array([-1. , -0.5,  0.5], dtype=float32)
    >>> qa.from_codes([0, 1, 2, 3], qa.basis(2), scale=[1.0, 4.0]).dequantize()
    array([0., 1., 4., 5.], dtype=float32)
    """
    op = "from_codes"
    x = checks.real_array(op, "codes", codes)
    _check_dtype(op, dtype)
    if x.dtype.kind == "f":
        raise TypeError(f"{op}: codes must be integers, got {x.dtype}; quantize(x, quantizer) turns floats into codes")
    at = checks.axis(op, axis, x.ndim)
    if x.size and (x.min() < 0 or x.max() >= dtype.n_levels):
        raise ValueError(f"{op}: {dtype} has the codes 0 to {dtype.n_levels - 1}, got {x.min()} to {x.max()}")
    constants = make_constants(op, dtype, x.shape, at, scale, offset, table, group)
    return QuantArray(pack_codes(x, at, dtype.bits), dtype, x.shape, at, constants)


def from_words(
    words: Any,
    dtype: DType,
    shape: tuple[int, ...],
    axis: int = -1,
    *,
    scale: Any = None,
    offset: Any = None,
    table: Any = None,
    group: int | None = None,
) -> QuantArray:
    """Take packed words, which are copied: uint64 [bits, *outer, word], bit i % 64 of word i // 64 is element i.

    Raises ValueError where the shape is another, where bits behind the last element are not zero, or where a code
    is beyond the dtype's levels.

    >>> import quantarray as qa, numpy as np
    >>> qa.from_words(np.array([[0b101]], np.uint64), qa.bipolar, (3,)).dequantize()
    array([ 1, -1,  1], dtype=int32)
    """
    op = "from_words"
    _check_dtype(op, dtype)
    lengths = checks.lengths(op, shape)
    at = checks.axis(op, axis, len(lengths))
    w = checks.numbers(op, "words", words)
    expected = (dtype.bits, *lengths[:at], *lengths[at + 1 :], word_count(lengths[at]))
    if w.dtype != WORD or w.shape != expected:
        raise ValueError(f"{op}: words must be uint64 {expected} for shape {lengths}, got {w.dtype} {w.shape}")
    constants = make_constants(op, dtype, lengths, at, scale, offset, table, group)
    q = QuantArray(np.array(w, WORD, order="C"), dtype, lengths, at, constants)
    try:
        validate(q)
    except ValueError as error:
        raise ValueError(f"{op}: {error}") from None
    return q


def encode(x: Any, values: Any = None, axis: int = -1) -> QuantArray:
    """Pack an array that holds exactly the integers `values`; nothing is rounded.

    values: a dtype of integer levels, or the integers; levels are in ascending order unless a dtype or a sequence
    says otherwise (sets and ranges are sorted). Bools need none: they are uint1.
    Raises ValueError with the first element that is not among the values.

    >>> import quantarray as qa
    >>> qa.encode([[1, 0, -1]], values=(-1, 0, 1)).dtype
    quantarray.ternary
    >>> qa.encode([1, 2], values=(-1, 1))
    Traceback (most recent call last):
    ValueError: encode: x must hold only the values of bipolar (-1, 1), got 2 at (1,)
    """
    op = "encode"
    a = checks.real_array(op, "x", x)
    at = checks.axis(op, axis, a.ndim)
    if values is None:
        if a.dtype != np.bool_:
            raise TypeError(f"{op}: needs the values that x may hold, e.g. values=(-1, 1); only bools need none")
        values = range(2)
    try:
        dtype = values if isinstance(values, DType) else integers(sorted(values) if _unordered(values) else values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op}: values must be integers or a dtype of them: {error}") from None
    if dtype.levels is None:
        raise TypeError(f"{op}: values must be integers, got {dtype}; real levels need quantize or from_codes")
    levels = np.array(dtype.levels)
    order = np.argsort(levels)
    place = np.minimum(np.searchsorted(levels[order], a), len(levels) - 1)
    codes = order[place]
    wrong = levels[codes] != a
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        few = f"({', '.join(map(str, levels[:8]))}{', ..' if len(levels) > 8 else ''})"
        raise ValueError(f"{op}: x must hold only the values of {dtype} {few}, got {a[where]} at {where}")
    return QuantArray(pack_codes(codes.astype(np.uint8), at, dtype.bits), dtype, a.shape, at)


def _unordered(values: Any) -> bool:
    return isinstance(values, (set, frozenset, range))


def _check_dtype(op: str, dtype: Any) -> None:
    if not isinstance(dtype, DType):
        raise TypeError(f"{op}: dtype must be one of quantarray's (bipolar, uint4, uniform(3), ..), got {dtype!r}")
