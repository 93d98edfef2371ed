"""Blocks of GGUF's packed types, decoded: codes, and the scale and offset of each group.

A decoder gets whole blocks, uint8 [blocks, bytes], and returns codes uint8 [blocks, weights], then the scale and the
offset as far as the law has them and blocks hold them: float32 [blocks, groups], or where groups have integers beside
one float16, a pair of these, int8 or uint8 [blocks, groups] and float16 [blocks, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtypes import Array

Decoded = tuple[Any, ...]  # codes, and the constants that are in the blocks
Decoder = Callable[[Array], Decoded]

IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1_LEVELS = (-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12)  # twice E2M1's; its two zeros are one
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def fields(q: Array, bits: int, width: int) -> Array:
    """Split bytes [blocks, n] into fields of some bits, low ones first: of `width` bytes the first field of each, then
    the second of each.

    >>> fields(np.uint8([[0x21, 0x43]]), 4, 1).tolist(), fields(np.uint8([[0x21, 0x43]]), 4, 2).tolist()
    ([[1, 2, 3, 4]], [[1, 3, 2, 4]])
    """
    if width == 1:  # one look-up a byte: shifts, in loops over the few fields of a byte, take four times as long
        runs = _runs(bits)
        return runs[q].view(np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    parts = q.reshape(len(q), -1, 1, width) >> shifts
    parts &= np.uint8((1 << bits) - 1)
    return parts.reshape(len(q), -1)


def _runs(bits: int) -> Array:
    """Return the fields of every byte, each byte's as one number."""
    every = np.arange(256, dtype=np.uint8)[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)
    return np.ascontiguousarray(every & np.uint8((1 << bits) - 1)).view(f"<u{8 // bits}")[:, 0]


def stored_half(q: Array, at: int) -> Array:
    """float16 [blocks, 1] that begins at a byte."""
    return np.ascontiguousarray(q[:, at : at + 2]).view("<f2")


def half(q: Array, at: int) -> Array:
    """float32 [blocks, 1] of the float16 that begins at a byte."""
    return stored_half(q, at).astype(np.float32)


def q1_0(q: Array) -> Decoded:
    return np.unpackbits(q[:, 2:], axis=1, bitorder="little"), half(q, 0)


def q2_0(q: Array) -> Decoded:
    return fields(q[:, 2:], 2, 1), half(q, 0)


def i2_s(q: Array) -> Decoded:
    codes = fields(q, 2, 32).reshape(len(q), 4, 32)[:, ::-1]  # the highest bits are of the first weights
    return (codes.reshape(len(q), -1),)


def tq1_0(q: Array) -> Decoded:
    """Read five digits in base 3 a byte, four in each of the last four bytes.

    A byte is a fraction of 256, and three times a fraction has the next digit as its whole part.
    """
    parts = [_digits(q[:, :32], 5), _digits(q[:, 32:48], 5), _digits(q[:, 48:52], 4)]
    return np.concatenate(parts, axis=1), half(q, 52)


def _digits(q: Array, count: int) -> Array:
    fractions = (q[:, None, :] * _POWERS[:count]).astype(np.uint16)
    return (fractions * np.uint16(3) >> 8).astype(np.uint8).reshape(len(q), -1)


def tq2_0(q: Array) -> Decoded:
    return fields(q[:, :64], 2, 32), half(q, 64)


def q4_0(q: Array) -> Decoded:
    return fields(q[:, 2:], 4, 16), half(q, 0)


def q4_1(q: Array) -> Decoded:
    return fields(q[:, 4:], 4, 16), half(q, 0), half(q, 2)


def q5_0(q: Array) -> Decoded:
    return _five(q[:, 6:], q[:, 2:6]), half(q, 0)


def q5_1(q: Array) -> Decoded:
    return _five(q[:, 8:], q[:, 4:8]), half(q, 0), half(q, 2)


def _five(low: Array, high: Array) -> Array:
    codes = fields(low, 4, 16)
    codes |= np.unpackbits(high, axis=1, bitorder="little") << 4
    return codes


def q8_0(q: Array) -> Decoded:
    return q[:, 2:] ^ np.uint8(0x80), half(q, 0)


def iq4_nl(q: Array) -> Decoded:
    return fields(q[:, 2:], 4, 16), half(q, 0)


def iq4_xs(q: Array) -> Decoded:
    low, high = fields(q[:, 4:8], 4, 1), fields(q[:, 2:4], 2, 1)
    return fields(q[:, 8:], 4, 16), ((low | high << 4).view(np.int8) - np.int8(32), stored_half(q, 0))


def mxfp4(q: Array) -> Decoded:
    return _signed(fields(q[:, 1:], 4, 16)), _HALF_E8M0[q[:, :1]]


def nvfp4(q: Array) -> Decoded:
    return _signed(fields(q[:, 4:], 4, 8)), _HALF_E4M3[q[:, :4]]


def _signed(q: Array) -> Array:
    """Return the codes of E2M1's bits, a sign and a magnitude of 0 to 7: the code of 0 is 7."""
    sign = q >> 3
    return ((q & 7) ^ -sign) + sign + np.uint8(7)


def _half_e4m3(x: Array) -> Array:
    """Return half of an E4M3 without its sign; its NaN is 0, as the reference has it."""
    exponent, fraction = x >> 3 & 15, (x & 7) + np.float32(8) * (x >> 3 & 15 > 0)
    return np.where(x == 0x7F, np.float32(0), np.ldexp(fraction, np.maximum(exponent, 1) - 11))


_HALF_E8M0 = np.ldexp(np.float32(1), np.arange(256) - 128)  # half, as the levels are twice E2M1's
_HALF_E4M3 = _half_e4m3(np.arange(256))


def q2_k(q: Array) -> Decoded:
    both = q[:, :16]
    return fields(q[:, 16:80], 2, 32), (both & 15, stored_half(q, 80)), (both >> 4, -stored_half(q, 82))


def q3_k(q: Array) -> Decoded:
    codes = fields(q[:, 32:96], 2, 32) | fields(q[:, :32], 1, 32) << 2
    scales = fields(q[:, 96:104], 4, 8) | fields(q[:, 104:108], 2, 4) << 4
    return codes, (scales.view(np.int8) - np.int8(32), stored_half(q, 108))


def q4_k(q: Array) -> Decoded:
    return fields(q[:, 16:], 4, 32), *_six_bits(q)


def q5_k(q: Array) -> Decoded:
    return fields(q[:, 48:], 4, 32) | fields(q[:, 16:48], 1, 32) << 4, *_six_bits(q)


def _six_bits(q: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Read the scales and offsets of the eight groups of Q4_K and Q5_K, each a float16 times 6 bits.

    Of the first four groups these are the low bits of a byte, whose two high bits belong to one of the last four.
    """
    scales, offsets, both = q[:, 4:8], q[:, 8:12], q[:, 12:16]
    scale = np.concatenate([scales & 63, both & 15 | scales >> 6 << 4], axis=1)
    least = np.concatenate([offsets & 63, both >> 4 | offsets >> 6 << 4], axis=1)
    return (scale, stored_half(q, 0)), (least, -stored_half(q, 2))


def q6_k(q: Array) -> Decoded:
    codes = fields(q[:, :128], 4, 64) | fields(q[:, 128:192], 2, 32) << 4
    return codes, (q[:, 192:208].view(np.int8), stored_half(q, 208))
