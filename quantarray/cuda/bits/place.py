"""Bits of a row to other places of a row: a run is shifted, a thread a word; other steps are picked, a lane a bit."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import ballot, place_of_lane


def place(parts, out):
    if not out.size:
        return
    at = 0
    for words, start, step, count in parts:
        if count:
            _place(words, start, step, count, at, out)
        at += count


def _place(words, start, step, count, at, out):
    """Write a part's bits to those from `at` on of each row; words of one row go to all."""
    if step == 1:
        first, last = at // 64, (at + count - 1) // 64
        grid, block = launch.rows_by_items(out.shape[0], last - first + 1)
        launch.run(_shift, grid, block, words, start, count, at, out)
    else:
        first, last = at // LANES, (at + count - 1) // LANES
        grid, block = launch.rows_by_halves(out.shape[0], last - first + 1)
        launch.run(_pick, grid, block, launch.halves(words), start, step, count, at, launch.halves(out))


@inline
def _word_from(words, row, i):
    """Return the 64 bits of a row from bit i on, zeros outside of it; i may be negative."""
    word, shift = i >> 6, np.uint64(i & 63)
    bits = words[row, word] >> shift if 0 <= word < words.shape[1] else np.uint64(0)
    if shift != 0 and -1 <= word < words.shape[1] - 1:
        bits |= words[row, word + 1] << (np.uint64(64) - shift)
    return bits


@cuda.jit
def _shift(words, start, count, at, out):
    item, row = cuda.grid(2)
    word = (at >> 6) + item
    below, above = max(at - word * 64, 0), min(at + count - word * 64, 64)  # of this word's bits, those to write
    while row < out.shape[0] and above > 0:
        mask = (~np.uint64(0) >> np.uint64(64 - above)) & (~np.uint64(0) << np.uint64(below))
        out[row, word] |= _word_from(words, min(row, words.shape[0] - 1), start + word * 64 - at) & mask
        row += cuda.gridDim.y * cuda.blockDim.y


@cuda.jit
def _pick(words, start, step, count, at, out):
    lane, item, row, rows_on = place_of_lane()
    half = (at >> 5) + item
    i = half * LANES + lane - at
    inside = 0 <= i < count
    source = start + step * i if inside else 0
    while row < out.shape[0]:
        bit = (words[min(row, words.shape[0] - 1), source >> 5] >> np.uint32(source & 31)) & np.uint32(1)
        bits = ballot(bit if inside else np.uint32(0))
        if lane == 0 and half < out.shape[1]:
            out[row, half] |= bits
        row += rows_on
