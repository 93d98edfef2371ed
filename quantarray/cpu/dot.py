"""Convolution and matrix product of operands of several bits, by dot products of bytes that live in the cache only.

    sum u*v = base_x * sum v + step_x * sum a*v

a are the codes of x and v the levels of w as they are, where they fit into int8: no sum over the pixel's codes alone
is left. Where they do not, v is taken in terms of codes. `docs/kernels/conv.md` has the bands and the stretches.
"""

from functools import partial

import numpy as np

from .compiled import entry, inner
from .deal import Kernel
from .drive import Effort, Task, drive
from .finish import codes_are_ranks, flips_and_lanes, or_bits, store_codes, store_ranks, store_values
from .lines import empty_lines, first_line
from .matrix_unit import COUNTS_BY_SHUFFLES, DOT_PASSES, UNIT
from .micro import LANES, QUAD, TILE, dot_rows, dot_tile, expand, lay_out_quads, mask_tile, shift_tile
from .rows import line_up, most_tiles, row_bytes
from .tiles import blocks, lay_out_blocks, next_stretch, scratch
from .windows import BAND, WORD, bring, spans_of

_NO_VALUES = np.empty((0, 0), np.int32)
_PAIR = 2  # blocks of 32 channels whose weights are expanded at once
STRETCH = 72  # words of the contraction whose weights, 64 channels of bytes, stay in L2: 288 KiB
EFFORT = Effort(word=DOT_PASSES, tile=12 if COUNTS_BY_SHUFFLES else 9, weight=0.12, pixel=0.35, band=BAND)


def dot_weights(words, groups, out):
    lay_out_blocks(words, groups, lay_out_quads, out)


def dot(x, fixed, out):
    drive(_dot_range, x, fixed, out, _task)


def _task(x, fixed):
    return Task(x.images * len(fixed.plan.counts), _NO_VALUES, EFFORT, (UNIT,))


@entry
def bytes_of_levels(terms):
    """(base, unit, shift, step): levels v = shift + step * b of a term as int8 b = base + unit * code.

    The levels themselves where they fit, or else codes, of 8 bits less 128.
    """
    planes, base, step = terms[0, 1], terms[0, 2], terms[0, 3]
    last = base + step * ((1 << planes) - 1)
    if min(base, last) >= -128 and max(base, last) <= 127:
        return base, step, 0, 1
    low = 128 if planes == 8 else 0
    return -low, 1, base + step * low, step


@inner
def sum_windows(codes, places, tile, kind, firsts, spans, ones):
    """ones[tile, p] = sum of the codes in the windows of a tile's pixels."""
    for p in range(TILE):
        total = 0
        for s in range(len(firsts)):
            for i in range(firsts[s, kind], firsts[s, kind + 1]):
                begin = np.uint64(places[tile, p] + spans[i, 0] * QUAD)
                for k in range(np.uint64(spans[i, 2] * QUAD)):
                    total += codes[begin + k]
        ones[tile, p] = total


@partial(Kernel, takes=True)
def _dot_range(w, plan, finish, matrix, chunks, parts, tiles, x, values, words, dealt, worker):
    # `matrix` is an argument because Numba's cache on disk tells kernels apart by the types of theirs: a process that
    # may not use a matrix unit, and passes None, never loads code that does. A branch on None is not even compiled
    # Taken out of their tuples once: see `finish.py` for what passing tuples and slices costs
    left, right, extra = x.words, w.words, finish.extra
    pixels, counts, classes, origin = plan.pixels, plan.counts, plan.classes, plan.origin
    thresholds, flip, toggles = finish.thresholds, finish.flip, finish.toggles
    plain = codes_are_ranks(thresholds, toggles)
    j0, planes_j = w.terms[0, 0], w.terms[0, 1]
    base, unit, shift, step = bytes_of_levels(w.terms)
    along, step = x.terms[0, 3] * shift, x.terms[0, 3] * step
    groups, group_lanes, group_words, group_blocks = w.groups, w.group_lanes, w.group_words, right.shape[1] // w.groups
    length, plane = right.shape[2], right.shape[1] * right.shape[2] * LANES
    stretches = -(-length // STRETCH)
    firsts, spans = spans_of(left, plan, length, stretches)
    apart = -(-length // stretches) * LANES * WORD
    weights = np.empty(_PAIR * apart + WORD, np.uint8)
    weight = first_line(weights)
    codes, marks, mark = np.empty(0, np.uint8), np.zeros(0, np.int32), 0
    origins, places = np.empty((BAND, TILE), np.int64), np.empty((BAND, TILE), np.int64)
    ones = np.zeros((BAND, TILE), np.int64)
    if matrix is None:  # sums[slot, block, pixel], a slot for each tile that waits for the next stretch
        most, slots, apart_slots, apart_blocks = BAND, BAND if stretches > 1 else 1, _PAIR * TILE, TILE
        totals = empty_lines(slots * _PAIR * TILE, np.int32)
    else:  # sums[block, slot, pixel]
        most, slots, apart_slots, apart_blocks = most_tiles(matrix, length), BAND, TILE, BAND * TILE
        totals, rows, row = empty_lines(_PAIR * BAND * TILE, np.int32), np.empty(0, np.uint8), 0
    _, _, masks, made = scratch(extra)
    chunk, low, end = next_stretch(dealt, worker, chunks, parts, tiles)
    while low < end:
        band = 0
        for group in range(groups):
            mark += 1
            band, codes, marks = bring(
                left, x.terms, plan, length, low, min(end, low + most), group * group_words, codes, marks, mark,
                origins, places,
            )  # fmt: skip
            if matrix is not None:
                rows, row = line_up(matrix, codes, places, plan, low, band, firsts, spans, length, rows)
            for i in range(band if along else 0):
                sum_windows(codes, places, i, classes[(low + i) % counts.size], firsts, spans, ones)
            first, last = blocks(group * group_blocks, group_blocks, _PAIR, chunk, chunks)
            for task in range(-(-(last - first) // _PAIR) * stretches):
                pair, s = first + task // stretches * _PAIR, task % stretches
                near, from_word, to_word = (
                    min(_PAIR, last - pair),
                    length * s // stretches,
                    length * (s + 1) // stretches,
                )
                for b in range(near):
                    word = j0 * plane + ((pair + b) * length + from_word) * LANES
                    count, to = (to_word - from_word) * LANES, weight + b * apart
                    expand(right, word, 1, plane, planes_j, count, base, unit, weights, to)
                if matrix is not None:
                    dot_rows(
                        matrix, rows, row + from_word * WORD, row_bytes(length), band * TILE, weights, weight, apart,
                        near, to_word - from_word, s == 0, totals, apart_blocks * LANES,
                    )  # fmt: skip
                image, tile = low // counts.size, low % counts.size
                for i in range(band):
                    kind, row0, total, place = classes[tile], image * origin.size, i % slots * apart_slots, i * TILE
                    start, stop = firsts[s, kind], firsts[s, kind + 1]
                    if matrix is None:
                        dot_tile(
                            codes, places, place, weights, weight, apart, near, spans, start, stop, s == 0, totals,
                            total * LANES,
                        )  # fmt: skip
                    for b in range(near if s + 1 == stretches else 0):
                        at, lane, dots = (pair + b) * LANES, (pair + b) % group_blocks * LANES, total + b * apart_blocks
                        channel, valid = group * group_lanes + lane, min(LANES, group_lanes - lane)
                        flips, used = flips_and_lanes(flip, at, valid)
                        fixed, dot_at = kind * extra.shape[1] + at, dots * LANES
                        if thresholds.shape[0] == 1:
                            mask_tile(totals, dot_at, extra, fixed, along, ones, place, step, thresholds, at, masks)
                            for p in range(counts[tile]):
                                or_bits((masks[p] ^ flips) & used, channel, valid, words, 0, row0 + pixels[tile, p])
                        else:
                            shift_tile(totals, dot_at, extra, fixed, along, ones, place, step)
                            for p in range(counts[tile]):
                                pixel = row0 + pixels[tile, p]
                                if words.size == 0:
                                    store_values(totals, dots + p, 0, channel, valid, 1, values, pixel)
                                elif plain:
                                    store_ranks(totals, dots + p, 0, thresholds, flip, at, channel, valid, words, pixel)
                                else:
                                    store_codes(
                                        totals, dots + p, 0, thresholds, flip, toggles, at, channel, valid, 1, made,
                                        words, pixel,
                                    )  # fmt: skip
                    tile += 1
                    if tile == counts.size:
                        image, tile = image + 1, 0
        low += band
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, chunks, parts, tiles)
