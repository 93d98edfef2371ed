"""Count a band of tiles at once, block after block: by lookup tables (`band_lut.py`), or by byte shuffles that two
pixels share (`band_avx512bw_pshufb.py`)."""

from typing import NamedTuple

import numpy as np

from ...core.format import WORD_BITS
from ..epilogue.finish import flips_and_lanes, place_values, put_masks, store_values
from ..llvm.vectors import LANES, PAIR, TILE
from ..llvm.views import Limits, Rows, RunSpan, View
from ..runtime.aligned import empty_lines
from ..runtime.isa import COUNTING
from ..runtime.jit import borrowing, entry, inline, inner
from .affine import inverted
from .band_avx512bw_pshufb import SHUFFLED, SPLIT, SplitWeights, shuffle_tile, split_weights
from .band_lut import TABLES, WORDS, add_rows, fill_tables
from .band_sums import mask_sums, mask_words, read_tile, value_sums
from .lanes import add_counts
from .tiles import lanes_of

BAND = 64  # tiles that meet one block of weights, which stays in L1, before the next block comes
BY_SHUFFLES = COUNTING == "avx512bw"
# A branch on a global is not even compiled where it is False
IN_BANDS = BY_SHUFFLES or COUNTING in ("portable", "avx2")
_SINGLE = 0.37  # of the time of four pixels that share their weights
# Pixels times planes from which tables or split weights pay: below, counting a tile at a time is faster
_LEAST = 32 if COUNTING == "avx2" else 8
MOST = 1023  # words whose counts fit into 16 bits
_PLANES = 8  # of weights: for each of them the sums of a band take 32 KiB, or 64
WIDE = SHUFFLED if BY_SHUFFLES else PAIR  # channels for which a band is counted at once
BLOCKS = WIDE // LANES if IN_BANDS else 1  # whose results a tile stores one after the other
TOGETHER = max(2, BLOCKS)  # of the same task


class Band(NamedTuple):
    """A band's sums and its prepared weights."""

    sums: np.ndarray  # uint16[planes of x, planes of w, pixels, lanes]; empty where tiles are better counted one by one
    ready: np.ndarray  # uint8: the prepared weights
    steps: np.ndarray  # int64[words 2]


@entry
def empty_band(left, right, counts, tiles, parts):
    """Allocate a band for `tiles` tiles of counts[tile] pixels; its sums are empty where a tile at a time is faster."""
    planes, others, words = left.shape[0], right.shape[0], right.shape[2]
    fit = parts == 1 and words <= MOST and others <= _PLANES
    single = counts.size == 1 and counts[0] == 1
    if not (IN_BANDS and fit and pays(tiles, planes, single)):
        tiles = 0
    return band_buffers(planes, others, tiles, WIDE, 2 * words * SPLIT if BY_SHUFFLES else WORDS * TABLES)


def counted(counts):
    """Return the share of a tile's work for tiles of counts[tile] pixels: tables count each pixel by itself."""
    if BY_SHUFFLES:
        return np.ones(len(counts))
    return counts / TILE if IN_BANDS else np.where(counts == 1, _SINGLE, 1)


@inner
def pays(tiles, planes, single):
    """True where so many tiles and planes of x are worth preparing weights for them.

    A `single` pixel in a tile takes `count_tile` a third of the time of four, but shuffles as long as four.
    """
    return not (single and BY_SHUFFLES) and tiles * (1 if single else TILE) * planes >= _LEAST


@inner
def band_tiles(planes):
    """Return the tiles of a band: fewer with more planes of x, which all share the prepared weights."""
    return max(1, BAND // planes)


@inner
def band_buffers(planes, others, tiles, lanes, size):
    """Allocate a band whose prepared weights take `size` bytes."""
    shape = planes, others, min(tiles, band_tiles(planes)) * TILE, lanes
    sums = empty_lines(shape[0] * shape[1] * shape[2] * (lanes // LANES), np.uint16).reshape(shape)
    ready = empty_lines(size // LANES if tiles else 0, np.uint8).ravel()
    return Band(sums, ready, np.empty((WORDS, 2), np.int64))


@borrowing
def look_up_band(product, places, tiles, block, near, differ, band):
    """sums[i, j, pixel, l] = |left_i & right_j| over the runs of a pixel's class, for channels l of `near` blocks
    from `block` on, two at most.

    Counts the first `tiles` of the places. Where `differ` is -1 and not 0, |left_i ^ right_j|. Tables are filled for
    some words at a time.
    """
    left, right, plan = product.x.words, product.w.words, product.plan
    plane, words = left.shape[1], right.shape[2]
    planes, others, pixels, lanes = band.sums.shape
    band.sums[...] = 0
    for j in range(others):
        for start in range(0, words, WORDS):
            size, row = min(WORDS, words - start), j * right.shape[1]
            at, beside = ((row + block) * words + start) * LANES, ((row + block + near - 1) * words + start) * LANES
            fill_tables(right, at, beside, size, differ, band.ready)
            kind, steps = -1, 0
            for tile in range(tiles):
                if places.kinds[tile] != kind:
                    kind = places.kinds[tile]
                    steps = _steps(plan, kind, start, size, band.steps)
                for i in range(planes if steps else 0):
                    to = ((i * others + j) * pixels + tile * TILE) * lanes
                    for p in range(places.sizes[tile]):
                        word = i * plane + places.origins[tile, p]
                        add_rows(left, word, band.steps, steps, band.ready, band.sums, to + p * lanes)


@borrowing
def shuffle_band(product, places, tiles, block, near, differ, band):
    """Count sums[i, j, pixel, l] as `look_up_band`, by shuffles: for whole tiles of 4 pixels and at most four blocks,
    whose weights are all split up.
    """
    left, right, plan = product.x.words, product.w.words, product.plan
    plane, words = left.shape[1], right.shape[2]
    planes, others, pixels, lanes = band.sums.shape
    pairs, apart = (near + 1) // 2, words * SPLIT
    split = SplitWeights(band.ready, apart, pairs)
    for j in range(others):
        for pair in range(pairs):
            one = j * right.shape[1] + block + 2 * pair
            other = min(one + 1, j * right.shape[1] + block + near - 1)
            split_weights(right, one * words * LANES, other * words * LANES, words, band.ready, pair * apart)
        for tile in range(tiles):
            kind = places.kinds[tile]
            runs = RunSpan(plan.runs, plan.first_run[kind], plan.first_run[kind + 1])
            for i in range(planes):
                to = View(band.sums, ((i * others + j) * pixels + tile * TILE) * lanes)
                shuffle_tile(View(left, i * plane), View(places.origins, tile * TILE), split, runs, differ, to)


count_band = shuffle_band if BY_SHUFFLES else look_up_band


@inline
def _steps(plan, kind, start, size, steps):
    """steps[i] = (word from a pixel's origin, where its weight's tables begin) for weight words start .. start + size.

    Returns the number of such words in the runs of a class.
    """
    count = 0
    for r in range(plan.first_run[kind], plan.first_run[kind + 1]):
        at, weight, length = plan.runs[r, 0], plan.runs[r, 1], plan.runs[r, 2]
        for k in range(max(weight, start), min(weight + length, start + size)):
            steps[count, 0], steps[count, 1] = at + k - weight, (k - start) * TABLES
            count += 1
    return count


@inline
def read_band(counted, left, right, tile, block, sums):
    """sums.total[p, lane] = sum_ij 2^(i+j) counted[i, j, p, lane] for a tile and one of its blocks.

    left and right are the (first, number) of planes of a term of x and of w.
    """
    _, others, pixels, lanes = counted.shape
    for i in range(left[1]):
        for j in range(right[1]):
            at = (((left[0] + i) * others + right[0] + j) * pixels + tile * TILE) * lanes + block * LANES
            if i + j == 0:
                read_tile(counted, at, lanes, sums.total)
            else:
                read_tile(counted, at, lanes, sums.spare)
                add_counts(sums.spare, i + j, sums.total)


@inline
def mask_blocks(product, patch, added, limits, band, to):
    """Store the bits count > limit of a patch, a band of blocks at a time."""
    w, places = product.w, patch.places
    whole = w.groups == 1 or w.group_lanes % WORD_BITS == 0
    for block in range(patch.first, patch.last, BLOCKS):
        near = min(BLOCKS, patch.last - block)
        count_band(product, places, patch.tiles, block, near, added.differ, band)
        stored = near // 2 * 2 if whole else 0
        for nth in range(0, stored, 2):
            pair = lanes_of(patch.group, block + nth), lanes_of(patch.group, block + nth + 1)
            _store_words(places, patch.tiles, nth, pair, added, limits, band, to)
        for i in range(patch.tiles if stored < near else 0):
            for nth in range(stored, near):
                lanes, at = lanes_of(patch.group, block + nth), i * TILE * WIDE + nth * LANES
                fixed = places.kinds[i] * limits.shape[1] + lanes.at
                mask_sums(band.sums, at, WIDE, limits, fixed, to.masks)
                put_masks(i, inverted(added), lanes, places, to)


@inline
def _store_words(places, tiles, nth, pair, added, limits, band, to):
    """Store the bits of two of a band's blocks, from the n-th on, as a whole word of each row of the result.

    Words are overwritten: `or_bits` for each block took three times as long.
    """
    words, begins = to.words, to.begins
    flips, used = flips_and_lanes(to.flip, pair[0])
    others, more = flips_and_lanes(to.flip, pair[1])
    flips, used = inverted(added) ^ flips ^ others << np.uint64(LANES), used | more << np.uint64(LANES)
    word = pair[0].channel // WORD_BITS
    for i in range(np.uint64(tiles)):
        for p in range(np.uint64(TILE)):
            begins[p] = places.rows[i, p] * words.shape[2] + word
        sums = Rows(band.sums, np.int64(i) * TILE * WIDE + nth * LANES, WIDE)
        least = Limits(limits, places.kinds[i] * limits.shape[1] + pair[0].at, flips, used)
        mask_words(sums, least, words, begins, places.sizes[i])


@inline
def value_blocks(product, patch, added, band, sums, to):
    """Store the values of a patch, a band of blocks at a time."""
    places, dots = patch.places, sums.total
    for block in range(patch.first, patch.last, BLOCKS):
        near = min(BLOCKS, patch.last - block)
        count_band(product, places, patch.tiles, block, near, added.differ, band)
        for i in range(patch.tiles):
            for nth in range(near):
                lanes, at = lanes_of(patch.group, block + nth), i * TILE * WIDE + nth * LANES
                whole, extra = place_values(i, lanes, places, to), places.kinds[i] * added.fixed.shape[1] + lanes.at
                value_sums(
                    Rows(band.sums, at, WIDE),
                    View(added.fixed, extra),
                    added.step,
                    to.values if whole else dots,
                    to.begins,
                    places.sizes[i],
                )
                for p in range(0 if whole else places.sizes[i]):
                    store_values(dots, p, 0, lanes, places.rows[i, p], to.values)
