"""Cost model of the kernels of integer products, which `quantarray/ops/products/select.py` asks.

Costs are for 4 pixels by 32 channels by a word of 64 elements, in units of what counting takes for a pair of planes,
with VPOPCNTDQ of what it takes by a popcount of each word (`tiles.WORD` is what it takes by one of both halves).
They hold within a fifth for AVX-512 with VNNI, with and without VPOPCNTDQ, for AVX2 and for AMX;
`docs/kernels/costs.md` has what they were fitted to.
"""

from typing import NamedTuple

from .int8 import bit_rows
from .int8.amx_unit import COUNTS_BY_SHUFFLES, DOT_ALONE, DOT_COPY, DOT_EXPAND, DOTS, UNIT
from .int8.dot import EFFORT as DOT
from .int8.dot import bytes_of_levels, passes, quads_of_terms
from .int8.framed import EFFORT as FRAMED
from .int8.framed import POSITIONS
from .int8.group_rows import MOST_ROWS, SHORT
from .int8.interface import QUAD
from .int8.tall_rows import HAS_TALL, TALL
from .int8.windows import BAND
from .int8.winograd import BAND as SQUARES
from .int8.winograd import EFFORT as WINOGRAD
from .int8.winograd import MOST_LEVEL, MOST_PLANES, SHARE, bounds, quads_of_squares
from .int8.winograd_transforms import PLACES, TAPS
from .llvm.vectors import LANES, TILE
from .popcount.affine import differing
from .popcount.bands import BLOCKS, IN_BANDS, band_tiles, pays
from .popcount.tile_tasks import workers_for
from .popcount.tiles import IN_REGISTERS, WORD
from .runtime.isa import FAST_DOTS, NAME

_ROWS = 16  # that `byte_row_product` takes: others are as fast from about 64 on
_FEW_PLANES = 5  # of which bytes are made in less time than others take to reach their rate (Zen 3)
_PLANES = 8  # that a byte holds
_BLOCK = 8  # words that `dot_byte_rows` multiplies at once: fewer are filled up
_BITS = 64  # of a word
_FOLD = 0.4  # 64 bytes of a tap or a pixel are folded
_PACK = 50  # a word of a tile's windows is made of bytes
_CALL = 1000  # a kernel's call
_ALONE = 0.53 if IN_REGISTERS else 0.4  # of what counting four pixels takes, where a product is of one


def few_rows(planes):
    """Return up to how many rows of int8 `byte_row_product` is faster than a product with weights laid out for it.

    By VNNI, tiles of eight rows take 80 % of its rate. Without, 16 rows by 4096x4096 of 4 bits take 5.0 ms and 6.3 laid
    out, 8 rows of 8 bits 6.3 and 6.0 (AVX2, Zen 3).
    """
    if HAS_TALL:
        return _ROWS if UNIT is None else TALL
    if UNIT is not None or not DOTS:
        return MOST_ROWS
    return _ROWS if planes <= _FEW_PLANES else TALL


def few_queries(planes, words):
    """Return up to how many queries of int8 `nearest_products` is faster than a product with all rows laid out for it.

    words: of a plane of a row. With AVX2, 17 queries by 100,000 rows of 256 elements of 4 bits take 8.3 ms, and 18.6
    laid out; 64 of 8 bits 61 and 45. By tables 300 of one bit take 59 ms instead of 123 (Zen 3).
    """
    if bit_rows.HAS_TABLES and planes == 1 and words % bit_rows.WORDS == 0 and bit_rows.MOST_QUERIES > 1:
        return bit_rows.MOST_QUERIES
    by_pairs, filled = DOTS and not HAS_TALL and UNIT is None, words in SHORT or -words % _BLOCK <= words / 3
    return 4 * _ROWS if by_pairs and filled and planes < _FEW_PLANES else _ROWS


class Counting(NamedTuple):
    """A set of costs of counting, besides words; their unit depends on how this CPU counts."""

    one_pass: float  # a pair of planes adds it to a tile, or a plane of w does: sums are loaded, shifted, stored
    one_sum: float  # a word of one plane of a pixel is summed, where levels of w do not begin at 0
    expand: float  # a word of one plane becomes 64 bytes
    unroll: float  # a tap of one plane of a tile goes to a row of bits
    step: float  # the same where windows are more than a pixel apart
    order: float  # a word of a row, of more than one, is put in its place
    split: float = 0  # to prepare a word of one plane of weights for shuffles, for each band
    # A word of a block or two by shuffles, where four, which share them, take 4; by tables of a block, where two take 2
    alone: float = 0
    one_shift: float = 0  # a pair of planes adds it to a tile where all planes of x are counted in the same registers
    ranks: float = 0  # codes of several thresholds take so much longer than after other kernels
    sure: float = 1.2  # costs so many times apart are in the order of the times, of tiles of few words too


_SHIFT = 1.5 if FAST_DOTS else 0.3
BY_WORDS = Counting(
    one_pass=3, one_sum=0.25, expand=0.08, unroll=0.24, step=0.9, order=0.45, one_shift=_SHIFT, ranks=5, sure=1.1
)
BY_SHUFFLES = Counting(
    one_pass=5.5, one_sum=0.1, expand=0.12, unroll=0.15, step=0.55, order=0.3, split=2, alone=2.75, sure=1.3
)
BY_TABLES = BY_WORDS._replace(unroll=0.15, step=0.55, order=0.3, alone=1.9, one_shift=0, ranks=0)
COUNTING = BY_SHUFFLES if COUNTS_BY_SHUFFLES else BY_TABLES if IN_BANDS and UNIT is None else BY_WORDS


def integer_kernel(x_terms, w_terms, rows, channels, words, forms, of_bytes=False):
    """Choose the kernel of operands of one term: `rows` pixels of windows of `words` words, by `channels` a group.

    `forms` are what they are besides. Pixels `of_bytes` are multiplied as they are, and packed before they are counted.
    """
    units = costs(x_terms, w_terms, rows, channels, words, forms, of_bytes)
    return min(units, key=units.get)


def writes_words(name, rows, channels, groups):
    """Return True if a kernel writes all words of codes, so that nobody has to clear them: see `registry`."""
    return name == "dot" and groups == 1


def candidates(x_terms, w_terms, rows, channels, words, forms, of_bytes=False):
    """List the kernels that can compute a product; arguments as of `integer_kernel`."""
    return tuple(costs(x_terms, w_terms, rows, channels, words, forms, of_bytes))


def costs(x_terms, w_terms, rows, channels, words, forms, of_bytes=False):
    """Return {kernel: units} for each kernel that can compute a product."""
    sizes = rows, channels, words
    units = {"conv": _counting(x_terms, w_terms, *sizes)}
    if forms.ranks:
        units["conv"] += COUNTING.ranks
    if of_bytes:
        units["conv"] += _PACK * words / max(1, -(-channels // LANES))
    if _dot_fits(x_terms, w_terms):
        units["dot"] = _dot(x_terms, w_terms, *sizes, forms)
    if forms.squares and _winograd_fits(x_terms, w_terms, words):
        units["winograd"] = _winograd(x_terms, w_terms, *sizes) * TILE * forms.squares / max(1, rows)
    if forms.positions and _framed_fits(x_terms, w_terms):
        units["framed"] = _framed(x_terms, w_terms, channels, words, forms)
    return units


# Nanoseconds of a unit by one thread, Python's part of a call included, by instruction set; on a 2-core Zen 4 server,
# and for AMX two virtual CPUs of a Xeon, 2026-11-25 and 26. `python -m benchmarks.cost_model --unit` measures it
UNIT_NS = {"amx": 8.0, "avx512": 6.6, "avx512bw": 9.4, "avx2": 11.8, "portable": 18.1}


def predicted(units):
    """Return (threads, microseconds) of a product of so many units in all; no time where no unit was measured."""
    workers, ns = workers_for(units), UNIT_NS.get(NAME)
    return workers, None if ns is None else units * ns / 1000 / workers


def refusals(x_terms, w_terms, rows, channels, words, forms, of_bytes=False):
    """Return {kernel: reason} for the kernels that `costs` leaves out."""
    why = {}
    if not _dot_fits(x_terms, w_terms):
        why["dot"] = "it needs AVX2, and operands of at most 8 planes"
    if not forms.squares:
        why["winograd"] = "it needs windows of 3x3 at stride 1, of whole words a pixel"
    elif not _winograd_fits(x_terms, w_terms, words):
        why["winograd"] = "transformed pixels or taps do not fit bytes, or AMX multiplies"
    if not forms.positions:
        why["framed"] = "it needs AMX, and convolutions at stride 1 without groups"
    elif not _framed_fits(x_terms, w_terms):
        why["framed"] = "it needs AMX, and levels of w that fit bytes"
    return why


def unrolling(x_terms, rows, planes, taps, words, step):
    """Return the cost for a tile of copying windows to rows of bits, of so many taps and words each, by a separate
    call.
    """
    cost = (COUNTING.unroll if step == 1 else COUNTING.step) * taps + (COUNTING.order * words if words > 1 else 0)
    return (cost * int(x_terms[0, 1]) * planes + _CALL * TILE) / max(1, rows)


def _counting(x_terms, w_terms, rows, channels, words):
    planes_x, planes_w = int(x_terms[0, 1]), int(w_terms[0, 1])
    tiles, alone = max(1, -(-rows // TILE)), rows == 1
    in_bands = IN_BANDS and pays.py_func(tiles, planes_x, alone)
    word = _ALONE if alone and not in_bands else _sharing(channels)
    passes = planes_w * (1 if COUNTING.one_shift else planes_x)
    cost = planes_x * planes_w * (words * word * WORD + COUNTING.one_shift) + passes * COUNTING.one_pass
    if in_bands:
        cost += COUNTING.split * planes_w * words / min(tiles, band_tiles.py_func(planes_x))
    if w_terms[0, 2] and not differing.py_func(w_terms):
        cost += COUNTING.one_sum * TILE * planes_x * words / max(1, -(-channels // LANES))
    return cost


def _sharing(channels):
    """Return the cost of a block, of those that are counted together and share shuffles or tables; or of which one is
    half.
    """
    blocks = max(1, -(-channels // LANES))
    if IN_REGISTERS:
        return 1 - 0.35 * (0 < channels % LANES <= LANES // 2) / blocks
    whole, rest = divmod(blocks, BLOCKS)
    return (BLOCKS * whole + (0, COUNTING.alone, COUNTING.alone, BLOCKS)[rest]) / blocks


def _dot_fits(x_terms, w_terms):
    return DOTS and max(int(x_terms[0, 1]), int(w_terms[0, 1])) <= _PLANES


def _dot(x_terms, w_terms, rows, channels, words, forms):
    tiles, blocks = min(BAND, -(-rows // TILE)), max(1, -(-channels // LANES))
    of_weights = (COUNTING.expand * w_terms[0, 1] + DOT_EXPAND) * LANES / max(1, tiles)
    expanding = COUNTING.expand * x_terms[0, 1] * TILE / blocks + of_weights
    word, multiplied = passes(quads_of_terms(x_terms, w_terms)), words
    if UNIT is None and forms.quads:
        multiplied = forms.quads * QUAD / _BITS
    return multiplied * word * _pairing(blocks) + words * (expanding + DOT_COPY * TILE / blocks) + DOT.tile


def _framed_fits(x_terms, w_terms):
    """True where a matrix unit can multiply levels themselves: no sum of codes alone is left to add."""
    return UNIT is not None and _dot_fits(x_terms, w_terms) and not bytes_of_levels.py_func(w_terms)[2]


def _framed(x_terms, w_terms, channels, words, forms):
    tiles, blocks = min(POSITIONS, forms.positions) / TILE, max(1, -(-channels // LANES))
    product = words * (FRAMED.word * _pairing(blocks) + COUNTING.expand * w_terms[0, 1] * LANES / tiles)
    pixels = COUNTING.expand * x_terms[0, 1] * TILE / blocks * forms.position_words
    return (product + pixels) * forms.positions / (TILE * forms.tiles) + FRAMED.tile


def _winograd_fits(x_terms, w_terms, words):
    """True where bytes hold folded pixels and taps, and int32 four times a result. Never where a matrix unit
    multiplies.
    """
    planes_x, planes_w = int(x_terms[0, 1]), int(w_terms[0, 1])
    if not DOTS or planes_x > MOST_PLANES or planes_w > _PLANES or UNIT is not None:
        return False
    largest, level = bounds(x_terms, w_terms)
    return level <= MOST_LEVEL and 4 * largest * level * words * 64 < 2**31


def _winograd(x_terms, w_terms, rows, channels, words):
    """Return the cost of a square, which is four windows if it is inside the image."""
    squares, blocks = min(SQUARES, -(-rows // TILE)), max(1, -(-channels // LANES))
    expanding = COUNTING.expand * (x_terms[0, 1] * TILE / blocks + w_terms[0, 1] * LANES / max(1, squares))
    folding = _FOLD * (PLACES / TAPS / blocks + LANES / max(1, squares))
    word = passes(quads_of_squares(x_terms, w_terms)) * SHARE
    return words * (word * _pairing(blocks) + expanding + folding) + WINOGRAD.tile


def _pairing(blocks):
    """Return the cost of a block, of those of which two are multiplied at once."""
    return 1 + (DOT_ALONE - 1) * (blocks % 2) / blocks
