"""Text on sizes: bytes beside those of float32, and the fix where packing has made an array larger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.format import WORD, WORD_BITS, word_count

if TYPE_CHECKING:
    from .array import QuantArray


def ratio(nbytes: int, full: int, digits: int = 1) -> str:
    """Say how much smaller or larger `nbytes` is than `full`, to some digits after the point.

    >>> ratio(25, 800), ratio(2000, 1000), ratio(101, 100), ratio(4, 0)
    ('32.0x smaller', '2.0x larger', 'as large', 'larger')
    """
    least, most = sorted((nbytes, full))
    word = "smaller" if nbytes < full else "larger"
    if not least:
        return word if most else "as large"
    factor = round(most / least, digits)
    return "as large" if factor == 1 else f"{factor:,.{digits}f}x {word}"


def beside_float32(nbytes: int, size: int) -> str:
    """Say how much smaller or larger `nbytes` is than `size` elements of float32.

    >>> beside_float32(8, 64), beside_float32(64, 8), beside_float32(4, 1)
    ('32.0x smaller than float32', '2.0x larger than float32', 'as large as float32')
    """
    text = ratio(nbytes, 4 * size)
    return f"{text} {'as' if text == 'as large' else 'than'} float32"


def size_text(q: QuantArray) -> str:
    """Say how much smaller than float32 an array is, or how much larger, and what to do then.

    >>> import quantarray as qa, numpy as np
    >>> size_text(qa.zeros((2, 64, 1)))
    '2.0x larger than float32; qa.repack(q, 1) is 32.0x smaller'
    >>> codes, offset = np.zeros((100, 64), int), np.ones((100, 64))
    >>> size_text(qa.from_codes(codes, qa.uniform(2), scale=np.ones((100, 1)), offset=offset, group=1))
    '1.1x larger than float32; constants take 26,000 bytes, .dequantize() 25,600'
    >>> size_text(qa.zeros(1))
    '2.0x larger than float32; words of 64 bits hold 1 element each'
    """
    text, full, constants = beside_float32(q.nbytes, q.size), 4 * q.size, q.constants.nbytes
    if q.nbytes <= full:
        return text
    axis, nbytes = min(((d, repacked_bytes(q, d)) for d in range(q.ndim)), key=lambda pair: pair[1])
    repacked = f"{text}; qa.repack(q, {axis}) is {ratio(nbytes, full)}"
    if nbytes < full:
        return repacked
    if 2 * constants > q.nbytes:
        return f"{text}; constants take {constants:,} bytes, .dequantize() {full:,}"
    if nbytes < q.nbytes:
        return repacked
    count = min(q.shape[q.axis], WORD_BITS)
    return f"{text}; words of {WORD_BITS} bits hold {count} element{'s' * (count != 1)} each"


def repacked_bytes(q: QuantArray, axis: int) -> int:
    """Count the bytes of `repack(q, axis)`."""
    if axis == q.axis:
        return q.nbytes
    words = WORD.itemsize * q.bits * (q.size // max(q.shape[axis], 1)) * word_count(q.shape[axis])
    constants = 0
    for _, a, lead in q.constants.stored():  # those of groups become one an element
        groups, nbytes = a.shape[lead + q.axis], a.size * a.dtype.itemsize
        constants += nbytes if groups == 1 else nbytes // groups * q.shape[q.axis]
    return words + constants
