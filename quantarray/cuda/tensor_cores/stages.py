"""Share the steps of `bmma` and `wgmma`: the order of stages, pixels' copies, sums, results.

A stage is a few words of the contraction of one pair of planes, of all pixels and channels of a tile. In each 16 pixels
by 8 channels, lane 4 * g + t has the sums of pixels g and g + 8, a side each, with channels 2t and 2t + 1. Sums
int32[rows columns sides 2] and ones int32[rows sides] are registers: loops over them have constant bounds and become
straight code, so what is read from memory once serves all rows.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda

from ..popcount import tiles
from ..runtime import isa, launch
from ..runtime.launch import LANES, inline

PIXELS, CHANNELS = 16, 8  # of the sums that a warp's registers are laid out for
WORDS = 4  # of an instruction
SIDES = 2
FULL = 128  # blocks that a grid should have, about as many as there are multiprocessors
SHORT = 16  # words of a window that are few stages


class Tile(NamedTuple):
    """Cut the work of a thread block."""

    down: int  # warps along pixels
    across: int  # warps along channels
    rows: int  # instructions along the pixels of a warp
    blocks: int  # of 32 channels of a warp
    stages: int  # of the pipeline: one is multiplied while the others are copied

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
    def small(self):
        """True if registers and shared memory let four blocks or more share a multiprocessor: up to 64 x 64."""
        return self.pixels * self.all_blocks * LANES <= 64 * 64

    @property
    def columns(self):
        """Count the columns of 8 channels of a warp."""
        return self.blocks * LANES // CHANNELS


def choose(sizes, shape, words):
    """Return the first tile that no group's channels leave half empty and that makes enough blocks; or the last.

    Windows of few words are a few stages, whose first copies nothing hides but other blocks: tiles of which fewer than
    four share a multiprocessor are left out. At 18 words that cost 15.0 us instead of 11.0 on an H200.
    `QUANTARRAY_CUDA_TILE=n` takes the n-th.
    """
    asked = isa.asked_tile(len(sizes))
    if asked is not None:
        return sizes[asked]
    for tile in sizes:
        across, down = tiles.grid(shape, tile.pixels, tile.all_blocks)
        fits = tile.all_blocks <= max(1, shape.group_blocks) and (words > SHORT or tile.small)
        if fits and across * down >= FULL:
            return tile
    return sizes[-1]


class Form(NamedTuple):
    """List what a kernel is compiled for, besides its tile."""

    words: int  # of a pixel that are copied together, 1 or 2
    dense: bool  # each window is words side by side
    single: bool  # one plane each: no pairs of planes to step through
    along: bool  # the pixels' own bits count
    planes: int  # of codes, 0 for integers
    paired: bool  # integers are stored in pairs, all of which begin at 8 bytes
    near: bool  # only rows near a channel are stored


def form_of(shape, terms, left, taps, out):
    """Return the form of a product of `conv`'s words; out uint32 [planes rows halves], int32 [rows channels], or int64
    [channels room] for what is near."""
    evenly = taps.paired and shape.image_words % 2 == shape.group_words % 2 == 0 and launch.address(left) % 16 == 0
    planes, near = out.shape[0] if out.dtype == np.uint32 else 0, out.dtype == np.int64
    paired = not planes and not near and out.shape[1] % 2 == 0 and (shape.groups == 1 or shape.group_lanes % 2 == 0)
    return Form(
        2 if evenly else 1, taps.dense, terms.planes_x == terms.planes_w == 1, terms.along != 0, planes,
        paired and launch.address(out) % 8 == 0, near,
    )  # fmt: skip


def run(make, tile, shape, terms, left, right, taps, last, out, shared=0, grid=tiles.grid):
    """Launch make(tile, form) on words as `conv` has them."""
    kernel, blocks = make(tile, form_of(shape, terms, left, taps, out)), grid(shape, tile.pixels, tile.all_blocks)
    args = shape, terms, left, right, taps.places, taps.offsets, last, out
    launch.run(kernel, blocks, (LANES, tile.warps), *args, shared=shared, tiled=True)


@inline
def next_pair(i, power, terms):
    """Return the plane of x and power of 2 of the next pair: by falling power, so that sums double where it falls."""
    i += 1
    if i > min(terms.planes_x - 1, power):
        power -= 1
        i = max(0, power - terms.planes_w + 1)
    return i, power


@inline
def place_in_fragment():
    """Return (g, t) of this lane."""
    return cuda.threadIdx.x >> 2, cuda.threadIdx.x & 3


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
