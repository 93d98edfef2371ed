"""Products of bits on binary tensor cores, for results that int32 holds. `docs/kernels/bmma.md` has tile and pipeline.

The sums are those of `conv`: counts of all pairs of planes and, where they are asked for, of the pixel's own bits. They
run in int32, which may wrap: what is right modulo 2^32 is right.
"""

from functools import cache

import numpy as np

from ..epilogue.tensor_cores import finisher
from ..popcount import tiles, windows
from ..popcount.tiles import column_at, columns
from ..popcount.windows import Cursor, Source, copier, seeker
from ..runtime.target import cuda
from . import fragments, ptx, stages
from .fragments import multiplier, swizzled, weight_copier, weight_seeker
from .stages import SIDES, WORDS, Tile, clearer, doubler, first_pair, joiner, next_pair, sharer

TILES = (
    Tile(2, 2, rows=4, blocks=2, stages=5, issued=175),  # 128 pixels x 128 channels
    Tile(4, 2, rows=2, blocks=2, stages=5, issued=122),  # the same of 8 warps
    Tile(4, 1, rows=2, blocks=2, stages=5, issued=140, together=4),  # 128 x 64
    Tile(4, 2, rows=1, blocks=2, stages=5, issued=107),  # 64 x 128
    Tile(2, 2, rows=2, blocks=1, stages=5, issued=103, together=5),  # 64 x 64
    Tile(4, 1, rows=1, blocks=1, stages=5, issued=97, together=7),  # 64 x 32
)


def tile_for(shape, words, pairs=1, codes=False):
    return stages.choose(TILES, shape, -(-words // WORDS), 8 * WORDS, pairs, codes)


def run(shape, terms, left, right, taps, last, out, added=None):
    tile, splits = tile_for(shape, right.shape[2], terms.planes_x * terms.planes_w, out.dtype == np.uint32)
    stages.run(_kernel, tile, splits, shape, terms, left, right, taps, last, out, added)


@cache
def _kernel(tile, form):
    """Multiply a stage while `ahead` others are being copied. See `stages.Form`."""
    depth, size, all_blocks, single = tile.stages, tile.pixels, tile.all_blocks, form.single
    rows, wide, ahead, pending = tile.rows, tile.columns, depth - 1, depth - 2
    of_pixels, of_stage = size * WORDS, size * WORDS + WORDS * fragments.width(tile)
    all_words, last_stage = depth * of_stage, ahead * of_stage
    turns, weight_turns = windows.copies(tile, WORDS, form.words), fragments.copies(tile)
    locate, seek, seek_weights = tiles.locator(size), seeker(tile, WORDS, form.words, form.dense), weight_seeker(tile)
    copy, copy_weights = copier(tile, WORDS, form.words, form.dense, swizzled), weight_copier(tile)
    multiply, clear, double = multiplier(tile, form.along), clearer(tile), doubler(tile)
    share, join, finish = sharer(form.split, WORDS), joiner(tile, form.split), finisher(tile, form)

    @stages.bounded(tile, form)
    def bmma_tile(shape, terms, left, right, places, offsets, last, out, parts):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        out_rows = cuda.shared.array(size, np.int64)
        held = cuda.shared.array(all_words, np.uint64, alignment=16)
        at, look = cuda.local.array(turns, np.int64), cuda.local.array(turns, np.int64)
        offset, weights_at = cuda.local.array(turns, np.int32), cuda.local.array(weight_turns, np.int64)
        sums = cuda.local.array((rows, wide, SIDES, 2), np.int32)
        ones = cuda.local.array((rows, SIDES), np.int32)
        locate(shape, places, begins, kinds, out_rows)
        source, cursor = Source(left, offsets, begins, kinds), Cursor(at, look, offset)
        begin, length = share(offsets.shape[1])
        pairs = 1 if single else terms.planes_x * terms.planes_w
        steps = np.int32(pairs * ((length + WORDS - 1) // WORDS))
        column = cuda.blockIdx.y
        while column < columns(shape, all_blocks):
            group, first, end, shift = column_at(shape, all_blocks, column)
            clear(sums, ones)
            i, power = first_pair(terms)  # of the next fetch
            x, factor = i, power  # of the next product
            missing, unread = length, length  # words of its pair that the next fetch, product has
            into, stage = 0, 0
            seek(source, cursor, terms.first_x + i, shift, begin)
            seek_weights(right, weights_at, terms.first_w + power - i, first, end, begin)
            step = np.int32(-ahead)
            while step < steps:
                if step >= 0:
                    ptx.wait(pending)
                    cuda.syncthreads()
                    multiply(held, stage, stage + of_pixels, single or x == factor, sums, ones)
                    stage = stage + of_stage if stage < last_stage else 0
                    if not single:
                        unread = np.int32(unread - WORDS)
                        if unread <= 0:
                            before, unread = factor, length
                            x, factor = next_pair(x, factor, terms)
                            if 0 <= factor < before:
                                double(sums, ones)
                if step + ahead < steps:
                    copy(source, cursor, missing, held, into)
                    copy_weights(right, weights_at, missing, held, into + of_pixels)
                    into = into + of_stage if into < last_stage else 0
                    missing = np.int32(missing - WORDS)
                    if not single and missing <= 0:
                        i, power = next_pair(i, power, terms)
                        missing = length
                        if power >= 0:
                            seek(source, cursor, terms.first_x + i, shift, begin)
                            seek_weights(right, weights_at, terms.first_w + power - i, first, end, begin)
                ptx.commit()
                step = np.int32(step + 1)
            if join(parts, column, sums, ones):
                finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out)
            cuda.syncthreads()
            column += cuda.gridDim.y

    return bmma_tile
