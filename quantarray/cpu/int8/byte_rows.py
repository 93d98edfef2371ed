"""Products of one to four rows of int8 and packed weights, whose words are read once and laid out by nobody.

Weights of one bit are looked up in tables (`bit_rows`), others become bytes (`group_rows`).
"""

import numpy as np

from ...core.format import empty_lines
from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .bit_rows import HAS_TABLES, OUTPUTS, WORDS, look_up_rows, make_tables, tables_of
from .group_bytes import BYTES, LANES, place_in_group
from .group_rows import SHORT, add_lanes, dot_byte_rows

_LEAST = 1 << 17  # products that are worth a parallel region
_AT_ONCE = 512  # outputs: a multiple of LANES
_WORTH_TABLES = 1 << 12  # outputs
_NOTHING = np.float32(0)  # that makes 0 of -0
_UNIT, _WORDS = 32, 8  # elements of a lane in a block, and words of a plane there


def byte_row_product(codes, scales, words, first, apart, by, offset, out):
    """Multiply; words [planes outputs words] may be some rows of an array's."""
    if not out.size:
        return
    rows, (planes, outputs, length) = len(codes), words.shape
    settings = np.empty(rows, np.int64), scales, np.int64(first), np.int64(apart)
    if not words[0].flags.c_contiguous:
        words = np.ascontiguousarray(words)
    looked_up, inside = 0, max(0, _inside(outputs, length))
    if HAS_TABLES and rows == planes == 1 and length % WORDS == 0 and outputs >= _WORTH_TABLES:
        looked_up = inside = outputs // OUTPUTS * OUTPUTS
    for begin, end, run in ((0, looked_up, _by_tables), (looked_up, inside, _by_bytes), (inside, outputs, _padded)):
        if begin < end:
            some = out if end - begin == outputs else np.empty((rows, end - begin), np.float32)
            run(codes, words[:, begin:end], (*settings, by[begin:end], offset[begin:end], some))
            if some is not out:
                out[:, begin:end] = some


def _together(length):
    """Return how many outputs of `length` words are in a block."""
    return _WORDS // length if length in SHORT else 1


def _inside(outputs, length):
    """Return how many outputs are in blocks of which none ends after the words."""
    together = _together(length)
    return outputs // together * together if together > 1 or length >= _WORDS else outputs - -(-_WORDS // length) + 1


def _by_tables(codes, words, values):
    tables = tables_of(words.shape[2])
    threads.run(make_tables, (codes, values[0], tables), 1, 1)
    tasks = words.shape[1] // OUTPUTS
    arguments = tables, words[0].reshape(-1), words.shape[2], *values
    threads.run(_look_up, arguments, tasks, threads.workers(codes.size * words.shape[1], _LEAST))


def _by_bytes(codes, words, values):
    (rows, k), (planes, outputs, length) = codes.shape, words.shape
    blocks = -(-length // _WORDS)
    x = empty_lines((rows, blocks * _WORDS * BYTES), np.dtype(np.int8))
    threads.run(_order, (codes, length, values[0], x), rows, threads.workers(codes.size, _LEAST))
    between, together = words.strides[0] // words.itemsize, _together(length)
    arguments = x.reshape(-1), blocks, words[0].reshape(-1), between, planes, length, together, *values
    threads.run(_count, arguments, outputs // together, threads.workers(rows * k * outputs, _LEAST))


def _padded(codes, words, values):
    """Multiply by a copy of words, with zeros up to a block of each output."""
    planes, outputs, length = words.shape
    padded = np.zeros((planes, outputs, max(length, _WORDS)), words.dtype)
    padded[:, :, :length] = words
    _by_bytes(codes, padded, values)


@Kernel
def _order(codes, length, totals, x, first, last):
    """Sum rows, and put their bytes in the order of `spread`, zeros in the last block for words of the one before."""
    blocks, period = -(-length // _WORDS), length * 64 if length in SHORT else _WORDS * 64
    for row in range(first, last):
        x[row], total = 0, np.int64(0)
        for code in codes[row]:
            total += code
        totals[row] = total
        for block in range(blocks):
            begin, done = max(0, min(block * _WORDS, length - _WORDS)) * 64, block * _WORDS * 64
            for lane in range(LANES):
                at, start = block * _WORDS * BYTES + lane * 4, begin + lane * _UNIT % period
                if start >= done:
                    for element in range(min(_UNIT, codes.shape[1] - start)):
                        x[row, at + place_in_group(_UNIT, element)] = codes[row, start + element]


@Kernel
def _count(
    x, blocks, words, between, planes, length, together, totals, scales, lowest, apart, by, offset, out, first, last
):
    """Multiply the outputs of some blocks, or of some rows of more words, whose lanes of sums stay in a cache."""
    prefer_wide()
    rows, deep = len(totals), planes == 8
    width = LANES // together if together > 1 else 1  # lanes of an output
    lanes = np.empty((rows, _AT_ONCE * width), np.int32)
    for at in range(first * together, last * together, _AT_ONCE):
        end = min(at + _AT_ONCE, last * together)
        some = words[at * length :]
        dot_byte_rows(
            x, rows, blocks, some, between, length, _AT_ONCE * width, planes, 0, end - at, deep, lanes.reshape(-1)
        )
        for r in range(rows):
            add_lanes(lanes.reshape(-1), r * _AT_ONCE * width, (end - at) // together, width)
            _divide(lanes, r, at, end, totals, scales, lowest, apart, by, offset, out)


@Kernel
def _look_up(tables, words, length, totals, scales, lowest, apart, by, offset, out, first, last):
    """Look up the sums of one row, of outputs 32 first .. 32 last."""
    prefer_wide()
    sums = np.empty((1, _AT_ONCE), np.int32)
    for at in range(first * OUTPUTS, last * OUTPUTS, _AT_ONCE):
        end = min(at + _AT_ONCE, last * OUTPUTS)
        look_up_rows(tables.reshape(-1), words, length, at, end, sums.reshape(-1))
        _divide(sums, 0, at, end, totals, scales, lowest, apart, by, offset, out)


@inline
def _divide(sums, r, first, last, totals, scales, lowest, apart, by, offset, out):
    """Make products of codes those of values, rounded as products are, and divide them by the scale of row r.

    A quotient of two float32 is the same where it is rounded to float64 before.
    """
    row, begin, scale, start = np.uint64(r), np.uint64(first), scales[r], lowest * totals[r]
    if by.size == 0:
        for o in range(begin, np.uint64(last)):
            out[row, o] = np.float64(start + apart * sums[row, o - begin]) / np.float64(scale) + 0.0
    elif offset.size == 0:
        for o in range(begin, np.uint64(last)):
            exact = np.float64(start + apart * sums[row, o - begin])
            out[row, o] = np.float32(np.float64(by[o]) * exact + 0.0) / scale + _NOTHING
    else:
        total = np.float64(totals[r])
        for o in range(begin, np.uint64(last)):
            exact, low = np.float64(start + apart * sums[row, o - begin]), np.float64(offset[o]) * total
            out[row, o] = np.float32(np.float64(by[o]) * exact + low + 0.0) / scale + _NOTHING
