"""Counting a band of tiles at once, some blocks after the others: by tables (`micro/tables.py`), or by shuffles
that two pixels share (`micro/shuffles.py`)."""

import numpy as np

from ..format import WORD_BITS
from .compiled import entry, inline, inner
from .finish import flips_and_lanes, or_bits
from .isa import COUNTING
from .lines import empty_lines
from .micro import (
    LANES,
    PAIR,
    SHUFFLED,
    SPLIT,
    TABLES,
    TILE,
    WORDS,
    add_counts,
    add_rows,
    fill_tables,
    mask_counts,
    mask_words,
    read_tile,
    shuffle_tile,
    split_weights,
)

BAND = 64  # tiles that meet one block of weights, which stays in L1, before the next block comes
BY_SHUFFLES = COUNTING == "avx512bw"
# A branch on a global is not even compiled where it is False
IN_BANDS = BY_SHUFFLES or COUNTING in ("portable", "avx2")
# Pixels, times planes of them, for which tables or split weights are worth making: what a tile at a time takes for them
# is more
_LEAST = 32 if COUNTING == "avx2" else 8
MOST = 1023  # words whose counts fit into 16 bits
_PLANES = 8  # of weights: for each of them the sums of a band take 32 KiB, or 64
WIDE = SHUFFLED if BY_SHUFFLES else PAIR  # channels for which a band is counted at once
BLOCKS = WIDE // LANES if IN_BANDS else 1  # whose results a tile stores one after the other
TOGETHER = max(2, BLOCKS)  # of the same task


@entry
def band_scratch(left, right, counts, tiles, parts):
    """(sums, ready, steps) of `count_band`; `sums` is empty where tiles, of counts[tile] pixels, are better counted
    one by one."""
    planes, others, words = left.shape[0], right.shape[0], right.shape[2]
    fit = parts == 1 and words <= MOST and others <= _PLANES
    alone = counts.size == 1 and counts[0] == 1
    if not (IN_BANDS and fit and pays(tiles, planes, alone)):
        tiles = 0
    return band_buffers(planes, others, tiles, WIDE, 2 * words * SPLIT if BY_SHUFFLES else WORDS * TABLES)


@inner
def pays(tiles, planes, alone):
    """True where so many tiles, and planes of x, are worth what is made ready for them.

    A pixel `alone` in its tile takes `count_tile` a third of the time of four, and shuffles as long as four.
    """
    return not (alone and BY_SHUFFLES) and tiles * (1 if alone else TILE) * planes >= _LEAST


@inner
def band_tiles(planes):
    """Tiles of a band: what is made ready serves all planes of x, so that with more of them there are fewer."""
    return max(1, BAND // planes)


@inner
def band_buffers(planes, others, tiles, lanes, size):
    """uint16 sums[planes of x, planes of w, pixels, lanes], and what it takes to fill them: uint8 of some size, the
    weights made ready."""
    shape = planes, others, min(tiles, band_tiles(planes)) * TILE, lanes
    sums = empty_lines(shape[0] * shape[1] * shape[2] * (lanes // LANES), np.uint16).reshape(shape)
    return sums, empty_lines(size // LANES if tiles else 0, np.uint8).ravel(), np.empty((WORDS, 2), np.int64)


@inner
def look_up_band(left, origins, kinds, sizes, band, right, block, near, runs, first_run, differ, ready, steps, sums):
    """sums[i, j, pixel, l] = |left_i & right_j| over the runs of a pixel's class, for channels l of `near` blocks
    from `block` on, two at most.

    The `band` tiles have sizes[tile] pixels of class kinds[tile], which begin at words origins[tile, p]. Where `differ`
    is -1 and not 0, |left_i ^ right_j|. `ready` holds tables of some words at a time.
    """
    plane, words = left.shape[1], right.shape[2]
    planes, others, pixels, lanes = sums.shape
    sums[...] = 0
    for j in range(others):
        for start in range(0, words, WORDS):
            size, row = min(WORDS, words - start), j * right.shape[1]
            at, beside = ((row + block) * words + start) * LANES, ((row + block + near - 1) * words + start) * LANES
            fill_tables(right, at, beside, size, differ, ready)
            kind, found = -1, 0
            for tile in range(band):
                if kinds[tile] != kind:
                    kind = kinds[tile]
                    found = _steps(runs, first_run[kind], first_run[kind + 1], start, size, steps)
                for i in range(planes if found else 0):
                    to = ((i * others + j) * pixels + tile * TILE) * lanes
                    for p in range(sizes[tile]):
                        add_rows(left, i * plane + origins[tile, p], steps, found, ready, sums, to + p * lanes)


@inner
def shuffle_band(left, origins, kinds, sizes, band, right, block, near, runs, first_run, differ, ready, steps, sums):
    """The same by shuffles, for whole tiles of 4 pixels and at most four blocks; `ready` holds all their weights split
    up."""
    plane, words = left.shape[1], right.shape[2]
    planes, others, pixels, lanes = sums.shape
    pairs, apart = (near + 1) // 2, words * SPLIT
    for j in range(others):
        for pair in range(pairs):
            one = j * right.shape[1] + block + 2 * pair
            other = min(one + 1, j * right.shape[1] + block + near - 1)
            split_weights(right, one * words * LANES, other * words * LANES, words, ready, pair * apart)
        for tile in range(band):
            start, stop = first_run[kinds[tile]], first_run[kinds[tile] + 1]
            for i in range(planes):
                to = ((i * others + j) * pixels + tile * TILE) * lanes
                shuffle_tile(
                    left, i * plane, origins, tile * TILE, ready, apart, pairs, runs, start, stop, differ, sums, to
                )


count_band = shuffle_band if BY_SHUFFLES else look_up_band


@inline
def _steps(runs, first, last, start, size, steps):
    """The words of runs first .. last whose weights are words start .. start + size, and how many there are.

    steps[i] = (word from the pixel's origin, where the weight's tables begin).
    """
    found = 0
    for r in range(first, last):
        at, weight, length = runs[r, 0], runs[r, 1], runs[r, 2]
        for k in range(max(weight, start), min(weight + length, start + size)):
            steps[found, 0], steps[found, 1] = at + k - weight, (k - start) * TABLES
            found += 1
    return found


@inline
def read_band(sums, i0, planes_i, j0, planes_j, tile, block, counts, total):
    """total[p, lane] = sum_ij 2^(i+j) of a tile's counts with one of its blocks."""
    _, others, pixels, lanes = sums.shape
    for i in range(planes_i):
        for j in range(planes_j):
            at = (((i0 + i) * others + j0 + j) * pixels + tile * TILE) * lanes + block * LANES
            if i + j == 0:
                read_tile(sums, at, lanes, total)
            else:
                read_tile(sums, at, lanes, counts)
                add_counts(counts, i + j, total)


@inner
def store_pairs(
    plan, low, band, kinds, sizes, sums, pairs, least, flip, turned, lane, valid, words, word, places
):  # fmt: skip
    """The bits of so many pairs of a band's blocks, from lane `lane` on, of which `valid` are channels.

    They go to words `word` .. of a result's rows; `turned` is all ones where a limit is one from above.
    """
    for pair in range(pairs):
        at, left = lane + 2 * pair * LANES, valid - 2 * pair * LANES
        flips, used = flips_and_lanes(flip, at, LANES)
        others, more = flips_and_lanes(flip, at + LANES, min(LANES, left - LANES))
        _store_words(
            plan, low, band, kinds, sizes, sums, 2 * pair * LANES, least, at,
            turned ^ flips ^ others << np.uint64(LANES), used | more << np.uint64(LANES), words, word + pair, places,
        )  # fmt: skip


@inner
def mask_band(
    left, i0, planes_i, origins, kinds, band, right, j0, block, runs, first_run, differ, limits, masks, half, lanes
):  # fmt: skip
    """masks[half, tile, p] of a block's first `lanes`: which of its counts are above the limits of the tile's class."""
    plane, weight = left.shape[1], (j0 * right.shape[1] + block) * right.shape[2] * LANES
    for i in range(np.uint64(band)):
        tile, kind = np.int64(i) * TILE, kinds[i]
        mask_counts(
            left, i0 * plane, planes_i, plane, origins, tile, right, weight, runs, first_run[kind], first_run[kind + 1],
            differ, limits, kind * limits.shape[1] + block * LANES, masks,
            half * masks.shape[1] * TILE + tile, lanes,
        )  # fmt: skip


@inner
def store_masks(plan, low, band, sizes, masks, blocks, flip, turned, lane, valid, words, channel, whole):
    """The bits masks[block, tile, pixel] of one or two blocks of a band, as `store_pairs` has them, from `channel` on.

    As whole words, over what was there, or where words are others' too added to it, a block after the other.
    """
    pixels, rows = plan.pixels, plan.origin.size
    flips, used = flips_and_lanes(flip, lane, min(LANES, valid))
    others, more = flips, np.uint64(0)
    if blocks == 2:
        others, more = flips_and_lanes(flip, lane + LANES, min(LANES, valid - LANES))
    tile, row0, word = np.uint64(low % len(pixels)), low // len(pixels) * rows, np.uint64(channel // WORD_BITS)
    for i in range(np.uint64(band)):
        for p in range(np.uint64(sizes[i])):
            row = row0 + pixels[tile, p]
            mask = (masks[0, i, p] ^ turned ^ flips) & used
            other = (masks[1, i, p] ^ turned ^ others) & more
            if whole:
                words[0, np.uint64(row), word] = mask | other << np.uint64(LANES)
            else:
                or_bits(mask, channel, min(LANES, valid), words, 0, row)
                if blocks == 2:
                    or_bits(other, channel + LANES, min(LANES, valid - LANES), words, 0, row)
        tile += np.uint64(1)
        if tile == np.uint64(len(pixels)):
            tile, row0 = np.uint64(0), row0 + rows


@inner
def _store_words(plan, low, band, kinds, sizes, sums, at, least, lane, flips, used, words, word, places):
    """The bits of two blocks of a band, word `word` of a result's rows: sums from `at` on, limits from lane `lane` on.

    Both blocks are stored at once and over what was there: `or_bits` for each took three times as long.
    """
    pixels, rows, row_words, lanes = plan.pixels, plan.origin.size, words.shape[2], sums.shape[3]
    tile, row0 = np.uint64(low % len(pixels)), low // len(pixels) * rows
    for i in range(np.uint64(band)):
        for p in range(np.uint64(TILE)):
            places[p] = (row0 + pixels[tile, p]) * row_words + word
        mask_words(
            sums, at + np.int64(i) * TILE * lanes, lanes, least, kinds[i] * least.shape[1] + lane, flips, used, words,
            places, sizes[i],
        )  # fmt: skip
        tile += np.uint64(1)
        if tile == np.uint64(len(pixels)):
            tile, row0 = np.uint64(0), row0 + rows
