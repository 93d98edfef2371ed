"""Arrays of single bits from and to others' bits: bools, np.packbits, bitarray."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import contiguous, namespace
from ...core.dtypes import Array, uint1
from ...core.format import WORD, word_count
from ...core.hints import BitOrder
from ..words.conversion import codes, pack_codes
from ..words.placement import created
from ..words.word_ops import clear_tail

_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


@created
def pack_bits(x: Any, axis: int = -1) -> QuantArray:
    """x != 0 as a uint1 array, as np.packbits takes bools and integers. Words have one order of bits.

    Raises TypeError for floats; `from_packbits` and `to_packbits` know both orders of bits in bytes.

    >>> import quantarray as qa
    >>> qa.pack_bits([True, False, True]).words.tolist()
    [[5]]
    """
    op = "pack_bits"
    a = checks.dense(op, "x", x)
    at = checks.axis(op, axis, a.ndim)
    if a.dtype.kind == "f":
        raise TypeError(f"{op}: x must be bools or integers, got {a.dtype}; pack a comparison such as x > 0")
    return QuantArray(pack_codes(a != 0, at, 1), uint1, a.shape, at)


def unpack_bits(q: QuantArray) -> Array:
    """Unpack a uint1 array to bools, in its shape.

    >>> import quantarray as qa
    >>> qa.unpack_bits(qa.pack_bits([True, False, True]))
    array([ True, False,  True])
    """
    return codes(_one_bit("unpack_bits", q)).view(np.bool_)


@created
def from_packbits(data: Any, shape: int | tuple[int, ...], axis: int = -1, bitorder: BitOrder = "big") -> QuantArray:
    """Return the uint1 array whose `np.packbits(values, axis, bitorder)` are these bytes.

    data: uint8, `shape` with ceil(n / 8) instead of the length n of the packed axis, or an object with a buffer of
    as many bytes in C order. Bits after the n-th are ignored. Bytes of np.packbits without an axis are one run of
    bits: `from_packbits(data, size).reshape(shape)`.

    >>> import quantarray as qa, numpy as np
    >>> x = np.array([[1, 1, 0], [0, 0, 1]])
    >>> q = qa.from_packbits(np.packbits(x, axis=-1), x.shape)
    >>> q.dequantize().tolist(), qa.from_packbits(b"\\x06", 3, bitorder="little").dequantize().tolist()
    ([[1, 1, 0], [0, 0, 1]], [0, 1, 1])
    """
    op = "from_packbits"
    lengths = checks.lengths(op, shape)
    at = checks.axis(op, axis, len(lengths))
    big = checks.choice(op, "bitorder", bitorder, ("big", "little")) == "big"
    count = -(-lengths[at] // 8)
    expected = (*lengths[:at], count, *lengths[at + 1 :])
    a = np.frombuffer(data, np.uint8) if isinstance(data, (bytes, bytearray, memoryview)) else data
    a = checks.numbers(op, "data", a)
    if a.dtype != np.uint8 or (a.shape != expected and a.shape != (math.prod(expected),)):
        raise ValueError(f"{op}: data must be {math.prod(expected)} bytes, uint8 {expected}, got {a.dtype} {a.shape}")
    last = np.moveaxis(a.reshape(expected), at, -1)
    words = np.zeros((*last.shape[:-1], word_count(lengths[at])), WORD)
    room = words.view(np.uint8)[..., :count]
    room[...] = last
    if big:
        room[...] = _REVERSED[room]
    return QuantArray(clear_tail(words, lengths[at])[None], uint1, lengths, at)


def to_packbits(q: QuantArray, bitorder: BitOrder = "big") -> Array:
    """`np.packbits(values, axis=q.axis, bitorder=bitorder)` of a uint1 array, uint8, without its values.

    A bitarray of a one-dimensional q: `bitarray(buffer=to_packbits(q, "little").tobytes(), endian="little")[:q.size]`.

    >>> import quantarray as qa
    >>> q = qa.pack_bits([[1, 1, 0], [0, 0, 1]])
    >>> qa.to_packbits(q).tolist(), qa.to_packbits(q, "little").tolist()
    ([[192], [32]], [[3], [4]])
    """
    op = "to_packbits"
    big = checks.choice(op, "bitorder", bitorder, ("big", "little")) == "big"
    words = contiguous(_one_bit(op, q).words[0])
    packed = words.view(np.uint8)[..., : -(-q.shape[q.axis] // 8)]
    xp = namespace(q.device)
    result: Array = xp.moveaxis(xp.asarray(_REVERSED)[packed] if big else packed.copy(), -1, q.axis)
    return result


@created
def from_bitarray(bits: Any, shape: int | tuple[int, ...] | None = None, axis: int = -1) -> QuantArray:
    """Read a bitarray as a uint1 array, through its buffer; with a shape, its bits in C order in that shape.

    bits: an object with a buffer, a length in bits, and an `endian` that is "big" or "little". Only the last axis can
    be packed so: transpose the result for another.

    >>> import quantarray as qa
    >>> class Bits(bytearray):  # what a bitarray has
    ...     endian = "big"
    ...     __len__ = lambda self: 3
    >>> qa.from_bitarray(Bits(b"\\xa0")).dequantize()
    array([1, 0, 1], dtype=int32)
    """
    op = "from_bitarray"
    endian = getattr(bits, "endian", None)
    order = endian() if callable(endian) else endian  # a method before bitarray 3.4
    try:
        data = memoryview(bits).cast("B")
    except TypeError:
        order = None
    if order not in ("big", "little"):
        raise TypeError(f"{op}: bits must be a bitarray, got {checks.kind(bits)}; pack_bits packs NumPy arrays")
    size = len(bits)
    flat = from_packbits(data[: -(-size // 8)], size, bitorder=order)
    return flat if shape is None else flat.reshape(shape)


def _one_bit(op: str, q: Any) -> QuantArray:
    if checks.packed(op, "q", q).dtype != uint1 or q.scale is not None:
        raise TypeError(f"{op}: q must be a uint1 array without a scale, got {q.dtype}; q > 0 or q != 0 make one")
    array: QuantArray = q
    return array
