"""Products of bits on binary tensor cores, for results that int32 holds. `docs/kernels/bmma.md` has tile and pipeline.

The sums are those of `conv`: counts of all pairs of planes and, where they are asked for, of the pixel's own bits. They
run in int32, which may wrap: what is right modulo 2^32 is right.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda

from . import launch, tensor, tiles
from .fragments import (
    CHANNELS,
    PAD,
    PIXELS,
    SIDES,
    SKEW,
    WORDS,
    clearer,
    doubler,
    fetcher,
    finisher,
    following,
    multiplier,
)
from .launch import LANES
from .tiles import column_at, columns

_FULL = 128  # blocks that a grid should have, about as many as there are multiprocessors


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


TILES = (
    Tile(down=2, across=2, rows=4, blocks=2, stages=3),  # 128 pixels x 128 channels
    Tile(down=4, across=1, rows=2, blocks=2, stages=3),  # 128 x 64
    Tile(down=4, across=1, rows=1, blocks=1, stages=4),  # 64 x 32
)


def tile_for(shape):
    """The largest tile that no group's channels leave half empty and that makes enough blocks; or the smallest."""
    for tile in TILES:
        across, down = tiles.grid(shape, tile.pixels, tile.all_blocks)
        if tile.all_blocks <= max(1, shape.group_blocks) and across * down >= _FULL:
            return tile
    return TILES[-1]


def run(shape, terms, left, right, taps, last, out):
    """Launch on words as `conv` has them; out int32 [rows channels] or uint32 [planes rows halves]."""
    tile, codes = tile_for(shape), out.dtype == np.uint32
    evenly = taps.paired and shape.image_words % 2 == shape.group_words % 2 == 0 and launch.address(left) % 16 == 0
    kernel = _kernel(tile, 2 if evenly else 1, terms.along != 0, codes)
    grid = tiles.grid(shape, tile.pixels, tile.all_blocks)
    launch.run(kernel, grid, (LANES, tile.warps), shape, terms, left, right, taps.places, taps.offsets, last, out)


@cache
def _kernel(tile, words, along, codes):
    """Pixels' words are copied `words` at a time; `along` says whether their own bits count."""
    stages, size, all_blocks = tile.stages, tile.pixels, tile.all_blocks
    rows, wide, pixels = tile.rows, tile.blocks * LANES // CHANNELS, tile.warps * PIXELS
    a_words, b_words = stages * size * WORDS, stages * WORDS * (all_blocks * LANES + PAD)
    ahead, pending, dots = stages - 1, stages - 2, pixels * (tile.blocks * LANES + SKEW)
    locate, fetch, multiply = tiles.locator(size), fetcher(tile, words), multiplier(tile, along)
    clear, double, finish = clearer(tile), doubler(tile), finisher(tile, along, codes)

    @cuda.jit
    def bmma_tile(shape, terms, left, right, places, offsets, last, out):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        out_rows = cuda.shared.array(size, np.int64)
        a = cuda.shared.array(a_words, np.uint64, alignment=16)
        b = cuda.shared.array(b_words, np.uint64, alignment=16)
        dot = cuda.shared.array(dots, np.int32)
        own = cuda.shared.array(pixels, np.int32)
        sums = cuda.local.array((rows, SIDES, wide, 2), np.int32)
        ones = cuda.local.array((rows, SIDES), np.int32)
        locate(shape, places, begins, kinds, out_rows)
        length = offsets.shape[1]
        steps = terms.planes_x * terms.planes_w * ((length + WORDS - 1) // WORDS)
        column = cuda.blockIdx.y
        while column < columns(shape, all_blocks):
            group, first, end, shift = column_at(shape, all_blocks, column)
            clear(sums, ones)
            i, power, word, into = terms.planes_x - 1, terms.planes_x + terms.planes_w - 2, 0, 0  # of the next fetch
            x, factor, at, stage = i, power, 0, 0  # of the next product
            for step in range(steps + ahead):
                if step >= ahead:
                    tensor.wait(pending)
                    cuda.syncthreads()
                if step < steps:
                    fetch(
                        left, terms.first_x + i, right, terms.first_w + power - i, offsets, begins, kinds, shift,
                        first, end, word, into, a, b,
                    )  # fmt: skip
                    i, power, word = following(i, power, word, terms, length)
                    into = into + 1 if into < ahead else 0
                tensor.commit()
                if step >= ahead:
                    multiply(a, b, stage, x == factor, sums, ones)
                    before = factor
                    x, factor, at = following(x, factor, at, terms, length)
                    stage = stage + 1 if stage < ahead else 0
                    if 0 <= factor < before:
                        double(sums, ones)
            finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, dot, own, out)
            cuda.syncthreads()
            column += cuda.gridDim.y

    return bmma_tile
