"""Dot products by AVX512-VNNI: one instruction adds 64 products, and 64 channels of 4 pixels are 16 registers."""

from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import I32, LANES
from ..runtime.isa import COUNTING
from .interface import tile_coder, tile_dotter

# Pairs of planes that are counted in the same time, by `count_tile` or by shuffles: see `../costs.py`
DOT_PASSES = 2.5 if COUNTING == "avx512bw" else 5
DOT_ALONE = 1.25  # times as long a single block of 32 channels takes as one of two: its additions wait for each other
MOST_PRODUCT = 2**15  # of two bytes: all
_ROW = ir.VectorType(I32, 16)


class Vnni:
    """Multiply by vpdpbusd: uint8 by int8, sums of 32 bits, no saturation."""

    lanes = 16

    @staticmethod
    def sweeps(blocks):
        return [range(0, blocks * LANES, 16)]

    @staticmethod
    def add(builder, total, codes, weights):
        kind = ir.FunctionType(_ROW, [_ROW] * 3)
        dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return builder.call(dot, [total, codes, weights])


dot_tile, dot_codes = tile_dotter(Vnni), tile_coder(Vnni)
