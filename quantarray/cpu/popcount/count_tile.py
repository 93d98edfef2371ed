"""Choose the counting micro-kernels for this process' instruction set: `lay_out`, and `count_tile` or its parts.

`count_tile` is the inner loop of a product: the counts of 4 pixels by 32 output channels stay in registers while the
words of a run stream by. With VPOPCNTDQ there is no `count_tile`: `plane_counts`, `mask_counts` and `value_counts` use
the counts in the registers in which they were added up. `lay_out` stores weights in the order in which they are read;
`fill_tables` of `band_lut.py` reads the same order.
"""

from ..runtime.isa import COUNTING

count_tile = mask_counts = plane_counts = value_counts = None  # either the first, or the others
if COUNTING in ("avx2", "avx512bw"):
    from .avx2_pshufb import count_tile, lay_out
elif COUNTING in ("neon", "portable"):
    from .neon import count_tile, lay_out
else:
    from .avx512_vpopcntdq import lay_out, mask_counts, plane_counts, value_counts

__all__ = ["count_tile", "lay_out", "mask_counts", "plane_counts", "value_counts"]
