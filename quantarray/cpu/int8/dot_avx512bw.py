"""Dot products by AVX-512 without VNNI, in 512 bits: 64 channels of 4 pixels are 16 of the 32 registers."""

from .dot_avx2 import Folded, Short, Wide, kernel_of, most_quads
from .interface import tile_dotter, tile_writers

__all__ = ["DOT_ALONE", "DOT_FOLDED", "DOT_PASSES", "DOT_WIDE", "dot_codes", "dot_sums", "dot_tile", "most_quads"]

DOT_PASSES, DOT_FOLDED, DOT_WIDE = 3.8, 4.8, 11  # of counting by shuffles; from 5.7 with three instructions
DOT_ALONE = 1.25

SHORT, FOLDED, WIDE = Short(16, 64, 512), Folded(16, 32, 512), Wide(16, 64, 512)
_CHOSEN = kernel_of(SHORT, FOLDED, WIDE)
dot_tile, (dot_sums, dot_codes) = tile_dotter(_CHOSEN), tile_writers(_CHOSEN)
