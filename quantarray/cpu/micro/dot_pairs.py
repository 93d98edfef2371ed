"""Dot products by AVX2: vpmaddubsw adds pairs of products in 16 bits, where they must fit, vpmaddwd pairs of those."""

from llvmlite import ir
from numba.core import cgutils

from .dot import tile_dotter
from .vectors import I8, I16, I32, LANES

DOT_PASSES = 8  # of `count_tile` over one pair of planes take as long: see `../costs.py`
DOT_BLOCKS = 1
MOST_PRODUCT = 2**14 - 1  # of two bytes, or the sum of a pair saturates
_ROW, _BYTES, _PAIRS = ir.VectorType(I32, 8), ir.VectorType(I8, 32), ir.VectorType(I16, 16)


class Pairs:
    """16 channels of 4 pixels are 8 of the 16 registers; a second walk over the contraction takes the next 16."""

    lanes = 8

    @staticmethod
    def sweeps(blocks):
        return [range(first, first + 16, 8) for first in range(0, blocks * LANES, 16)]

    @staticmethod
    def add(builder, total, codes, weights):
        bytewise = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_PAIRS, [_BYTES] * 2), "llvm.x86.avx2.pmadd.ub.sw"
        )
        wordwise = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_ROW, [_PAIRS] * 2), "llvm.x86.avx2.pmadd.wd"
        )
        pairs = builder.call(bytewise, [builder.bitcast(codes, _BYTES), builder.bitcast(weights, _BYTES)])
        ones = ir.Constant(_PAIRS, [1] * 16)
        return builder.add(total, builder.call(wordwise, [pairs, ones]))


dot_tile = tile_dotter(Pairs)
