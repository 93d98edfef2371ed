"""Bit logic on arrays of one bit, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import namespace, zeros
from ...core.dtypes import uint1
from ...core.hints import Values
from ..words.word_ops import clear_tail, constant_rows, inverted
from .comparison import not_equal
from .pairs import aligned


def bitwise_and(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a & b of uint1 arrays that broadcast to one shape and have one packed axis, or of one and a bool.

    Raises TypeError for other dtypes, whose bits are codes.

    >>> import quantarray as qa
    >>> a, b = qa.encode([True, True, False]), qa.encode([True, False, False])
    >>> (a & b).dequantize()
    array([1, 0, 0], dtype=int32)
    """
    return _combined("bitwise_and", np.bitwise_and, a, b)


def bitwise_or(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a | b of uint1 arrays; see `bitwise_and`.

    >>> import quantarray as qa
    >>> a, b = qa.encode([True, True, False]), qa.encode([True, False, False])
    >>> (a | b).dequantize()
    array([1, 1, 0], dtype=int32)
    """
    return _combined("bitwise_or", np.bitwise_or, a, b)


def bitwise_xor(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """a ^ b of uint1 arrays; see `bitwise_and`.

    >>> import quantarray as qa
    >>> a, b = qa.encode([True, True, False]), qa.encode([True, False, False])
    >>> (a ^ b).dequantize()
    array([0, 1, 0], dtype=int32)
    """
    return _combined("bitwise_xor", np.bitwise_xor, a, b)


def bitwise_invert(q: QuantArray) -> QuantArray:
    """~q of a uint1 array: 1 - q, as NumPy inverts bools. Raises TypeError for other dtypes.

    >>> import quantarray as qa
    >>> (~qa.encode([True, False])).dequantize()
    array([0, 1], dtype=int32)
    """
    bits = _bits("bitwise_invert", "q", q)
    return QuantArray(inverted(bits.words, bits.shape[bits.axis]), uint1, bits.shape, bits.axis)


def logical_and(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """(a != 0) & (b != 0) of packed arrays of any law, or of one and a number, as a uint1 array.

    >>> import quantarray as qa
    >>> q = qa.encode([2, 0, 1], values=range(3))
    >>> qa.logical_and(q, q > 1).dequantize()
    array([1, 0, 0], dtype=int32)
    """
    op = "logical_and"
    return _combined(op, np.bitwise_and, *_truths(op, a, b))


def logical_or(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """(a != 0) | (b != 0) of packed arrays of any law, or of one and a number, as a uint1 array.

    >>> import quantarray as qa
    >>> q = qa.encode([2, 0, 1], values=range(3))
    >>> qa.logical_or(q, q < 1).dequantize()
    array([1, 1, 1], dtype=int32)
    """
    op = "logical_or"
    return _combined(op, np.bitwise_or, *_truths(op, a, b))


def logical_xor(a: QuantArray | Values, b: QuantArray | Values) -> QuantArray:
    """(a != 0) ^ (b != 0) of packed arrays of any law, or of one and a number, as a uint1 array.

    >>> import quantarray as qa
    >>> q = qa.encode([2, 0, 1], values=range(3))
    >>> qa.logical_xor(q, q > 1).dequantize()
    array([0, 0, 1], dtype=int32)
    """
    op = "logical_xor"
    return _combined(op, np.bitwise_xor, *_truths(op, a, b))


def logical_not(q: QuantArray) -> QuantArray:
    """q == 0 of a packed array of any law, as a uint1 array.

    >>> import quantarray as qa
    >>> qa.logical_not(qa.encode([2, 0, 1], values=range(3))).dequantize()
    array([0, 1, 0], dtype=int32)
    """
    return bitwise_invert(_truth("logical_not", "q", q))


def shift(q: QuantArray, n: int, axis: int = -1) -> QuantArray:
    """Move the elements of a uint1 array by n places along an axis and fill with zeros: out[i] = q[i - n].

    n > 0 moves towards the end of the axis, n < 0 towards its beginning; what leaves the axis is lost. It moves
    elements between places, along the packed axis by shifts of whole rows of words, where the `<<` of integers
    multiplies each element by itself. (Read as one long integer, whose bit i is element i, a row is shifted left by n.)

    >>> import quantarray as qa
    >>> q = qa.encode([True, True, False, True])
    >>> qa.shift(q, 1).dequantize(), qa.shift(q, -1).dequantize()
    (array([0, 1, 1, 0], dtype=int32), array([1, 0, 1, 0], dtype=int32))
    """
    op = "shift"
    bits = _bits(op, "q", q)
    d = checks.axis(op, axis, q.ndim)
    length = q.shape[d]
    places = max(-length, min(length, checks.integer(op, "n", n, -(2**63))))
    out = zeros(q.device, bits.words.shape)
    if d == q.axis:
        _shift_rows(bits.words, places, out)
        return QuantArray(clear_tail(out, length), uint1, q.shape, q.axis)
    at = 1 + (d if d < q.axis else d - 1)
    source, target = (namespace(q.device).moveaxis(words, at, 0) for words in (bits.words, out))
    target[max(0, places) : length + min(0, places)] = source[max(0, -places) : length - max(0, places)]
    return QuantArray(out, uint1, q.shape, q.axis)


def _shift_rows(words: Any, places: int, out: Any) -> None:
    """Move the bits of each row by some places, up or down; what moves past the last word or the first is lost."""
    if places < 0:  # mirrored: rows from the end, and words shifted in the other direction
        words, out = words[..., ::-1], out[..., ::-1]
    up, down = (np.left_shift, np.right_shift) if places >= 0 else (np.right_shift, np.left_shift)
    whole, rest = divmod(abs(places), 64)
    count = words.shape[-1]
    if whole < count:
        up(words[..., : count - whole], np.uint64(rest), out=out[..., whole:])
    if rest and whole + 1 < count:
        out[..., whole + 1 :] |= down(words[..., : count - whole - 1], np.uint64(64 - rest))


def _bits(op: str, name: str, value: Any) -> QuantArray:
    q = checks.packed(op, name, value)
    if q.dtype != uint1 or q.scale is not None:
        raise TypeError(
            f"{op}: {name} must be a uint1 array without a scale, got {q.dtype}, whose bits are codes of levels; "
            f"comparisons such as q > 0 or q != 0 make uint1 arrays"
        )
    return q


def _truth(op: str, name: str, value: Any) -> QuantArray:
    q = checks.packed(op, name, value)
    return q if q.dtype == uint1 and q.scale is None else not_equal(q, 0)


def _truths(op: str, a: Any, b: Any) -> list[Any]:
    """Return the truth of both, of a number beside a packed array too."""
    a, b = (bool(x) if isinstance(x, (int, float, np.number)) else x for x in (a, b))
    return [x if isinstance(x, (bool, np.bool_)) else _truth(op, name, x) for name, x in (("a", a), ("b", b))]


def _beside(value: Any, q: Any) -> Any:
    """Turn a bool into an array of the shape of the other operand, which is one row of words; all else as it is."""
    if not isinstance(value, (bool, np.bool_)) or not isinstance(q, QuantArray):
        return value
    words = constant_rows(int(value), 1, q.words.shape[1:-1], q.shape[q.axis], q.device)
    return QuantArray(words, uint1, q.shape, q.axis)


def _combined(op: str, f: np.ufunc, a: Any, b: Any) -> QuantArray:
    p, q = _bits(op, "a", _beside(a, b)), _bits(op, "b", _beside(b, a))
    p, q = aligned(op, a=p, b=q)
    return QuantArray(f(p.words, q.words), uint1, p.shape, p.axis)
