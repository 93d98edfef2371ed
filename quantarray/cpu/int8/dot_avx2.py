"""Dot products by AVX2: vpmaddubsw adds pairs of products in 16 bits, where they must fit, vpmaddwd pairs of those."""

from dataclasses import dataclass

from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import I8, I16, I32, LANES
from .interface import tile_coder, tile_dotter

DOT_PASSES = 6  # pairs of planes that `count_tile` counts in the same time: see `../costs.py`
DOT_ALONE = 1
MOST_PRODUCT = 2**14 - 1  # of two bytes, or the sum of a pair saturates


@dataclass(frozen=True)
class Pairs:
    """Multiply bytes in vectors of some 32-bit lanes, where registers hold so many channels of 4 pixels in one walk."""

    lanes: int
    held: int
    bytewise: str
    wordwise: str

    def sweeps(self, blocks):
        channels = range(0, blocks * LANES, self.lanes)
        at_once = self.held // self.lanes
        return [channels[first : first + at_once] for first in range(0, len(channels), at_once)]

    def add(self, builder, total, codes, weights):
        row, pairs, byte = (ir.VectorType(kind, n * self.lanes) for kind, n in ((I32, 1), (I16, 2), (I8, 4)))
        find = cgutils.get_or_insert_function
        bytewise = find(builder.module, ir.FunctionType(pairs, [byte] * 2), self.bytewise)
        wordwise = find(builder.module, ir.FunctionType(row, [pairs] * 2), self.wordwise)
        products = builder.call(bytewise, [builder.bitcast(codes, byte), builder.bitcast(weights, byte)])
        return builder.add(total, builder.call(wordwise, [products, ir.Constant(pairs, [1] * pairs.count)]))


# 16 channels of 4 pixels are 8 of the 16 registers; a second walk over the contraction takes the next 16
_PAIRS = Pairs(8, 16, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd")
dot_tile, dot_codes = tile_dotter(_PAIRS), tile_coder(_PAIRS)
