"""Which kernel takes a product of integers: the one place where that is chosen.

Costs are for 4 pixels by 32 channels by a word of 64 elements, in units of `count_tile`'s time for one pair of planes.
They hold within a fifth for AVX-512 with VNNI and for AVX2; `docs/kernels/conv.md` has what they were fitted to. For
AMX they are derived: see `docs/kernels/dot_amx.md`.
"""

from .dot import bytes_of_levels
from .matrix_unit import DOT_COPY, DOT_PASSES, MOST_PRODUCT
from .micro import LANES, TILE
from .tiles import differing
from .windows import BAND

_PLANES = 8  # that a byte holds
_PASS = 3  # what each pair of planes adds to a tile besides its words: sums are loaded, shifted, stored
_SUM = 0.25  # a word of one plane of a pixel is summed, where levels of w do not begin at 0
_TILE = 6  # what a tile adds to that
_EXPAND = 0.08  # a word of one plane becomes 64 bytes


def candidates(x_terms, w_terms, rows, channels, words):
    """The kernels that can make a product; arguments as of `integer_kernel`."""
    planes_x, planes_w = int(x_terms[0, 1]), int(w_terms[0, 1])
    if max(planes_x, planes_w) > _PLANES:
        return ("conv",)
    base, unit, _, _ = bytes_of_levels.py_func(w_terms)
    last = base + unit * (2**planes_w - 1)
    most = (2**planes_x - 1) * max(abs(base), abs(last))
    return ("conv",) if most > MOST_PRODUCT else ("conv", "dot")


def integer_kernel(x_terms, w_terms, rows, channels, words):
    """ "conv" or "dot" for operands of one term: `rows` pixels of windows of `words` words, by `channels` a group."""
    if candidates(x_terms, w_terms, rows, channels, words) == ("conv",):
        return "conv"
    planes_x, planes_w = int(x_terms[0, 1]), int(w_terms[0, 1])
    tiles, blocks = min(BAND, -(-rows // TILE)), -(-channels // LANES)
    expanding = _EXPAND * (planes_x * TILE / max(1, blocks) + planes_w * LANES / max(1, tiles))
    copying = DOT_COPY * TILE / max(1, blocks)
    counting = planes_x * planes_w * (words + _PASS)
    if w_terms[0, 2] and not differing.py_func(x_terms, w_terms):
        counting += _SUM * TILE * planes_x * words / max(1, blocks)
    return "dot" if words * (DOT_PASSES + expanding + copying) + _TILE < counting else "conv"
