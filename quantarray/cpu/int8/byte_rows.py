"""Products of one to four rows of int8 and packed weights, whose words are read once and laid out by nobody."""

import numpy as np

from ...core.format import empty_lines
from ..runtime import threads
from ..runtime.schedule import Kernel
from .group_bytes import BYTES, LANES, place_in_group
from .group_rows import dot_byte_rows

_LEAST = 1 << 17  # products that are worth a parallel region
_UNIT, _WORDS = 32, 8  # elements of a lane in a block, and words of a plane there


def byte_row_product(codes, words, out):
    if not out.size:
        return
    rows, (planes, outputs, length) = len(out), words.shape
    blocks = -(-length // _WORDS)
    x = empty_lines((rows, blocks * _WORDS * BYTES), np.dtype(np.int8))
    threads.run(_order, (codes, length, x), rows, threads.workers(codes.size, _LEAST))
    arguments = x.reshape(-1), rows, blocks, words.reshape(-1), planes, length, outputs, out.reshape(-1)
    threads.run(_count, arguments, outputs, threads.workers(out.size * codes.shape[1], _LEAST))


@Kernel
def _order(codes, length, x, first, last):
    """Put the bytes of rows in the order of `spread`; the last block has zeros for words of the one before it."""
    blocks = -(-length // _WORDS)
    for row in range(first, last):
        x[row] = 0
        for block in range(blocks):
            begin, done = min(block * _WORDS, length - _WORDS) * 64, block * _WORDS * 64
            for lane in range(LANES):
                at, start = block * _WORDS * BYTES + lane * 4, begin + lane * _UNIT
                if start >= done:
                    for element in range(min(_UNIT, codes.shape[1] - start)):
                        x[row, at + place_in_group(_UNIT, element)] = codes[row, start + element]


@Kernel
def _count(x, rows, blocks, words, planes, length, outputs, out, first, last):
    dot_byte_rows(x, rows, blocks, words, length, outputs, planes, first, last, planes == 8, out)
