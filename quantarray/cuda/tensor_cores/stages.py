"""Share the steps of `bmma` and `wgmma`: the order of stages, pixels' copies, sums, results.

A stage is a few words of the contraction of one pair of planes, of all pixels and channels of a tile. In each 16 pixels
by 8 channels, lane 4 * g + t has the sums of pixels g and g + 8, a side each, with channels 2t and 2t + 1. Sums
int32[rows columns sides 2] and ones int32[rows sides] are registers: loops over them have constant bounds and become
straight code, so what is read from memory once serves all rows.
"""

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from ..popcount import tiles
from ..runtime import isa, launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from . import ptx

PIXELS, CHANNELS = 16, 8  # of the sums that a warp's registers are laid out for
WORDS = 4  # of an instruction
SIDES = 2
FULL = 128  # blocks that a grid should have, about as many as there are multiprocessors
_APART, _EACH = 3.0, 1.18  # clocks from an instruction of a warp to its next, and more for each warp of its scheduler
_BYTES = 21  # of L2 that a multiprocessor reads a clock
_JOIN = 3000  # clocks for a fence, a counter and sums from L2 [derived]
_MOST_SPLITS = 8


class Tile(NamedTuple):
    """Cut the work of a thread block."""

    down: int  # warps along pixels
    across: int  # warps along channels
    rows: int  # instructions along the pixels of a warp
    blocks: int  # of 32 channels of a warp
    stages: int  # of the pipeline: one is multiplied while the others are copied
    issued: int = 100  # instructions of a warp in a stage, on sm_90a
    together: int = 2  # blocks that share a multiprocessor

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
        """Count the columns of 8 channels of a warp."""
        return self.blocks * LANES // CHANNELS

    @property
    def registers(self):
        """Count the sums of a lane, and its counts of pixels' own bits."""
        return self.rows * SIDES * (2 * self.columns + 1)

    def issued_outside(self, codes):
        """Count the instructions of a warp before and after its stages, to some 20 %."""
        of_part = 130 + 40 * min(self.blocks, 4) if codes else 0
        return 560 + 30 * self.rows * self.columns + self.rows * SIDES * -(-self.blocks // 4) * of_part


def choose(sizes, shape, stages, nbytes, pairs, codes):
    """Return the tile that a grid takes least time with, and over how many blocks the stages of each are split.

    There are `stages` of each pair of planes, with `nbytes` of a pixel or channel; `codes` says if results are codes.
    `QUANTARRAY_CUDA_TILE=n` takes the n-th tile.
    """
    asked = isa.asked_tile(len(sizes))
    sizes = sizes if asked is None else sizes[asked : asked + 1]
    return _choose(sizes, shape, stages, nbytes, pairs, codes, launch.multiprocessors())


@lru_cache(1024)
def _choose(sizes, shape, stages, nbytes, pairs, codes, count):
    choices = [(tile, splits) for splits in range(1, min(stages, _MOST_SPLITS) + 1) for tile in sizes]
    return min(choices, key=lambda choice: _clocks(*choice, shape, stages, nbytes, pairs, codes, count))


def _clocks(tile, splits, shape, stages, nbytes, pairs, codes, count):
    """Return the clocks of a launch, in which warps issue or tiles are read from L2.

    This is what `tests/support/cuda_predict.py` says, with instructions of tables. A tile is split only if all blocks
    run at once.
    """
    across, down = tiles.grid(shape, tile.pixels, tile.all_blocks)
    busiest, each = -(-across * down * splits // count), pairs * -(-stages // splits)
    if splits > 1 and busiest > tile.together:
        return math.inf
    of_warp = tile.issued_outside(codes) + each * tile.issued + (splits > 1) * 2 * splits * tile.registers
    issue = of_warp * (_APART * -(-busiest // tile.together) + _EACH * busiest * tile.warps / 4)
    read = busiest * each * nbytes * (tile.pixels + tile.all_blocks * LANES) / _BYTES
    return max(issue, read) + (splits > 1) * _JOIN


class Form(NamedTuple):
    """List what a kernel is compiled for, besides its tile."""

    words: int  # of a pixel that are copied together, 1 or 2
    dense: bool  # each window is words side by side
    single: bool  # one plane each: no pairs of planes to step through
    along: bool  # the pixels' own bits count
    planes: int  # of codes, 0 for integers
    paired: bool  # integers are stored in pairs, all of which begin at 8 bytes
    near: bool  # only rows near a channel are stored
    split: bool = False  # blocks along z share a tile: each has some of its stages
    added: object = None  # a shortcut, see `epilogue.added.Added`


def bounded(tile, form):
    """Make kernels with registers for as many blocks as a tile says, where the places of copies are few enough."""
    fits = form.single and form.words == 2 and not form.split
    return launch.together(tile.together, tile.warps * LANES) if fits else cuda.jit


class Parts(NamedTuple):
    """List what the blocks that share a tile leave to the last of them."""

    sums: object  # int32[tiles blocks registers threads]
    arrived: object  # uint32[tiles]: of which kernels leave zeros


def paired(shape, values):
    """Return True where every pair of channels of [rows channels], of 4 bytes each, begins at 8 bytes."""
    even = values.shape[1] % 2 == 0 and (shape.groups == 1 or shape.group_lanes % 2 == 0)
    return even and launch.address(values) % 8 == 0


def form_of(shape, terms, left, taps, out):
    """Return the form of a product of `conv`'s words; out uint32 [planes rows halves], int32 [rows channels], or int64
    [channels room] for what is near."""
    evenly = taps.paired and shape.image_words % 2 == shape.group_words % 2 == 0 and launch.address(left) % 16 == 0
    planes, near = out.shape[0] if out.dtype == np.uint32 else 0, out.dtype == np.int64
    return Form(
        2 if evenly else 1, taps.dense, terms.planes_x == terms.planes_w == 1, terms.along != 0, planes,
        not planes and not near and paired(shape, out), near,
    )  # fmt: skip


def run(make, tile, splits, shape, terms, left, right, taps, last, out, added=None, shared=0, grid=tiles.grid):
    """Launch make(tile, form) on words as `conv` has them; `last` is that of `added` where there is a shortcut."""
    (across, down, deep), parts = (*grid(shape, tile.pixels, tile.all_blocks), 1)[:3], 0
    split = splits > 1 and deep == 1
    if split:
        count, deep = across * shape.groups * -(-shape.group_blocks // tile.all_blocks), splits
        sums = launch.scratch((count, splits, tile.registers, tile.warps * LANES), np.int32)
        parts = Parts(sums, launch.arrivals(count))
    form = form_of(shape, terms, left, taps, out)._replace(split=split, added=added)
    kernel, blocks = make(tile, form), (across, down, deep)
    args = shape, terms, left, right, taps.places, taps.offsets, last, out, parts
    launch.run(kernel, blocks, (LANES, tile.warps), *args, shared=shared, tiled=True)


@cache
def sharer(split, depth):
    """Make share(length), which returns this block's first stage of `depth`, and how much of the length is its own."""

    @inline
    def share(length):
        if not split:
            return np.int32(0), np.int32(length)
        stages, z, count = np.int32((length + depth - 1) // depth), np.int32(cuda.blockIdx.z), np.int32(cuda.gridDim.z)
        first, end = np.int32(stages * z // count), np.int32(stages * np.int32(z + 1) // count)
        return first, np.int32(min(np.int32(end * depth), length) - first * depth)

    return share


@inline
def _whole(parts, column, sums, ones):
    return True


@cache
def joiner(tile, split):
    """Make join(parts, column, sums, ones): True in the last block of a tile, which then has the sums of all."""
    if not split:
        return _whole
    rows, columns, registers, threads = tile.rows, tile.columns, tile.registers, tile.warps * LANES

    @inline
    def join(parts, column, sums, ones):
        ended = cuda.shared.array(1, np.int32)
        number, splits = column * cuda.gridDim.x + cuda.blockIdx.x, parts.sums.shape[1]
        thread = cuda.threadIdx.y * LANES + cuda.threadIdx.x
        first = number * splits * (registers * threads) + thread
        at = first + cuda.blockIdx.z * (registers * threads)
        for r in range(rows):
            for side in range(SIDES):
                ptx.write(parts.sums, at, ones[r, side])
                at += threads
                for n in range(columns):
                    for e in range(2):
                        ptx.write(parts.sums, at, sums[r, n, side, e])
                        at += threads
        cuda.threadfence()
        cuda.syncthreads()
        if thread == 0:
            ended[0] = cuda.atomic.inc(parts.arrived, number, np.uint32(splits - 1)) == splits - 1
        cuda.syncthreads()
        if ended[0]:
            cuda.threadfence()
            for part in range(splits):
                if part != cuda.blockIdx.z:
                    at = first + part * (registers * threads)
                    for r in range(rows):
                        for side in range(SIDES):
                            ones[r, side] += ptx.read(parts.sums, at)
                            at += threads
                            for n in range(columns):
                                for e in range(2):
                                    sums[r, n, side, e] += ptx.read(parts.sums, at)
                                    at += threads
        return ended[0] != 0

    return join


@inline
def first_pair(terms):
    """Return the plane of x and power of 2 of the first pair, the highest planes."""
    return np.int32(terms.planes_x - 1), np.int32(terms.planes_x + terms.planes_w - 2)


@inline
def next_pair(i, power, terms):
    """Return those of the next pair: by falling power, so that sums double where it falls."""
    i = np.int32(i + 1)
    if i > min(np.int32(terms.planes_x - 1), power):
        power = np.int32(power - 1)
        i = max(np.int32(0), np.int32(power - np.int32(terms.planes_w - 1)))
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
