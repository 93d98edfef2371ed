"""The nearest rows by Hamming distance. `docs/kernels/nearest.md` explains the order of the loops.

Stretches of rows that fit into L1 meet all queries before the next stretch is read from memory, and distances are
looked at only where one of 8 is below the worst that is kept.
"""

import numpy as np
from numba import njit, prange

from . import threads
from .deal import next_piece, none_dealt, share
from .micro import ROWS, near_rows, popcount

STRETCH = 1 << 13  # bytes of rows that meet all queries before the next ones
_LEAST = 1 << 16  # words compared that are worth a parallel region
_FAR = np.iinfo(np.int64).max


def nearest(words, queries, out):
    out[0], out[1] = _FAR, -1
    rows, work = words.shape[0], words.size * queries.shape[0]
    if not rows or not out.size:
        return
    if threads.serial(work, _LEAST):
        _nearest_range(words, queries, 0, rows, out)
        return
    found = np.empty((threads.pieces(-(-rows // ROWS)), *out.shape), np.int64)
    found[:, 0], found[:, 1] = _FAR, -1
    threads.run(_nearest_parallel, words, queries, found)
    _merge(found, out)


def _merge(found, out):
    """The best of what each piece found; of equal distances the lowest index, which is the first piece's."""
    distances, indices = (found[:, i].transpose(1, 0, 2).reshape(out.shape[1], -1) for i in (0, 1))
    order = np.argsort(distances, axis=1, kind="stable")[:, : out.shape[2]]
    out[0], out[1] = (np.take_along_axis(a, order, axis=1) for a in (distances, indices))


@njit(cache=True, nogil=True, error_model="numpy")
def _nearest_range(words, queries, first, last, out):
    length, kept = words.shape[1], out.shape[2]
    found = np.empty(ROWS, np.int64)
    stretch = max(ROWS, STRETCH // (8 * max(length, 1)) // ROWS * ROWS)
    for start in range(first, last, stretch):
        stop = min(start + stretch, last)
        for q in range(queries.shape[0]):
            worst = out[0, q, kept - 1]
            row = start
            while row + ROWS <= stop:
                near = near_rows(words, row * length, queries, q * length, length, worst, found)
                if near:
                    for i in range(ROWS):
                        if found[i] < worst:
                            worst = _insert(out, q, found[i], row + i)
                row += ROWS
            for r in range(row, stop):
                distance = 0
                for k in range(length):
                    distance += popcount(words[r, k] ^ queries[q, k])
                if distance < worst:
                    worst = _insert(out, q, distance, r)


@njit(cache=True, nogil=True, error_model="numpy")
def _insert(out, q, distance, row):
    """Put a row behind those that are as near; the worst falls out. Returns the worst that is left."""
    at = out.shape[2] - 1
    while at and out[0, q, at - 1] > distance:
        out[0, q, at], out[1, q, at] = out[0, q, at - 1], out[1, q, at - 1]
        at -= 1
    out[0, q, at], out[1, q, at] = distance, row
    return out[0, q, out.shape[2] - 1]


@njit(cache=True, parallel=True, nogil=True)
def _nearest_parallel(words, queries, found, workers):
    pieces, rows = found.shape[0], words.shape[0]
    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, rows)
            _nearest_range(words, queries, first, last, found[piece])
            piece = next_piece(dealt)
