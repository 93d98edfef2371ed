"""Products of bytes on tensor cores, for results that int32 holds. `docs/kernels/imma.md` has tile and pipeline.

Codes of 1 to 8 bits of either side become bytes on their way to shared memory. The sums are those of `bmma`, in one
pass instead of one for each pair of planes. They may wrap: what is right modulo 2^32 is right.
"""

from functools import cache

import numpy as np

from ..epilogue.tensor_cores import finisher
from ..popcount import tiles, windows
from ..popcount.tiles import column_at, columns
from ..popcount.windows import Cursor, Source
from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import ALL
from . import byte_rows, ptx, stages
from .byte_rows import PARTS, ROW, WORDS, Packed, Raw, multiplier, weight_steps
from .stages import PIXELS, SIDES, Tile, clearer, joiner, place_in_fragment, sharer

TILES = (
    Tile(4, 2, rows=2, blocks=2, stages=2, issued=460),  # 128 pixels x 128 channels
    Tile(4, 1, rows=2, blocks=2, stages=2, issued=680),  # 128 x 64
    Tile(2, 2, rows=2, blocks=1, stages=2, issued=430, together=4),  # 64 x 64
    Tile(4, 1, rows=1, blocks=1, stages=2, issued=410, together=5),  # 64 x 32
)
MOST_TOGETHER = 10  # planes of both sides with which registers of two large tiles fit a multiprocessor


def tile_for(shape, words, pairs=1, codes=False):
    return stages.choose(TILES, shape, -(-words // WORDS), 8 * WORDS, pairs, codes)


def run(shape, terms, left, right, *args):
    """Multiply packed pixels, of at most 8 planes, as `conv` has them."""
    _run(Packed(terms.planes_x), shape, terms, left, right, *args)


def run_bytes(signed, shape, terms, left, *args):
    """Multiply pixels that are bytes uint8[1, bytes], the memory of int8 where `signed`; see `Raw` for the offsets."""
    _run(Raw(128 if signed else 0, launch.address(left) % byte_rows.FOUR), shape, terms, left, *args)


def _run(pixels, shape, terms, left, right, taps, last, out, added=None):
    def make(tile, form):
        return _kernel(tile, form._replace(words=1, single=False), pixels, terms.planes_w)

    tile, splits = tile_for(shape, right.shape[2], 1, out.dtype == np.uint32)
    args = shape, terms, left, right, taps, last, out, added
    stages.run(make, tile, splits, *args, shared=shared_bytes(tile), grid=tiles.whole_grid)


def shared_bytes(tile):
    return 8 * ROW * tile.stages * (tile.pixels + tile.all_blocks * LANES)


@cache
def _kernel(tile, form, pixels, planes_w):
    """Multiply a stage while words of the next one are on their way to registers, pixels' first, then weights'."""
    size, of_pixels, of_stage = tile.pixels, tile.pixels * ROW, (tile.pixels + tile.all_blocks * LANES) * ROW
    rows, wide, all_blocks, along, planes_x = tile.rows, tile.columns, tile.all_blocks, form.along, pixels.planes
    turns, weight_turns = byte_rows.shares(tile)[0], byte_rows.weight_turns(tile)
    locate, clear, parts_of = tiles.locator(size), clearer(tile), pixels.parts_of()
    multiply, multiply_rest = multiplier(tile, (0, 1)), multiplier(tile, (2, 3))
    seek, read, put = pixels.steps(tile, form.dense, along)
    seek_weights, read_weights, put_weights = weight_steps(tile, planes_w)
    share_codes, finish = _code_sharer(tile), finisher(tile, form)
    share, join, split = sharer(form.split, PARTS), joiner(tile, form.split), form.split

    @launch.together(2 if planes_x + planes_w <= MOST_TOGETHER else 1, tile.warps * LANES)
    def imma_tile(shape, terms, left, right, places, offsets, last, out, parts):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        out_rows = cuda.shared.array(size, np.int64)
        codes = cuda.shared.array(size, np.int32)
        held = cuda.shared.array(0, np.uint64, alignment=16)
        at, weights_at = cuda.local.array(turns, np.int64), cuda.local.array(weight_turns, np.int64)
        offset, look = cuda.local.array(turns, np.int32), cuda.local.array(turns, np.int32)
        words = cuda.local.array((turns, planes_x), np.uint64)
        weights = cuda.local.array((weight_turns, planes_w), np.uint64)
        totals = cuda.local.array(turns, np.int32)
        sums = cuda.local.array((rows, wide, SIDES, 2), np.int32)
        ones = cuda.local.array((rows, SIDES), np.int32)
        locate(shape, places, begins, kinds, out_rows)
        source, cursor = Source(left, offsets, begins, kinds), Cursor(at, look, offset)
        apart = ptx.plus(right.shape[1] * right.shape[2] * LANES, 0)
        column = cuda.blockIdx.y if split else cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y
        if column < columns(shape, all_blocks):  # no loop: what one computes before it takes registers of the products
            group, first, end, shift = column_at(shape, all_blocks, column)
            clear(sums, ones)
            for turn in range(turns):
                totals[turn] = 0
            begin, missing = share(parts_of(offsets))
            here, stage = np.int32(0), np.int32(0)
            seek(source, cursor, terms.first_x, shift, begin)
            seek_weights(right, weights_at, terms.first_w, first, end, begin)
            while missing > 0 or here > 0:
                after = np.int32(of_stage - stage)
                if missing > 0:
                    read(source, cursor, missing, words)
                multiply(held, stage, stage + of_pixels, here, sums)
                if missing > 0:
                    put(words, held, after, missing, totals)
                    read_weights(right, weights_at, apart, missing, weights)
                multiply_rest(held, stage, stage + of_pixels, here, sums)
                if missing > 0:
                    put_weights(weights, held, after + of_pixels)
                cuda.syncthreads()
                stage = after
                here, missing = missing, np.int32(missing - PARTS)
            if along:
                share_codes(totals, codes, ones)
            if join(parts, column, sums, ones):
                finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out)

    return imma_tile


@cache
def _code_sharer(tile):
    """Make the sums of pixels' codes, which two threads of a warp have, those of the lanes that have their products."""
    size, rows, across, (turns, step) = tile.pixels, tile.rows, tile.across, byte_rows.shares(tile)

    @inline
    def share(totals, codes, ones):
        pixel, k = windows.place(WORDS, 1)
        for turn in range(turns):
            total = totals[turn] + cuda.shfl_xor_sync(ALL, totals[turn], 1)
            if k == 0 and pixel + turn * step < size:
                codes[pixel + turn * step] = total
        cuda.syncthreads()
        g, t = place_in_fragment()
        for r in range(rows):
            for side in range(SIDES):
                pixel = (cuda.threadIdx.y // across * rows + r) * PIXELS + side * 8 + g
                ones[r, side] = codes[pixel] if t == 0 else 0  # `finish` adds those of the four lanes of a pixel

    return share
