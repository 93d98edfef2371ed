"""Choose the dot product micro-kernel for this process' instruction set, with the largest products that it takes."""

from ..runtime.isa import COUNTING, FEATURES

if "avx512vnni" in FEATURES:
    from .dot_avx512vnni import DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_codes, dot_tile
elif COUNTING == "avx512bw":
    from .dot_avx512bw import DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_codes, dot_tile
elif COUNTING == "avx2" or "avx2" in FEATURES:
    from .dot_avx2 import DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_codes, dot_tile
else:
    DOT_ALONE, DOT_PASSES, MOST_PRODUCT = 1, 0, -1  # no product is small enough: all is counted
    dot_codes = dot_tile = None

__all__ = ["DOT_ALONE", "DOT_PASSES", "MOST_PRODUCT", "dot_codes", "dot_tile"]
