"""Products of rows of int8 and packed weights, whose words are read once for each eight rows and laid out by nobody.

Weights of one bit are looked up in tables (`bit_rows`), others become bytes (`group_rows`, `tall_rows`).
"""

import numpy as np

from ...core.format import empty_lines
from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .bit_rows import ENTRIES, ENTRY, HAS_TABLES, LONGEST, OUTPUTS, ROOM, WORDS, laid_out, look_up_rows, make_tables
from .group_bytes import BYTES, LANES, place_in_group, put_in_order
from .group_rows import MOST_ROWS, SHORT, add_lanes, dot_byte_rows
from .tall_rows import HAS_TALL, TALL, dot_tall_rows

_LEAST = 1 << 17  # products that are worth a parallel region
_AT_ONCE = 512  # outputs: a multiple of LANES
_VECTORS = 256  # of sums of a row that wait to be added, 16 KiB: a multiple of LANES
_IN_L1 = 1 << 11  # words, 16 KiB
_IN_CACHE = 1 << 15  # words, 256 KiB, that many rows meet
_WORTH_TABLES = 1 << 12  # outputs
_NOTHING = np.float32(0)  # that makes 0 of -0
_UNIT, _WORDS = 32, 8  # elements of a lane in a block, and words of a plane there


def byte_row_product(codes, scales, words, first, apart, by, offset, out):
    """Multiply; words [planes outputs words] may be some rows of an array's."""
    if not out.size:
        return
    planes, outputs, length = words.shape
    settings = np.int64(first), np.int64(apart)
    if not words[0].flags.c_contiguous:
        words = np.ascontiguousarray(words)
    looked_up, inside = 0, max(0, _inside(outputs, length))
    whole = length % WORDS == 0 and length <= LONGEST
    if HAS_TABLES and len(codes) == planes == 1 and whole and outputs >= _WORTH_TABLES:
        looked_up = inside = outputs // OUTPUTS * OUTPUTS
    for begin, end, run in ((0, looked_up, _by_tables), (looked_up, inside, _by_bytes), (inside, outputs, _padded)):
        for some, height in _tiles(len(codes), length) if begin < end else ():
            direct = end - begin == outputs
            to = out[some] if direct else np.empty((some.stop - some.start, end - begin), np.float32)
            totals = np.empty(len(to), np.int64)
            values = totals, scales[some], *settings, by[begin:end], offset[begin:end], to
            run(codes[some], height, words[:, begin:end], values)
            if not direct:
                out[some, begin:end] = to


def _tiles(rows, length):
    """Yield (rows, how many at once) of which kernels take as many: all in tall tiles, but up to four at the end."""
    rest = rows % TALL if rows % TALL <= MOST_ROWS else 0
    tall = rows - rest if HAS_TALL and length not in SHORT else 0
    if tall:
        yield slice(0, tall), TALL
    for row in range(tall, rows, MOST_ROWS):
        yield slice(row, min(row + MOST_ROWS, rows)), 1


def _together(length):
    """Return how many outputs of `length` words are in a block."""
    return _WORDS // length if length in SHORT else 1


def _inside(outputs, length):
    """Return how many outputs are in blocks of which none ends after the words."""
    together = _together(length)
    return outputs // together * together if together > 1 or length >= _WORDS else outputs - -(-_WORDS // length) + 1


def _by_tables(codes, height, words, values):
    _, outputs, length = words.shape
    tables = np.empty(length * ENTRIES, ENTRY)
    threads.run(make_tables, (codes, values[0], tables), 1, 1)
    arguments = tables, words[0].reshape(-1), length, *values
    threads.run(_look_up, arguments, outputs // OUTPUTS, threads.workers(codes.size * outputs, _LEAST))


def _by_bytes(codes, height, words, values):
    (rows, k), (planes, outputs, length) = codes.shape, words.shape
    blocks, tiles = -(-length // _WORDS), -(-rows // height)
    x = empty_lines((tiles, blocks * _WORDS * height * BYTES), np.dtype(np.int8))
    threads.run(_order, (codes, length, height, values[0], x), tiles, threads.workers(codes.size, _LEAST))
    between, together = words.strides[0] // words.itemsize, _together(length)
    of_words, workers = (words[0].reshape(-1), between, planes, length), threads.workers(rows * k * outputs, _LEAST)
    if height == TALL:
        threads.run(_count_tall, (x, *of_words, *values), outputs, workers)
    else:
        threads.run(_count, (x.reshape(-1), blocks, *of_words, together, *values), outputs // together, workers)


def _padded(codes, height, words, values):
    """Multiply by a copy of words, with zeros up to a block of each output."""
    planes, outputs, length = words.shape
    padded = np.zeros((planes, outputs, max(length, _WORDS)), words.dtype)
    padded[:, :, :length] = words
    _by_bytes(codes, height, padded, values)


@Kernel
def _order(codes, length, height, totals, x, first, last):
    prefer_wide()
    put_rows_in_order(codes, length, height, totals, x, first, last)


@inner
def put_rows_in_order(codes, length, height, totals, x, first, last):
    """Sum rows, and put their bytes in the order of `spread`, zeros in the last block for words of the one before.

    Vectors of `height` rows are one after another: the same place of rows of 4 KiB would be one set of L1.
    """
    blocks, period = -(-length // _WORDS), length * 64 if length in SHORT else _WORDS * 64
    for tile in range(first, last):
        x[tile] = 0
        for row in range(tile * height, min((tile + 1) * height, len(codes))):
            totals[row] = codes[row].sum()
            for block in range(blocks):
                begin, done = max(0, min(block * _WORDS, length - _WORDS)) * 64, block * _WORDS * 64
                at = (block * _WORDS * height + row % height) * BYTES
                if begin == done and done + _WORDS * 64 <= codes.shape[1]:
                    put_in_order(codes[row, begin:], _UNIT, LANES, x[tile, at:], height * BYTES)
                    continue
                for lane in range(LANES):
                    start = begin + lane * _UNIT % period
                    if start >= done:
                        for element in range(min(_UNIT, codes.shape[1] - start)):
                            place = lane * 4 + place_in_group(_UNIT, element, height * BYTES)
                            x[tile, at + place] = codes[row, start + element]


@Kernel
def _count(
    x, blocks, words, between, planes, length, together, totals, scales, lowest, apart, by, offset, out, first, last
):
    """Multiply the outputs of some blocks, or of some rows of more words, whose lanes of sums stay in a cache."""
    prefer_wide()
    rows = len(totals)
    width, at_once = LANES // together, _VECTORS * together  # lanes of an output, and outputs
    lanes, outputs, out = np.empty(rows * _VECTORS * LANES, np.int32), out.shape[1], out.reshape(-1)
    for at in range(first * together, last * together, at_once):
        end = min(at + at_once, last * together)
        some = words[at * length :]
        dot_byte_rows(x, rows, blocks, some, between, length, _VECTORS * LANES, planes, 0, end - at, lanes)
        for r in range(rows):
            start, constants = r * _VECTORS * LANES, (lowest, apart, by, offset, at)
            add_lanes(lanes, start, (end - at) // together, width)
            divide(lanes, start, end - at, totals[r], scales[r], *constants, out, r * outputs + at)


@Kernel
def _count_tall(x, words, between, planes, length, totals, scales, lowest, apart, by, offset, out, first, last):
    """Multiply some outputs and all tiles of rows: words of some outputs stay in L2 meanwhile."""
    prefer_wide()
    at_once = min(_AT_ONCE, max(TALL, _IN_CACHE // (planes * length)))
    lanes, rows, outputs, out = np.empty(TALL * (at_once + 1), np.int32), len(out), out.shape[1], out.reshape(-1)
    for at in range(first, last, at_once):
        end, some = min(at + at_once, last), words[at * length :]
        for tile in range(len(x)):
            dot_tall_rows(x[tile], some, between, length, at_once + 1, planes, end - at, lanes)
            for r in range(min(TALL, rows - tile * TALL)):
                row, constants = tile * TALL + r, (lowest, apart, by, offset, at)
                start, to = r * (at_once + 1), row * outputs + at
                divide(lanes, start, end - at, totals[row], scales[row], *constants, out, to)


@Kernel
def _look_up(tables, words, length, totals, scales, lowest, apart, by, offset, out, first, last):
    """Look up the sums of one row, of outputs OUTPUTS first .. OUTPUTS last."""
    prefer_wide()
    sums, out = np.empty(_AT_ONCE, np.int32), out.reshape(-1)
    at_once = max(OUTPUTS, min(_AT_ONCE, _IN_L1 // length // OUTPUTS * OUTPUTS)) if ROOM else _AT_ONCE
    room = np.empty(at_once * length * ROOM, words.dtype)
    for at in range(first * OUTPUTS, last * OUTPUTS, at_once):
        count = min(at_once, last * OUTPUTS - at)
        look_up_rows(tables, laid_out(words[at * length :], length, count, room), length, count, sums)
        divide(sums, 0, count, totals[0], scales[0], lowest, apart, by, offset, at, out, at)


@inline
def divide(sums, start, count, total, scale, lowest, apart, by, offset, first, out, to):
    """Make products of codes those of values, rounded as products are, and divide them by the scale of their row.

    out[to + i] is that of sums[start + i] and output first + i; the row's codes have the sum `total`. A quotient of two
    float32 is the same where it is rounded to float64 before.
    """
    first, start, to, lowest = np.uint64(first), np.uint64(start), np.uint64(to), lowest * total
    if by.size == 0:
        for i in range(np.uint64(count)):
            out[to + i] = np.float64(lowest + apart * sums[start + i]) / np.float64(scale) + 0.0
    elif offset.size == 0:
        for i in range(np.uint64(count)):
            exact = np.float64(lowest + apart * sums[start + i])
            out[to + i] = np.float32(np.float64(by[first + i]) * exact + 0.0) / scale + _NOTHING
    else:
        total = np.float64(total)
        for i in range(np.uint64(count)):
            exact, low = np.float64(lowest + apart * sums[start + i]), np.float64(offset[first + i]) * total
            out[to + i] = np.float32(np.float64(by[first + i]) * exact + low + 0.0) / scale + _NOTHING
