"""Products of few pixels, whose weights are read once, by 16 bytes a lane. `docs/kernels/few_rows.md` has the layout.

A thread block has all words of its channels, so that blocks need not add to each other's sums. The sums are those of
`conv`, in the type of the result: int32 ones may wrap, what is right modulo 2^32 is right.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..epilogue.finish import store_codes, store_values
from ..runtime import launch
from ..runtime.isa import FEW_ROWS, PLANES
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import ALL
from ..tensor_cores import ptx
from .tiles import OUTSIDE, locator, sum_codes

MOST = FEW_ROWS  # pixels
TOGETHER = 8  # pixels of a block: more have no registers for their sums, and another block finds the weights in L2
EACH = 2  # channels of a lane, whose words are side by side
WIDTHS = (32, 16, 8)  # channels of a block: words of 8 are two sectors of 32 bytes
ENOUGH = 256  # blocks that a grid should have, some two a multiprocessor
IN_FLIGHT = 4  # loads that a lane waits for together, unless a word has more planes


class Tile(NamedTuple):
    """Cut the work of a thread block."""

    warps: int
    pixels: int
    channels: int
    depth: int  # words of a lane that are loaded together

    @property
    def words(self):
        """Count the words that a warp loads at once."""
        return LANES * EACH // self.channels


def fits(shape, terms):
    return shape.rows <= MOST and terms.planes_w <= PLANES


def tile_for(shape, planes_w):
    """Return the tile of the widest columns that make enough blocks."""
    pixels = min(1 << (shape.rows - 1).bit_length(), TOGETHER)
    channels = next((width for width in WIDTHS if _columns(shape, width) >= ENOUGH), WIDTHS[-1])
    return Tile(8, pixels, channels, max(1, IN_FLIGHT // planes_w))


def run(shape, terms, left, right, taps, last, out):
    tile = tile_for(shape, terms.planes_w)
    kernel = _kernel(tile, terms.planes_w, taps.dense, out.dtype == np.uint32, last.extra.dtype.type)
    grid = -(-shape.rows // tile.pixels), min(_columns(shape, tile.channels), launch.MOST_ROWS)
    args = shape, terms, left, right, taps.places, taps.offsets, last, out
    launch.run(kernel, grid, (LANES, tile.warps), *args)


def _columns(shape, channels):
    return shape.groups * -(-shape.group_lanes // channels)


@cache
def _kernel(tile, planes_w, dense, codes, total):
    """Sum in `total`, the type of `extra` and of the thresholds."""
    warps, pixels, channels, depth = tile
    across, step = channels // EACH, warps * tile.words
    locate, store = locator(pixels), store_codes if codes else store_values
    load, count, gather = _loader(tile, planes_w), _counter(tile, planes_w, dense, total), _gatherer(tile)

    @launch.together(2, warps * LANES)
    def few_rows(shape, terms, left, right, places, offsets, last, out):
        begins = cuda.shared.array(pixels, np.int64)
        kinds = cuda.shared.array(pixels, np.int32)
        rows = cuda.shared.array(pixels, np.int64)
        shared = cuda.shared.array((warps, pixels, channels), total)
        weights = cuda.local.array((depth, planes_w, EACH), np.uint64)
        sums = cuda.local.array((pixels, EACH), total)
        locate(shape, places, begins, kinds, rows)
        lane, warp, length = cuda.threadIdx.x, cuda.threadIdx.y, np.int32(offsets.shape[1])
        chunks = (shape.group_lanes + channels - 1) // channels
        column = cuda.blockIdx.y
        while column < shape.groups * chunks:
            group = column // chunks
            channel = (column - group * chunks) * channels  # of the group
            at, shift = group * shape.group_blocks * LANES + channel, group * shape.group_words
            for p in range(pixels):
                for c in range(EACH):
                    sums[p, c] = 0
            word = np.int32(warp * (LANES // across) + lane // across)
            while word < length:
                load(right, terms.first_w, at + lane % across * EACH, word, length, weights)
                count(left, terms, begins, kinds, shift, offsets, word, length, weights, sums)
                word = np.int32(word + depth * step)
            gather(sums, shared)
            cuda.syncthreads()
            for p in range(warp, pixels, warps):
                ones, value = np.int64(0), total(0)
                if terms.along != 0:
                    begin = begins[p] + shift
                    ones = sum_codes(left, terms.first_x, terms.planes_x, begin, kinds[p], offsets, 0, length)
                used = lane < channels and channel + lane < shape.group_lanes
                if used:
                    for w in range(warps):
                        value += shared[w, p, lane]
                    value = last.extra[kinds[p], at + lane] + terms.along * ones + terms.step * value
                if cuda.blockIdx.x * pixels + p < shape.rows:
                    store(
                        total(value), used, last.thresholds, last.flip, last.changed, at + lane,
                        group * shape.group_lanes + channel, shape.alone and channels == LANES, out, rows[p],
                    )  # fmt: skip
            cuda.syncthreads()
            column += cuda.gridDim.y

    return few_rows


@cache
def _loader(tile, planes_w):
    depth, step = tile.depth, tile.warps * tile.words

    @inline
    def load(right, first, at, word, length, weights):
        """Load a lane's words of all planes, from word `word` on; those after the last word are 0."""
        blocks, lanes = right.shape[1], right.shape[2] * LANES
        place = (first * blocks + at // LANES) * lanes + at % LANES
        for d in range(depth):
            for j in range(planes_w):
                weights[d, j, 0], weights[d, j, 1] = np.uint64(0), np.uint64(0)
                if d * step < np.int32(length - word):
                    words = ptx.read_words(right, place + j * blocks * lanes + (word + d * step) * LANES)
                    weights[d, j, 0], weights[d, j, 1] = words[0], words[1]

    return load


@cache
def _counter(tile, planes_w, dense, total):
    pixels, depth, step = tile.pixels, tile.depth, tile.warps * tile.words

    @inline
    def count(left, terms, begins, kinds, shift, offsets, word, length, weights, sums):
        """sums[pixels channels] += 2^(i+j) |a_i & b_j| over the words of a load."""
        i, plane = np.int32(0), terms.first_x * left.shape[1] + shift
        while i < terms.planes_x:
            for d in range(depth):
                k = min(np.int32(word + d * step), np.int32(length - 1))
                for p in range(pixels):
                    offset = k if dense else offsets[kinds[p], k]
                    a = np.uint64(0)
                    if dense or offset != OUTSIDE:
                        a = ptx.read(left, plane + begins[p] + offset)
                    for c in range(EACH):
                        part = np.int32(0)
                        for j in range(planes_w):
                            part += np.int32(cuda.popc(a & weights[d, j, c])) << np.int32(j)
                        sums[p, c] += total(part) << total(i)
            i, plane = np.int32(i + 1), plane + left.shape[1]

    return count


@cache
def _gatherer(tile):
    pixels, across = tile.pixels, tile.channels // EACH

    @inline
    def gather(sums, shared):
        """Write the sums of a warp to shared[warps pixels channels]."""
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        for p in range(pixels):
            for c in range(EACH):
                value, apart = sums[p, c], 16
                while apart >= across:
                    value += cuda.shfl_xor_sync(ALL, value, apart)
                    apart >>= 1
                if lane < across:
                    shared[warp, p, lane * EACH + c] = value

    return gather
