"""Count a band of tiles at once, some blocks after the others: by lookup tables (`band_lut.py`), or by byte shuffles
that two pixels share (`band_avx512bw_pshufb.py`)."""

from typing import NamedTuple

import numpy as np

from ...core.format import WORD_BITS
from ..epilogue.finish import flips_and_lanes, place_values, put_masks, store_values
from ..llvm.vectors import LANES, PAIR, TILE
from ..runtime.aligned import empty_lines
from ..runtime.isa import COUNTING
from ..runtime.jit import entry, inline, inner
from .affine import turned
from .band_avx512bw_pshufb import SHUFFLED, SPLIT, shuffle_tile, split_weights
from .band_lut import TABLES, WORDS, add_rows, fill_tables
from .band_sums import mask_sums, mask_words, read_tile, value_sums
from .lanes import add_counts
from .tiles import lanes_of

BAND = 64  # tiles that meet one block of weights, which stays in L1, before the next block comes
BY_SHUFFLES = COUNTING == "avx512bw"
# A branch on a global is not even compiled where it is False
IN_BANDS = BY_SHUFFLES or COUNTING in ("portable", "avx2")
_ALONE = 0.37  # of what four pixels take that share their weights
# Pixels, times planes of them, for which tables or split weights are worth making: what a tile at a time takes for them
# is more
_LEAST = 32 if COUNTING == "avx2" else 8
MOST = 1023  # words whose counts fit into 16 bits
_PLANES = 8  # of weights: for each of them the sums of a band take 32 KiB, or 64
WIDE = SHUFFLED if BY_SHUFFLES else PAIR  # channels for which a band is counted at once
BLOCKS = WIDE // LANES if IN_BANDS else 1  # whose results a tile stores one after the other
TOGETHER = max(2, BLOCKS)  # of the same task


class Band(NamedTuple):
    """What a band has counted, and what it takes to count it."""

    sums: np.ndarray  # uint16[planes of x, planes of w, pixels, lanes]; empty where tiles are better counted one by one
    ready: np.ndarray  # uint8: the weights made ready
    steps: np.ndarray  # int64[words 2]


@entry
def empty_band(left, right, counts, tiles, parts):
    """For so many tiles, of counts[tile] pixels."""
    planes, others, words = left.shape[0], right.shape[0], right.shape[2]
    fit = parts == 1 and words <= MOST and others <= _PLANES
    alone = counts.size == 1 and counts[0] == 1
    if not (IN_BANDS and fit and pays(tiles, planes, alone)):
        tiles = 0
    return band_buffers(planes, others, tiles, WIDE, 2 * words * SPLIT if BY_SHUFFLES else WORDS * TABLES)


def counted(counts):
    """What of a tile's words is counted where it has so many pixels: of each pixel by tables, or of all or one."""
    if BY_SHUFFLES:
        return np.ones(len(counts))
    return counts / TILE if IN_BANDS else np.where(counts == 1, _ALONE, 1)


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
    """Whose weights made ready take so many bytes."""
    shape = planes, others, min(tiles, band_tiles(planes)) * TILE, lanes
    sums = empty_lines(shape[0] * shape[1] * shape[2] * (lanes // LANES), np.uint16).reshape(shape)
    ready = empty_lines(size // LANES if tiles else 0, np.uint8).ravel()
    return Band(sums, ready, np.empty((WORDS, 2), np.int64))


@inner
def look_up_band(left, right, plan, places, tiles, block, near, differ, band):
    """sums[i, j, pixel, l] = |left_i & right_j| over the runs of a pixel's class, for channels l of `near` blocks
    from `block` on, two at most.

    Of so many `tiles` of the places. Where `differ` is -1 and not 0, |left_i ^ right_j|. Tables are those of some words
    at a time.
    """
    plane, words = left.shape[1], right.shape[2]
    planes, others, pixels, lanes = band.sums.shape
    band.sums[...] = 0
    for j in range(others):
        for start in range(0, words, WORDS):
            size, row = min(WORDS, words - start), j * right.shape[1]
            at, beside = ((row + block) * words + start) * LANES, ((row + block + near - 1) * words + start) * LANES
            fill_tables(right, at, beside, size, differ, band.ready)
            kind, found = -1, 0
            for tile in range(tiles):
                if places.kinds[tile] != kind:
                    kind = places.kinds[tile]
                    found = _steps(plan, kind, start, size, band.steps)
                for i in range(planes if found else 0):
                    to = ((i * others + j) * pixels + tile * TILE) * lanes
                    for p in range(places.sizes[tile]):
                        word = i * plane + places.origins[tile, p]
                        add_rows(left, word, band.steps, found, band.ready, band.sums, to + p * lanes)


@inner
def shuffle_band(left, right, plan, places, tiles, block, near, differ, band):
    """The same by shuffles, for whole tiles of 4 pixels and at most four blocks; all their weights are split up."""
    plane, words = left.shape[1], right.shape[2]
    planes, others, pixels, lanes = band.sums.shape
    pairs, apart = (near + 1) // 2, words * SPLIT
    for j in range(others):
        for pair in range(pairs):
            one = j * right.shape[1] + block + 2 * pair
            other = min(one + 1, j * right.shape[1] + block + near - 1)
            split_weights(right, one * words * LANES, other * words * LANES, words, band.ready, pair * apart)
        for tile in range(tiles):
            start, stop = plan.first_run[places.kinds[tile]], plan.first_run[places.kinds[tile] + 1]
            for i in range(planes):
                to = ((i * others + j) * pixels + tile * TILE) * lanes
                shuffle_tile(
                    left, i * plane, places.origins, tile * TILE, band.ready, apart, pairs, plan.runs, start, stop,
                    differ, band.sums, to,
                )  # fmt: skip


count_band = shuffle_band if BY_SHUFFLES else look_up_band


@inline
def _steps(plan, kind, start, size, steps):
    """The words of a class's runs whose weights are words start .. start + size, and how many there are.

    steps[i] = (word from the pixel's origin, where the weight's tables begin).
    """
    found = 0
    for r in range(plan.first_run[kind], plan.first_run[kind + 1]):
        at, weight, length = plan.runs[r, 0], plan.runs[r, 1], plan.runs[r, 2]
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


@inline
def mask_blocks(x, w, plan, places, tiles, group, first, last, added, limits, band, to):
    """Bits of blocks first .. last of a group: whether counts are above their limits."""
    whole = w.groups == 1 or w.group_lanes % WORD_BITS == 0
    for block in range(first, last, BLOCKS):
        near = min(BLOCKS, last - block)
        count_band(x.words, w.words, plan, places, tiles, block, near, added.differ, band)
        stored = near // 2 * 2 if whole else 0
        for nth in range(0, stored, 2):
            pair = lanes_of(group, block + nth), lanes_of(group, block + nth + 1)
            _store_words(places, tiles, nth, pair, added, limits, band, to)
        for i in range(tiles if stored < near else 0):
            for nth in range(stored, near):
                lanes, at = lanes_of(group, block + nth), i * TILE * WIDE + nth * LANES
                fixed = places.kinds[i] * limits.shape[1] + lanes.at
                mask_sums(band.sums, at, WIDE, limits, fixed, to.masks)
                put_masks(i, turned(added), lanes, places, to)


@inline
def _store_words(places, tiles, nth, pair, added, limits, band, to):
    """The bits of two of a band's blocks from the n-th on, a word of a result's rows.

    Both blocks are stored at once and over what was there: `or_bits` for each took three times as long.
    """
    words, begins = to.words, to.begins
    flips, used = flips_and_lanes(to.flip, pair[0])
    others, more = flips_and_lanes(to.flip, pair[1])
    flips, used = turned(added) ^ flips ^ others << np.uint64(LANES), used | more << np.uint64(LANES)
    word = pair[0].channel // WORD_BITS
    for i in range(np.uint64(tiles)):
        for p in range(np.uint64(TILE)):
            begins[p] = places.rows[i, p] * words.shape[2] + word
        mask_words(
            band.sums, np.int64(i) * TILE * WIDE + nth * LANES, WIDE, limits,
            places.kinds[i] * limits.shape[1] + pair[0].at, flips, used, words, begins, places.sizes[i],
        )  # fmt: skip


@inline
def value_blocks(x, w, plan, places, tiles, group, first, last, added, band, dots, to):
    """Values of blocks first .. last of a group."""
    for block in range(first, last, BLOCKS):
        near = min(BLOCKS, last - block)
        count_band(x.words, w.words, plan, places, tiles, block, near, added.differ, band)
        for i in range(tiles):
            for nth in range(near):
                lanes, at = lanes_of(group, block + nth), i * TILE * WIDE + nth * LANES
                whole = place_values(i, lanes, places, to)
                value_sums(
                    band.sums, at, WIDE, added.fixed, places.kinds[i] * added.fixed.shape[1] + lanes.at, added.step,
                    to.values if whole else dots, to.begins, places.sizes[i],
                )  # fmt: skip
                for p in range(0 if whole else places.sizes[i]):
                    store_values(dots, p, 0, lanes, places.rows[i, p], to.values)
