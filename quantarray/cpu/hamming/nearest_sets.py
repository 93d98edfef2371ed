"""Find the rows of the most similar sets, or of all that are similar enough.

Of a and b elements, of which c are common, the similarity is c / (c + alpha (a - c) + beta (b - c)).

A row is looked at where its Hamming distance a + b - 2 c is small enough for a similarity whose key is below the limit
(`reservoir.py`). That bound is linear in b. Distances are counted as `nearest` counts them, and similarities are
computed of few rows.
"""

from typing import NamedTuple

import numpy as np

from ..llvm.transpose import WOVEN
from ..llvm.vectors import LANES
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel, share
from .distance_pairs import near_pairs
from .distances import QUERIES, ROWS, near_lanes, near_rows
from .lanes import PAIRED, distance_of, in_pairs, transpose
from .nearest import BY_LANES, ROOM, SEVERAL, STRETCH
from .reservoir import add, empty_reservoir, search, search_all

_FAR = 2.0**62  # more than any distance
_TINY = 1e-300  # less than any similarity but 0


class Sets(NamedTuple):
    """Compare sets by alpha and beta."""

    alpha: float
    beta: float


def nearest_sets(words, queries, alpha, beta, scores, out):
    keys = np.empty((2, *out.shape), np.int64)
    search(_search_range, words, queries, (Sets(float(alpha), float(beta)),), keys)
    scores[:], out[:] = (-keys[0]).view(np.float64), keys[1]


def within_sets(words, queries, alpha, beta, radius, counts, out):
    limit = 1 - np.float64(radius).view(np.int64)
    search_all(_search_range, words, queries, (Sets(float(alpha), float(beta)),), limit, counts, out)


@Kernel
def _search_range(words, queries, sets, pairs, counts, limit, k, first, last):
    sizes, nothing = np.empty(len(queries), np.int64), np.zeros((1, words.shape[1]), np.uint64)
    for q in range(len(queries)):
        sizes[q] = distance_of(nothing, 0, queries, q)
    for piece in range(first, last):
        best = empty_reservoir(pairs[piece], counts[piece], len(queries), limit, k)
        row, end = share(piece, len(pairs), len(words))
        if BY_LANES and queries.shape[0] >= SEVERAL and words.shape[1]:
            row = _by_lanes(words, queries, sizes, nothing, sets, row, end, best)
        _by_rows(words, queries, sizes, nothing, sets, row, end, best)


@inline
def _bound(sets, best, q, size):
    """Return (first, slope): a row of b elements that may be stored has a distance below first + slope * b.

    c (1 - t + t alpha + t beta) >= t (alpha a + beta b) where t is at most the similarity; the distance is a + b - 2c.
    """
    t = np.int64(1 - best.limits[q]).view(np.float64)  # the least similarity whose key is below the limit
    if 0.0 < t < _TINY:  # one common element is more
        return size - 1.0, 1.0
    factor = 1.0 - t + t * (sets.alpha + sets.beta)
    if not t > 0.0 or factor <= 0.0:
        return _FAR, 0.0
    return size * (1.0 - 2.0 * t * sets.alpha / factor) + 0.5, 1.0 - 2.0 * t * sets.beta / factor


@inline
def _add(row, ones, q, size, distance, sets, best):
    """Add a row that is similar enough. Its key is less the more similar it is: similarities are not negative, so their
    order is that of their bits."""
    common = (size + ones - distance) // 2
    whole = common + sets.alpha * (size - common) + sets.beta * (ones - common)
    similarity = common / whole if whole != 0.0 else 0.0
    key = -np.float64(similarity).view(np.int64)
    if key < best.limits[q]:
        add(best, q, key, row)


@inner
def _by_lanes(words, queries, sizes, nothing, sets, first, last, best):
    """Scan 32 rows at a time, as `nearest` does; returns the first row that is left."""
    asked, length = queries.shape
    tiles, masks, apart = -(-asked // QUERIES), np.empty(QUERIES, np.uint64), np.empty(LANES, np.int64)
    paired = length >= PAIRED and length % 2 == 0
    searched, more = in_pairs(queries, paired)
    limits, ones, eight = np.empty((asked, 2)), np.empty(LANES), np.empty(ROWS, np.int64)
    for q in range(asked):
        limits[q, 0], limits[q, 1] = _bound(sets, best, q, sizes[q])
        limits[q, 0] += more[q]
    lanes, here, beside = empty_lines(2 * length, np.uint64), 0, length // WOVEN * WOVEN
    stop = first + max(0, last - first) // LANES * LANES
    if first < stop:
        transpose(words, first, 1, 0, lanes, here)
    for row in range(first, stop, LANES):
        ahead, other = row + LANES, length - here
        transposed = beside if ahead < stop else 0
        for r in range(0, LANES, ROWS):
            near_rows(words, (row + r) * length, nothing, 0, length, 0, eight)
            for i in range(ROWS):
                ones[r + i] = eight[i]
        for tile in range(tiles):
            query, end = share(tile, tiles, asked)
            if paired:
                near = near_pairs(
                    lanes, here * LANES, length, searched, query * length, end - query, limits, query, masks, words,
                    ahead * length, transposed, other * LANES, apart, tile == 0, ones,
                )  # fmt: skip
            else:
                near = near_lanes(
                    lanes, here * LANES, length, queries, query * length, end - query, limits, query, masks, words,
                    ahead * length, transposed, other * LANES, ones,
                )  # fmt: skip
            transposed = 0
            for q in range(query, end if near else query):
                mask = masks[q - query]
                for at in range(0, LANES if mask else 0, ROWS):
                    some = mask >> np.uint64(at) & np.uint64((1 << ROWS) - 1)
                    if some:
                        near_rows(words, (row + at) * length, queries, q * length, length, 0, eight)
                    for i in range(ROWS if some else 0):
                        if some >> np.uint64(i) & np.uint64(1):
                            b = np.int64(ones[at + i])
                            _add(row + at + i, b, q, sizes[q], eight[i], sets, best)
                if mask:
                    limits[q, 0], limits[q, 1] = _bound(sets, best, q, sizes[q])
                    limits[q, 0] += more[q]
        if ahead < stop:
            transpose(words, ahead, 1, beside, lanes, other)
        here = other
    return stop


@inner
def _by_rows(words, queries, sizes, nothing, sets, first, last, best):
    """Scan rows that fit into L1, 8 at a time."""
    length = words.shape[1]
    stretch = max(ROWS, STRETCH // (8 * max(length, 1)) // ROWS * ROWS)
    distances, ones, ends = np.empty(ROWS, np.int64), np.empty(stretch, np.int64), np.empty((stretch, 2), np.int64)
    for start in range(first, last, stretch):
        stop = min(start + stretch, last)
        whole = start + (stop - start) // ROWS * ROWS
        for row in range(start, whole, ROWS):
            near_rows(words, row * length, nothing, 0, length, 0, distances)
            least, most = ROOM, 0
            for i in range(ROWS):
                ones[row - start + i] = distances[i]
                least, most = min(least, distances[i]), max(most, distances[i])
            ends[row - start, 0], ends[row - start, 1] = least, most
        for q in range(queries.shape[0]):
            for row in range(start, whole, ROWS):
                at = row - start
                bound, slope = _bound(sets, best, q, sizes[q])
                limit = np.int64(bound + slope * ends[at, 1 if slope > 0.0 else 0]) + 1
                if near_rows(words, row * length, queries, q * length, length, limit, distances):
                    for i in range(ROWS):
                        if distances[i] < limit:
                            _add(row + i, ones[at + i], q, sizes[q], distances[i], sets, best)
            for row in range(whole, stop):
                size, distance = distance_of(words, row, nothing, 0), distance_of(words, row, queries, q)
                _add(row, size, q, sizes[q], distance, sets, best)
