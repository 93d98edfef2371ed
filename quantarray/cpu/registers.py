"""Counts that are used in the registers in which they were added up: compared there into bits, or made values there."""

import numpy as np

from ..format import WORD_BITS
from .compiled import inline
from .finish import flips_and_lanes, or_bits, place_values, store_values
from .micro import LANES, TILE, mask_counts, value_counts
from .tiles import lanes_of


@inline
def mask_blocks(x, w, plan, places, tiles, group, first, last, added, limits, band, to):
    """Bits of blocks first .. last of a group: whether counts are above their limits.

    Those of two blocks are kept, until they are a word of a result's rows.
    """
    left, right, runs, first_run, plane = x.words, w.words, plan.runs, plan.first_run, x.words.shape[1]
    whole = w.groups == 1 or w.group_lanes % WORD_BITS == 0
    for block in range(first, last):
        half, lanes = (block - first) % 2, lanes_of(group, block)
        weight = (w.terms[0, 0] * right.shape[1] + block) * right.shape[2] * LANES
        for i in range(np.uint64(tiles)):
            tile, kind = np.int64(i) * TILE, places.kinds[i]
            mask_counts(
                left, x.terms[0, 0] * plane, x.terms[0, 1], plane, places.origins, tile, right, weight, runs,
                first_run[kind], first_run[kind + 1], added.differ, limits.counts,
                kind * limits.counts.shape[1] + lanes.at, band.masks, half * band.masks.shape[1] * TILE + tile,
                lanes.valid,
            )  # fmt: skip
        if half or block + 1 == last:
            _store_masks(places, tiles, lanes_of(group, block - half), lanes, whole, limits.turned, band.masks, to)


@inline
def _store_masks(places, tiles, lanes, beside, whole, turned, masks, to):
    """The bits of a block and of that `beside` it, or of the same one: as `whole` words, over what was there, or where
    words are others' too added to it, a block after the other."""
    flips, used = flips_and_lanes(to.flip, lanes)
    others, more = flips_and_lanes(to.flip, beside)
    if beside.at == lanes.at:
        more = np.uint64(0)
    word = np.uint64(lanes.channel // WORD_BITS)
    for i in range(np.uint64(tiles)):
        for p in range(np.uint64(places.sizes[i])):
            row = places.rows[i, p]
            mask = (masks[0, i, p] ^ turned ^ flips) & used
            other = (masks[1, i, p] ^ turned ^ others) & more
            if whole:
                to.words[0, np.uint64(row), word] = mask | other << np.uint64(LANES)
            else:
                or_bits(mask, lanes.channel, lanes.valid, to.words, 0, row)
                if more:
                    or_bits(other, beside.channel, beside.valid, to.words, 0, row)


@inline
def value_blocks(x, w, plan, places, tiles, group, first, last, added, band, dots, to):
    """Values of blocks first .. last of a group, without a `band`, which bands need."""
    left, right, runs, first_run, plane = x.words, w.words, plan.runs, plan.first_run, x.words.shape[1]
    for block in range(first, last):
        lanes = lanes_of(group, block)
        weight = (w.terms[0, 0] * right.shape[1] + block) * right.shape[2] * LANES
        for i in range(tiles):
            kind, whole = places.kinds[i], place_values(i, lanes, places, to)
            value_counts(
                left, x.terms[0, 0] * plane, x.terms[0, 1], plane, places.origins, i * TILE, right, weight, runs,
                first_run[kind], first_run[kind + 1], added.differ, added.fixed,
                kind * added.fixed.shape[1] + lanes.at, added.step, to.values if whole else dots, to.begins,
                lanes.valid,
            )  # fmt: skip
            for p in range(0 if whole else places.sizes[i]):
                store_values(dots, p, 0, lanes, places.rows[i, p], to.values)
