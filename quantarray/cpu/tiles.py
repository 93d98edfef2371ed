"""What both convolutions do with a tile: 4 pixels of one border class by blocks of 32 output channels."""

import numba
import numpy as np
from numba import njit

from . import threads
from .micro import LANES, TILE, count_tile, popcount

_NO_WORDS = np.empty((0, 0, 0), np.uint64)
_LEAST = 1 << 18  # and-popcounts of a word that are worth a parallel region


def drive(one, many, x, w, plan, finish, no_values, out):
    """Deal tiles out to threads: `one(.., first, last, values, words)` or its parallel twin."""
    values, words = (no_values, out) if out.dtype == np.uint64 else (out, _NO_WORDS)
    tiles, blocks = x.images * len(plan.counts), w.words.shape[1]
    # Output words belong to one task: channels are split at whole words, and not at all where groups share a word
    split = blocks // 2 if w.groups == 1 else 1
    chunks = max(1, min(split, threads.PIECES * numba.get_num_threads() // max(1, tiles)))
    tasks = tiles * chunks
    if not tasks or not blocks:
        return
    work = tiles * TILE * w.words.size * x.words.shape[0]
    if threads.serial(work, _LEAST):
        one(x, w, plan, finish, chunks, 0, tasks, values, words)
    else:
        threads.run(many, x, w, plan, finish, chunks, tasks, threads.pieces(tasks), values, words)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def sum_codes(words, first, planes, origins, runs, start, stop, ones, t):
    """ones[t, p] = sum of the codes of a term's planes over runs start .. stop."""
    for p in range(TILE):
        total = 0
        for j in range(planes):
            count, plane = 0, np.uint64(first + j)  # unsigned: Numba checks signed indices for negative values
            for r in range(start, stop):
                at = np.uint64(origins[p] + runs[r, 0])
                for k in range(np.uint64(runs[r, 2])):
                    count += popcount(words[plane, at + k])
            total += count << j
        ones[t, p] = total


@njit(cache=True, nogil=True, forceinline=True)
def count(left, i0, planes_i, origins, right, j0, planes_j, block, runs, start, stop, counts, total):
    """total[p, lane] = sum_ij 2^(i+j) |left_i & right_j| over the planes of two terms and runs start .. stop."""
    plane = left.shape[1]
    block_size = right.shape[2] * LANES
    for i in range(planes_i):
        for j in range(planes_j):
            word, weight = (i0 + i) * plane, ((j0 + j) * right.shape[1] + block) * block_size
            if i + j == 0:
                count_tile(left, word, origins, right, weight, runs, start, stop, total)
            else:
                count_tile(left, word, origins, right, weight, runs, start, stop, counts)
                for p in range(TILE):
                    for lane in range(LANES):
                        total[p, lane] += counts[p, lane] << (i + j)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def blocks(first, blocks, chunk, chunks):
    """The blocks of a chunk: whole words, that is pairs of blocks, are shared out."""
    words = (blocks + 1) // 2
    return first + 2 * (words * chunk // chunks), first + min(blocks, 2 * (words * (chunk + 1) // chunks))


@njit(cache=True, nogil=True, error_model="numpy")
def scratch():
    origins, ones = np.empty(TILE, np.int64), np.zeros((1, TILE), np.int64)
    dot, part, made = np.empty((TILE, LANES), np.int64), np.empty((TILE, LANES), np.int64), np.empty(8, np.uint64)
    return origins, ones, dot, part, made
