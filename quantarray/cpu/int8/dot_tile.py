"""Choose the dot product micro-kernel for this process' instruction set."""

from ..runtime.isa import COUNTING, FEATURES

if "avx512vnni" in FEATURES:
    from .dot_avx512vnni import DOT_ALONE, DOT_FOLDED, DOT_PASSES, DOT_WIDE, dot_codes, dot_sums, dot_tile, most_quads
elif COUNTING == "avx512bw":
    from .dot_avx512bw import DOT_ALONE, DOT_FOLDED, DOT_PASSES, DOT_WIDE, dot_codes, dot_sums, dot_tile, most_quads
elif COUNTING == "avx2" or "avx2" in FEATURES:
    from .dot_avx2 import DOT_ALONE, DOT_FOLDED, DOT_PASSES, DOT_WIDE, dot_codes, dot_sums, dot_tile, most_quads
else:
    DOT_ALONE, DOT_FOLDED, DOT_PASSES, DOT_WIDE = 1, 0, 0, 0
    dot_codes = dot_sums = dot_tile = most_quads = None  # all is counted

__all__ = ["DOT_ALONE", "DOT_FOLDED", "DOT_PASSES", "DOT_WIDE", "dot_codes", "dot_sums", "dot_tile", "most_quads"]
