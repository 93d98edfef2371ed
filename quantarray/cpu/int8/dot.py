"""Convolution and matrix product of operands of several bits, by dot products of bytes that never leave the cache.

    sum u*v = base_x * sum v + step_x * sum a*v

a are the codes of x and v the levels of w as they are, where they fit into int8: no sum over the pixel's codes alone
is left. Where they do not, v is taken in terms of codes. `docs/kernels/dot.md` has the bands and the stretches.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from ..epilogue.finish import finish_tile, flips_and_lanes, target
from ..epilogue.ranks import NEAR
from ..epilogue.strips import are_in_strips, ends_of_lines, put_codes, single_lines
from ..llvm.stream import STREAMED
from ..llvm.vectors import LANES, TILE
from ..llvm.views import ByteLines, ByteWeights, Checks, Limits, Planes, Rows, RunSpan, TileSpan, View
from ..popcount.affine import Added
from ..popcount.packed_weights import QUADS, interleave, restore
from ..popcount.tile_tasks import Effort, Task, drive, tiles_of
from ..popcount.tiles import Group, blocks, empty_places, lanes_of, next_stretch, place_results
from ..runtime.aligned import empty_lines, first_line
from ..runtime.isa import FAST_DOTS
from ..runtime.jit import entry, inline, inner
from ..runtime.schedule import Kernel
from .amx_unit import COUNTS_BY_SHUFFLES, DOT_PASSES, DOT_WIDE, UNIT
from .dot_amx import dot_rows
from .dot_tile import DOT_FOLDED, dot_codes, dot_sums, dot_tile, most_quads
from .expand import expand
from .im2row import line_up, row_bytes, whole_spans
from .interface import QUAD
from .windows import BAND, LONG_BAND, WORD, ByteBuffer, bring, spans_of

_NO_VALUES = np.empty((0, 0), np.int32)
_TOGETHER = 8  # tiles whose sums wait for each other, and stay in L1
PAIR = 2  # blocks of 32 channels whose weights are expanded at once
_SPARE = 2  # quads that take as long as a span of its own
EXPANDED = 1 << 17  # bytes of weights that stay expanded for all bands: half of the L2 that most CPUs have
STRETCH = 72  # words of the contraction whose weights, 64 channels of bytes, stay in L2: 288 KiB
SHORT_STRETCH = 9  # in L1, 36 KiB, where each four pixels read them again, and not each 32 as in tiles
_TILE = 12 if COUNTS_BY_SHUFFLES else 5 if FAST_DOTS else 9
EFFORT = Effort(word=DOT_PASSES, tile=_TILE, weight=0.12, pixel=0.35, band=BAND)


def dot_weights(words, groups, out):
    interleave(words, groups, QUADS, out)


def dot_words(laid_out, groups, out):
    restore(laid_out, groups, QUADS, out)


def dot(x, fixed, out):
    drive(_dot_range, x, fixed, out, _task)


def _task(x, fixed):
    most, lines = quads_of_terms(x.terms, fixed.w.terms), fixed.finish.lines
    checked = 1 if UNIT is None and len(lines) >= NEAR and (lines[-1] <= 0.5).any() else None
    return Task(*tiles_of(fixed), x.images, _NO_VALUES, EFFORT._replace(word=passes(most)), (UNIT, most, checked))


def quads_of_terms(x_terms, w_terms):
    """Return how many quads of products are added in 16 bits, `SomeQuads` in turn; None for sums of 32 bits."""
    base, unit, _, _ = bytes_of_levels.py_func(w_terms)
    last = base + unit * (2 ** int(w_terms[0, 1]) - 1)
    return None if UNIT is not None else most_quads(2 ** int(x_terms[0, 1]) - 1, max(abs(base), abs(last)))


def passes(most):
    """Return what 4 pixels by 32 channels by a word take, in units of `../costs.py`, with `most_quads`."""
    return DOT_WIDE if most is None else DOT_FOLDED if isinstance(most, tuple) else DOT_PASSES


def are_int32(values, extra):
    """True where the types of results and of what is added to them are int32."""
    raise NotImplementedError


def words_at_once(most, words):
    """Return how many of some words are summed at once: all, or as many as 16 bits hold the sums of."""
    raise NotImplementedError


@entry
def bytes_of_levels(terms):
    """Return (base, unit, shift, step): levels are shift + step * b, with b = base + unit * code as int8.

    b is the level itself where it fits, or else the code, less 128 for 8 bits.
    """
    planes, base, step = terms[0, 1], terms[0, 2], terms[0, 3]
    last = base + step * ((1 << planes) - 1)
    if min(base, last) >= -128 and max(base, last) <= 127:
        return base, step, 0, 1
    low = 128 if planes == 8 else 0
    return -low, 1, base + step * low, step


@inline
def _sum_windows(codes, windows, i, kind, firsts, spans, ones):
    """ones[i, p] = sum of the codes in the windows of the pixels of tile i."""
    for p in range(TILE):
        total = 0
        for s in range(len(firsts)):
            for span in range(firsts[s, kind], firsts[s, kind + 1]):
                begin = np.uint64(windows[i, p] + spans[span, 0] * QUAD)
                for k in range(np.uint64(spans[span, 2] * QUAD)):
                    total += codes[begin + k]
        ones[i, p] = total


@inline
def expand_blocks(w, block, span, base, unit, weights):
    """Expand words span[0] .. span[1] of blocks from `block` on to `ByteWeights`."""
    j0, planes, length, plane = w.terms[0, 0], w.terms[0, 1], w.words.shape[2], w.words.shape[1] * w.words.shape[2]
    for b in range(weights.blocks):
        word, count = (j0 * plane + (block + b) * length + span[0]) * LANES, (span[1] - span[0]) * LANES
        to = View(weights.data, weights.at + b * weights.apart)
        expand(Planes(w.words, word, planes, plane * LANES), 1, count, base, unit, to)


@overload(are_int32)
def _are_int32(values, extra):
    are = values.dtype == extra.dtype == types.int32
    return lambda values, extra: are


@overload(words_at_once)
def _words_at_once(most, words):
    if isinstance(most, types.NoneType | types.BaseTuple):
        return lambda most, words: words
    return lambda most, words: min(words, most // (WORD // QUAD))


class Stretch(NamedTuple):
    """A stretch of the contraction: the spans of its words in windows of each border class."""

    spans: np.ndarray
    firsts: np.ndarray  # int64[classes + 1]
    fresh: bool  # the first one, whose sums are not added to others


@inline
def _dot(codes, windows, tile, kind, weights, stretch, sums, most):
    """Add the products of a tile's windows, of a border class, and some blocks in a stretch to `Rows` of sums."""
    spans = RunSpan(stretch.spans, stretch.firsts[kind], stretch.firsts[kind + 1])
    dot_tile(codes, View(windows, tile * TILE), weights, spans, stretch.fresh, sums, most)


@inline
def _spare_quads(w):
    """Return the quads at the end of a pixel's words that have no elements, if they are worth a span for each pixel."""
    spare = (w.group_words * WORD - w.group_elements) // QUAD if w.group_elements else 0
    return spare if spare >= _SPARE else 0


@inner
def _find_strips(places, band, slots, strips, firsts):
    """Find neighbouring pixels of a border class among the tiles of a band, whose sums are side by side.

    strips[n] = (the first one's sum, how many, class, row of the result); those of tiles g * slots .. of the band are
    firsts[g] .. firsts[g + 1]. Once for each band: for each block of channels it took a third of some convolutions.
    """
    rows, kinds, sizes = places.rows, places.kinds, places.sizes
    count, low, end, next_row, last_kind = 0, 0, -1, -1, -1  # `end` and what follows: those of the last strip
    while low < band:
        firsts[low // slots], end = count, -1
        for i in range(np.uint64(min(slots, band - low))):
            tile, p = np.uint64(low) + i, 0
            size, kind = sizes[tile], kinds[tile]
            while p < size:
                row, near, at = rows[tile, np.uint64(p)], 1, np.int64(i) * TILE + p
                while p + near < size and rows[tile, np.uint64(p + near)] == row + near:
                    near += 1
                if at == end and row == next_row and kind == last_kind:
                    strips[count - 1, 1] += near
                else:
                    strips[count, 0], strips[count, 1], strips[count, 2], strips[count, 3] = at, near, kind, row
                    count += 1
                p, end, next_row, last_kind = p + near, at + near, row + near, kind
        low += slots
    firsts[-(-band // slots)] = count


@inline
def _put_strips(totals, total, strips, span, lanes, added, singles, to):
    """Store codes of some strips of `_find_strips`; sum 0 is totals[total]."""
    flips, used = flips_and_lanes(to.flip, lanes)
    limits, apart = Limits(to.thresholds, lanes.at, flips, used), to.words.shape[2]
    for n in range(span[0], span[1]):
        at, count, kind, row = strips[n, 0], strips[n, 1], strips[n, 2], strips[n, 3]
        extra = View(added.fixed, kind * added.fixed.shape[1] + lanes.at)
        sums, words = Rows(totals, (total + at) * LANES, LANES), Rows(to.words, row * apart, apart)
        put_codes(sums, count, extra, limits, singles, added.step, lanes.channel, words)


@inline
def _clear(words, places, band, first, last):
    """Set words first .. last of all planes of the rows of a band's tiles to 0."""
    for plane in range(np.uint64(words.shape[0])):
        for i in range(np.uint64(band)):
            for p in range(np.uint64(places.sizes[i])):
                row = np.uint64(places.rows[i, p])
                for word in range(np.uint64(first), np.uint64(last)):
                    words[plane, row, word] = 0


@partial(Kernel, takes=True, of_bytes=True)
def _dot_range(prepared, matrix, most, checked, starts, x, values, words, dealt, worker):
    w, plan, finish = prepared
    # `matrix` is an argument because Numba's cache on disk tells kernels apart by the types of theirs: a process that
    # may not use a matrix unit, and passes None, never loads code that does. A branch on None is not even compiled.
    # `most` is None or the quads whose products 16 bits hold: kernels of both together took twice as long to compile.
    # `checked` is None, or a number where codes as bytes have lines that are corrected
    base, unit, shift, step = bytes_of_levels(w.terms)
    added = Added(finish.extra, x.terms[0, 3] * shift, x.terms[0, 3] * step, 0)
    length, group_blocks = w.words.shape[2], w.words.shape[1] // w.groups
    stretches = -(-length // words_at_once(most, SHORT_STRETCH if matrix is None else STRETCH))
    apart = -(-length // stretches) * LANES * WORD
    # Where all weights fit, they are expanded once for all bands: a 1x1 convolution of 16 to 96 channels at 112x112
    # took 8 % longer with weights of a pair
    at_hand = stretches == 1 and w.groups == 1 and group_blocks * apart <= EXPANDED
    weights = np.empty((group_blocks if at_hand else PAIR) * apart + WORD, np.uint8)
    weight, last_chunk = first_line(weights), -1
    buffer, mark = ByteBuffer(np.empty(0, np.uint8), np.zeros(0, np.int32), 0), 0
    long = stretches == 1 and matrix is None
    most_tiles, slots = (LONG_BAND, _TOGETHER) if long else (BAND, BAND)  # of a band, and those whose sums wait
    places, windows = empty_places(most_tiles), np.empty((most_tiles, TILE), np.int64)
    ones = np.zeros((most_tiles, TILE), np.int64)
    totals, apart_blocks = empty_lines(PAIR * slots * TILE, np.int32), slots * TILE
    if matrix is None:
        firsts, spans = spans_of(x.words, plan, length, stretches, w.group_words, _spare_quads(w))
    else:
        firsts, spans = whole_spans(plan, length, stretches)
    to, singles = target(finish, values, words), single_lines(finish.lines)
    of_half_words = w.groups == 1 or w.group_lanes % LANES == 0  # lanes of a block
    strips, first_strip = np.empty((most_tiles * TILE, 4), np.int64), np.empty(most_tiles + 1, np.int64)
    in_strips = are_in_strips(to, singles) and added.along == 0 and of_half_words
    # Codes whose lines are right for all sums of one stretch leave registers as they are
    lines = ByteLines(
        singles, ends_of_lines(singles, finish.flip, finish.thresholds.shape[0], w.group_lanes, checked is not None)
    )
    right = lines.ends.size > 0 and added.step == 1 and (words.shape[0] == 1 or (w.groups == 1 and len(singles) < NEAR))
    as_sums = words.size == 0 and are_int32(values, added.fixed) and values.nbytes < STREAMED
    as_sums = as_sums and added.step == 1 and added.along == 0
    at_once = matrix is None and stretches == 1 and ((in_strips and right) or as_sums)
    # The caller clears words that groups share (`costs.writes_words`); strips leave out half words without channels
    in_planes = words.shape[0] > 1 or finish.thresholds.shape[0] == 1
    whole = in_strips and (at_once or (w.group_lanes - 1) % (PAIR * LANES) >= LANES)
    clears = words.size > 0 and w.groups == 1 and in_planes and not whole
    chunk, low, end = next_stretch(dealt, worker, starts)
    while low < end:
        band = 0
        for nth in range(w.groups):
            group, mark = Group(nth * group_blocks, nth * w.group_lanes, w.group_lanes), mark + 1
            tiles = TileSpan(low, min(end, low + most_tiles), nth * w.group_words)
            if matrix is None:
                buffer = ByteBuffer(buffer.codes, buffer.marks, mark)
                band, buffer = bring(x, plan, length, tiles, buffer, places.origins, windows)
            else:
                band, buffer = line_up(matrix, x, plan, length, tiles, buffer, places.origins, windows)
            codes = buffer.codes
            place_results(plan, low, band, places)
            if in_strips and nth == 0 and not at_once:
                _find_strips(places, band, slots, strips, first_strip)
            for i in range(band if added.along else 0):
                _sum_windows(codes, windows, i, places.kinds[i], firsts, spans, ones)
            first, last = blocks(group.block, group_blocks, PAIR, chunk, len(starts))
            if clears:
                _clear(words, places, band, first // PAIR, -(-last // PAIR))
            for task in range(-(-(last - first) // PAIR) * stretches):
                pair, s = first + task // stretches * PAIR, task % stretches
                near, begin, stop = min(PAIR, last - pair), length * s // stretches, length * (s + 1) // stretches
                at = weight + (pair * apart if at_hand else 0)
                pair_weights, stretch = ByteWeights(weights, at, apart, near), Stretch(spans, firsts[s], s == 0)
                if not at_hand or last_chunk != chunk:
                    expand_blocks(w, pair, (begin, stop), base, unit, pair_weights)
                if matrix is None and at_once:  # the first condition, known before, leaves this out for a matrix unit
                    lanes, extra = lanes_of(group, pair), added.fixed
                    valid = min(PAIR * LANES, group.channels - (pair - group.block) * LANES)
                    if as_sums:
                        dot_sums(
                            codes, windows, band, places, pair_weights, spans, firsts, extra, lanes.at, valid,
                            lanes.channel, values, most,
                        )  # fmt: skip
                    else:
                        other = lanes_of(group, min(pair + 1, last - 1))
                        turned, held = flips_and_lanes(to.flip, lanes), flips_and_lanes(to.flip, other)
                        checks = Checks(to.thresholds, lanes.at, turned[0], turned[1], held[0], held[1])
                        dot_codes(
                            codes, windows, band, places, pair_weights, spans, firsts, extra, lanes.at, valid,
                            lanes.channel, lines, words, checks, checked, most,
                        )  # fmt: skip
                    continue
                if matrix is not None:
                    rows, sums = Rows(codes, windows[0, 0], row_bytes(length)), Rows(totals, 0, apart_blocks * LANES)
                    some = RunSpan(spans, firsts[s, 0], firsts[s, 1])
                    dot_rows(matrix, rows, band * TILE, pair_weights, some, s == 0, sums)
                for low_tile in range(0, band, slots):
                    high_tile, stored = min(low_tile + slots, band), near if s + 1 == stretches else 0
                    for i in range(low_tile, high_tile if matrix is None else low_tile):
                        sums = Rows(totals, (i - low_tile) * TILE * LANES, apart_blocks * LANES)
                        _dot(codes, windows, i, places.kinds[i], pair_weights, stretch, sums, most)
                    for b in range(stored):
                        lanes, total = lanes_of(group, pair + b), b * apart_blocks
                        if in_strips:
                            span = first_strip[low_tile // slots], first_strip[low_tile // slots + 1]
                            _put_strips(totals, total, strips, span, lanes, added, singles, to)
                            continue
                        for i in range(low_tile, high_tile):
                            finish_tile(totals, total + (i - low_tile) * TILE, i, lanes, places, added, ones, to)
        low, last_chunk = low + band, chunk
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, starts)
