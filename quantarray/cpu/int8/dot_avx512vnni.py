"""Dot products by AVX512-VNNI: one instruction adds 64 products, and 64 channels of 4 pixels are 16 registers."""

from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import I32
from ..runtime.isa import COUNTING, FAST_DOTS
from .interface import tile_dotter, tile_writers

# Pairs of planes that are counted in the same time, by `count_tile` or by shuffles: see `../costs.py`
DOT_PASSES = DOT_FOLDED = DOT_WIDE = 2.5 if COUNTING == "avx512bw" else 3 if FAST_DOTS else 5
DOT_ALONE = 1.25  # times as long a single block of 32 channels takes as one of two: its additions wait for each other
_ROW = ir.VectorType(I32, 16)


class Vnni:
    """Multiply by vpdpbusd: uint8 by int8, sums of 32 bits, no saturation."""

    lanes, sums = 16, _ROW

    @staticmethod
    def sweeps(lanes):
        return [range(0, lanes, 16)]

    @staticmethod
    def parts(builder, x, signed):
        return x

    @staticmethod
    def whole(builder, total):
        return total

    @staticmethod
    def add(builder, total, codes, weights):
        kind = ir.FunctionType(_ROW, [_ROW] * 3)
        dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return builder.call(dot, [total, codes, weights])


def most_quads(code, byte):
    """Return None: sums have 32 bits."""
    return None


dot_tile, (dot_sums, dot_codes) = tile_dotter(lambda most: Vnni), tile_writers(lambda most: Vnni)
