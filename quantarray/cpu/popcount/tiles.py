"""Tiles of a product, 4 pixels of one border class by blocks of 32 output channels: place, count, schedule them."""

from typing import NamedTuple

import numpy as np

from ...core.format import RUN_PLANES, RUN_WORDS
from ..epilogue.finish import Lanes
from ..llvm.masks import popcount
from ..llvm.vectors import LANES, PAIR, TILE
from ..llvm.views import Counted, Planes, Rows, RunSpan, View
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline, inner
from ..runtime.schedule import next_task, share, workers_of
from .count_tile import count_tile, plane_counts
from .lanes import add_counts

IN_REGISTERS = plane_counts is not None  # a branch on a global is not even compiled where it is False
WORD = 0.75 if IN_REGISTERS else 1  # counting a word in units of `costs.py`


class Places(NamedTuple):
    """A batch of tiles that are worked on together."""

    origins: np.ndarray  # int64[tiles 4]: the words where their pixels begin
    rows: np.ndarray  # int64[tiles 4]: of the result
    kinds: np.ndarray  # int64[tiles]: border classes
    sizes: np.ndarray  # int64[tiles]: how many pixels count


@inner
def empty_places(tiles):
    origins, rows = np.empty((tiles, TILE), np.int64), np.empty((tiles, TILE), np.int64)
    return Places(origins, rows, np.empty(tiles, np.int64), np.empty(tiles, np.int64))


@inline
def place_tiles(plan, low, band, word, places):
    """Fill in `band` tiles from tile `low` on, whose pixels begin `word` words after the plan's."""
    place_results(plan, low, band, places)
    pixels, origin, tiles = plan.pixels, plan.origin, plan.counts.size
    filled = 0
    while filled < band:
        image, tile = (low + filled) // tiles, (low + filled) % tiles
        start, near = image * plan.image_words + word, min(band - filled, tiles - tile)
        for i in range(np.uint64(near)):
            for p in range(np.uint64(TILE)):
                pixel = np.uint64(pixels[np.uint64(tile) + i, p])
                places.origins[np.uint64(filled) + i, p] = start + origin[pixel]
        filled += near


@inline
def place_results(plan, low, band, places):
    """Fill in `band` tiles from tile `low` on, but where their pixels begin."""
    pixels, counts, classes = plan.pixels, plan.counts, plan.classes
    filled = 0
    while filled < band:
        image, tile = (low + filled) // counts.size, (low + filled) % counts.size
        row, near = image * plan.origin.size, min(band - filled, counts.size - tile)
        at, first = np.uint64(filled), np.uint64(tile)
        for i in range(np.uint64(near)):
            places.kinds[at + i], places.sizes[at + i] = classes[first + i], counts[first + i]
        for i in range(np.uint64(near)):
            for p in range(np.uint64(TILE)):
                places.rows[at + i, p] = row + pixels[first + i, p]
        filled += near


class Group(NamedTuple):
    """A group of output channels that see the same channels of x."""

    block: int  # the first of the group
    channel: int  # likewise
    channels: int


class Product(NamedTuple):
    """A product's operands, `Left` and `Right` of the contract, and the plan of its windows."""

    x: NamedTuple
    w: NamedTuple
    plan: NamedTuple


class Patch(NamedTuple):
    """A part of a result: some tiles by blocks first .. last of a group."""

    places: Places
    tiles: int
    group: Group
    first: int
    last: int


class Sums(NamedTuple):
    """A pair of tiles of sums, int32 or int64[4 32]."""

    total: np.ndarray
    spare: np.ndarray  # counts before they are added to the total
    both: np.ndarray  # [4 64]: the memory of the two, for a tile of two blocks


@inline
def lanes_of(group, block):
    lane = (block - group.block) * LANES
    return Lanes(block * LANES, group.channel + lane, min(LANES, group.channels - lane), 1)


@inline
def sum_codes(product, places, tile, run, t, ones, row):
    """ones[row, p] = sum of the codes of term t of x over the runs of a class (`run`), for the pixels p of a tile."""
    x, plan = product.x, product.plan
    for p in range(TILE):
        total = 0
        for j in range(x.terms[t, 1]):
            count, plane = 0, np.uint64(x.terms[t, 0] + j)  # unsigned: Numba checks signed indices for negative values
            for r in range(plan.first_run[run], plan.first_run[run + 1]):
                at = np.uint64(places.origins[tile, p] + plan.runs[r, 0])
                for k in range(np.uint64(plan.runs[r, 2])):
                    count += popcount(x.words[plane, at + k])
            total += count << j
        ones[row, p] = total


@inline
def count(left, origins, right, runs, differ, valid, sums):
    """sums.total[p, lane] = sum_ij 2^(i+j) |left_i & right_j| over the planes of two terms and the runs of a class.

    left and right are `Planes`, right from a block's first word on; pixels begin at the words of the view `origins`.
    Where `differ` is -1 and not 0, |left_i ^ right_j| is counted. Of lanes only the first `valid` are right. Where
    counts stay IN_REGISTERS, they are less by what `sum_halves` sums up.
    """
    for j in range(right.planes):  # a plane of weights, the longer one, stays in L1
        weights = Rows(right.words, right.at + j * right.apart, 0)
        if IN_REGISTERS:
            at_once = 1 if right.words.shape[2] > RUN_WORDS else max(1, runs.last - runs.first)
            _count_planes(Counted(left, origins, weights, runs, differ), at_once, valid, j, sums)
        else:
            column = View(right.words, weights.at)
            for i in range(left.planes):
                words = View(left.words, left.at + i * left.apart)
                if i + j == 0:
                    count_tile(words, origins, column, runs, differ, sums.total)
                else:
                    count_tile(words, origins, column, runs, differ, sums.spare)
                    add_counts(sums.spare, i + j, sums.total)


@inline
def _count_planes(all_planes, at_once, valid, j, sums):
    """Count planes of x by plane j of w, as many planes and runs at once as 32 bits hold the sums of.

    A call sums over `at_once` runs, all where they have RUN_WORDS together or else one, and over RUN_PLANES planes:
    grids of uneven levels have up to 32.
    """
    left, runs = all_planes.words, all_planes.runs
    for low in range(0, left.planes, RUN_PLANES):
        planes = Planes(left.words, left.at + low * left.apart, min(RUN_PLANES, left.planes - low), left.apart)
        for first in range(runs.first, max(runs.last, runs.first + 1), at_once):
            span = RunSpan(runs.runs, first, min(first + at_once, runs.last))
            counted = Counted(planes, all_planes.origins, all_planes.weights, span, all_planes.differ)
            if j == 0 and low == 0 and first == runs.first:
                plane_counts(counted, sums.total, valid)
            else:
                plane_counts(counted, sums.spare, valid)
                add_counts(sums.spare, low + j, sums.total)


@inline
def next_stretch(dealt, worker, starts):
    """Take (chunk of channels, first tile, last), the next task of a product for a thread; no tiles if none is left.

    Threads begin with different tiles where all have as many parts: two that wrote words of one pixel would send its
    cache line to and fro. A chunk's tasks follow each other, as some kernels keep its prepared weights.
    """
    chunks, parts = starts.shape[0], starts.shape[1] - 1
    near = parts // workers_of(dealt) if parts % workers_of(dealt) == 0 else parts
    task = next_task(dealt, worker)
    while task >= 0:
        whose, nth = task // (chunks * near), task % (chunks * near)
        chunk, part = nth // near, whose * near + nth % near
        if starts[chunk, part] < starts[chunk, part + 1]:
            return chunk, starts[chunk, part], starts[chunk, part + 1]
        task = next_task(dealt, worker)
    return -1, 0, 0


@inline
def longest(starts):
    """Return the number of tiles of the longest stretch."""
    most = 0
    for chunk in range(starts.shape[0]):
        for part in range(starts.shape[1] - 1):
            most = max(most, starts[chunk, part + 1] - starts[chunk, part])
    return most


@inline
def blocks(first, blocks, together, chunk, chunks):
    """Return (first, last) block of a chunk; `together`, 2 or 4 blocks that fill whole words, are never split."""
    low, high = share(chunk, chunks, -(-blocks // together))
    return first + low * together, first + min(blocks, high * together)


@inner
def empty_dots(like):
    """Allocate the `Sums` of a tile, of the dtype of an array."""
    both = empty_lines(2 * TILE, like.dtype)
    return Sums(both[:TILE], both[TILE:], both.reshape(TILE, PAIR))
