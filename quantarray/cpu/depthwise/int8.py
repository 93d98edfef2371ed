"""Depthwise convolution of integers whose codes become bytes first: `docs/kernels/depthwise.md`."""

from functools import partial

import numpy as np

from ..epilogue.finish import Lanes, flips_and_lanes, store, target
from ..epilogue.ranks import NEAR
from ..epilogue.strips import ends_of_lines, put_strip_by_lines, single_lines
from ..int8.expand import bring_codes
from ..llvm.vectors import LANES
from ..llvm.views import ByteLines, Checks, Limits, Rows, View
from ..runtime import threads
from ..runtime.aligned import first_line
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .lane_products import row_bytes, row_codes, row_sums
from .pairs import CHANNELS, PAIRS, pair_pixels

_NO_VALUES, _NO_WORDS = np.empty((0, 0), np.int32), np.empty((0, 0, 0), np.uint64)
_LEAST = 1 << 13  # pairs of taps times words that are worth a parallel region
_ROWS = 16  # of the result that a word of channels is done for before the next one is
_OVERLAP = 6  # times the rows that two pieces of the work both make into bytes, a piece has at least


def depthwise_bytes(x, w, plan, finish, out):
    words, values = (out, _NO_VALUES) if out.ndim == 3 else (_NO_WORDS, out)
    if out.size:
        _run(_sums_range, x, w, plan, (finish, values, words))


def depthwise_codes(x, w, plan, cuts, out):
    if out.size:
        _run(_codes_range, x, w, plan, (cuts, out))


def _run(kernel, x, w, plan, rest):
    rows = x.images * len(plan.seen)
    workers = threads.workers(x.images * plan.kinds.size * w.values.shape[0] * w.values.shape[1] * w.period, _LEAST)
    shared = w.values.shape[1] // plan.window_pairs * plan.row_step
    parts = workers * max(1, min(threads.PIECES, rows // (_OVERLAP * shared * workers)))
    threads.run(kernel, (x, w, plan, *rest), rows, workers, parts)


@partial(Kernel, of_bytes=True)
def _codes_range(x, w, plan, cuts, words, begin, end):
    codes, pairs, seen = _buffers(plan, w)
    rows, done, row, masks = len(plan.seen), 0, begin, np.empty(2 * CHANNELS, np.uint8)
    columns, start = plan.kinds.size // rows, first_line(pairs)
    while row < end:
        image, top = row // rows, row % rows
        stop, first_row = min(_ROWS, min(rows - top, end - row)) + top, done if top else 0
        for word in range(w.period):
            done, begins = first_row, _begins(plan, word, start)
            _spread(cuts.lanes, word, masks)
            for i in range(top, stop):
                done = _bring(x, w, plan, image, i, word, done, codes, pairs, begins)
                taps = _see(w, plan, i, begins, seen)
                row_codes(
                    pairs, plan.step * PAIRS, columns, seen, taps, w.values, word * PAIRS, plan.kinds, i * columns,
                    cuts, word * CHANNELS, word, masks, words, (image * rows + i) * columns,
                )  # fmt: skip
        row += stop - top


@inner
def _spread(lanes, word, masks):
    """masks[64 * i + l] = 255 where bit l of lanes[word, i] is one, or else 0."""
    for i in range(masks.size):
        masks[i] = 255 * (lanes[word, i // CHANNELS] >> np.uint64(i % CHANNELS) & np.uint64(1))


@partial(Kernel, of_bytes=True)
def _sums_range(x, w, plan, finish, values, words, begin, end):
    to, extra = target(finish, values, words), finish.extra
    codes, pairs, seen = _buffers(plan, w)
    rows, done, row = len(plan.seen), 0, begin
    columns, start, unit = plan.kinds.size // rows, first_line(pairs), abs(x.terms[0, 3])
    copies, dense = w.values.shape[0], words.size == 0
    lanes, no_extra = np.empty((columns, CHANNELS), np.int32), np.zeros(LANES, np.int32)
    singles = single_lines(to.lines)
    by_lines = not dense and copies == 1 and to.plain and singles.size > 0
    corrected = by_lines and unit == words.shape[0] == 1 and singles.shape[0] == NEAR  # codes as bytes, on such lines
    ends = ends_of_lines(singles, finish.flip, to.thresholds.shape[0], w.channels, corrected)
    lines, corrected = ByteLines(singles, ends), corrected and ends.size > 0
    apart = words.shape[2]
    while row < end:
        image, top = row // rows, row % rows
        stop, first_row = min(_ROWS, min(rows - top, end - row)) + top, done if top else 0
        for word in range(w.period):
            done, begins, channels = first_row, _begins(plan, word, start), min(CHANNELS, w.channels - word * CHANNELS)
            for task in range(top * copies, stop * copies):
                i, copy = task // copies, task % copies
                into, lane = (image * rows + i) * columns, (copy * w.period + word) * CHANNELS
                weight = copy * w.values.shape[1] * w.values.shape[2] + word * PAIRS
                done = _bring(x, w, plan, image, i, word, done, codes, pairs, begins)
                taps = _see(w, plan, i, begins, seen)
                if corrected:
                    one = flips_and_lanes(to.flip, Lanes(lane, 0, min(LANES, channels), 1))
                    other = flips_and_lanes(to.flip, Lanes(lane + LANES, 0, max(0, channels - LANES), 1))
                    checks = Checks(to.thresholds, lane, one[0], one[1], other[0], other[1])
                    row_bytes(
                        pairs, plan.step * PAIRS, columns, seen, taps, w.values, weight, plan.kinds, i * columns, extra,
                        lane, lines, checks, words, into,
                    )  # fmt: skip
                    continue
                whole = dense and copies == 1 and channels == CHANNELS  # and may be stored where it belongs at once
                row_sums(
                    pairs, plan.step * PAIRS, columns, seen, taps, w.values, weight, plan.kinds, i * columns, extra,
                    lane, unit, values if whole else lanes, into * values.shape[1] + lane if whole else 0,
                    values.shape[1] if whole else CHANNELS,
                )  # fmt: skip
                for part in range(0, 0 if whole else channels, LANES):
                    channel = (word * CHANNELS + part) * copies + copy
                    near = Lanes(lane + part, channel, min(LANES, channels - part), copies)
                    if by_lines:
                        flips, used = flips_and_lanes(to.flip, near)
                        limits, sums = Limits(to.thresholds, near.at, flips, used), Rows(lanes, part, CHANNELS)
                        row_words = Rows(words, into * apart, apart)
                        put_strip_by_lines(sums, columns, View(no_extra, 0), limits, singles, 1, channel, row_words)
                        continue
                    for p in range(columns):
                        store(lanes, p, part, near, into + p, to)
        row += stop - top


@inner
def _buffers(plan, w):
    """Allocate zero bytes of a padded row, pairs of so many rows of each word, and a list of what a row of the result
    sees.
    """
    pairs = np.empty(_begins(plan, w.period - 1, 0) + plan.slots * plan.pairs * PAIRS + CHANNELS, np.uint8)
    return np.zeros(plan.width * CHANNELS, np.uint8), pairs, np.empty((w.values.shape[1], 2), np.int64)


@inline
def _begins(plan, word, start):
    """Return where the pairs of a word of channels begin: all at one place if rows are never revisited."""
    return start + (word * plan.slots * plan.pairs * PAIRS if len(plan.seen) > _ROWS else 0)


@inline
def _bring(x, w, plan, image, row, word, done, codes, pairs, begins):
    """Expand to pairs the rows that a row of the result sees, of a word of channels, but for those before `done`.

    Returns the row after the last expanded one.
    """
    stop = plan.seen[row, 1]
    for at in range(max(done, plan.seen[row, 0]), stop):
        first = (image * plan.image_rows + at) * plan.row_words + word
        bring_codes(x, first, w.period, plan.visible, View(codes, plan.left * CHANNELS))
        to = begins + at % plan.slots * plan.pairs * PAIRS
        pair_pixels(codes, 0, plan.every * CHANNELS, plan.near * CHANNELS, plan.pairs, pairs, to)
    return max(done, stop)


@inline
def _see(w, plan, row, begins, seen):
    """seen[k] = (place of a pair of taps, place of its weights); returns the number of pairs that a row of the
    result sees.
    """
    at, tap, count = plan.seen[row, 2], plan.seen[row, 3], plan.seen[row, 4]
    for i in range(count):
        line = begins + (at + i * plan.row_step) % plan.slots * plan.pairs * PAIRS
        for j in range(plan.window_pairs):
            k = i * plan.window_pairs + j
            seen[k, 0] = line + j * plan.apart * PAIRS
            seen[k, 1] = (tap * plan.window_pairs + k) * w.values.shape[2]
    return count * plan.window_pairs
