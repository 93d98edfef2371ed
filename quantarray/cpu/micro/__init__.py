"""Micro-kernels: what the compiler would not write by itself, one file for each way to count or to multiply bytes.

`count_tile` is the inner loop of every product: the counts of 4 pixels by 32 output channels stay in registers while
the words of a run stream by. With VPOPCNTDQ `plane_counts` and those beside it are, which use counts in the registers
that added them up. `lay_out` puts the weights in the order in which they are read. In that order `fill_tables` of
`tables.py` reads them too, where a band of pixels is counted by tables instead: see `../bands.py`.
"""

from ..isa import COUNTING, FEATURES
from .bits import add_bits, low_bits, mask_above, mask_at_least, mask_nan, mask_of_plane, popcount, prefetch, put_plane
from .copy_windows import HALF, copy_windows
from .distance_pairs import near_pairs
from .distances import QUERIES, ROWS, near_lanes, near_rows
from .dot import QUAD
from .dot_amx import dot_rows
from .expand import clear_bytes, copy_bytes, expand, lay_out_quads
from .extremes import extremes_64
from .grid import grid_codes, grid_masks
from .lane_products import row_codes, row_sums
from .lanes import add_counts, add_tile, clear_tile, mask_tile, round_tile, shift_tile
from .largest import SIDE, keep_largest
from .pairs import CHANNELS, PAIRS, pair_pixels
from .ranks import BLENDED, put_ranks
from .rescale_row import rescale_row
from .search import IN_REGISTERS, NODES, order, search_15, search_255
from .shifted import put_shifted
from .shuffles import SHUFFLED, SPLIT, shuffle_tile, split_lanes, split_weights
from .slices import slice_run
from .squares import PLACES, TAPS, fold_pixels, fold_taps, unfold
from .stream import STREAMED, stream_lanes
from .strips import put_strip
from .sums import mask_sums, mask_words, read_tile, value_sums
from .tables import TABLES, WORDS, add_rows, fill_tables
from .taps import add_chosen, fix_lanes
from .vectors import LANES, PAIR, TILE, WIDTH
from .widening import widen

count_tile = mask_counts = plane_counts = value_counts = None  # either the first, or the others
if COUNTING in ("avx2", "avx512bw"):
    from .count_nibbles import count_tile, lay_out
elif COUNTING in ("neon", "portable"):
    from .count_ones import count_tile, lay_out
else:
    from .count_halves import lay_out, mask_counts, plane_counts, value_counts

if "avx512vnni" in FEATURES:
    from .dot_vnni import DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_tile
elif COUNTING == "avx512bw":
    from .dot_wide_pairs import DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_tile
elif COUNTING == "avx2" or "avx2" in FEATURES:
    from .dot_pairs import DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_tile
else:
    DOT_ALONE, DOT_PASSES, MOST_PRODUCT, dot_tile = (
        1,
        0,
        -1,
        None,
    )  # no product of two bytes is small enough: all is counted

if {"avx512vbmi", "avx512bitalg"} <= FEATURES:
    from .pick import pick_bits
else:
    pick_bits = None  # bits of words are moved by shifts

__all__ = [
    "BLENDED",
    "CHANNELS",
    "DOT_ALONE",
    "DOT_PASSES",
    "HALF",
    "IN_REGISTERS",
    "LANES",
    "MOST_PRODUCT",
    "NODES",
    "PAIR",
    "PAIRS",
    "PLACES",
    "QUAD",
    "QUERIES",
    "ROWS",
    "SHUFFLED",
    "SIDE",
    "SPLIT",
    "STREAMED",
    "TABLES",
    "TAPS",
    "TILE",
    "WIDTH",
    "WORDS",
    "add_bits",
    "add_chosen",
    "add_counts",
    "add_rows",
    "add_tile",
    "clear_bytes",
    "clear_tile",
    "copy_bytes",
    "copy_windows",
    "count_tile",
    "dot_rows",
    "dot_tile",
    "expand",
    "extremes_64",
    "fill_tables",
    "fix_lanes",
    "fold_pixels",
    "fold_taps",
    "grid_codes",
    "grid_masks",
    "keep_largest",
    "lay_out",
    "lay_out_quads",
    "low_bits",
    "mask_above",
    "mask_at_least",
    "mask_counts",
    "mask_nan",
    "mask_of_plane",
    "mask_sums",
    "mask_tile",
    "mask_words",
    "near_lanes",
    "near_pairs",
    "near_rows",
    "order",
    "pair_pixels",
    "pick_bits",
    "plane_counts",
    "popcount",
    "prefetch",
    "put_plane",
    "put_ranks",
    "put_shifted",
    "put_strip",
    "read_tile",
    "rescale_row",
    "round_tile",
    "row_codes",
    "row_sums",
    "search_15",
    "search_255",
    "shift_tile",
    "shuffle_tile",
    "slice_run",
    "split_lanes",
    "split_weights",
    "stream_lanes",
    "unfold",
    "value_counts",
    "value_sums",
    "widen",
]
