"""Dot products by AVX2: vpmaddubsw adds pairs of products in 16 bits, where they must fit, vpmaddwd pairs of any.

Products of few bits are added in 16 bits for as many quads as these hold (`most_quads`): 32 products take two
instructions of 256 bits. Where these are less than a word has, their sums are added in 32 bits every few quads. All
others are products of words, to which pixels and weights are widened in registers.
"""

from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from ..llvm.vectors import I8, I16, I32
from .interface import tile_dotter, tile_writers

# Pairs of planes that `count_tile` counts in the same time, of products in 16 bits and of wide ones: see `../costs.py`
DOT_PASSES, DOT_FOLDED, DOT_WIDE = 3.6, 4.5, 8
DOT_ALONE = 1
_LEAST_QUADS = 16  # those of a word, by which contractions are cut
_FEWEST_QUADS = 4  # of 8 bits by 5: of 8 by 6, whose sums are folded every two, words took as long


@dataclass(frozen=True)
class _Bytes:
    """Multiply bytes in vectors of some 32-bit lanes, where registers hold so many channels of 4 pixels in one walk."""

    lanes: int
    held: int
    bits: int

    def sweeps(self, lanes):
        channels = range(0, lanes, self.lanes)
        at_once = self.held // self.lanes
        return [channels[first : first + at_once] for first in range(0, len(channels), at_once)]

    def _call(self, builder, bytewise, a, b):
        """Add pairs of products of bytes, uint8 by int8, or of int16."""
        narrow, wide = (I8, I16) if bytewise else (I16, I32)
        count = self.bits // wide.width
        operand, result = ir.VectorType(narrow, 2 * count), ir.VectorType(wide, count)
        name = {
            (256, True): "llvm.x86.avx2.pmadd.ub.sw", (256, False): "llvm.x86.avx2.pmadd.wd",
            (512, True): "llvm.x86.avx512.pmaddubs.w.512", (512, False): "llvm.x86.avx512.pmaddw.d.512",
        }[self.bits, bytewise]  # fmt: skip
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, [operand] * 2), name)
        return builder.call(function, [builder.bitcast(a, operand), builder.bitcast(b, operand)])


class Short(_Bytes):
    """Add products in 16 bits."""

    @property
    def sums(self):
        return ir.VectorType(I16, 2 * self.lanes)

    def parts(self, builder, x, signed):
        return x

    def add(self, builder, total, codes, weights):
        return builder.add(total, self._call(builder, True, codes, weights))

    def whole(self, builder, total):
        return self._call(builder, False, total, ir.Constant(total.type, [1] * total.type.count))


class Folded(Short):
    """Add products of some quads in 16 bits, and their sums in 32 bits."""

    @property
    def sums(self):
        return ir.VectorType(I32, self.lanes)

    @property
    def some(self):
        return super().sums

    def fold(self, builder, total, some):
        return builder.add(total, super().whole(builder, some))

    def whole(self, builder, total):
        return total


class Wide(_Bytes):
    """Multiply words: bytes at even and at odd places."""

    @property
    def sums(self):
        return ir.VectorType(I32, self.lanes)

    def parts(self, builder, x, signed):
        """Return the even and the odd bytes of a vector as int16."""
        kind = ir.VectorType(I16, 2 * self.lanes)
        x, eight = builder.bitcast(x, kind), ir.Constant(kind, [8] * kind.count)
        if signed:
            return builder.ashr(builder.shl(x, eight), eight), builder.ashr(x, eight)
        return builder.and_(x, ir.Constant(kind, [255] * kind.count)), builder.lshr(x, eight)

    def add(self, builder, total, codes, weights):
        for pair in zip(codes, weights, strict=True):
            total = builder.add(total, self._call(builder, False, *pair))
        return total

    def whole(self, builder, total):
        return total


class SomeQuads(NamedTuple):
    """A number of quads, fewer than a word has, whose products 16 bits hold."""

    quads: int


def kernel_of(short, folded, wide):
    """Return a function that chooses by Numba's type of `most_quads`."""

    def chosen(most):
        if isinstance(most, types.NoneType):
            return wide
        return folded if isinstance(most, types.BaseTuple) else short

    return chosen


def most_quads(code, byte):
    """Return how many quads of products of codes and bytes, up to these magnitudes, 16 bits hold; None for none."""
    most = (2**15 - 1) // max(1, 2 * code * byte)
    return most if most >= _LEAST_QUADS else SomeQuads(most) if most >= _FEWEST_QUADS else None


# 16 channels of 4 pixels are 8 of the 16 registers; a second walk over the contraction takes the next 16
SHORT, FOLDED, WIDE = Short(8, 16, 256), Folded(8, 16, 256), Wide(8, 16, 256)
_CHOSEN = kernel_of(SHORT, FOLDED, WIDE)
dot_tile, (dot_sums, dot_codes) = tile_dotter(_CHOSEN), tile_writers(_CHOSEN)
