"""Comparisons: whole arrays to a bool, elements to packed bits, and the choice between two arrays by such bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.blocks import blocks
from ...arrays.launched import both_on_gpu, on_gpu
from ...backends.registry import common_device, namespace, zeros
from ...core.dtypes import Array, integers, uint1
from ...core.format import MAX_BITS, bits_for
from ...core.hints import Values
from ..words.conversion import recode
from ..words.dtype_functions import cast, common_dtype
from ..words.levels import affordable, check_reach, is_exact, levels_of, operand, pointwise, with_table
from ..words.word_ops import chosen, clear_tail, constant_rows, order, widened
from .mapping import of_pairs
from .pairs import aligned, common_group


def array_equal(a: QuantArray, b: QuantArray) -> bool:
    """True where both arrays have the same shape and the same values, whatever their laws and packed axes.

    >>> import quantarray as qa
    >>> a = qa.encode([1, -1], values=(-1, 1))
    >>> qa.array_equal(a, qa.encode([1, -1], values=(-1, 0, 1))), qa.array_equal(a, a[::1][:1])
    (True, False)
    """
    p, q = checks.packed("array_equal", "a", a), checks.packed("array_equal", "b", b)
    common_device("array_equal", a=p, b=q)
    if p.shape != q.shape:
        return False
    if _same_law(p, q):
        return bool(namespace(p.device).array_equal(p.words, q.words)) or (_repeats(p) and _equal_values(p, q))
    return _equal_values(p, q)


def _same_law(p: QuantArray, q: QuantArray) -> bool:
    if p.axis != q.axis or p.dtype != q.dtype or p.group != q.group:
        return False
    ours, theirs = p.constants.items(), q.constants.items()
    return (
        p.constants.bfloat16 == q.constants.bfloat16
        and len(ours) == len(theirs)
        and all(x[0] == y[0] and np.array_equal(x[1], y[1]) for x, y in zip(ours, theirs, strict=True))
    )


def _repeats(p: QuantArray) -> bool:
    """True if two codes may have the same value."""
    return not p.dtype.is_integer or p.constants.has_scale


def _equal_values(p: QuantArray, q: QuantArray) -> bool:
    return all(np.array_equal(p[key].dequantize(), q[key].dequantize()) for key in blocks(p.shape, arrays=(p, q)))


# element by element


def equal(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a == b as a uint1 array: one of them packed, the other a number, a vector, or packed on the same axis.

    Numbers and vectors compare as NumPy compares the levels with them. Two packed arrays may have any laws and any
    number of bits: beyond 8 together, and where their integer levels are the same, ranks of levels are compared.

    >>> import quantarray as qa
    >>> q = qa.encode([0, 3, 2], values=range(4))
    >>> (q == 3).dequantize(), (q == q).dequantize(), (q == 3).dtype
    (array([0, 1, 0], dtype=int32), array([1, 1, 1], dtype=int32), quantarray.uint1)
    """
    return _compared("equal", np.equal, a, b)


def not_equal(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a != b as a uint1 array; see `equal`.

    >>> import quantarray as qa
    >>> (qa.encode([0, 3, 2], values=range(4)) != [0, 1, 2]).dequantize()
    array([0, 1, 0], dtype=int32)
    """
    return _compared("not_equal", np.not_equal, a, b)


def less_equal(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a <= b as a uint1 array; see `equal`.

    >>> import quantarray as qa
    >>> (qa.encode([0, 3, 2], values=range(4)) <= 2).dequantize()
    array([1, 0, 1], dtype=int32)
    """
    return _compared("less_equal", np.less_equal, a, b)


def less(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a < b as a uint1 array; see `equal`.

    >>> import quantarray as qa
    >>> (qa.encode([0, 3, 2], values=range(4)) < 2.5).dequantize()
    array([1, 0, 1], dtype=int32)
    """
    return _compared("less", np.less, a, b)


def greater_equal(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a >= b as a uint1 array; see `equal`.

    >>> import quantarray as qa
    >>> (qa.encode([0, 3, 2], values=range(4)) >= 2).dequantize()
    array([0, 1, 1], dtype=int32)
    """
    return _compared("greater_equal", np.greater_equal, a, b)


def greater(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a > b as a uint1 array; see `equal`.

    >>> import quantarray as qa
    >>> (qa.encode([0, 3, 2], values=range(4)) > [2, 2, 2]).dequantize()
    array([0, 1, 0], dtype=int32)
    """
    return _compared("greater", np.greater, a, b)


_OF_RANKS: dict[np.ufunc, Callable[[Array, Array], Array]] = {  # f(a, b) of ranks: a's are less, or equal
    np.equal: lambda smaller, same: same,
    np.not_equal: lambda smaller, same: ~same,
    np.less_equal: lambda smaller, same: smaller | same,
    np.less: lambda smaller, same: smaller,
    np.greater_equal: lambda smaller, same: ~smaller,
    np.greater: lambda smaller, same: ~(smaller | same),
}


def _compared(op: str, f: np.ufunc, a: Any, b: Any) -> QuantArray:
    """f(a, b) through a table of levels or pairs, or by ranks of two arrays."""
    result: QuantArray
    if isinstance(a, QuantArray) and isinstance(b, QuantArray):
        result = both_on_gpu(_of_both, a, b, op, f)
        return result
    q = a if isinstance(a, QuantArray) else checks.packed(op, "one operand", b)
    other = b if q is a else a
    if isinstance(other, int) and other.bit_length() > 63:  # beyond integer levels, and maybe beyond float64
        other = float(other) if other.bit_length() < 1024 else math.inf if other > 0 else -math.inf
    result = on_gpu(_with_value, q, other, op, f, q is a)
    return result


def _of_both(a: QuantArray, b: QuantArray, op: str, f: np.ufunc) -> QuantArray:
    a, b = aligned(op, a=a, b=b)
    ranked = a.dtype == b.dtype and is_exact(a) and is_exact(b)
    same = ranked and a.device == "cpu"  # on a GPU a table is one launch
    if a.bits + b.bits <= MAX_BITS and not same:
        return of_pairs(a, b, op, f)
    words = clear_tail(_OF_RANKS[f](*order(*_ranked(op, a, b))), a.shape[a.axis])
    return QuantArray(words[None], uint1, a.shape, a.axis)


def _with_value(q: QuantArray, other: Any, op: str, f: np.ufunc, first: bool) -> QuantArray:
    value = operand(op, "the operand", other, q)
    if isinstance(other, (np.generic, np.ndarray)) and not isinstance(value, np.ndarray):
        value = np.asarray(other)[()]  # of its own type: to NumPy float32 levels equal 0.1 where not np.float64(0.1)
    return pointwise(op, f if first else lambda levels, left: f(left, levels), q, value)


def _ranked(op: str, p: QuantArray, q: QuantArray) -> tuple[Array, Array]:
    """Recode both to ranks among the levels of both: equal values have equal ranks."""
    group = common_group(p, q)
    both = levels_of(op, p, group), levels_of(op, q, group)
    dims = np.broadcast_shapes(*(a.shape[1:] for a in both))
    affordable(op, p, (sum(map(len, both)), *dims))
    values = np.concatenate([np.broadcast_to(a, (len(a), *dims)) for a in both])
    by_value = np.argsort(values, axis=0, kind="stable")
    ascending = np.take_along_axis(values, by_value, 0)
    steps = np.concatenate([np.zeros((1, *dims), np.int64), ascending[1:] != ascending[:-1]]).cumsum(axis=0)
    ranks = np.empty_like(steps)
    np.put_along_axis(ranks, by_value, steps, 0)
    bits = bits_for(int(ranks.max(initial=0)) + 1)
    parts = np.split(ranks, [len(both[0])])
    return _coded(p, parts[0], bits, group), _coded(q, parts[1], bits, group)


def _coded(q: QuantArray, codes: Array, bits: int, group: int | None) -> Array:
    """Return words of `bits` planes, each code c of q replaced by codes[c], without moving bits where it stays."""
    if q.bits <= bits and (codes == np.arange(len(codes)).reshape(-1, *(1,) * q.ndim)).all():
        return widened(q.words, bits)
    if codes.size == 1:
        return constant_rows(codes.item(), bits, q.words.shape[1:-1], q.shape[q.axis], q.device)
    return recode(q, codes, bits, group)


# where


def where(mask: QuantArray, a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a where the mask is 1, b where it is 0: packed arrays on the mask's axis, or numbers.

    mask: a uint1 array, which comparisons give; arrays broadcast to one shape. Two arrays of one law keep it. Integer
    levels beside an integer or other integer levels stay integers, of their `result_type`. Everything else becomes a
    table of both operands' levels. Raises ValueError where that is more than 256 levels.

    >>> import quantarray as qa
    >>> q = qa.encode([0, 3, 2], values=range(4))
    >>> qa.where(q > 1, q, -1).dequantize(), qa.where(q > 1, 1, -1).dtype
    (array([-1,  3,  2], dtype=int32), quantarray.bipolar)
    """
    op = "where"
    if checks.packed(op, "mask", mask).dtype != uint1 or mask.scale is not None:
        raise TypeError(
            f"{op}: mask must be a uint1 array, got {mask.dtype}; comparisons such as q > 0 or q != 0 make one"
        )
    a, b = (x if isinstance(x, QuantArray) else _level(op, name, x, mask) for name, x in (("a", a), ("b", b)))
    mask, a, b = aligned(op, mask=mask, a=a, b=b)
    if _same_law(a, b):
        return QuantArray(chosen(mask.words[0], a.words, b.words), a.dtype, a.shape, a.axis, a.constants)
    if is_exact(a) and is_exact(b):
        dtype = common_dtype(op, (a.dtype, b.dtype))
        a, b = cast(a, dtype), cast(b, dtype)
        return QuantArray(chosen(mask.words[0], a.words, b.words), dtype, a.shape, a.axis)
    return _where_real(op, mask, a, b)


def _where_real(op: str, mask: QuantArray, a: QuantArray, b: QuantArray) -> QuantArray:
    """Join both arrays' levels to a table: codes of a, followed by those of b."""
    group, count = common_group(a, b), a.dtype.n_levels + b.dtype.n_levels
    _check_count(op, count)
    both = levels_of(op, a, group), levels_of(op, b, group)
    dims = np.broadcast_shapes(*(v.shape[1:] for v in both))
    affordable(op, a, (count, *dims))
    values = np.concatenate([np.broadcast_to(v, (len(v), *dims)) for v in both]).astype(np.float32)
    codes, bits = np.arange(count).reshape(-1, *(1,) * a.ndim), bits_for(count)
    yes, no = _coded(a, codes[: len(both[0])], bits, None), _coded(b, codes[len(both[0]) :], bits, None)
    return with_table(op, chosen(mask.words[0], yes, no), values, a, group)


def _check_count(op: str, count: int) -> None:
    if count > 2**MAX_BITS:
        raise ValueError(
            f"{op}: the result would have {count} levels, {MAX_BITS} bits hold {2**MAX_BITS}; map one operand to fewer "
            f"levels first"
        )


def _level(op: str, name: str, value: Any, mask: QuantArray) -> QuantArray:
    """Return an array in which every element is one number, without words of its own."""
    number = operand(op, name, value, mask)
    if isinstance(number, np.ndarray):
        raise TypeError(f"{op}: {name} must be a packed array or a number, got {checks.kind(value)}")
    words = namespace(mask.device).broadcast_to(zeros(mask.device, (1,)), mask.words.shape)
    if isinstance(number, int):
        check_reach(op, number, number)
        return QuantArray(words, integers(number), mask.shape, mask.axis)
    one = QuantArray(words, integers(0), mask.shape, mask.axis)
    return with_table(op, words, np.full((1,) * (mask.ndim + 1), number), one, None)
