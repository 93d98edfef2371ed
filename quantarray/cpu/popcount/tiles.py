"""What both convolutions do with a tile: 4 pixels of one border class by blocks of 32 output channels."""

from typing import NamedTuple

import numpy as np

from ...core.format import RUN_PLANES, RUN_WORDS
from ..epilogue.finish import Lanes
from ..llvm.masks import popcount
from ..llvm.vectors import LANES, TILE
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline, inner
from ..runtime.schedule import next_task, share, workers_of
from .count_tile import count_tile, plane_counts
from .lanes import add_counts

IN_REGISTERS = plane_counts is not None  # a branch on a global is not even compiled where it is False
WORD = 0.75 if IN_REGISTERS else 1  # counting a word in units of `costs.py`


class Places(NamedTuple):
    """Tiles that are worked on together."""

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
    """Fill in `band` tiles from tile `low` on, whose pixels begin `word` words behind the plan's."""
    pixels, counts, classes, origin = plan.pixels, plan.counts, plan.classes, plan.origin
    done = 0
    while done < band:
        image, tile = (low + done) // counts.size, (low + done) % counts.size
        start, row, near = image * plan.image_words + word, image * origin.size, min(band - done, counts.size - tile)
        at, first = np.uint64(done), np.uint64(tile)
        for i in range(np.uint64(near)):
            places.kinds[at + i], places.sizes[at + i] = classes[first + i], counts[first + i]
        for i in range(np.uint64(near)):
            for p in range(np.uint64(TILE)):
                pixel = pixels[first + i, p]
                places.origins[at + i, p] = start + origin[np.uint64(pixel)]
                places.rows[at + i, p] = row + pixel
        done += near


class Group(NamedTuple):
    """Output channels that see the same channels of x."""

    block: int  # the first of its own
    channel: int  # likewise
    channels: int


@inline
def lanes_of(group, block):
    lane = (block - group.block) * LANES
    return Lanes(block * LANES, group.channel + lane, min(LANES, group.channels - lane), 1)


@inline
def sum_codes(words, first, planes, origins, tile, runs, start, stop, ones, t):
    """ones[t, p] = sum of the codes of a term's planes over runs start .. stop, for pixels origins[tile, p]."""
    for p in range(TILE):
        total = 0
        for j in range(planes):
            count, plane = 0, np.uint64(first + j)  # unsigned: Numba checks signed indices for negative values
            for r in range(start, stop):
                at = np.uint64(origins[tile, p] + runs[r, 0])
                for k in range(np.uint64(runs[r, 2])):
                    count += popcount(words[plane, at + k])
            total += count << j
        ones[t, p] = total


@inline
def count(
    left, i0, planes_i, origins, tile, right, j0, planes_j, block, runs, start, stop, differ, valid, counts, total
):  # fmt: skip
    """total[p, lane] = sum_ij 2^(i+j) |left_i & right_j| over the planes of two terms and runs start .. stop.

    Of the first `valid` lanes; others may be anything. The pixels begin at words origins[tile, p]. Where `differ` is -1
    and not 0, |left_i ^ right_j|. Where counts stay IN_REGISTERS, less what `sum_halves` sums up.
    """
    plane, block_size = left.shape[1], right.shape[2] * LANES
    for j in range(planes_j):  # a plane of weights, the longer one, stays in L1
        weight = ((j0 + j) * right.shape[1] + block) * block_size
        if IN_REGISTERS:
            _count_planes(
                left, i0 * plane, planes_i, plane, origins, tile, right, weight, runs, start, stop, differ, valid, j,
                counts, total,
            )  # fmt: skip
        else:
            for i in range(planes_i):
                word = (i0 + i) * plane
                if i + j == 0:
                    count_tile(left, word, origins, tile * TILE, right, weight, runs, start, stop, differ, total)
                else:
                    count_tile(left, word, origins, tile * TILE, right, weight, runs, start, stop, differ, counts)
                    add_counts(counts, i + j, total)


@inline
def _count_planes(
    left, word, planes, apart, origins, tile, right, weight, runs, start, stop, differ, valid, j, counts, total
):  # fmt: skip
    """Count planes of x by plane j of w, as many planes and runs at once as 32 bits hold the sums of.

    A call sums over all runs where they have RUN_WORDS together, or else over one, and over RUN_PLANES planes: grids of
    uneven levels have up to 32.
    """
    at_once = 1 if right.shape[2] > RUN_WORDS else max(1, stop - start)
    for low in range(0, planes, RUN_PLANES):
        near, here = min(RUN_PLANES, planes - low), word + low * apart
        for first in range(start, max(stop, start + 1), at_once):
            last = min(first + at_once, stop)
            if j == 0 and low == 0 and first == start:
                plane_counts(
                    left, here, near, apart, origins, tile * TILE, right, weight, 0, runs, first, last, differ, total,
                    valid,
                )  # fmt: skip
            else:
                plane_counts(
                    left, here, near, apart, origins, tile * TILE, right, weight, 0, runs, first, last, differ, counts,
                    valid,
                )  # fmt: skip
                add_counts(counts, low + j, total)


@inline
def next_stretch(dealt, worker, starts):
    """(chunk of channels, first tile, last): the next task of a product for a thread, of no tiles if none is left.

    Threads begin with tiles of their own where there are as many parts for each: two that wrote words of one pixel
    would send its cache line to and fro. A chunk's tasks follow each other, as some kernels keep what they made of it.
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
    """Tiles of the longest stretch."""
    most = 0
    for chunk in range(starts.shape[0]):
        for part in range(starts.shape[1] - 1):
            most = max(most, starts[chunk, part + 1] - starts[chunk, part])
    return most


@inline
def blocks(first, blocks, together, chunk, chunks):
    """The blocks of a chunk: so many `together` are shared out, 2 or 4, that is whole words."""
    low, high = share(chunk, chunks, -(-blocks // together))
    return first + low * together, first + min(blocks, high * together)


@inner
def empty_dots(like):
    """Sums of a tile, and as many of what is added to them, of the dtype of an array."""
    both = empty_lines(2 * TILE, like.dtype)
    return both[:TILE], both[TILE:]
