"""The steps that `wgmma` alone takes: stages of rows of 128 bytes, swizzled as descriptors say, and their products.

A row has 16 words of a pixel or of a channel. Its chunk c of 16 bytes lies where chunk c ^ (row % 8) would: then the
same chunk of 8 rows, which a product reads at once, lies in all 32 banks, as the 8 chunks of a row do.
"""

from functools import cache

import numpy as np
from numba import cuda

from . import tensor, warpgroup
from .launch import LANES, inline
from .stages import CHANNELS, PIXELS, SIDES, WORDS, place_in_fragment, window_copier

DEPTH = 16  # words of a row, and of a stage
_PARTS = DEPTH // WORDS  # products of a whole stage
_STEP = 2  # from the words of one product to those of the next in a descriptor, of 16 bytes
_HALF = LANES // 2
PATTERN = 1024  # bytes after which swizzling repeats: 8 rows
_ADDRESS = 0x3FFFF  # as much of an address as a descriptor has, in units of 16 bytes
_FIXED = 1 << 62 | PATTERN >> 4 << 32 | 1 << 16  # swizzled by 128 bytes; from 8 rows to the next 8; a field not used


@inline
def swizzled(row, word):
    """Where in its row a word lies."""
    return word ^ ((row & 7) << 1)


@inline
def aligned(held):
    """The first element at which swizzling may begin, a multiple of 1024 bytes: whatever else shared memory holds."""
    return (-tensor.address(held, 0) & (PATTERN - 1)) >> 3


@inline
def descriptor(held, at):
    """Names rows, the first of which begins at an element, to a product: PTX manual, 9.7.15.5.1.2.2."""
    return np.uint64(_FIXED | (tensor.address(held, at) & _ADDRESS) >> 4)


@cache
def fetcher(tile, words):
    """Begins to copy a stage, so many words of a pixel at a time; weights word by word.

    Products read rows of channels, `conv_weights` has rows of words: a word is all that lies together in both. A warp
    takes two words of 16 channels, which are two runs of 128 bytes there, and here, 8 channels at a time, in all banks.
    """
    blocks, warps, fetch_windows = tile.all_blocks, tile.warps, window_copier(tile, DEPTH, words, swizzled)

    @inline
    def fetch(left, i, right, j, offsets, begins, kinds, shift, first, end, word, held, row, column):
        """Words of plane i of the tile's pixels from held[row] on, 0 outside the image; weights of plane j of
        channels from block `first` on from held[column] on, any behind the last word or block.
        """
        fetch_windows(left, i, offsets, begins, kinds, shift, word, held, row)
        words_of_block, channel = right.shape[2] * LANES, cuda.threadIdx.x >> 1
        for pair in range(cuda.threadIdx.y, DEPTH // 2, warps):
            k = 2 * pair + (cuda.threadIdx.x & 1)
            start = (j * right.shape[1] + first) * words_of_block + min(word + k, right.shape[2] - 1) * LANES + channel
            to = column + channel * DEPTH + swizzled(channel, k)
            for block in range(blocks):  # the next one by an addition: multiplied out, copies cost more than products
                tensor.copy_word(held, to + 2 * block * _HALF * DEPTH, right, start, True)
                tensor.copy_word(held, to + (2 * block + 1) * _HALF * DEPTH, right, start + _HALF, True)
                start += words_of_block if first + block + 1 < end else 0

    return fetch


@cache
def multiplier(tile):
    mma = warpgroup.mma(tile.columns * CHANNELS)

    @inline
    def multiply(held, row, column, left, sums):
        """Begins the products of a stage of which `left` words or all are to be multiplied, as one group."""
        a = descriptor(held, row + cuda.threadIdx.y // 4 * (warpgroup.ROWS * DEPTH))
        b = descriptor(held, column)
        if left > DEPTH - WORDS:
            warpgroup.fence()
            for part in range(_PARTS):
                mma(sums, a + np.uint64(_STEP * part), b + np.uint64(_STEP * part))
            warpgroup.commit()
        else:  # products of zeros are left out; with a branch around each one, all of them would wait for each other
            for part in range((left + WORDS - 1) // WORDS):
                warpgroup.fence()
                mma(sums, a + np.uint64(_STEP * part), b + np.uint64(_STEP * part))
            warpgroup.commit()

    return multiply


@inline
def count_ones(held, row, ones):
    """Adds the bits of a stage of this warp's pixels: a lane those of a quarter of two rows, two of 8 chunks each.

    Which half of a chunk comes first depends on the row, so that 16 lanes read at once in all banks.
    """
    g, t = place_in_fragment()
    for side in range(SIDES):
        pixel = cuda.threadIdx.y * PIXELS + side * 8 + g
        for i in range(WORDS):
            k = 4 * t + (i ^ ((g >> 1) & 1))
            ones[0, side] += cuda.popc(tensor.read(held, row + pixel * DEPTH + swizzled(pixel, k)))
