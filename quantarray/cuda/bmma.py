"""Products of bits on binary tensor cores, for results that int32 holds. `docs/kernels/bmma.md` has tile and pipeline.

The sums are those of `conv`: counts of all pairs of planes and, where they are asked for, of the pixel's own bits. They
run in int32, which may wrap: what is right modulo 2^32 is right.
"""

from functools import cache

import numpy as np
from numba import cuda

from . import stages, tensor, tiles
from .epilogue import finisher
from .fragments import PAD, fetcher, multiplier
from .launch import LANES
from .stages import SIDES, WORDS, Tile, clearer, doubler, following
from .tiles import column_at, columns

TILES = (
    Tile(down=2, across=2, rows=4, blocks=2, stages=3),  # 128 pixels x 128 channels
    Tile(down=4, across=1, rows=2, blocks=2, stages=3),  # 128 x 64
    Tile(down=4, across=1, rows=1, blocks=1, stages=4),  # 64 x 32
)


def tile_for(shape):
    return stages.largest(TILES, shape)


def run(shape, *args):
    stages.run(_kernel, tile_for(shape), shape, *args)


@cache
def _kernel(tile, words, along, planes, paired):
    depth, size, all_blocks = tile.stages, tile.pixels, tile.all_blocks
    rows, wide = tile.rows, tile.columns
    a_words, b_words = depth * size * WORDS, depth * WORDS * (all_blocks * LANES + PAD)
    ahead, pending = depth - 1, depth - 2
    locate, fetch, multiply = tiles.locator(size), fetcher(tile, words), multiplier(tile, along)
    clear, double, finish = clearer(tile), doubler(tile), finisher(tile, along, planes, paired)

    @cuda.jit
    def bmma_tile(shape, terms, left, right, places, offsets, last, out):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        out_rows = cuda.shared.array(size, np.int64)
        a = cuda.shared.array(a_words, np.uint64, alignment=16)
        b = cuda.shared.array(b_words, np.uint64, alignment=16)
        sums = cuda.local.array((rows, wide, SIDES, 2), np.int32)
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
                    i, power, word = following(i, power, word, terms, length, WORDS)
                    into = into + 1 if into < ahead else 0
                tensor.commit()
                if step >= ahead:
                    multiply(a, b, stage, x == factor, sums, ones)
                    before = factor
                    x, factor, at = following(x, factor, at, terms, length, WORDS)
                    stage = stage + 1 if stage < ahead else 0
                    if 0 <= factor < before:
                        double(sums, ones)
            finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out)
            cuda.syncthreads()
            column += cuda.gridDim.y

    return bmma_tile
