"""The same product with float constants, summed in float64 in one documented order and rounded once.

`docs/decisions/0001-real-results-in-float64.md` has the order. A basis of M planes by one of N planes is M * N exact
counts of the same words, which stay in L1 between them: a tile's words are read from memory once.
"""

from functools import partial

import numpy as np

from .bands import BLOCKS, IN_BANDS, TOGETHER, band_scratch, count_band, read_band
from .compiled import inline
from .deal import Kernel
from .drive import Effort, Task, drive
from .finish import codes_are_ranks, store_bits, store_codes, store_ranks, store_values
from .lines import empty_lines
from .micro import LANES, TILE, add_tile, clear_tile, round_tile
from .tiles import blocks, count, next_stretch, place_tiles, scratch, sum_codes

_NO_VALUES = np.empty((0, 0), np.float32)


def conv_real(x, fixed, out):
    drive(_real_range, x, fixed, out, _task)


def _task(x, fixed):
    pairs = x.words.shape[0] * fixed.w.words.shape[0]
    effort = Effort(word=pairs, tile=6 * pairs, together=TOGETHER)
    return Task(x.images * len(fixed.plan.counts), _NO_VALUES, effort)


@inline
def _add_offsets(
    x_scale, x_offset, terms, w_scale, w_offset, sums, inside, run, rows, tile, block, ones, scales, value
):  # fmt: skip
    """value += what the operands' offsets add: terms of x times w's offset, of w times x's, then both.

    An offset is a term of its own whose integer is 1 everywhere.
    """
    parts, w_terms, lanes, at = ones.shape[1], w_scale.shape[1], w_scale.shape[2], block * LANES
    for part in range(parts):
        for t in range(terms.shape[0]):
            _row_constants(x_scale, part, t, rows, tile, scales)
            base, ones_at = terms[t, 2] * inside[run + part], ((tile * parts + part) * terms.shape[0] + t) * TILE
            add_tile(value, scales, w_offset, part * lanes + at, base, None, 0, terms[t, 3], ones, ones_at, 0, None)
    for part in range(parts):
        _row_constants(x_offset, 0, part, rows, tile, scales)
        for s in range(w_terms):
            w_at, sums_at = (part * w_terms + s) * lanes + at, ((run + part) * w_terms + s) * lanes + at
            add_tile(value, scales, w_scale, w_at, 1, sums, sums_at, 0, None, 0, 0, None)
    for part in range(parts):
        _row_constants(x_offset, 0, part, rows, tile, scales)
        add_tile(value, scales, w_offset, part * lanes + at, inside[run + part], None, 0, 0, None, 0, 0, None)


@inline
def _row_constants(constants, part, t, rows, tile, out):
    """out[p] = the constant of row rows[tile, p]; constants float64[parts terms rows 1]."""
    last = constants.shape[2] - 1
    for p in range(TILE):
        out[p] = constants[part, t, min(rows[tile, p], last), 0]


@partial(Kernel, takes=True)
def _real_range(w, plan, finish, chunks, stretches, tiles, x, values, words, dealt, worker):
    # Taken out of their tuples once: see `finish.py` for what passing tuples and slices costs
    left, terms, x_scale, x_offset = x.words, x.terms, x.scale, np.expand_dims(x.offset, 0)
    right, w_terms, w_scale, w_offset, sums, inside = w.words, w.terms, w.scale, w.offset, w.sums, w.inside
    pixels, counts, origin, first_run, runs = plan.pixels, plan.counts, plan.origin, plan.first_run, plan.runs
    pad, bias, parts = finish.pad, finish.bias, plan.parts
    thresholds, flip, toggles = finish.thresholds, finish.flip, finish.toggles
    plain = codes_are_ranks(thresholds, toggles)
    groups, group_lanes, group_blocks = w.groups, w.group_lanes, right.shape[1] // w.groups
    counted, ready, steps = band_scratch(left, right, counts, -(-tiles // stretches), parts)
    size = counted.shape[2] // TILE if counted.size else 1
    origins, rows = np.empty((size, TILE), np.int64), np.empty((size, TILE), np.int64)
    kinds, sizes = np.empty(size, np.int64), np.empty(size, np.int64)
    ones = np.zeros((size, parts, terms.shape[0], TILE), np.int64)
    dot, spare, _, made = scratch(sums)
    value, scales, lanes = empty_lines(TILE, np.float64), np.empty(TILE, np.float64), right.shape[1] * LANES
    chunk, low, end = next_stretch(dealt, worker, chunks, stretches, tiles)
    while low < end:
        band = min(size, end - low)
        for group in range(groups):
            place_tiles(plan, low, band, group * w.group_words, origins, kinds, sizes)
            for i in range(band):
                for p in range(TILE):
                    rows[i, p] = pixels[(low + i) % counts.size, p] if x.row_is_pixel else (low + i) // counts.size
                for part in range(parts):
                    run = kinds[i] * parts + part
                    for t in range(terms.shape[0]):
                        start, stop = first_run[run], first_run[run + 1]
                        sum_codes(left, terms[t, 0], terms[t, 1], origins, i, runs, start, stop, ones[i, part], t)
            first, last = blocks(group * group_blocks, group_blocks, TOGETHER, chunk, chunks)
            for block in range(first, last):
                at, lane = block * LANES, (block - group * group_blocks) * LANES
                channel, valid = group * group_lanes + lane, min(LANES, group_lanes - lane)
                nth = (block - first) % BLOCKS
                if IN_BANDS and counted.size and not nth:
                    count_band(
                        left, origins, kinds, sizes, band, right, block, min(BLOCKS, last - block), runs, first_run, 0,
                        ready, steps, counted,
                    )  # fmt: skip
                for i in range(band):
                    clear_tile(value)
                    for part in range(parts):
                        run = kinds[i] * parts + part
                        start, stop = first_run[run], first_run[run + 1]
                        for t in range(terms.shape[0]):
                            i0, planes_i, base_x, step_x = terms[t, 0], terms[t, 1], terms[t, 2], terms[t, 3]
                            _row_constants(x_scale, part, t, rows, i, scales)
                            for s in range(w_terms.shape[0]):
                                j0, planes_j = w_terms[s, 0], w_terms[s, 1]
                                along, step = step_x * w_terms[s, 2], step_x * w_terms[s, 3]
                                if IN_BANDS and counted.size:
                                    read_band(counted, i0, planes_i, j0, planes_j, i, nth, spare, dot)
                                else:
                                    count(
                                        left, i0, planes_i, origins, i, right, j0, planes_j, block, runs, start, stop,
                                        0, LANES, spare, dot,
                                    )  # fmt: skip
                                w_at = (part * w_terms.shape[0] + s) * lanes + at
                                sums_at = (run * w_terms.shape[0] + s) * lanes + at
                                ones_at = ((i * parts + part) * terms.shape[0] + t) * TILE
                                add_tile(
                                    value, scales, w_scale, w_at, base_x, sums, sums_at, along, ones, ones_at, step, dot
                                )
                    _add_offsets(
                        x_scale, x_offset, terms, w_scale, w_offset, sums, inside, kinds[i] * parts, rows, i, block,
                        ones, scales, value,
                    )  # fmt: skip
                    round_tile(value, pad, kinds[i] * lanes + at, bias, at)
                    image, tile = (low + i) // counts.size, (low + i) % counts.size
                    for p in range(counts[tile]):
                        row = image * origin.size + pixels[tile, p]
                        if not words.size:
                            store_values(value, p, 0, channel, valid, 1, values, row)
                        elif thresholds.shape[0] == 1:
                            store_bits(value, p, 0, thresholds, flip, at, channel, valid, 1, words, row)
                        elif plain:
                            store_ranks(value, p, 0, thresholds, flip, at, channel, valid, words, row)
                        else:
                            store_codes(value, p, 0, thresholds, flip, toggles, at, channel, valid, 1, made, words, row)
        low += band
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, chunks, stretches, tiles)
