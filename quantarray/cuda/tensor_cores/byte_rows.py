"""The steps that `imma` alone takes: codes become rows of bytes in shared memory, and these are multiplied.

A row has 128 bytes of the contraction for a pixel or a channel, swizzled as those of `descriptors`; a part of it is
what an instruction multiplies. Bits of a word become bytes in the order of its transposed bits, byte 8 * j + i of bit
8 * i + j, on both sides: so all codes of a word are made at once, by exchanges of bits between 8 registers.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..popcount.tiles import OUTSIDE
from ..popcount.windows import copies, seeker
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from . import ptx
from .descriptors import swizzled
from .stages import CHANNELS, PIXELS

ROW = 16  # words of 64 bits
WORDS = 2  # words of each plane that become a row
PART = 32  # bytes
PARTS = 4  # of a row
PLANES = 8  # that a byte holds
FOUR, FOURS = 4, 4  # bytes of an image that are read together, and how many of these are written together


@inline
def chunk(to, row, k):
    """Return the place of word k of a row of those that begin at `to`; that of k ^ n is this one ^ n.

    The compiler would keep each place in a register; what changes with `to` is computed when it is needed.
    """
    return np.int32(to + row * ROW + swizzled(row, k))


@inline
def mine():
    """Return (row, which half of it) of this thread's first piece of a pixel."""
    thread = np.int32(cuda.threadIdx.y * LANES + cuda.threadIdx.x)
    return np.int32(thread // WORDS), np.int32(thread % WORDS)


def _exchanger(distance, mask, planes):
    """Swap the bits of pairs of registers where the mask, of 32 bits, has none, as far as registers have bits."""
    low, shift = np.uint64(mask << 32 | mask), np.uint64(distance)

    @inline
    def exchange(registers):
        for p in range(PLANES):
            if p & distance == 0 and p & -distance < planes:
                one, other = registers[p], registers[p + distance]
                if (p + distance) & -distance < planes:
                    registers[p] = ptx.merge(mask, one, other << shift)
                    registers[p + distance] = ptx.merge(mask, one >> shift, other)
                else:
                    registers[p], registers[p + distance] = one & low, (one >> shift) & low

    return exchange


@cache
def _code_writer(planes):
    by_ones, by_twos = _exchanger(1, 0x55555555, planes), _exchanger(2, 0x33333333, planes)
    by_fours = _exchanger(4, 0x0F0F0F0F, planes)

    @inline
    def write(words, turn, held, to, row, k):
        """Write the codes of words[turn, planes] as the k-th 64 bytes of a row of those that begin at held[to]."""
        registers = cuda.local.array(PLANES, np.uint64)
        for p in range(planes):
            registers[p] = words[turn, p]
        by_ones(registers)
        by_twos(registers)
        by_fours(registers)
        at = chunk(to, row, PLANES * k)
        for i in range(0, PLANES, 2):
            ptx.write_words(held, at ^ i, registers[i], registers[i + 1])

    return write


class Packed(NamedTuple):
    """Take pixels that are packed. A thread expands a word of each plane, for one row or for several."""

    planes: int

    def parts_of(self):
        """Make the count of the parts of a window's rows."""
        return inline(lambda offsets: 2 * offsets.shape[1])

    def steps(self, tile, dense, along):
        """Make seek, which moves a `Cursor` to a stage; read, which reads the next ones; and put."""
        planes, size, (turns, step) = self.planes, tile.pixels, shares(tile)
        write = _code_writer(planes)

        @inline
        def read(source, cursor, left, words):
            """words[turn, planes] = the next words of `left` parts, or 0 outside the image."""
            k, apart = mine()[1], source.words.shape[1]
            for turn in range(turns):
                at, inside = cursor.at[turn], np.int32(2 * k) < left
                if dense:
                    cursor.at[turn] += WORDS
                else:
                    inside = cursor.offset[turn] != OUTSIDE
                    at += cursor.offset[turn] if inside else 0
                    more = np.int32(2 * k + 2 * WORDS) < left
                    cursor.offset[turn] = ptx.read(source.offsets, cursor.look[turn]) if more else OUTSIDE
                    cursor.look[turn] += WORDS
                for p in range(planes):
                    words[turn, p] = ptx.read(source.words, at) if inside else np.uint64(0)
                    at = ptx.plus(at, apart)

        @inline
        def put(words, held, to, left, totals):
            """Write rows to held[to] on, and with `along` add the codes of each to totals[turn]."""
            pixel, k = mine()
            for turn in range(turns):
                if along:
                    for p in range(planes):
                        totals[turn] += np.int32(np.int32(cuda.popc(words[turn, p])) << p)
                if pixel + turn * step < size:
                    write(words, turn, held, to, pixel + turn * step, k)

        return seeker(tile, WORDS, 1, dense), read, put


class Raw(NamedTuple):
    """Take pixels that are bytes: a window's, in fours. Offsets has each first one's place, then masks by class."""

    flip: int  # 128 where bytes have a sign: their codes are 128 more
    skew: int  # bytes from a multiple of 4 to where the array begins

    @property
    def planes(self):
        return PLANES  # words of a row that a thread reads

    def parts_of(self):
        return inline(lambda offsets: offsets.shape[1] // (PART // FOUR))

    def steps(self, tile, dense, along):
        """Make the steps of `Packed`: a thread reads every other 16 bytes of a row."""
        flip, skew, size, (turns, step) = np.uint32(self.flip * 0x01010101), self.skew, tile.pixels, shares(tile)

        @inline
        def seek(source, cursor, plane, shift, stage):
            """Move the cursor: `at` to the window, `offset` to a column of the table, `look` to the class' masks."""
            pixel, k = mine()
            column = k * FOURS + stage * (2 * FOURS * PARTS)
            for turn in range(turns):
                p = min(pixel + turn * step, size - 1)
                cursor.at[turn] = ptx.read(source.begins, p) + shift
                cursor.offset[turn] = column
                cursor.look[turn] = (1 + ptx.read(source.kinds, p)) * source.offsets.shape[1] + column

        @inline
        def read_four(source, at, column, look):
            """Return four bytes, 0 outside the image, from one or two words: of those that have a byte inside."""
            mask = np.uint32(ptx.read(source.offsets, look))
            at += ptx.read(source.offsets, column)
            skip = (at + skew) & (FOUR - 1)
            bits = np.uint64(8 * skip)
            wanted, both = np.uint64(mask) << bits, np.uint64(0)
            if wanted & np.uint64(0xFFFFFFFF) != 0:
                both = np.uint64(ptx.read_bytes4(source.words, at - skip))
            if wanted >> np.uint64(32) != 0:
                both |= np.uint64(ptx.read_bytes4(source.words, at - skip + FOUR)) << np.uint64(32)
            return (np.uint32((both >> bits) & np.uint64(0xFFFFFFFF)) ^ flip) & mask

        @inline
        def read(source, cursor, left, words):
            for turn in range(turns):
                at = cursor.at[turn]
                for i in range(PARTS):
                    if i < left:
                        column, look = cursor.offset[turn] + 2 * FOURS * i, cursor.look[turn] + 2 * FOURS * i
                        for half in range(2):
                            low = read_four(source, at, column + 2 * half, look + 2 * half)
                            high = read_four(source, at, column + 2 * half + 1, look + 2 * half + 1)
                            words[turn, 2 * i + half] = np.uint64(low) | np.uint64(high) << np.uint64(32)
                cursor.offset[turn] += 2 * FOURS * PARTS
                cursor.look[turn] += 2 * FOURS * PARTS

        @inline
        def put(words, held, to, left, totals):
            pixel, k = mine()
            for turn in range(turns):
                row = pixel + turn * step
                for i in range(PARTS):
                    if i < left:
                        low, high = words[turn, 2 * i], words[turn, 2 * i + 1]
                        if along:
                            totals[turn] = _add_eight(_add_eight(totals[turn], low), high)
                        if row < size:
                            ptx.write_words(held, chunk(to, row, 2 * k) ^ (4 * i), low, high)

        return seek, read, put


def shares(tile):
    """(rows of pixels that a thread writes, rows from one to the next)."""
    return copies(tile, WORDS, 1), tile.warps * LANES // WORDS


@inline
def _add_eight(total, codes):
    low, high = np.uint32(codes & np.uint64(0xFFFFFFFF)), np.uint32(codes >> np.uint64(32))
    return ptx.add_bytes(ptx.add_bytes(total, low), high)


def weight_turns(tile):
    """Count the halves of rows of channels that a thread writes."""
    return -(-tile.all_blocks * WORDS // tile.warps)


@cache
def weight_steps(tile, planes):
    """Make seek, read and put of the weights of so many planes: neighbouring threads have neighbouring channels."""
    channels, threads, turns = tile.all_blocks * LANES, tile.warps * LANES, weight_turns(tile)
    write = _code_writer(planes)

    @inline
    def share(turn):
        """Return (channel, which half of its row) of this thread's piece."""
        at = np.uint32(cuda.threadIdx.y * LANES + cuda.threadIdx.x + turn * threads)
        return np.int32(at % np.uint32(channels)), np.int32(at // np.uint32(channels))

    @inline
    def seek(right, cursor, plane, first, end, stage):
        """cursor int64[turns] to a stage of channels from block `first` on, at most end - 1."""
        for turn in range(turns):
            channel, k = share(turn)
            block = plane * right.shape[1] + min(first + channel // LANES, end - 1)
            cursor[turn] = (block * right.shape[2] + stage * WORDS + k) * LANES + channel % LANES

    @inline
    def read(right, cursor, apart, left, words):
        """words[turn, planes] = the next words of `left` parts; planes are `apart`."""
        for turn in range(turns):
            k, at = share(turn)[1], cursor[turn]
            inside = k < WORDS and np.int32(2 * k) < left
            for p in range(planes):
                words[turn, p] = ptx.read(right, at) if inside else np.uint64(0)
                at = ptx.plus(at, apart)
            cursor[turn] += WORDS * LANES

    @inline
    def put(words, held, to):
        for turn in range(turns):
            channel, k = share(turn)
            if k < WORDS:
                write(words, turn, held, to, channel, k)

    return seek, read, put


@cache
def multiplier(tile, parts):
    multiply_part = _part_multiplier(tile)

    @inline
    def multiply(held, a, b, left, sums):
        """Add products of some of `left` parts to `sums`: of pixels' rows from held[a] on, channels' from held[b]."""
        for part in parts:
            if part < left:
                multiply_part(held, a, b, part, sums)

    return multiply


def _part_multiplier(tile):
    rows, columns, across = tile.rows, tile.columns, tile.across

    @inline
    def multiply(held, a, b, part, sums):
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        x = cuda.local.array((rows, 4), np.uint32)
        # Lanes 8m on name the rows of matrix m: of pixels 0 and 8, then 0 and 8 in the part's other half
        pixel, half = warp // across * rows * PIXELS + lane % PIXELS, lane // PIXELS
        a = chunk(a, pixel, 2 * half) ^ (4 * part)
        for r in range(rows):
            x[r, 0], x[r, 1], x[r, 2], x[r, 3] = ptx.load_matrix(held, a + r * PIXELS * ROW)
        # Both halves of channels 0, then of channels 8
        channel, half = warp % across * columns * CHANNELS + lane // PIXELS * CHANNELS + lane % CHANNELS, lane // 8 % 2
        b = chunk(b, channel, 2 * half) ^ (4 * part)
        for pair in range(columns // 2):
            y = ptx.load_matrix(held, b + pair * (2 * CHANNELS * ROW))
            for r in range(rows):
                n = 2 * pair
                sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1] = ptx.mma_bytes(
                    sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1],
                    x[r, 0], x[r, 1], x[r, 2], x[r, 3], y[0], y[1],
                )  # fmt: skip
                n = 2 * pair + 1
                sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1] = ptx.mma_bytes(
                    sums[r, n, 0, 0], sums[r, n, 0, 1], sums[r, n, 1, 0], sums[r, n, 1, 1],
                    x[r, 0], x[r, 1], x[r, 2], x[r, 3], y[2], y[3],
                )  # fmt: skip

    return multiply
