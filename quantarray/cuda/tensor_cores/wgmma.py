"""Products of bits by warpgroups (`wgmma`, compute capability 9.0), for results that int32 holds.

`docs/kernels/wgmma.md` has tile and pipeline. Sums and results are those of `bmma`.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..epilogue.tensor_cores import finisher
from ..popcount import tiles, windows
from ..popcount.tiles import column_at, columns
from ..popcount.windows import Cursor, Source, copier, seeker
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from . import bulk, ptx, stages, warpgroup
from .descriptors import DEPTH, PATTERN, aligned, count_ones, multiplier, swizzled
from .images import image
from .stages import CHANNELS, SIDES, Tile, clearer, doubler, first_pair, joiner, next_pair, sharer

TILES = (
    Tile(8, 1, rows=1, blocks=8, stages=4, issued=242, together=1),  # 128 pixels x 256 channels
    Tile(8, 1, rows=1, blocks=4, stages=5, issued=235, together=1),  # 128 x 128
    Tile(4, 1, rows=1, blocks=4, stages=3, issued=239, together=3),  # 64 x 128
    Tile(4, 1, rows=1, blocks=2, stages=3, issued=234, together=4),  # 64 x 64
    Tile(4, 1, rows=1, blocks=1, stages=4, issued=243, together=4),  # 64 x 32
)


def tile_for(shape, words, pairs=1, codes=False):
    return stages.choose(TILES, shape, -(-words // DEPTH), 8 * DEPTH, pairs, codes)


def run(shape, terms, left, right, taps, last, out, added=None, images=image):
    tile, splits = tile_for(shape, right.shape[2], terms.planes_x * terms.planes_w, out.dtype == np.uint32)
    args = shape, terms, left, images(right), taps, last, out, added
    stages.run(_kernel, tile, splits, *args, shared=shared_bytes(tile))


def shared_bytes(tile):
    """Count the bytes of all stages, and of a gap before the first multiple of 1024 bytes."""
    return 8 * DEPTH * tile.stages * (tile.pixels + tile.all_blocks * LANES) + PATTERN


class Room(NamedTuple):
    """A layout of stages in shared memory, and a barrier for each one's weights."""

    held: object  # uint64[..]
    a: object  # element at which pixels' words begin
    b: object  # and weights'
    barriers: object  # uint64[stages]


class Column(NamedTuple):
    """A column of channels, which a thread block computes at a time."""

    shift: int  # the group's first word in a pixel
    first: int  # word of a stage's image at which they begin
    nbytes: int  # of them in an image
    stage: int  # at which this block begins
    length: int  # words of the contraction that it multiplies


class Next(NamedTuple):
    """A description of the next fetch: plane of x, power of the pair, words left of the pair, and which image."""

    i: int
    power: int
    missing: int
    image: int  # word at which it begins


@cache
def _fetcher(tile, form):
    single, rows, channels = form.single, tile.pixels * DEPTH, tile.all_blocks * LANES * DEPTH
    seek, copy = seeker(tile, DEPTH, form.words, form.dense), copier(tile, DEPTH, form.words, form.dense, swizzled)

    @inline
    def begin(source, cursor, images, column, terms, i, power):
        """Move on to a pair of planes."""
        seek(source, cursor, terms.first_x + i, column.shift, column.stage)
        stages_before = (terms.first_w + power - i) * images.shape[1] + column.stage
        return Next(i, power, column.length, stages_before * images.shape[2] * DEPTH)

    @inline
    def fetch(source, cursor, images, column, terms, following, room, into):
        """Start to copy a stage to place `into`: each thread copies words of pixels, one thread all weights."""
        copy(source, cursor, following.missing, room.held, room.a + into * rows)
        if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:
            bulk.expect(room.barriers, into, column.nbytes)
            at, to = following.image + column.first, room.b + into * channels
            bulk.copy(room.held, to, images, at, column.nbytes, room.barriers, into)
        missing = np.int32(following.missing - DEPTH)
        if not single and missing <= 0:
            i, power = next_pair(following.i, following.power, terms)
            if power >= 0:
                return begin(source, cursor, images, column, terms, i, power)
        return Next(following.i, following.power, missing, following.image + images.shape[2] * DEPTH)

    return begin, fetch


@cache
def _kernel(tile, form):
    """Multiply a stage while the one before may still multiply and `ahead` others are being copied."""
    depth, size, all_blocks, single = tile.stages, tile.pixels, tile.all_blocks, form.single
    rows, channels, ahead, wide = size * DEPTH, all_blocks * LANES * DEPTH, tile.stages - 2, tile.columns
    pending, along, turns = ahead - 1, form.along, windows.copies(tile, DEPTH, form.words)
    fence_sums, collect = warpgroup.fence_sums(CHANNELS * wide), warpgroup.collect(CHANNELS * wide)
    locate, multiply, clear, double = tiles.locator(size), multiplier(tile), clearer(tile), doubler(tile)
    (begin, fetch), finish = _fetcher(tile, form), finisher(tile, form)
    share, join = sharer(form.split, DEPTH), joiner(tile, form.split)

    @stages.bounded(tile, form)
    def wgmma_tile(shape, terms, left, right, places, offsets, last, out, parts):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        out_rows = cuda.shared.array(size, np.int64)
        barriers = cuda.shared.array(depth, np.uint64)
        held = cuda.shared.array(0, np.uint64, alignment=16)
        at, look = cuda.local.array(turns, np.int64), cuda.local.array(turns, np.int64)
        offset = cuda.local.array(turns, np.int32)
        sums = cuda.local.array((1, wide, SIDES, 2), np.int32)
        ones = cuda.local.array((1, SIDES), np.int32)
        if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:
            for i in range(depth):
                bulk.start(barriers, i)
            warpgroup.fence_copies()
        locate(shape, places, begins, kinds, out_rows)  # ends with a barrier of the block
        source, cursor = Source(left, offsets, begins, kinds), Cursor(at, look, offset)
        a = aligned(held)
        room = Room(held, a, a + depth * rows, barriers)
        first_stage, length = share(offsets.shape[1])
        steps = np.int32((length + DEPTH - 1) // DEPTH)
        if not single:
            steps = np.int32(steps * terms.planes_x * terms.planes_w)
        into, stage, parity = np.int32(0), np.int32(0), np.int32(0)
        at_column = cuda.blockIdx.y
        while at_column < columns(shape, all_blocks):
            group, first, end, shift = column_at(shape, all_blocks, at_column)
            nbytes = np.int32(8 * min(channels, right.shape[2] * DEPTH - first * LANES * DEPTH))
            column = Column(shift, first * LANES * DEPTH, nbytes, first_stage, length)
            clear(sums, ones)
            x, factor = first_pair(terms)  # of the next product
            following = begin(source, cursor, right, column, terms, x, factor)
            for step in range(ahead):
                if step < steps:
                    following = fetch(source, cursor, right, column, terms, following, room, into)
                    into = np.int32(into + 1) if into < depth - 1 else np.int32(0)
                ptx.commit()
            step, left_words = np.int32(0), length
            while factor >= 0:
                fence_sums(sums)
                until = factor
                while factor == until:
                    ptx.wait(pending)
                    while not bulk.arrived(barriers, stage, parity):
                        pass
                    warpgroup.fence_copies()
                    cuda.syncthreads()
                    multiply(held, a + stage * rows, room.b + stage * channels, left_words, sums)
                    if step < np.int32(steps - ahead):
                        following = fetch(source, cursor, right, column, terms, following, room, into)
                        into = np.int32(into + 1) if into < depth - 1 else np.int32(0)
                    ptx.commit()
                    if along and (single or x == factor):
                        count_ones(held, a + stage * rows, ones)
                    stage = np.int32(stage + 1)
                    if stage == depth:
                        stage, parity = np.int32(0), np.int32(parity ^ 1)
                    step, left_words = np.int32(step + 1), np.int32(left_words - DEPTH)
                    if left_words <= 0:
                        left_words = length
                        x, factor = next_pair(x, factor, terms)
                    warpgroup.wait(1)
                collect(sums)
                if not single and factor >= 0:
                    double(sums, ones)
            cuda.syncthreads()
            if join(parts, at_column, sums, ones):
                finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, out)
            at_column += cuda.gridDim.y

    return wgmma_tile
