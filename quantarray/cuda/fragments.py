"""The steps that `bmma` alone takes: how a stage lies in shared memory, and what multiplies it by fragments."""

from functools import cache

import numpy as np
from numba import cuda

from . import tensor
from .launch import LANES, inline
from .stages import CHANNELS, PIXELS, SIDES, WORDS, place_in_fragment, window_copier

PAD = 8  # words behind those of all channels: two neighbouring words of 8 channels then lie in different banks


@inline
def swizzled(pixel, word):
    """Where a word of a pixel's stage lies: pairs of words change places, so that 8 pixels lie in different banks."""
    return word ^ ((pixel >> 1) & 2)


@cache
def fetcher(tile, words):
    """Begins to copy a stage, so many words of a pixel at a time; weights are copied two channels at a time."""
    size, blocks, threads = tile.pixels, tile.all_blocks, tile.warps * LANES
    pairs, width = blocks * LANES // 2, blocks * LANES + PAD
    all_pairs = WORDS * pairs
    turns, fetch_windows = -(-all_pairs // threads), window_copier(tile, WORDS, words, swizzled)

    @inline
    def fetch(left, i, right, j, offsets, begins, kinds, shift, first, end, word, stage, a, b):
        """Words of plane i of the tile's pixels to a[stage pixels words], 0 outside the image; weights of plane j of
        channels from block `first` on to b[stage words width], any behind the last word or block.
        """
        fetch_windows(left, i, offsets, begins, kinds, shift, word, a, stage * size * WORDS)
        thread, last_word = cuda.threadIdx.y * LANES + cuda.threadIdx.x, right.shape[2] - 1
        for turn in range(turns):
            at = thread + turn * threads
            if all_pairs % threads == 0 or at < all_pairs:
                k, channel = at // pairs, at % pairs * 2
                block = j * right.shape[1] + min(first + channel // LANES, end - 1)
                start = (block * right.shape[2] + min(word + k, last_word)) * LANES + channel % LANES
                tensor.copy_pair(b, (stage * WORDS + k) * width + channel, right, start, True)

    return fetch


@cache
def multiplier(tile, along):
    """Adds the products of a stage to the sums, and with `along` the pixels' own bits to `ones`."""
    size, rows, columns, across = tile.pixels, tile.rows, tile.columns, tile.across
    width = tile.all_blocks * LANES + PAD

    @inline
    def multiply(a, b, stage, count, sums, ones):
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        g, t = place_in_fragment()
        x = cuda.local.array((rows, 4), np.uint32)
        for r in range(rows):
            pixel = (warp // across * rows + r) * PIXELS + lane % PIXELS
            at = (stage * size + pixel) * WORDS + swizzled(pixel, lane // PIXELS * 2)
            x[r, 0], x[r, 1], x[r, 2], x[r, 3] = tensor.load_matrix(a, at)
        if along and count:
            for r in range(rows):
                for i in range(4):
                    ones[r, i % SIDES] += cuda.popc(x[r, i])
        # Half-words t and 4 + t of the stage: word t // 2, and the second behind it
        at = ((stage * WORDS + (t >> 1)) * width + warp % across * (columns * CHANNELS) + g) * 2 + (t & 1)
        for n in range(columns):
            b0 = tensor.read_half(b, at + n * (2 * CHANNELS))
            b1 = tensor.read_half(b, at + n * (2 * CHANNELS) + 4 * width)
            for r in range(rows):
                sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1] = tensor.mma(
                    sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1],
                    x[r, 0], x[r, 1], x[r, 2], x[r, 3], b0, b1,
                )  # fmt: skip

    return multiply
