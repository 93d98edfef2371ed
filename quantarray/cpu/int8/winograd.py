"""3x3 convolutions of few bits at stride 1, four results at a time with 16 products of bytes instead of 36.

`winograd_transforms.py` transforms pixels, taps and sums within cache; between these steps are the dot products of
`dot`, one for each of 16 places of a square. `docs/kernels/winograd.md` has the algebra, the bounds and the figures.
"""

from functools import partial

import numpy as np

from ..epilogue.finish import store_tile, target
from ..llvm.masks import popcount
from ..llvm.vectors import LANES, TILE
from ..llvm.views import ByteWeights, Planes, Rows, RunSpan, TileSpan, View
from ..popcount.tile_tasks import Effort, Task, drive
from ..popcount.tiles import Group, blocks, lanes_of, next_stretch
from ..runtime.aligned import empty_lines, first_line
from ..runtime.jit import entry, inline, inner
from ..runtime.schedule import Kernel
from .dot import bytes_of_levels, passes, words_at_once
from .dot_tile import DOT_PASSES, dot_tile, most_quads
from .expand import bring_codes
from .interface import QUAD
from .windows import WORD, ByteBuffer, Expanded, expand_missing
from .winograd_transforms import PLACES, TAPS, PixelConstants, fold_pixels, fold_taps, unfold

_NO_VALUES = np.empty((0, 0), np.int32)
ROW = QUAD * LANES  # bytes of weights
_PAIR = 2  # blocks of 32 channels that meet a band at once
_APART = _PAIR * TILE * LANES  # sums of one place of a square and of the next
BAND = 128  # squares of 2 by 2 results whose pixels are folded at once
_FOLDED = 512  # words that all of them have, unless a tile has more: 512 KiB of bytes
_SPAN = 1 << 13  # words that a band's pixels may span, unless those of one square span half of it: 512 KiB as bytes
SHARE = PLACES / (TAPS * TILE)  # of the products of all windows
# 13x13x512 to 512 channels of 3 bits, two threads: 431 us where each has half of the channels, 470 to 511 otherwise
EFFORT = Effort(word=DOT_PASSES * SHARE, tile=10, weight=0.45, pixel=1.4, shared=0.15)
MOST_LEVEL = 14  # magnitude of a byte of weights: 9 of them are at most 127
MOST_PLANES = 6  # of pixels: 4 of them are at most 252


def winograd(x, fixed, out):
    drive(_winograd_range, x, fixed, out, _task)


def _task(x, fixed):
    band = band_of.py_func(fixed.w.words.shape[2] // TAPS)
    words = np.full(len(fixed.plan.targets), fixed.w.words.shape[2])
    most = quads_of_squares(x.terms, fixed.w.terms)
    effort = EFFORT._replace(band=band, word=passes(most) * SHARE)
    return Task(fixed.plan, words, x.images, _NO_VALUES, effort, (most,))


def quads_of_squares(x_terms, w_terms):
    """Return how many quads of products of folded pixels and taps are added in 16 bits; None where sums have 32."""
    largest, level = bounds(x_terms, w_terms)
    return most_quads(TILE * largest, TAPS * level)


def bounds(x_terms, w_terms):
    """Return the magnitudes of pixels and of weights before they are folded."""
    base, unit, _, _ = small_bytes_of_levels.py_func(w_terms)
    return 2 ** int(x_terms[0, 1]) - 1, max(abs(base), abs(base + unit * (2 ** int(w_terms[0, 1]) - 1)))


@entry
def band_of(length):
    """Return the number of squares that are folded at once, whole tiles, where a tap has `length` words."""
    return min(BAND, max(1, _FOLDED // max(1, length) // TILE) * TILE)


@entry
def small_bytes_of_levels(terms):
    """Return `bytes_of_levels` if its bytes are at most MOST_LEVEL, or else codes about their middle."""
    base, unit, shift, step = bytes_of_levels(terms)
    if shift == 0 and max(abs(base), abs(base + unit * ((1 << terms[0, 1]) - 1))) <= MOST_LEVEL:
        return base, unit, shift, step
    low = (1 << terms[0, 1]) >> 1
    return -low, 1, terms[0, 2] + terms[0, 3] * low, terms[0, 3]


@inner
def add_excess(w, first, last, offset, length, excess):
    """excess[p, lane] = four times the part of results that `offset` adds, int32, for lanes first .. last.

    `fold_pixels` adds the offset at 15 of 16 places. The sums of weights come by tap; channels that fill words up are
    bytes of `base`.
    """
    base, _, shift, step = small_bytes_of_levels(w.terms)
    taps, folded = np.empty((3, 3), np.int64), np.empty((4, 4), np.int64)
    for lane in range(first, last):
        for t in range(TAPS):
            total = (w.sums[t, 0, lane] - shift * w.inside[t]) // step + (length * WORD - w.inside[t]) * base
            taps[t // 3, t % 3] = total * offset
        for i in range(4):
            a, b, c = (
                _fold(i, taps[0, 0], taps[1, 0], taps[2, 0]),
                _fold(i, taps[0, 1], taps[1, 1], taps[2, 1]),
                _fold(i, taps[0, 2], taps[1, 2], taps[2, 2]),
            )
            for j in range(4):
                folded[i, j] = _fold(j, a, b, c)
        folded[1, 1] = 0
        for i in range(2):
            a, b, c, d = (
                _unfold(i, folded[0, 0], folded[1, 0], folded[2, 0], folded[3, 0]),
                _unfold(i, folded[0, 1], folded[1, 1], folded[2, 1], folded[3, 1]),
                _unfold(i, folded[0, 2], folded[1, 2], folded[2, 2], folded[3, 2]),
                _unfold(i, folded[0, 3], folded[1, 3], folded[2, 3], folded[3, 3]),
            )
            for j in range(2):
                excess[2 * i + j, lane] = _unfold(j, a, b, c, d)


@inline
def _fold(row, a, b, c):
    """Multiply a row of G' by three taps."""
    if row == 0:
        return 2 * a
    return 2 * c if row == 3 else a + c + (b if row == 1 else -b)


@inline
def _unfold(row, a, b, c, d):
    """Multiply a row of A^T by four sums."""
    return a + b + c if row == 0 else b - c - d


@inner
def bring_squares(x, plan, length, span, buffer, places):
    """Expand the pixels of a band of squares of a `TileSpan` to bytes, pixel i of square s from places[s, i] on.

    The buffer begins with a pixel of zeros, which is read for those outside the image. Returns (squares, buffer): a new
    buffer where the old one is too small.
    """
    squares, begin, end = len(plan.sources), span.begin, span.end
    low, high, band = 1 << 62, -(1 << 62), 0
    while band < min(len(places), end - begin):
        image, square = (begin + band) // squares, (begin + band) % squares
        lowest, highest = low, high
        for i in range(plan.sources.shape[1]):
            at = plan.sources[square, i]
            places[band, i] = -1 if at < 0 else at + image * plan.image_words + span.shift
            if at >= 0:
                lowest, highest = min(lowest, places[band, i]), max(highest, places[band, i] + length)
        if band and highest - lowest > _SPAN and highest - lowest > 2 * (high - low):
            break
        low, high, band = lowest, highest, band + 1
    size = max(0, high - low)
    if size > buffer.marks.size:
        codes = np.zeros((length + size + 1) * WORD, np.uint8)
        buffer = ByteBuffer(codes, np.zeros(size, np.int32), buffer.mark)
    zeros = first_line(buffer.codes)
    code = zeros + length * WORD
    expanded, dense = Expanded(buffer, low, code), size <= 4 * TILE * band * length
    if dense:
        bring_codes(x, low, 1, size, View(buffer.codes, code))
    for s in range(band):
        for i in range(plan.sources.shape[1]):
            at = places[s, i]
            if at >= 0 and not dense:
                expand_missing(x, at, length, expanded)
            places[s, i] = zeros if at < 0 else code + (at - low) * WORD
    return band, buffer


@inner
def sum_squares(left, terms, plan, length, begin, band, shift, ones):
    """ones[4 * s + p] = sum of the codes in the window of result p of square s of a band."""
    first, planes, squares = terms[0, 0], terms[0, 1], len(plan.sources)
    sums = np.empty(plan.sources.shape[1], np.int64)
    for s in range(band):
        image, square = (begin + s) // squares, (begin + s) % squares
        for i in range(sums.size):
            sums[i], at = 0, plan.sources[square, i]
            for j in range(planes if at >= 0 else 0):
                count, word = 0, image * plan.image_words + shift + at
                for k in range(length):
                    count += popcount(left[first + j, word + k])
                sums[i] += count << j
        for p in range(TILE):
            corner, total = p // 2 * 4 + p % 2, 0
            for i in range(TAPS):
                total += sums[corner + i // 3 * 4 + i % 3]
            ones[s * TILE + p] = total


@inner
def rows_and_spans(pixel, size, length, pieces):
    """Return (rows, spans) for `dot_tile`: where `size` folded squares begin, from `pixel` on, and spans of each place,
    in pieces.
    """
    pixels_apart, taps_apart = places_apart(size, length)
    rows, spans, quads = np.empty(size, np.int64), np.empty((PLACES * pieces, 3), np.int64), WORD // QUAD
    for s in range(size):
        rows[s] = pixel + s * length * WORD
    for i in range(PLACES):
        for piece in range(pieces):
            low, high, n = length * piece // pieces, length * (piece + 1) // pieces, i * pieces + piece
            spans[n, 0], spans[n, 1] = i * pixels_apart // QUAD + low * quads, i * taps_apart // ROW + low * quads
            spans[n, 2] = (high - low) * quads
    return rows, spans


@inline
def places_apart(size, length):
    """Return the bytes from a place to the next, of pixels and of taps: 16 at 2^n bytes would share a set of L1."""
    return size * length * WORD + WORD, length * LANES * WORD + ROW


@inline
def fold_weights(w, block, length, base, unit, weights):
    """Fold the weights of blocks of 32 channels from `block` on to `ByteWeights` [blocks 16 quads 32 4]."""
    first, planes, plane = w.terms[0, 0], w.terms[0, 1], w.words.shape[1] * w.words.shape[2] * LANES
    words, apart = length * LANES, places_apart(0, length)[1]
    for b in range(weights.blocks):
        taps = Planes(w.words, first * plane + (block + b) * TAPS * words, planes, plane)
        to = Rows(weights.data, weights.at + b * weights.apart, apart)
        fold_taps(taps, words, words, base, unit, to)


@inline
def multiply(pixels, rows, first, tiles, weights, spans, sums, most):
    """Compute sums[tile, place, block, pixel, lane] of tiles of 4 squares: weights of a span stay in L1 for all."""
    pieces = len(spans) // PLACES
    for n in range(len(spans)):
        for i in range(tiles):
            place = i * PLACES + n // pieces
            squares, to = View(rows, (first + i) * TILE), Rows(sums, place * _APART, TILE * LANES)
            dot_tile(pixels, squares, weights, RunSpan(spans, n, n + 1), n % pieces == 0, to, most)


@inline
def _fold_squares(codes, places, band, words, offset, out, rows):
    """Fold the pixels of the squares of a band to `Rows`: square s from out.data[rows[s]] on."""
    for s in range(band):
        fold_pixels(codes, View(places, s * PLACES), words, offset, Rows(out.data, rows[s], out.apart))


@inline
def _unfold_square(sums, at, lanes, excess, step, constants, s, out):
    """Compute 4 results of square s by 32 channels from the sums of its 16 places from sums[at] on."""
    extra, fixed, along, ones, _ = constants
    square = PixelConstants(extra, fixed, along, ones, s * TILE)
    unfold(Rows(sums, at, _APART), View(excess, lanes.at), step, square, out)


@inline
def _place_results(plan, low, band, width, fixed, results):
    """fixed[4 * s + p] = where the constants of result p of square s of a band begin; results[s, p] = its row."""
    squares = len(plan.sources)
    for s in range(band):
        image, square = (low + s) // squares, (low + s) % squares
        for p in range(TILE):
            fixed[s * TILE + p] = plan.kinds[square, p] * width
            row = plan.targets[square, p]
            results[s, p] = -1 if row < 0 else image * plan.image_rows + row


@partial(Kernel, takes=True, of_bytes=True)
def _winograd_range(prepared, most, starts, x, values, words, dealt, worker):
    w, plan, finish = prepared
    base, unit, shift, step = small_bytes_of_levels(w.terms)
    offset, along, step = 2 * ((1 << x.terms[0, 1]) - 1), x.terms[0, 3] * shift, x.terms[0, 3] * step
    length, group_blocks = w.words.shape[2] // TAPS, w.words.shape[1] // w.groups
    size = band_of(length)
    apart, taps_apart = places_apart(size, length)
    weights, pixels = np.empty(_PAIR * PLACES * taps_apart + WORD, np.uint8), np.empty(PLACES * apart + WORD, np.uint8)
    weight, pixel = first_line(weights), first_line(pixels)
    rows, spans = rows_and_spans(pixel, size, length, -(-length // words_at_once(most, length)))
    together = min(size // TILE, 2 * length)  # tiles of squares that meet one place's weights after another
    sums, tile = empty_lines(together * PLACES * _PAIR * TILE, np.int32), empty_lines(TILE, np.int32)
    buffer, mark = ByteBuffer(np.zeros((length + 1) * WORD, np.uint8), np.zeros(0, np.int32), 0), 0
    places, fixed = np.empty((size, PLACES), np.int64), np.empty(size * TILE, np.int64)
    results = np.empty((size, TILE), np.int64)  # -1 where there is none
    ones, filled = np.zeros(size * TILE, np.int64), -1
    constants = PixelConstants(finish.extra, fixed, along, ones, 0)
    excess = empty_lines(TILE * w.words.shape[1], np.int32).reshape(TILE, -1)
    to = target(finish, values, words)
    chunk, low, end = next_stretch(dealt, worker, starts)
    while low < end:
        for nth in range(w.groups if chunk != filled else 0):
            first, last = blocks(nth * group_blocks, group_blocks, _PAIR, chunk, len(starts))
            add_excess(w, first * LANES, last * LANES, offset, length, excess)
        filled, band = chunk, 0
        for nth in range(w.groups):
            group = Group(nth * group_blocks, nth * w.group_lanes, w.group_lanes)
            mark, span = mark + 1, TileSpan(low, end, nth * w.group_words)
            buffer = ByteBuffer(buffer.codes, buffer.marks, mark)
            band, buffer = bring_squares(x, plan, length, span, buffer, places)
            _place_results(plan, low, band, finish.extra.shape[1], fixed, results)
            _fold_squares(buffer.codes, places, band, length, offset, Rows(pixels, 0, apart), rows)
            if along:
                sum_squares(x.words, x.terms, plan, length, low, band, span.shift, ones)
            first, last = blocks(group.block, group_blocks, _PAIR, chunk, len(starts))
            for pair in range(first, last, _PAIR):
                near = min(_PAIR, last - pair)
                pair_weights = ByteWeights(weights, weight, PLACES * taps_apart, near)
                fold_weights(w, pair, length, base, unit, pair_weights)
                for s in range(band):
                    if s % (TILE * together) == 0:
                        some = min(together, -(-(band - s) // TILE))
                        multiply(pixels, rows, s // TILE, some, pair_weights, spans, sums, most)
                    at = s % (TILE * together) // TILE * PLACES * _APART + s % TILE * LANES
                    for b in range(near):
                        lanes = lanes_of(group, pair + b)
                        _unfold_square(sums, at + b * TILE * LANES, lanes, excess, step, constants, s, tile)
                        store_tile(tile, 0, s, lanes, results, TILE, to)
        low += band
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, starts)
