"""Another packed axis: bit matrices transposed in blocks of 64 x 64."""

import numpy as np
from numba import njit, prange

from . import threads

_LEAST = 1 << 13  # words that are worth a parallel region


def repack(words, out):
    if not out.size:
        return
    tasks = out.shape[0] * out.shape[3]
    if threads.serial(words.size, _LEAST):
        _repack_tasks(words, out, 0, tasks)
    else:
        threads.run(_repack_parallel, words, out, threads.pieces(tasks))


@njit(cache=True, nogil=True)
def _transpose(block):
    """Bit j of word i and bit i of word j change places: off-diagonal quarters first, then those of each quarter."""
    size, mask = 32, np.uint64(0xFFFFFFFF)
    while size:
        shift = np.uint64(size)
        for pair in range(0, 64, 2 * size):
            for i in range(pair, pair + size):
                swap = ((block[i] >> shift) ^ block[i + size]) & mask
                block[i] ^= swap << shift
                block[i + size] ^= swap
        size >>= 1
        mask ^= mask << np.uint64(size)


@njit(cache=True, nogil=True)
def _repack_tasks(words, out, first, last):
    _, length, between, count = words.shape
    new_length, new_count = out.shape[1], out.shape[3]
    block = np.empty(64, np.uint64)
    for task in range(first, last):
        row, new_word = task // new_count, task % new_count
        valid = min(64, length - new_word * 64)
        for b in range(between):
            for word in range(count):
                for i in range(valid):
                    block[i] = words[row, new_word * 64 + i, b, word]
                block[valid:] = 0
                _transpose(block)
                for j in range(min(64, new_length - word * 64)):
                    out[row, word * 64 + j, b, new_word] = block[j]


@njit(cache=True, parallel=True, nogil=True)
def _repack_parallel(words, out, pieces):
    tasks = out.shape[0] * out.shape[3]
    for piece in prange(pieces):
        _repack_tasks(words, out, tasks * piece // pieces, tasks * (piece + 1) // pieces)
