"""Counts that are used in the registers in which they were added up: compared there into bits, or made values there."""

import numpy as np

from ...core.format import WORD_BITS
from ..epilogue.finish import Lanes, flips_and_lanes, or_bits, store_values
from ..llvm.vectors import LANES, PAIR, TILE
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline
from .affine import turned
from .count_tile import mask_counts, value_counts
from .tiles import lanes_of


@inline
def mask_blocks(x, w, plan, places, tiles, group, first, last, added, limits, band, to):
    """Bits of blocks first .. last of a group, two at a time: whether counts are above their limits."""
    left, right, plane, size = x.words, w.words, x.words.shape[1], w.words.shape[2] * LANES
    whole = w.groups == 1 or w.group_lanes % WORD_BITS == 0
    aside, pixels = to.masks.reshape(1, 1, TILE), to.begins.reshape(1, TILE)
    for p in range(TILE):
        pixels[0, p] = p
    for block in range(first, last, 2):
        lanes = _pair_of(group, block, last)
        flips, used = _flips_and_lanes(to.flip, lanes)
        flips, weight = flips ^ turned(added), (w.terms[0, 0] * right.shape[1] + block) * size
        out, rows, row, at = to.words, places.rows, to.words.shape[2], lanes.channel // WORD_BITS
        if not whole:
            out, rows, row, at = aside, pixels, 1, 0
        for i in range(np.uint64(tiles)):
            tile, kind = np.int64(i) * TILE, places.kinds[i]
            mask_counts(
                left, x.terms[0, 0] * plane, x.terms[0, 1], plane, places.origins, tile, right, weight, size, plan.runs,
                plan.first_run[kind], plan.first_run[kind + 1], added.differ, limits,
                kind * limits.shape[1] + lanes.at, flips, used, out, rows, tile if whole else 0, row, at, lanes.valid,
            )  # fmt: skip
            for p in range(0 if whole else places.sizes[i]):
                or_bits(aside[0, 0, p], lanes.channel, lanes.valid, to.words, 0, places.rows[i, p])


@inline
def _pair_of(group, block, last):
    """The lanes of a block and of the next, if that is before the last."""
    lanes = lanes_of(group, block)
    beside = lanes_of(group, block + 1).valid if block + 1 < last else 0
    return Lanes(lanes.at, lanes.channel, lanes.valid + beside, 1)


@inline
def _flips_and_lanes(flip, lanes):
    """`flips_and_lanes` of 64."""
    flips, used = flips_and_lanes(flip, Lanes(lanes.at, lanes.channel, min(LANES, lanes.valid), 1))
    if lanes.valid > LANES:
        others, more = flips_and_lanes(flip, Lanes(lanes.at + LANES, lanes.channel, lanes.valid - LANES, 1))
        flips, used = flips | others << np.uint64(LANES), used | more << np.uint64(LANES)
    return flips, used


@inline
def value_blocks(x, w, plan, places, tiles, group, first, last, added, band, dots, to):
    """Values of blocks first .. last of a group, two at a time, without the `band` and `dots` that bands need."""
    left, right, plane, size = x.words, w.words, x.words.shape[1], w.words.shape[2] * LANES
    aside = empty_lines(2 * TILE, to.values.dtype).reshape(TILE, PAIR)
    for block in range(first, last, 2):
        lanes = _pair_of(group, block, last)
        weight = (w.terms[0, 0] * right.shape[1] + block) * size
        for i in range(tiles):
            kind, whole = places.kinds[i], lanes.valid in (LANES, PAIR)
            for p in range(TILE):
                to.begins[p] = places.rows[i, p] * to.values.shape[1] + lanes.channel if whole else p * PAIR
            value_counts(
                left, x.terms[0, 0] * plane, x.terms[0, 1], plane, places.origins, i * TILE, right, weight, size,
                plan.runs, plan.first_run[kind], plan.first_run[kind + 1], added.differ, added.fixed,
                kind * added.fixed.shape[1] + lanes.at, added.step, to.values if whole else aside, to.begins,
                lanes.valid,
            )  # fmt: skip
            for p in range(0 if whole else places.sizes[i]):
                store_values(aside, p, 0, lanes, places.rows[i, p], to.values)
