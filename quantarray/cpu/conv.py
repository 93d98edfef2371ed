"""Convolution and matrix product by and-popcount. `docs/kernels/conv.md` explains the algebra and the tile.

The exact integer product of a term u of x and a term v of w, over the taps inside the image, is

    sum u*v = base_x * sum v + step_x * (base_w * |a| + step_w * sum_ij 2^(i+j) |a_j & b_i|)

where |a| sums the codes of x. sum v depends on the output channel and the border class only and comes in a table; for
integer results `finish.extra` holds it already, times base_x, with padding and bias.
"""

from functools import partial

import numpy as np

from ..format import WORD_BITS
from .bands import (
    BAND,
    BLOCKS,
    IN_BANDS,
    TOGETHER,
    WIDE,
    band_scratch,
    count_band,
    mask_band,
    read_band,
    store_masks,
    store_pairs,
)
from .deal import Kernel
from .drive import Effort, Task, drive
from .finish import codes_are_ranks, flips_and_lanes, or_bits, store_codes, store_ranks, store_values
from .micro import (
    LANES,
    STREAMED,
    TILE,
    lay_out,
    mask_sums,
    mask_tile,
    shift_tile,
    value_counts,
    value_sums,
)
from .tiles import (
    IN_REGISTERS,
    as_counts,
    blocks,
    count,
    empty_table,
    fill_fixed,
    fill_least,
    is_power,
    lay_out_blocks,
    next_stretch,
    place_tiles,
    scratch,
    sum_codes,
    turn_to_limits,
)

_NO_COUNTS = np.empty((0, 0), np.uint16)
_NO_VALUES = {lanes: np.empty((0, 0), lanes) for lanes in (np.dtype(np.int32), np.dtype(np.int64))}


def conv_weights(words, groups, out):
    lay_out_blocks(words, groups, lay_out, out)


def conv(x, fixed, out):
    drive(_conv_range, x, fixed, out, _task)


def _task(x, fixed):
    pairs = x.words.shape[0] * fixed.w.words.shape[0]
    effort = Effort(word=pairs, tile=6, weight=0.04, pixel=0.03, together=TOGETHER)
    return Task(x.images * len(fixed.plan.counts), _NO_VALUES[fixed.finish.extra.dtype], effort)


@partial(Kernel, takes=True)
def _conv_range(w, plan, finish, chunks, parts, tiles, x, values, words, dealt, worker):
    # Taken out of their tuples once: see `finish.py` for what passing tuples and slices costs
    left, right, runs = x.words, w.words, plan.runs
    pixels, counts, classes, origin, first_run = plan.pixels, plan.counts, plan.classes, plan.origin, plan.first_run
    thresholds, flip, toggles = finish.thresholds, finish.flip, finish.toggles
    plain = codes_are_ranks(thresholds, toggles)
    i0, planes_i, j0, planes_j = x.terms[0, 0], x.terms[0, 1], w.terms[0, 0], w.terms[0, 1]
    groups, group_lanes, group_words, group_blocks = w.groups, w.group_lanes, w.group_words, right.shape[1] // w.groups
    extra, along, step, differ = as_counts(finish.extra, x.terms, w.terms)
    sums, ready, steps = band_scratch(left, right, counts, -(-tiles // parts), 1)
    straight = planes_j == 1 and along == 0 and is_power(abs(step))  # extra + step * one count
    straight &= IN_REGISTERS or (planes_i == 1 and sums.size > 0)
    limits, turned = np.empty((0, 0), np.int64), np.uint64(0)
    if straight and thresholds.shape[0] == 1:
        limits, turned = empty_table(extra, np.int64), np.uint64(-(step < 0))
    straight &= words.size == 0 and values.size * values.itemsize < STREAMED
    least = empty_table(limits, np.uint16) if IN_BANDS else _NO_COUNTS
    size = sums.shape[2] // TILE if sums.size else BAND
    origins, ones = np.empty((size, TILE), np.int64), np.zeros((size, TILE), np.int64)
    kinds, sizes = np.empty(size, np.int64), np.empty(size, np.int64)
    dot, part, masks, made = scratch(extra)
    places, filled = np.empty(TILE, np.int64), -1
    band_masks = np.empty((2, size if IN_REGISTERS else 0, TILE), np.uint64)  # of two blocks
    paired = limits.size > 0 and (groups == 1 or group_lanes % WORD_BITS == 0)  # whole words can be stored
    chunk, low, end = next_stretch(dealt, worker, chunks, parts, tiles)
    while low < end:
        if chunk != filled:
            first, last = blocks(0, group_blocks, TOGETHER, chunk, chunks)
            lanes, filled = (first * LANES, ((groups - 1) * group_blocks + last) * LANES), chunk
            if limits.size:
                fill_fixed(finish.extra, x.terms, w.terms, w.sums, w.inside, differ, lanes, limits)
                turn_to_limits(thresholds, step, lanes, limits)
                if IN_BANDS:
                    fill_least(limits, lanes, least)
            elif differ:
                fill_fixed(finish.extra, x.terms, w.terms, w.sums, w.inside, differ, lanes, extra)
        band = min(size, end - low)
        for group in range(groups):
            place_tiles(plan, low, band, group * group_words, origins, kinds, sizes)
            for i in range(band if along else 0):
                start, stop = first_run[kinds[i]], first_run[kinds[i] + 1]
                sum_codes(left, i0, planes_i, origins, i, runs, start, stop, ones, i)
            first, last = blocks(group * group_blocks, group_blocks, TOGETHER, chunk, chunks)
            for block in range(first, last, BLOCKS):
                near = min(BLOCKS, last - block)
                if IN_BANDS and sums.size:
                    count_band(
                        left, origins, kinds, sizes, band, right, block, near, runs, first_run, differ, ready, steps,
                        sums,
                    )  # fmt: skip
                done = near // 2 * 2 if IN_BANDS and paired else 0
                if done:
                    lane = (block - group * group_blocks) * LANES
                    word, valid = (group * group_lanes + lane) // WORD_BITS, group_lanes - lane
                    store_pairs(
                        plan, low, band, kinds, sizes, sums, done // 2, least, flip, turned, block * LANES, valid,
                        words, word, places,
                    )  # fmt: skip
                if IN_REGISTERS and limits.size:
                    half, done = (block - first) % 2, near
                    mask_band(
                        left, i0, planes_i, origins, kinds, band, right, j0, block, runs, first_run, differ, limits,
                        band_masks, half, group_lanes - (block - group * group_blocks) * LANES,
                    )  # fmt: skip
                    if half or block + 1 == last:
                        lane = (block - half - group * group_blocks) * LANES
                        store_masks(
                            plan, low, band, sizes, band_masks, 1 + half, flip, turned, (block - half) * LANES,
                            group_lanes - lane, words, group * group_lanes + lane, paired,
                        )  # fmt: skip
                image, tile = low // counts.size, low % counts.size
                for i in range(band if done < near else 0):
                    kind, row0 = classes[tile], image * origin.size
                    start, stop = first_run[kind], first_run[kind + 1]
                    for nth in range(done, near):
                        at, lane = (block + nth) * LANES, (block + nth - group * group_blocks) * LANES
                        channel, valid = group * group_lanes + lane, min(LANES, group_lanes - lane)
                        placed, fixed = straight and valid == LANES, kind * extra.shape[1] + at
                        weight = (j0 * right.shape[1] + block + nth) * right.shape[2] * LANES
                        for p in range(TILE if placed else 0):
                            places[p] = (row0 + pixels[tile, p]) * values.shape[1] + channel
                        if IN_REGISTERS and placed:
                            value_counts(
                                left, i0 * left.shape[1], planes_i, left.shape[1], origins, i * TILE, right, weight,
                                runs, start, stop, differ, extra, fixed, step, values, places,
                            )  # fmt: skip
                        elif IN_BANDS and limits.size:
                            mask_sums(sums, i * TILE * WIDE + nth * LANES, WIDE, least, fixed, masks)
                        elif IN_BANDS and placed:
                            value_sums(
                                sums, i * TILE * WIDE + nth * LANES, WIDE, extra, fixed, step, values, places,
                                counts[tile],
                            )  # fmt: skip
                        elif IN_BANDS and sums.size:
                            read_band(sums, i0, planes_i, j0, planes_j, i, nth, part, dot)
                        else:
                            count(
                                left, i0, planes_i, origins, i, right, j0, planes_j, block + nth, runs, start, stop,
                                differ, valid, part, dot,
                            )  # fmt: skip
                        if thresholds.shape[0] == 1:
                            if not limits.size:
                                mask_tile(dot, 0, extra, fixed, along, ones, i * TILE, step, thresholds, at, masks)
                            flips, used = flips_and_lanes(flip, at, valid)
                            for p in range(counts[tile]):
                                mask = (masks[p] ^ turned ^ flips) & used
                                or_bits(mask, channel, valid, words, 0, row0 + pixels[tile, p])
                        elif not placed:
                            shift_tile(dot, 0, extra, fixed, along, ones, i * TILE, step)
                            for p in range(counts[tile]):
                                row = row0 + pixels[tile, p]
                                if words.size == 0:
                                    store_values(dot, p, 0, channel, valid, 1, values, row)
                                elif plain:
                                    store_ranks(dot, p, 0, thresholds, flip, at, channel, valid, words, row)
                                else:
                                    store_codes(
                                        dot, p, 0, thresholds, flip, toggles, at, channel, valid, 1, made, words,
                                        row,
                                    )  # fmt: skip
                    tile += 1
                    if tile == counts.size:
                        image, tile = image + 1, 0
        low += band
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, chunks, parts, tiles)
