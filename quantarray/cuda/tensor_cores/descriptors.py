"""The steps that `wgmma` alone takes: stages of rows of 128 bytes, swizzled as descriptors say, and their products.

A row has 16 words of a pixel or of a channel. Its chunk c of 16 bytes is stored at place c ^ (row % 8): then the same
chunk of 8 rows, which a product reads at once, covers all 32 banks, as the 8 chunks of a row do.
"""

from functools import cache

import numpy as np

from ..runtime.launch import inline
from ..runtime.target import cuda
from . import ptx, warpgroup
from .stages import CHANNELS, PIXELS, SIDES, WORDS, place_in_fragment

DEPTH = 16  # words of a row, and of a stage
_STEP = 2  # from the words of one product to those of the next in a descriptor, of 16 bytes
PATTERN = 1024  # bytes after which swizzling repeats: 8 rows
_ADDRESS = 0x3FFFF  # as much of an address as a descriptor has, in units of 16 bytes
_FIXED_HIGH = np.uint64(1 << 62 | PATTERN >> 4 << 32)  # swizzled by 128 bytes; from 8 rows to the next 8
_FIXED_LOW = 1 << 16  # a field not used


@inline
def swizzled(row, word):
    """Return the place of a word in its row."""
    return word ^ ((row & 7) << 1)


@inline
def aligned(held):
    """Return the first element at which swizzling may begin, at a multiple of 1024 bytes of shared memory."""
    return (-ptx.address(held, 0) & (PATTERN - 1)) >> 3


@inline
def begin(held, at):
    """Return the low half of a descriptor of rows, the first of which begins at an element."""
    return np.uint32(_FIXED_LOW | (ptx.address(held, at) & _ADDRESS) >> 4)


@inline
def descriptor(low, part):
    """Name rows to the part-th product of a stage: PTX manual, 9.7.15.5.1.2.2."""
    return _FIXED_HIGH | np.uint64(np.uint32(low + np.uint32(_STEP * part)))


@cache
def _products(channels, parts):
    """Make the first products of a stage in straight code: with branches around them, they wait for each other."""
    mma = warpgroup.mma(channels)

    @inline
    def products(sums, a, b):
        warpgroup.fence()
        for part in range(parts):
            mma(sums, descriptor(a, part), descriptor(b, part))
        warpgroup.commit()

    return products


@cache
def multiplier(tile):
    one, two, three, whole = (_products(tile.columns * CHANNELS, parts + 1) for parts in range(DEPTH // WORDS))

    @inline
    def multiply(held, row, column, left, sums):
        """Start the products of a stage as one group: of its first `left` words, or of all if there are fewer."""
        a = begin(held, row + cuda.threadIdx.y // 4 * (warpgroup.ROWS * DEPTH))
        b = begin(held, column)
        if left > DEPTH - WORDS:
            whole(sums, a, b)
        elif left > 2 * WORDS:
            three(sums, a, b)
        elif left > WORDS:
            two(sums, a, b)
        else:
            one(sums, a, b)

    return multiply


@inline
def count_ones(held, row, ones):
    """Add the bits of a stage of this warp's pixels: a lane those of a quarter of two rows, two of 8 chunks each.

    Which half of a chunk comes first depends on the row, so that 16 lanes read at once in all banks.
    """
    g, t = place_in_fragment()
    for side in range(SIDES):
        pixel = cuda.threadIdx.y * PIXELS + side * 8 + g
        for i in range(WORDS):
            k = 4 * t + (i ^ ((g >> 1) & 1))
            ones[0, side] += cuda.popc(ptx.read(held, row + pixel * DEPTH + swizzled(pixel, k)))
