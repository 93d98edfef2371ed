"""Dot products by AVX-512 without VNNI, in 512 bits: 64 channels of 4 pixels are 16 of the 32 registers."""

from .dot_avx2 import MOST_PRODUCT, Pairs
from .interface import tile_coder, tile_dotter

__all__ = ["DOT_ALONE", "DOT_PASSES", "MOST_PRODUCT", "dot_codes", "dot_tile"]

DOT_PASSES = 5.7  # of counting by shuffles
DOT_ALONE = 1.25

_PAIRS = Pairs(16, 64, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512")
dot_tile, dot_codes = tile_dotter(_PAIRS), tile_coder(_PAIRS)
