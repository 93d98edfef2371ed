"""Blocks of results whose counts never leave registers: they are compared there into bits, or become values there."""

import numpy as np

from ...core.format import WORD_BITS
from ..epilogue.finish import Lanes, flips_and_lanes, or_bits, store_values
from ..llvm.vectors import LANES, PAIR, TILE
from ..llvm.views import Counted, Limits, Planes, Rows, RunSpan, View
from ..runtime.jit import inline
from .affine import inverted
from .count_tile import mask_counts, value_counts
from .tiles import lanes_of


@inline
def mask_blocks(product, patch, added, limits, band, to):
    """Store the bits count > limit of a patch, two blocks at a time; takes no `band`, which others count into."""
    x, w, plan, places = product.x, product.w, product.plan, patch.places
    plane, size = x.words.shape[1], w.words.shape[2] * LANES
    whole = w.groups == 1 or w.group_lanes % WORD_BITS == 0
    aside, pixels = to.masks.reshape(1, 1, TILE), to.begins.reshape(1, TILE)
    for p in range(TILE):
        pixels[0, p] = p
    planes = Planes(x.words, x.terms[0, 0] * plane, x.terms[0, 1], plane)
    for block in range(patch.first, patch.last, 2):
        lanes = _pair_of(patch.group, block, patch.last)
        flips, used = _flips_and_lanes(to.flip, lanes)
        flips, weights = flips ^ inverted(added), Rows(w.words, (w.terms[0, 0] * w.words.shape[1] + block) * size, size)
        out, rows = Rows(to.words, lanes.channel // WORD_BITS, to.words.shape[2]), places.rows
        if not whole:
            out, rows = Rows(aside, 0, 1), pixels
        for i in range(np.uint64(patch.tiles)):
            tile, kind = np.int64(i) * TILE, places.kinds[i]
            runs = RunSpan(plan.runs, plan.first_run[kind], plan.first_run[kind + 1])
            mask_counts(
                Counted(planes, View(places.origins, tile), weights, runs, added.differ),
                Limits(limits, kind * limits.shape[1] + lanes.at, flips, used),
                out,
                View(rows, tile if whole else 0),
                lanes.valid,
            )
            for p in range(0 if whole else places.sizes[i]):
                or_bits(aside[0, 0, p], lanes.channel, lanes.valid, to.words, 0, places.rows[i, p])


@inline
def _pair_of(group, block, last):
    """Return the lanes of a block and of the next one, if that is before block `last`."""
    lanes = lanes_of(group, block)
    beside = lanes_of(group, block + 1).valid if block + 1 < last else 0
    return Lanes(lanes.at, lanes.channel, lanes.valid + beside, 1)


@inline
def _flips_and_lanes(flip, lanes):
    """Return `flips_and_lanes` of up to 64 lanes."""
    flips, used = flips_and_lanes(flip, Lanes(lanes.at, lanes.channel, min(LANES, lanes.valid), 1))
    if lanes.valid > LANES:
        others, more = flips_and_lanes(flip, Lanes(lanes.at + LANES, lanes.channel, lanes.valid - LANES, 1))
        flips, used = flips | others << np.uint64(LANES), used | more << np.uint64(LANES)
    return flips, used


@inline
def value_blocks(product, patch, added, band, sums, to):
    """Store the values of a patch, two blocks at a time; takes no `band`, which others count into."""
    x, w, plan, places = product.x, product.w, product.plan, patch.places
    plane, size = x.words.shape[1], w.words.shape[2] * LANES
    planes = Planes(x.words, x.terms[0, 0] * plane, x.terms[0, 1], plane)
    aside = sums.both
    for block in range(patch.first, patch.last, 2):
        lanes = _pair_of(patch.group, block, patch.last)
        weights = Rows(w.words, (w.terms[0, 0] * w.words.shape[1] + block) * size, size)
        for i in range(patch.tiles):
            kind, whole = places.kinds[i], lanes.valid in (LANES, PAIR)
            for p in range(TILE):
                to.begins[p] = places.rows[i, p] * to.values.shape[1] + lanes.channel if whole else p * PAIR
            runs = RunSpan(plan.runs, plan.first_run[kind], plan.first_run[kind + 1])
            value_counts(
                Counted(planes, View(places.origins, i * TILE), weights, runs, added.differ),
                View(added.fixed, kind * added.fixed.shape[1] + lanes.at),
                added.step,
                to.values if whole else aside,
                to.begins,
                lanes.valid,
            )
            for p in range(0 if whole else places.sizes[i]):
                store_values(aside, p, 0, lanes, places.rows[i, p], to.values)
