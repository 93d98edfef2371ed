"""Products of one to four rows of int8 and packed weights, whose words are read once and laid out by nobody."""

import numpy as np

from ...core.format import empty_lines
from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .group_bytes import BYTES, LANES, place_in_group
from .group_rows import SHORT, add_lanes, dot_byte_rows, outputs_at_once

_LEAST = 1 << 17  # products that are worth a parallel region
_AT_ONCE = 512  # outputs: a multiple of LANES
_NOTHING = np.float32(0)  # that makes 0 of -0
_UNIT, _WORDS = 32, 8  # elements of a lane in a block, and words of a plane there


def byte_row_product(codes, scales, words, first, apart, by, offset, out):
    """Multiply; words [planes outputs words] may be some rows of an array's."""
    if not out.size:
        return
    (rows, k), (planes, outputs, length) = codes.shape, words.shape
    blocks = -(-length // _WORDS)
    x = empty_lines((rows, blocks * _WORDS * BYTES), np.dtype(np.int8))
    threads.run(_order, (codes, length, x), rows, threads.workers(codes.size, _LEAST))
    if not words[0].flags.c_contiguous:
        words = np.ascontiguousarray(words)
    inside = min(outputs, max(0, (outputs * length - _WORDS) // length + 1))  # rows of which no block ends after words
    settings = codes.sum(axis=1, dtype=np.int64), scales, np.int64(first), np.int64(apart)
    _multiply(x, blocks, words, inside, k, (*settings, by, offset, out))
    if inside < outputs:
        padded = np.zeros((planes, outputs - inside, _WORDS), words.dtype)
        padded[:, :, :length] = words[:, inside:]
        rest = np.empty((rows, outputs - inside), np.float32)
        _multiply(x, blocks, padded, outputs - inside, k, (*settings, by[inside:], offset[inside:], rest))
        out[:, inside:] = rest


def _multiply(x, blocks, words, count, k, values):
    planes, _, length = words.shape
    between = words.strides[0] // words.itemsize
    arguments = x.reshape(-1), blocks, words[0].reshape(-1), between, planes, length, *values
    threads.run(_count, arguments, count, threads.workers(len(x) * count * k, _LEAST))


@Kernel
def _order(codes, length, x, first, last):
    """Put the bytes of rows in the order of `spread`; the last block has zeros for words of the one before it."""
    blocks, period = -(-length // _WORDS), length * 64 if length in SHORT else _WORDS * 64
    for row in range(first, last):
        x[row] = 0
        for block in range(blocks):
            begin, done = max(0, min(block * _WORDS, length - _WORDS)) * 64, block * _WORDS * 64
            for lane in range(LANES):
                at, start = block * _WORDS * BYTES + lane * 4, begin + lane * _UNIT % period
                if start >= done:
                    for element in range(min(_UNIT, codes.shape[1] - start)):
                        x[row, at + place_in_group(_UNIT, element)] = codes[row, start + element]


@Kernel
def _count(x, blocks, words, between, planes, length, totals, scales, lowest, apart, by, offset, out, first, last):
    """Multiply some outputs at a time, whose lanes of sums stay in a cache."""
    prefer_wide()
    rows, together, deep = len(totals), outputs_at_once(length), planes == 8
    width = LANES // together if together > 1 else 1  # lanes of an output
    lanes = np.empty((rows, _AT_ONCE * width), np.int32)
    for at in range(first, last, _AT_ONCE):
        end = min(at + _AT_ONCE, last)
        some = words[at * length :]
        dot_byte_rows(
            x, rows, blocks, some, between, length, _AT_ONCE * width, planes, 0, end - at, deep, lanes.reshape(-1)
        )
        for r in range(rows):
            add_lanes(lanes.reshape(-1), r * _AT_ONCE * width, -(-(end - at) // together), width)
            _divide(
                lanes[r, : end - at], totals[r], scales[r], lowest, apart, by[at:end], offset[at:end], out[r, at:end]
            )


@inner
def _divide(sums, total, scale, lowest, apart, by, offset, out):
    """Make products of codes those of values, rounded as products are, and divide them by the scale of the row.

    A quotient of two float32 is the same where it is rounded to float64 before.
    """
    if by.size == 0:
        for o in range(len(sums)):
            out[o] = np.float64(lowest * total + apart * sums[o]) / np.float64(scale) + 0.0
    elif offset.size == 0:
        for o in range(len(sums)):
            exact = np.float64(lowest * total + apart * sums[o])
            out[o] = np.float32(np.float64(by[o]) * exact + 0.0) / scale + _NOTHING
    else:
        for o in range(len(sums)):
            exact, low = np.float64(lowest * total + apart * sums[o]), np.float64(offset[o]) * np.float64(total)
            out[o] = np.float32(np.float64(by[o]) * exact + low + 0.0) / scale + _NOTHING
