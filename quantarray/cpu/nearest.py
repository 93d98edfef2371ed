"""The nearest rows by Hamming distance. `docs/kernels/nearest.md` explains the order of the loops.

Rows that fit into L1 meet all queries before the next ones are read from memory, and distances are looked at only where
one of some is below the worst that is kept. With AVX-512 and several queries, 32 rows are turned into the lanes of the
inner loop of products, and 4 queries are its pixels; else 8 rows are counted by one query, a row at a time.
"""

import numpy as np
from numba import njit, prange

from . import threads
from .deal import next_piece, none_dealt, share
from .lines import empty_lines
from .micro import LANES, ROWS, TILE, WIDTH, mask_counts, near_rows, popcount
from .micro.transpose import weave_lanes

STRETCH = 1 << 13  # bytes of rows that meet all queries before the next ones
_LEAST = 1 << 16  # words compared that are worth a parallel region
_FAR = np.iinfo(np.int64).max
_SEVERAL = 4  # queries for which rows are turned into lanes
BY_LANES = mask_counts is not None  # a branch on a global is not even compiled where it is False


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
    if BY_LANES and queries.shape[0] >= _SEVERAL and words.shape[1]:
        first = _nearest_by_lanes(words, queries, first, last, out)
    _nearest_by_rows(words, queries, first, last, out)


@njit(cache=True, nogil=True, error_model="numpy")
def _nearest_by_lanes(words, queries, first, last, out):
    """Of 32 rows after the other, as far as they go; returns the first row that is left."""
    asked, length, kept = queries.shape[0], words.shape[1], out.shape[2]
    tiles, runs = -(-asked // TILE), np.array([[0, 0, length]])
    origins, masks = np.empty((tiles, TILE), np.int64), np.empty(TILE, np.uint64)
    lanes, limits = empty_lines(length, np.uint64), empty_lines(tiles, np.int64)
    for tile in range(tiles):
        for p in range(TILE):
            origins[tile, p] = min(tile * TILE + p, asked - 1) * length
        limits[tile] = _limit(out, tile)
    for row in range(first, last - LANES + 1, LANES):
        _turn(words, row, lanes)
        for tile in range(tiles):
            mask_counts(queries, 0, origins, tile * TILE, lanes, 0, runs, 0, 1, -1, limits, tile * LANES, masks)
            found = False
            for q in range(tile * TILE, min((tile + 1) * TILE, asked)):
                near = ~masks[q - tile * TILE] & np.uint64(0xFFFFFFFF)
                for lane in range(LANES if near else 0):
                    if (near >> np.uint64(lane)) & np.uint64(1):
                        distance = _distance(words, row + lane, queries, q)
                        if distance < out[0, q, kept - 1]:
                            _insert(out, q, distance, row + lane)
                            found = True
            if found:
                limits[tile] = _limit(out, tile)
    return first + max(0, last - first) // LANES * LANES


@njit(cache=True, nogil=True, error_model="numpy")
def _limit(out, tile):
    """A distance above it is too far for all queries of a tile."""
    return out[0, tile * TILE : (tile + 1) * TILE, -1].max() - 1


@njit(cache=True, nogil=True, error_model="numpy")
def _turn(words, row, lanes):
    """lanes[k, l] = words[row + l, k]."""
    length = words.shape[1]
    for group in range(0, LANES, WIDTH):
        for k in range(0, length // WIDTH * WIDTH, WIDTH):
            weave_lanes(words, (row + group) * length + k, length, lanes, k * LANES + group)
        for k in range(length // WIDTH * WIDTH, length):
            for i in range(group, group + WIDTH):
                lanes[k, i] = words[row + i, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _distance(words, row, queries, q):
    distance = 0
    for k in range(words.shape[1]):
        distance += popcount(words[row, k] ^ queries[q, k])
    return distance


@njit(cache=True, nogil=True, error_model="numpy")
def _nearest_by_rows(words, queries, first, last, out):
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
                distance = _distance(words, r, queries, q)
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
