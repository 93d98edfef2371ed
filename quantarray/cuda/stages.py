"""What the kernels of tensor cores, `bmma` and `wgmma`, do alike: the order of stages, pixels' copies, sums, results.

A stage is a few words of the contraction of one pair of planes, of all pixels and channels of a tile. In each 16 pixels
by 8 channels, lane 4 * g + t has the sums of pixels g and g + 8, a side each, with channels 2t and 2t + 1. Sums
int32[rows columns sides 2] and ones int32[rows sides] are registers: loops over them have constant bounds and become
straight code, so what is read from memory once serves all rows.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda

from . import launch, tensor, tiles
from .launch import LANES, inline
from .tiles import OUTSIDE

PIXELS, CHANNELS = 16, 8  # of the sums that a warp's registers are laid out for
WORDS = 4  # of an instruction
SIDES = 2
FULL = 128  # blocks that a grid should have, about as many as there are multiprocessors


class Tile(NamedTuple):
    """How the work of a thread block is cut."""

    down: int  # warps along pixels
    across: int  # warps along channels
    rows: int  # instructions along the pixels of a warp
    blocks: int  # of 32 channels of a warp
    stages: int  # of the pipeline: one is multiplied, the others are on their way

    @property
    def warps(self):
        return self.down * self.across

    @property
    def pixels(self):
        return self.down * self.rows * PIXELS

    @property
    def all_blocks(self):
        return self.across * self.blocks

    @property
    def columns(self):
        """Of 8 channels of a warp."""
        return self.blocks * LANES // CHANNELS


def largest(sizes, shape):
    """The first tile that no group's channels leave half empty and that makes enough blocks; or the last."""
    for tile in sizes:
        across, down = tiles.grid(shape, tile.pixels, tile.all_blocks)
        if tile.all_blocks <= max(1, shape.group_blocks) and across * down >= FULL:
            return tile
    return sizes[-1]


def run(make, tile, shape, terms, left, right, taps, last, out, shared=0):
    """Launch make(tile, words, along, planes, paired) on words as `conv` has them.

    Pixels' words are copied `words` at a time; `along` says whether their own bits count. out is uint32 [planes rows
    halves], or int32 [rows channels], which has no `planes` and is stored in pairs where all of them begin at 8 bytes.
    """
    evenly = taps.paired and shape.image_words % 2 == shape.group_words % 2 == 0 and launch.address(left) % 16 == 0
    planes = out.shape[0] if out.dtype == np.uint32 else 0
    paired = not planes and out.shape[1] % 2 == 0 and (shape.groups == 1 or shape.group_lanes % 2 == 0)
    paired = paired and launch.address(out) % 8 == 0
    kernel = make(tile, 2 if evenly else 1, terms.along != 0, planes, paired)
    launch.run(
        kernel, tiles.grid(shape, tile.pixels, tile.all_blocks), (LANES, tile.warps), shape, terms, left, right,
        taps.places, taps.offsets, last, out, shared=shared,
    )  # fmt: skip


@inline
def following(i, power, word, terms, length, depth):
    """The next plane of x, power of 2 and word. Pairs come by falling power, so that sums double where it falls."""
    word += depth
    if word >= length:
        word = 0
        i += 1
        if i > min(terms.planes_x - 1, power):
            power -= 1
            i = max(0, power - terms.planes_w + 1)
    return i, power, word


@inline
def place_in_fragment():
    """(g, t) of this lane."""
    return cuda.threadIdx.x >> 2, cuda.threadIdx.x & 3


@cache
def window_copier(tile, depth, words, swizzled):
    """Begins to copy `depth` words of each pixel, so many at a time; `swizzled` says where in its row a word goes."""
    size, threads, runs = tile.pixels, tile.warps * LANES, depth // words
    whole, turns = size * runs % threads == 0, -(-size * runs // threads)
    copy = tensor.copy_pair if words == 2 else tensor.copy_word

    @inline
    def fetch(left, i, offsets, begins, kinds, shift, word, a, row):
        """Words of plane i of the tile's pixels, 0 outside the image, to rows of `depth` words from a[row] on."""
        thread = cuda.threadIdx.y * LANES + cuda.threadIdx.x
        length, plane = offsets.shape[1], i * left.shape[1] + shift
        found = cuda.local.array(turns, np.int32)
        for turn in range(turns):  # all of them before the first copy, which none may pass
            pixel, k = (thread + turn * threads) // runs, thread % runs * words
            found[turn] = OUTSIDE
            if (whole or pixel < size) and word + k < length:
                found[turn] = tensor.read(offsets, tensor.read(kinds, pixel) * length + word + k)
        for turn in range(turns):
            pixel, k = (thread + turn * threads) // runs, thread % runs * words
            if whole or pixel < size:
                inside = found[turn] != OUTSIDE
                start = plane + tensor.read(begins, pixel) + found[turn] if inside else 0
                copy(a, row + pixel * depth + swizzled(pixel, k), left, start, inside)

    return fetch


@cache
def clearer(tile):
    rows, columns = tile.rows, tile.columns

    @inline
    def clear(sums, ones):
        for r in range(rows):
            for side in range(SIDES):
                ones[r, side] = 0
                for n in range(columns):
                    for e in range(2):
                        sums[r, n, side, e] = 0

    return clear


@cache
def doubler(tile):
    rows, columns = tile.rows, tile.columns

    @inline
    def double(sums, ones):
        for r in range(rows):
            for side in range(SIDES):
                ones[r, side] <<= 1
                for n in range(columns):
                    for e in range(2):
                        sums[r, n, side, e] <<= 1

    return double
