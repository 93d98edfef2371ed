"""Making packed arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray, validate
from ...arrays.constants import make_constants
from ...backends.registry import device_of, has_kernel
from ...core.dtypes import Array, DType, holding, int8, integers, uint1, uint8
from ...core.format import WORD, WORD_BITS, empty_lines, word_count
from ..statistical.lines import words_by_parts
from ..words.conversion import pack_codes, pack_seen, recode
from ..words.membership import first_codes
from ..words.placement import created
from ..words.word_ops import constant
from .exact_codes import encoded

_VALUES = {np.dtype(np.bool_): 2, np.dtype(np.uint8): 256}  # that a code of this type can have


@created
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
    x = checks.dense(op, "codes", codes)
    _check_dtype(op, dtype)
    if x.dtype.kind == "f":
        raise TypeError(f"{op}: codes must be integers, got {x.dtype}; quantize(x, quantizer) turns floats into codes")
    at = checks.axis(op, axis, x.ndim)
    words = _packed(op, x, dtype, at)
    return QuantArray(words, dtype, x.shape, at, make_constants(op, dtype, x.shape, at, scale, offset, table, group))


def _packed(op: str, x: Array, dtype: DType, at: int) -> Array:
    """Pack codes to words, all of which the dtype has."""
    fits = x.size == 0 or dtype.n_levels >= _VALUES.get(x.dtype, math.inf)
    whole = dtype.n_levels == 2**dtype.bits  # a code that is too large has a bit that is
    if not fits and whole and x.dtype == np.uint8 and has_kernel(device_of(x), "pack_seen"):
        words, most = pack_seen(x, at, dtype.bits)
        if most < dtype.n_levels:
            return words
    if not fits and ((x.dtype.kind == "i" and x.min() < 0) or x.max() >= dtype.n_levels):
        raise ValueError(f"{op}: {dtype} has the codes 0 to {dtype.n_levels - 1}, got {x.min()} to {x.max()}")
    return pack_codes(x, at, dtype.bits)


@created
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

    Raises ValueError if the shape does not fit the words, if bits after the last element are not zero, or if a code
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
    aligned = empty_lines(expected)
    aligned[...] = w
    q = QuantArray(aligned, dtype, lengths, at, constants)
    try:
        validate(q)
    except ValueError as error:
        raise ValueError(f"{op}: {error}") from None
    return q


@created
def encode(x: Any, values: Any = None, axis: int = -1) -> QuantArray:
    """Pack an array that holds exactly the integers `values`; nothing is rounded.

    values: a dtype of integer levels, or the integers; levels are in ascending order unless a dtype or a sequence
    says otherwise (sets and ranges are sorted). Bools need none: they are uint1.
    Raises ValueError with the first element that is not among the values. An array on a GPU is packed there.

    >>> import quantarray as qa
    >>> qa.encode([[1, 0, -1]], values=(-1, 0, 1)).dtype
    quantarray.ternary
    >>> qa.encode([1, 2], values=(-1, 1))
    Traceback (most recent call last):
    ValueError: encode: x must hold only the values of bipolar (-1, 1), got 2 at (1,)
    """
    op = "encode"
    a = checks.dense(op, "x", x)
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
    return encoded(op, a, dtype, at)


@created
def from_dlpack(x: Any, dtype: DType | None = None, axis: int = -1) -> QuantArray:
    """Pack another library's array that holds exactly the levels of an integer dtype; that library is not imported.

    x: an array with `__dlpack__` on the CPU or a GPU, where it is packed: PyTorch's, JAX', NumPy's, CuPy's. Without a
    dtype bools are `uint1`, uint8 `qa.uint8` and int8 `qa.int8`. Raises DeviceError for arrays on other devices,
    ValueError for other values. Every function that takes NumPy arrays takes such arrays on the CPU too: `quantize`
    rounds them, `from_words` and `from_codes` take parts.

    >>> import quantarray as qa, numpy as np
    >>> qa.from_dlpack(np.array([-3, 100], np.int8)).dtype, qa.from_dlpack(np.array([1, -1]), qa.bipolar).bits
    (quantarray.int8, 1)
    """
    op = "from_dlpack"
    if not hasattr(x, "__dlpack__"):
        raise TypeError(f"{op}: x must have __dlpack__, got {checks.kind(x)}; encode(x, values) packs lists")
    a = checks.dense(op, "x", x)
    law = dtype if dtype is not None else _EXCHANGED.get(a.dtype.name)
    if law is None:
        raise TypeError(f"{op}: {a.dtype} needs the dtype= whose levels x holds; bool, uint8 and int8 need none")
    return encoded(op, a, _check_integer(op, law), checks.axis(op, axis, a.ndim))


_EXCHANGED = {"bool": uint1, "uint8": uint8, "int8": int8}


# one value, or a few known ones


@created
def full(shape: int | tuple[int, ...], fill_value: int, dtype: DType | None = None, axis: int = -1) -> QuantArray:
    """Return an array of one integer level. Without a dtype it is the smallest of uint1 .. uint8, int2 .. int8 that
    holds it.

    Raises ValueError where the dtype has no such level, TypeError for dtypes of real levels.

    >>> import quantarray as qa
    >>> qa.full((2, 3), 5).dtype, qa.full(2, -1, qa.bipolar).dequantize()
    (quantarray.uint3, array([-1, -1], dtype=int32))
    """
    return _filled("full", shape, fill_value, dtype, axis)


@created
def zeros(shape: int | tuple[int, ...], dtype: DType = uint1, axis: int = -1) -> QuantArray:
    """Return an array of zeros. Raises ValueError for dtypes without the level 0, such as bipolar.

    >>> import quantarray as qa
    >>> qa.zeros((2, 3), qa.ternary).dequantize().tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    return _filled("zeros", shape, 0, dtype, axis)


@created
def ones(shape: int | tuple[int, ...], dtype: DType = uint1, axis: int = -1) -> QuantArray:
    """Return an array of ones. Raises ValueError for dtypes without the level 1.

    >>> import quantarray as qa
    >>> qa.ones(3, qa.bipolar).dequantize()
    array([1, 1, 1], dtype=int32)
    """
    return _filled("ones", shape, 1, dtype, axis)


def empty(shape: int | tuple[int, ...], dtype: DType = uint1, axis: int = -1) -> QuantArray:
    """Return an array of code 0, whose level is the first of an integer dtype: arrays are immutable, so it is known.

    >>> import quantarray as qa
    >>> qa.empty(2, qa.bipolar).dequantize()
    array([-1, -1], dtype=int32)
    """
    _check_integer("empty", dtype)
    return _filled("empty", shape, (dtype.levels or (0,))[0], dtype, axis)


def full_like(q: QuantArray, fill_value: float) -> QuantArray:
    """Return an array of one level with the shape, the packed axis, the dtype and the constants of another.

    Raises ValueError where some of its indices have no such level.

    >>> import quantarray as qa
    >>> qa.full_like(qa.from_codes([0, 1, 3], qa.uniform(2), scale=0.5), 1.5).dequantize()
    array([1.5, 1.5, 1.5], dtype=float32)
    """
    return _filled_like("full_like", q, fill_value)


def zeros_like(q: QuantArray) -> QuantArray:
    """Return zeros under the law of another array; see `full_like`.

    >>> import quantarray as qa
    >>> qa.zeros_like(qa.encode([1, -1], values=(-1, 0, 1))).dequantize()
    array([0, 0], dtype=int32)
    """
    return _filled_like("zeros_like", q, 0)


def ones_like(q: QuantArray) -> QuantArray:
    """Return ones under the law of another array; see `full_like`.

    >>> import quantarray as qa
    >>> qa.ones_like(qa.encode([1, -1], values=(-1, 0, 1))).dequantize()
    array([1, 1], dtype=int32)
    """
    return _filled_like("ones_like", q, 1)


def empty_like(q: QuantArray) -> QuantArray:
    """Return code 0 everywhere under the law of another array.

    >>> import quantarray as qa
    >>> qa.empty_like(qa.encode([1, -1], values=(-1, 1))).dequantize()
    array([-1, -1], dtype=int32)
    """
    q = checks.packed("empty_like", "q", q)
    words = constant(0, q.bits, q.words.shape[1:-1], q.shape[q.axis], q.device)
    return QuantArray(words, q.dtype, q.shape, q.axis, q.constants)


@created
def arange(start: int, stop: int | None = None, step: int = 1, dtype: DType | None = None) -> QuantArray:
    """Return start, start + step, .. below stop, integers; `arange(n)` counts from 0. At most 256 numbers fit in 8
    bits.

    Without a dtype it is the smallest of uint1 .. uint8, int2 .. int8 that holds them all.

    >>> import quantarray as qa
    >>> qa.arange(3).dequantize(), qa.arange(3, -2, -2).dtype
    (array([0, 1, 2], dtype=int32), quantarray.int3)
    """
    op = "arange"
    first, last = (0, start) if stop is None else (start, stop)
    by = checks.integer(op, "step", step, -(2**63))
    if by == 0:
        raise ValueError(f"{op}: step must not be 0")
    values = range(checks.integer(op, "start", first, -(2**63)), checks.integer(op, "stop", last, -(2**63)), by)
    law = _check_integer(op, dtype) if dtype is not None else holding(op, values)
    place = {level: code for code, level in enumerate(law.levels or ())}
    missing = next((v for v in values if v not in place), None)  # at the 257th number at the latest
    if missing is not None:
        raise ValueError(f"{op}: {law} has no level {missing}; pass a dtype that has, e.g. integers({values})")
    return from_codes(np.array([place[v] for v in values], np.uint8), law)


@created
def eye(n: int, m: int | None = None, k: int = 0, dtype: DType = uint1, axis: int = -1) -> QuantArray:
    """Return ones on the k-th diagonal of an n x m array, zeros elsewhere; packed on `axis`.

    >>> import quantarray as qa
    >>> qa.eye(2, 3, k=1).dequantize().tolist()
    [[0, 1, 0], [0, 0, 1]]
    """
    op = "eye"
    rows = checks.integer(op, "n", n, 0)
    columns = rows if m is None else checks.integer(op, "m", m, 0)
    diagonal = checks.integer(op, "k", k, -(2**62), 2**62)
    if checks.axis(op, axis, 2) == 0:
        return eye(columns, rows, -diagonal, dtype).T
    zero, one = _code(op, _check_integer(op, dtype), 0), _code(op, dtype, 1)
    checks.room(op, f"an array of shape {(rows, columns)}", WORD.itemsize * dtype.bits * rows * word_count(columns))
    row = np.arange(max(0, -diagonal), max(0, -diagonal, min(rows, columns - diagonal)))
    column = row + diagonal
    words = constant(zero, dtype.bits, (rows,), columns)
    for plane in range(dtype.bits):
        if (zero ^ one) >> plane & 1:
            words[plane, row, column // WORD_BITS] ^= np.uint64(1) << (column % WORD_BITS).astype(np.uint64)
    return QuantArray(words, dtype, (rows, columns), 1)


def _filled(op: str, shape: Any, value: Any, dtype: DType | None, axis: Any) -> QuantArray:
    lengths = checks.lengths(op, shape)
    if not lengths:
        raise ValueError(f"{op}: shape must have at least one axis to pack, got ()")
    at = checks.axis(op, axis, len(lengths))
    level = int(value) if isinstance(value, (bool, np.bool_)) else checks.number(op, "fill_value", value)
    law = _check_integer(op, dtype) if dtype is not None else holding(op, (level,))
    code = _code(op, law, level)
    outer = lengths[:at] + lengths[at + 1 :]
    nbytes = WORD.itemsize * law.bits * math.prod(outer) * word_count(lengths[at])
    checks.room(op, f"an array of shape {lengths}", nbytes)
    return QuantArray(constant(code, law.bits, outer, lengths[at]), law, lengths, at)


def _filled_like(op: str, q: Any, value: Any) -> QuantArray:
    like = checks.packed(op, "q", q)
    level = int(value) if isinstance(value, (bool, np.bool_)) else checks.number(op, "fill_value", value)
    if like.dtype.is_integer and not like.constants.has_scale:
        return QuantArray(
            constant(
                _code(op, like.dtype, level), like.bits, like.words.shape[1:-1], like.shape[like.axis], like.device
            ),
            like.dtype, like.shape, like.axis,
        )  # fmt: skip

    def filled(part: QuantArray) -> Array:
        codes, has = first_codes(part, np.float32(level))
        if not has.all():
            raise ValueError(
                f"{op}: {like.dtype} must have the level {level} at every index, its constants give others"
            )
        return recode(part, np.broadcast_to(codes, (like.dtype.n_levels, *codes.shape)), like.bits)

    words = words_by_parts(like, like.bits, filled)
    return QuantArray(words, like.dtype, like.shape, like.axis, like.constants)


def _code(op: str, dtype: DType, level: float) -> int:
    levels = dtype.levels or ()
    if level not in levels:
        raise ValueError(f"{op}: {dtype} has no level {level}; pass a dtype that has, e.g. integers({level:g}, ..)")
    return levels.index(int(level))


def _check_integer(op: str, dtype: Any) -> DType:
    _check_dtype(op, dtype)
    if dtype.levels is None:
        raise TypeError(f"{op}: dtype must have integer levels, got {dtype}; from_codes makes arrays of real levels")
    law: DType = dtype
    return law


def _unordered(values: Any) -> bool:
    return isinstance(values, (set, frozenset, range))


def _check_dtype(op: str, dtype: Any) -> None:
    if not isinstance(dtype, DType):
        raise TypeError(f"{op}: dtype must be one of quantarray's (bipolar, uint4, uniform(3), ..), got {dtype!r}")
