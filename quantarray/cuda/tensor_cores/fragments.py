"""The steps that `bmma` alone takes: the layout of a stage in shared memory, and its product by fragments."""

from functools import cache

import numpy as np

from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from . import ptx
from .stages import CHANNELS, PIXELS, SIDES, WORDS, place_in_fragment

PAD = 8  # words after those of all channels: two neighbouring words of 8 channels are then in different banks


def width(tile):
    """Count words of shared memory from a word of all channels to the next."""
    return tile.all_blocks * LANES + PAD


@inline
def swizzled(pixel, word):
    """Return the place of a word of a pixel: pairs of words change places, so that 8 pixels are in different banks."""
    return word ^ ((pixel >> 1) & 2)


def copies(tile):
    """Count the copies of weights, two channels each, a thread begins in a stage."""
    return -(-WORDS * tile.all_blocks // 2 // tile.warps)


@cache
def weight_seeker(tile):
    pairs, threads, turns = tile.all_blocks * LANES // 2, tile.warps * LANES, copies(tile)

    @inline
    def seek(right, cursor, plane, first, end, stage):
        """cursor int64[copies] to a stage of a plane of channels from block `first` on, at most end - 1."""
        for turn in range(turns):
            at = cuda.threadIdx.y * LANES + cuda.threadIdx.x + turn * threads
            k, channel = at // pairs, at % pairs * 2
            block = plane * right.shape[1] + min(first + channel // LANES, end - 1)
            cursor[turn] = (block * right.shape[2] + stage * WORDS + k) * LANES + channel % LANES

    return seek


@cache
def weight_copier(tile):
    pairs, threads, turns, row = tile.all_blocks * LANES // 2, tile.warps * LANES, copies(tile), width(tile)
    whole = WORDS * pairs % threads == 0

    @inline
    def copy(right, cursor, left, held, to):
        """Start to copy the next stage to held[to words row]; words from `left` on become 0."""
        for turn in range(turns):
            at = cuda.threadIdx.y * LANES + cuda.threadIdx.x + turn * threads
            k, channel = at // pairs, at % pairs * 2
            if whole or k < WORDS:
                ptx.copy_pair(held, to + k * row + channel, right, cursor[turn], k < left)
            cursor[turn] += WORDS * LANES

    return copy


@cache
def multiplier(tile, along):
    """Add the products of a stage to the sums, and with `along` the pixels' own bits to `ones`."""
    rows, columns, across, row = tile.rows, tile.columns, tile.across, width(tile)

    @inline
    def multiply(held, a, b, count, sums, ones):
        """Add a stage's products to `sums`: pixels' words begin at held[a], weights' at held[b]."""
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        g, t = place_in_fragment()
        x = cuda.local.array((rows, 4), np.uint32)
        pixel = warp // across * rows * PIXELS + lane % PIXELS
        a += pixel * WORDS + swizzled(pixel, lane // PIXELS * 2)
        for r in range(rows):
            x[r, 0], x[r, 1], x[r, 2], x[r, 3] = ptx.load_matrix(held, a + r * PIXELS * WORDS)
        if along and count:
            for r in range(rows):
                for i in range(4):
                    ones[r, i % SIDES] += cuda.popc(x[r, i])
        # Half-words t and 4 + t of the stage: word t // 2, and the second after it
        b = (b + (t >> 1) * row + warp % across * (columns * CHANNELS) + g) * 2 + (t & 1)
        for n in range(columns):
            b0 = ptx.read_half(held, b + n * (2 * CHANNELS))
            b1 = ptx.read_half(held, b + n * (2 * CHANNELS) + 4 * row)
            for r in range(rows):
                sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1] = ptx.mma(
                    sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1],
                    x[r, 0], x[r, 1], x[r, 2], x[r, 3], b0, b1,
                )  # fmt: skip

    return multiply
