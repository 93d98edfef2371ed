"""Round rows to bits of their own in one packed object: ActNN's mixed precision (Chen et al., arXiv 2104.14129)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...backends.registry import empty, kernel
from ...core.bfloat16 import bfloat16_values
from ...core.dtypes import Array, Constants, uniform
from ...core.format import WORD_BITS, word_count
from ...quantizers.grouped import DIGITS, Grouped, kernel_key, upper_half

_ORDINARY = 1e30  # magnitudes up to which no constant and no level is beyond float32


class MixedRows(NamedTuple):
    """A table of rows of values at 1 to 8 bits each, in one buffer, with a minimum and a step for each group of a row.

    words uint64[words]; bits uint8[rows]; first int64[rows], the first word of each row, from which on its planes
    follow one another, word_count(length) words each; constants float32, or bfloat16 in uint16, [2 rows groups]: steps
    and offsets; group: elements, the last of a row may have fewer.
    """

    words: Array
    bits: Array
    first: Array
    constants: Array
    length: int
    group: int

    @property
    def nbytes(self) -> int:
        """Return the bytes of words, constants, bits and first words."""
        return int(self.words.nbytes + self.constants.nbytes + self.bits.nbytes + self.first.nbytes)

    def dequantize(self, out: Array) -> None:
        """Write the values to out float32[rows length], in one pass."""
        step, low = self.constants if self.constants.dtype == np.float32 else bfloat16_values(self.constants)
        kernel("cpu", "decode_mixed")(self.words, _rows(self.bits, self.first), low, step, self.group, out)

    def row(self, r: int) -> QuantArray:
        """Return row r as an array of its bits, which shares the memory."""
        bits, first = int(self.bits[r]), int(self.first[r])
        count = word_count(self.length)
        words = self.words[first : first + bits * count].reshape(bits, count)
        group = self.group if self.length > self.group else None
        step, low = self.constants[0, r], self.constants[1, r]
        return QuantArray(words, uniform(bits), (self.length,), 0, Constants(step, low, None, group))


def ends_of_groups(x: Array, group: int) -> Array:
    """Return the least and the largest value of each group of x float32[rows length]: float64[2 rows groups]."""
    rows, length = x.shape
    out = empty("cpu", (2, rows, -(-length // group)), np.float64)
    kernel("cpu", "group_ends")(x, group, out)
    return out


def are_ordinary(ends: Array) -> bool:
    """True if no value is NaN or infinite, or so large that a level may be beyond float32."""
    return bool((np.abs(ends) < _ORDINARY).all())


def spread(ends: Array, length: int, group: int) -> Array:
    """sum over the groups of a row of n * (max - min)**2 / 4: bounds the variance of rounding to 1 bit, float64[rows].

    That of rounding to b bits is at most as much over (2**b - 1)**2.
    """
    sizes = np.minimum(group, length - group * np.arange(ends.shape[2]))
    return np.asarray((ends[1] - ends[0]) ** 2 @ sizes / 4)


def round_rows(x: Array, ends: Array, bits: Array, scheme: Grouped) -> MixedRows:
    """Round row r of x float32[rows length] as `quantize(x, Grouped(bits[r]))` does, by the ends of its groups.

    The ends must be ordinary. scheme: group, seed and constants; its bits do not count. A group is a multiple of 64
    elements, or a row.
    """
    rows, length = x.shape
    group = min(scheme.group or 1, length)
    if group < length and group % WORD_BITS:
        raise ValueError(f"rows of bits of their own need a group of whole words of {WORD_BITS}, got {group}")
    count = word_count(length)
    first = np.zeros(rows, np.int64)
    np.cumsum(bits[:-1].astype(np.int64) * count, out=first[1:])
    constants = empty("cpu", ends.shape, np.float32)
    out = empty("cpu", (int(bits.sum()) * count,))
    kernel("cpu", "encode_mixed")(
        x, ends, _rows(bits, first), group, DIGITS[scheme.constants], kernel_key(scheme), constants, out
    )
    stored = upper_half(constants) if scheme.constants == "bfloat16" else constants
    for array in (out, stored):
        array.setflags(write=False)
    return MixedRows(out, bits.astype(np.uint8), first, stored, length, group)


def _rows(bits: Array, first: Array) -> Array:
    """Return bits and first words as the kernels take them: int64[2 rows]."""
    return np.stack([bits.astype(np.int64), first])
