"""The steps of `bmma`: what copies a stage, multiplies it, and makes results of the sums that lanes hold.

Of each instruction, lane 4 * g + t has the sums of pixels g and g + 8, a side each, with channels 2t and 2t + 1. Sums
int32[rows sides columns 2] and ones int32[rows sides] are registers: loops over them have constant bounds and become
straight code, so what is read from memory once serves all rows.
"""

from functools import cache

import numpy as np
from numba import cuda

from . import tensor
from .finish import store_codes, store_values
from .launch import LANES, inline
from .tiles import OUTSIDE
from .warp import ALL

PIXELS, CHANNELS, WORDS = 16, 8, 4  # of one instruction; a stage of the pipeline has as many words
SIDES = 2
PAD = 8  # words behind those of all channels: two neighbouring words of 8 channels then lie in different banks
SKEW = 8  # sums behind those of all channels: what a warp stores at once then meets by twos at most in a bank
_COLUMNS = LANES // CHANNELS  # instructions to a half-word of channels


@inline
def following(i, power, word, terms, length):
    """The next plane of x, power of 2 and word. Pairs come by falling power, so that sums double where it falls."""
    word += WORDS
    if word >= length:
        word = 0
        i += 1
        if i > min(terms.planes_x - 1, power):
            power -= 1
            i = max(0, power - terms.planes_w + 1)
    return i, power, word


@inline
def place_in_fragment():
    """(g, t) of this lane."""
    return cuda.threadIdx.x >> 2, cuda.threadIdx.x & 3


@cache
def fetcher(tile, words):
    """Begins to copy a stage, so many words of a pixel at a time; weights are copied two channels at a time."""
    size, blocks, threads = tile.pixels, tile.all_blocks, tile.warps * LANES
    runs, pairs, width = WORDS // words, blocks * LANES // 2, blocks * LANES + PAD
    all_runs, all_pairs = size * runs, WORDS * pairs
    whole = all_runs % threads == 0
    turns, weight_turns = -(-all_runs // threads), -(-all_pairs // threads)
    copy = tensor.copy_pair if words == 2 else tensor.copy_word

    @inline
    def fetch(left, i, right, j, offsets, begins, kinds, shift, first, end, word, stage, a, b):
        """Words of plane i of the tile's pixels to a[stage pixels words], 0 outside the image; weights of plane j of
        channels from block `first` on to b[stage words width], any behind the last word or block.
        """
        thread = cuda.threadIdx.y * LANES + cuda.threadIdx.x
        length, plane = offsets.shape[1], i * left.shape[1] + shift
        found = cuda.local.array(turns, np.int32)
        for turn in range(turns):  # all of them before the first copy, which none may pass
            pixel, k = (thread + turn * threads) // runs, thread % runs * words
            found[turn] = OUTSIDE
            if (whole or pixel < size) and word + k < length:
                found[turn] = tensor.read(offsets, tensor.read(kinds, pixel) * length + word + k)
        for turn in range(turns):
            pixel, k = (thread + turn * threads) // runs, thread % runs * words
            if whole or pixel < size:
                inside = found[turn] != OUTSIDE
                start = plane + tensor.read(begins, pixel) + found[turn] if inside else 0
                copy(a, (stage * size + pixel) * WORDS + swizzled(pixel, k), left, start, inside)
        last_word = right.shape[2] - 1
        for turn in range(weight_turns):
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
    size, rows, columns, across = tile.pixels, tile.rows, tile.blocks * _COLUMNS, tile.across
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
                sums[r, 0, n, 0], sums[r, 0, n, 1], sums[r, 1, n, 0], sums[r, 1, n, 1] = tensor.mma(
                    sums[r, 0, n, 0], sums[r, 0, n, 1], sums[r, 1, n, 0], sums[r, 1, n, 1],
                    x[r, 0], x[r, 1], x[r, 2], x[r, 3], b0, b1,
                )  # fmt: skip

    return multiply


@inline
def swizzled(pixel, word):
    """Where a word of a pixel's stage lies: pairs of words change places, so that 8 pixels lie in different banks."""
    return word ^ ((pixel >> 1) & 2)


@cache
def clearer(tile):
    rows, columns = tile.rows, tile.blocks * _COLUMNS

    @inline
    def clear(sums, ones):
        for r in range(rows):
            for side in range(SIDES):
                ones[r, side] = 0
                for n in range(columns):
                    for e in range(2):
                        sums[r, side, n, e] = 0

    return clear


@cache
def doubler(tile):
    rows, columns = tile.rows, tile.blocks * _COLUMNS

    @inline
    def double(sums, ones):
        for r in range(rows):
            for side in range(SIDES):
                ones[r, side] <<= 1
                for n in range(columns):
                    for e in range(2):
                        sums[r, side, n, e] <<= 1

    return double


@cache
def finisher(tile, along, codes, r=0):
    """Makes results of row r of instructions and of those below it.

    A function a row: registers have no indices that vary, and a loop over rows with all of this in it stays a loop.
    """
    if r == tile.rows:
        return _nothing
    blocks, across, size, rows = tile.blocks, tile.across, tile.pixels, tile.rows
    columns, width = blocks * _COLUMNS, blocks * LANES + SKEW
    store, finish_below = store_codes if codes else store_values, finisher(tile, along, codes, r + 1)

    @inline
    def finish(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, dot, own, out):
        """Sums go to shared memory, dot[warps pixels width] and own[warps pixels], so that lanes may be channels."""
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        g, t = place_in_fragment()
        for side in range(SIDES):
            pixel = warp * PIXELS + side * 8 + g
            if along:
                count = ones[r, side]
                count += cuda.shfl_xor_sync(ALL, count, 1)
                count += cuda.shfl_xor_sync(ALL, count, 2)
                own[pixel] = count
            for n in range(columns):
                dot[pixel * width + n * CHANNELS + 2 * t] = sums[r, side, n, 0]
                dot[pixel * width + n * CHANNELS + 2 * t + 1] = sums[r, side, n, 1]
        cuda.syncwarp()
        top, block = (warp // across * rows + r) * PIXELS, first + warp % across * blocks
        for p in range(min(PIXELS, shape.rows - cuda.blockIdx.x * size - top)):
            for c in range(min(blocks, end - block)):
                channel, lanes = (block + c - group * shape.group_blocks) * LANES, (block + c) * LANES + lane
                value = last.extra[kinds[top + p], lanes]
                value += terms.step * np.int64(dot[(warp * PIXELS + p) * width + c * LANES + lane])
                if along:
                    value += terms.along * np.int64(own[warp * PIXELS + p])
                store(
                    np.int32(value), channel + lane < shape.group_lanes, last.thresholds, last.flip, last.changed,
                    lanes, group * shape.group_lanes + channel, shape.own, out, out_rows[top + p],
                )  # fmt: skip
        cuda.syncwarp()
        finish_below(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, dot, own, out)

    return finish


@inline
def _nothing(shape, terms, last, kinds, out_rows, group, first, end, sums, ones, dot, own, out):
    pass
