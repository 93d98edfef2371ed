"""Products of bits by warpgroups (`wgmma`, compute capability 9.0), for results that int32 holds.

`docs/kernels/wgmma.md` has tile and pipeline. Sums and results are those of `bmma`.
"""

from functools import cache

import numpy as np
from numba import cuda

from . import stages, tensor, tiles, warpgroup
from .descriptors import DEPTH, PATTERN, aligned, count_ones, fetcher, multiplier
from .epilogue import finisher
from .launch import LANES
from .stages import CHANNELS, SIDES, Tile, clearer, doubler, following
from .tiles import column_at, columns

TILES = (
    Tile(down=8, across=1, rows=1, blocks=8, stages=4),  # 128 pixels x 256 channels
    Tile(down=8, across=1, rows=1, blocks=4, stages=4),  # 128 x 128
    Tile(down=8, across=1, rows=1, blocks=2, stages=4),  # 128 x 64
    Tile(down=4, across=1, rows=1, blocks=1, stages=4),  # 64 x 32
)


def tile_for(shape):
    return stages.largest(TILES, shape)


def run(shape, *args):
    tile = tile_for(shape)
    stages.run(_kernel, tile, shape, *args, shared=shared_bytes(tile))


def shared_bytes(tile):
    """Of all stages, and of what may lie before the first multiple of 1024 bytes."""
    return 8 * DEPTH * tile.stages * (tile.pixels + tile.all_blocks * LANES) + PATTERN


@cache
def _kernel(tile, words, along, planes, paired):
    """A stage is multiplied, the one before it may still be; the others, `ahead` of them, are on their way."""
    depth, size, all_blocks, wide = tile.stages, tile.pixels, tile.all_blocks, tile.columns
    rows, channels, ahead = size * DEPTH, all_blocks * LANES * DEPTH, tile.stages - 2
    pending = ahead - 1
    fence_sums, collect = warpgroup.fence_sums(CHANNELS * wide), warpgroup.collect(CHANNELS * wide)
    locate, fetch, multiply = tiles.locator(size), fetcher(tile, words), multiplier(tile)
    clear, double, finish = clearer(tile), doubler(tile), finisher(tile, along, planes, paired)

    @cuda.jit
    def wgmma_tile(shape, terms, left, right, places, offsets, last, out):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        out_rows = cuda.shared.array(size, np.int64)
        held = cuda.shared.array(0, np.uint64, alignment=16)
        sums = cuda.local.array((1, wide, SIDES, 2), np.int32)
        ones = cuda.local.array((1, SIDES), np.int32)
        locate(shape, places, begins, kinds, out_rows)
        a = aligned(held)
        b = a + depth * rows
        length = offsets.shape[1]
        steps = terms.planes_x * terms.planes_w * ((length + DEPTH - 1) // DEPTH)
        column = cuda.blockIdx.y
        while column < columns(shape, all_blocks):
            group, first, end, shift = column_at(shape, all_blocks, column)
            clear(sums, ones)
            i, power, word = terms.planes_x - 1, terms.planes_x + terms.planes_w - 2, 0  # of the next fetch
            x, factor, at, stage, step = i, power, 0, 0, 0  # of the next product
            for into in range(ahead):
                if into < steps:
                    fetch(
                        left, terms.first_x + i, right, terms.first_w + power - i, offsets, begins, kinds, shift,
                        first, end, word, held, a + into * rows, b + into * channels,
                    )  # fmt: skip
                    i, power, word = following(i, power, word, terms, length, DEPTH)
                tensor.commit()
            into = ahead
            while factor >= 0:
                fence_sums(sums)
                until = factor
                while factor == until:
                    tensor.wait(pending)
                    warpgroup.fence_copies()
                    cuda.syncthreads()
                    multiply(held, a + stage * rows, b + stage * channels, length - at, sums)
                    if step + ahead < steps:
                        fetch(
                            left, terms.first_x + i, right, terms.first_w + power - i, offsets, begins, kinds, shift,
                            first, end, word, held, a + into * rows, b + into * channels,
                        )  # fmt: skip
                        i, power, word = following(i, power, word, terms, length, DEPTH)
                        into = into + 1 if into < depth - 1 else 0
                    tensor.commit()
                    if along and x == factor:
                        count_ones(held, a + stage * rows, ones)
                    x, factor, at = following(x, factor, at, terms, length, DEPTH)
                    stage = stage + 1 if stage < depth - 1 else 0
                    step += 1
                    warpgroup.wait(1)
                collect(sums)
                if factor >= 0:
                    double(sums, ones)
            cuda.syncthreads()
            finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out)
            cuda.syncthreads()
            column += cuda.gridDim.y

    return wgmma_tile
