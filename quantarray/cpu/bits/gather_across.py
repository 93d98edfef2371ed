"""Gather bits of many rows by the same indices: 64 rows become one word an element, which moves as a whole, and back.

`docs/kernels/place.md` has what was tried.
"""

import numpy as np

from ..llvm.transpose import SQUARES, copy_8, empty_squares, stream_8, transpose
from ..llvm.vectors import WIDTH
from ..runtime import threads
from ..runtime.jit import entry, inner
from ..runtime.schedule import Kernel

_LEAST = 1 << 13  # words that are worth a parallel region
_FEW = 8  # rows from which on transposing pays
_LINES = 8  # of each row at a time
_SHORT = 1 << 11  # words of a row whose 64-fold stays in cache


def worth(words, indices):
    """True where transposing squares of 64 rows pays: with many rows, or short ones, as one row takes as long as 64.

    The words of all elements of 64 rows are in memory, for each thread: in cache, or no more than the rows themselves.
    """
    rows, length = words.shape
    return len(indices) == 1 and rows >= (_FEW if length <= _SHORT else 64 * threads.allowed())


def gather(words, length, indices, out):
    first, last = (i >> 6 for i in _ends(indices, length))
    elements = -(-(last + 1 - first) // WIDTH) * SQUARES
    places = np.full(-(-out.shape[1] // WIDTH) * SQUARES, elements, np.uint32 if elements < 2**32 else np.uint64)
    _fill_places(indices, length, first * 64, places)
    lines = out.shape[1] % WIDTH == 0 and out.ctypes.data % 64 == 0  # each row is whole cache lines
    arguments = words, first, last + 1 - first, elements, places, lines, out
    threads.run(_gather_groups, arguments, -(-len(words) // 64), threads.workers(out.size, _LEAST))


@inner
def from_start(index, length):
    """Convert an index that may be negative, of any integer type, to one from the first element on."""
    i = np.int64(index)
    return i + length if i < 0 else i


@entry
def _ends(indices, length):
    """Return the lowest and the highest index, counted from the first element."""
    low, high = length, 0
    for index in indices:
        i = from_start(index, length)
        low, high = min(low, i), max(high, i)
    return low, high


@inner
def _in_squares(i):
    """Return the place of element i's word in squares: bit j of word l of a square's rows is its word WIDTH * j + l."""
    return i // SQUARES * SQUARES + i % 64 * WIDTH + i // 64 % WIDTH


@entry
def _fill_places(indices, length, first, places):
    """places[k] = the place, in the source's squares, of the element for place k of the result's squares. The source's
    first is element `first`; places without an element keep pointing to the zeros at the end.
    """
    for i in range(len(indices)):
        places[_in_squares(i)] = _in_squares(from_start(indices[i], length) - first)


@inner
def _load(words, row, first, count, across):
    """Load words first .. first + count of 64 rows, transposed: a word is one element of all rows.

    A few lines of each row at a time: one would wait for memory 64 times between two transpositions.
    """
    rows, length = min(64, words.shape[0] - row), words.shape[1]
    flat, whole = words.reshape(-1), count // WIDTH
    for begin in range(0, whole, _LINES):
        end = min(begin + _LINES, whole)
        for i in range(rows):
            at, to = (row + i) * length + first, i * WIDTH
            for square in range(begin, end):
                copy_8(flat, at + square * WIDTH, across, to + square * SQUARES)
        for square in range(begin, end):
            transpose(across, square * SQUARES)
    if whole * WIDTH < count:
        for i in range(rows):
            at, to = (row + i) * length + first + whole * WIDTH, whole * SQUARES + i * WIDTH
            for n in range(count - whole * WIDTH):
                across[to + n] = flat[at + n]
        transpose(across, whole * SQUARES)


@inner
def _store(across, places, squares, row, lines, out):
    """Store the elements that `places` names as rows of out.

    Rows are mostly a power of two apart, so their lines evict each other from the cache: stores past it are 3x faster.
    """
    rows, length = min(64, out.shape[0] - row), out.shape[1]
    flat = out.reshape(-1)
    for begin in range(0, length, _LINES * WIDTH):
        end = min(begin + _LINES * WIDTH, length)
        first = begin // WIDTH * SQUARES
        for n in range(-(-(end - begin) // WIDTH) * SQUARES):
            squares[n] = across[places[first + n]]
        for k in range(begin, end, WIDTH):
            transpose(squares, k // WIDTH * SQUARES - first)
        for i in range(rows):
            start = (row + i) * length
            for k in range(begin, end, WIDTH):
                at, to = k // WIDTH * SQUARES - first + i * WIDTH, start + k
                if lines:
                    stream_8(squares, at, flat, to)
                elif k + WIDTH <= length:
                    copy_8(squares, at, flat, to)
                else:
                    for n in range(length - k):
                        flat[to + n] = squares[at + n]


@Kernel
def _gather_groups(words, first, count, elements, places, lines, out, begin, end):
    across, squares = empty_squares(elements + 1), empty_squares(_LINES * SQUARES)
    across[:] = 0
    for group in range(begin, end):
        _load(words, group * 64, first, count, across)
        _store(across, places, squares, group * 64, lines, out)
