"""Find the rows of the most similar sets, or of all that are similar enough.

Of a and b elements, of which c are common, the similarity is c / (c + alpha (a - c) + beta (b - c)).

A row is looked at where its Hamming distance a + b - 2 c is small enough for a similarity above the worst that is
stored. That limit is linear in b. Distances are counted as `nearest` counts them, and similarities computed of few
rows.
"""

from typing import NamedTuple

import numpy as np

from ..llvm.transpose import WOVEN
from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel, share
from .distance_pairs import near_pairs
from .distances import QUERIES, ROWS, near_lanes, near_rows
from .lanes import PAIRED, distance_of, in_pairs, transpose
from .nearest import BY_LANES, LEAST, ROOM, SEVERAL, STRETCH, pieces_of

_NONE = -1.0  # less than any similarity
_FAR = 2.0**62  # more than any distance


def nearest_sets(words, queries, alpha, beta, scores, out):
    scores[:], out[:] = _NONE, -1
    rows, work = words.shape[0], words.size * queries.shape[0]
    if not rows or not out.size:
        return
    workers = threads.workers(work, LEAST)
    pieces = pieces_of(rows, workers, out.shape[1])
    best, ids = (np.repeat(a[None], pieces, axis=0) for a in (scores, out))
    sets = Sets(float(alpha), float(beta), _NONE)
    threads.run(_search_range, (words, queries, sets, best, ids, np.zeros(pieces, np.int64)), pieces, workers, pieces)
    best, ids = (a.transpose(1, 0, 2).reshape(len(out), -1) for a in (best, ids))
    order = np.argsort(-best, axis=1, kind="stable")[:, : out.shape[1]]  # of equal ones the first piece's
    scores[:], out[:] = np.take_along_axis(best, order, axis=1), np.take_along_axis(ids, order, axis=1)


def within_sets(words, queries, alpha, beta, radius, counts, scores, out):
    counts[:] = 0
    sets, workers = Sets(float(alpha), float(beta), float(radius)), threads.workers(words.size * len(queries), LEAST)
    threads.run(_search_range, (words, queries, sets, scores, out, counts), len(counts), workers, len(counts))


class Sets(NamedTuple):
    """Compare sets by alpha and beta; rows of at least `radius` are stored, or below 0 the most similar ones."""

    alpha: float
    beta: float
    radius: float


@Kernel
def _search_range(words, queries, sets, best, ids, counts, first, last):
    sizes, nothing = np.empty(len(queries), np.int64), np.zeros((1, words.shape[1]), np.uint64)
    for q in range(len(queries)):
        sizes[q] = distance_of(nothing, 0, queries, q)
    for piece in range(first, last):
        row, end = share(piece, len(best), len(words))
        out = best[piece], ids[piece], counts, piece
        if BY_LANES and queries.shape[0] >= SEVERAL and words.shape[1]:
            row = _by_lanes(words, queries, sizes, nothing, sets, row, end, out)
        _by_rows(words, queries, sizes, nothing, sets, row, end, out)


@inline
def _bound(sets, best, q, size):
    """Return (first, slope): a row of b elements that may be stored has a distance below first + slope * b.

    c (1 - t + t alpha + t beta) >= t (alpha a + beta b) where t is at most the similarity; the distance is a + b - 2c.
    """
    t = sets.radius if sets.radius >= 0.0 else best[q, best.shape[1] - 1]
    if t == 0.0 and sets.radius < 0.0:  # one common element is more
        return size - 1.0, 1.0
    factor = 1.0 - t + t * (sets.alpha + sets.beta)
    if t <= 0.0 or factor <= 0.0:
        return _FAR, 0.0
    return size * (1.0 - 2.0 * t * sets.alpha / factor) + 0.5, 1.0 - 2.0 * t * sets.beta / factor


@inline
def _store(row, ones, q, size, distance, sets, out):
    """Store a row that is similar enough; or insert one that is more similar than the last, after equal ones."""
    best, ids, counts, piece = out
    common = (size + ones - distance) // 2
    whole = common + sets.alpha * (size - common) + sets.beta * (ones - common)
    similarity = common / whole if whole != 0.0 else 0.0
    if sets.radius >= 0.0:
        if similarity >= sets.radius:
            at = counts[piece]
            best[0, at], ids[0, at], ids[1, at] = similarity, q, row
            counts[piece] += 1
        return
    at = best.shape[1] - 1
    if similarity > best[q, at]:
        while at and best[q, at - 1] < similarity:
            best[q, at], ids[q, at] = best[q, at - 1], ids[q, at - 1]
            at -= 1
        best[q, at], ids[q, at] = similarity, row


@inner
def _by_lanes(words, queries, sizes, nothing, sets, first, last, out):
    """Scan 32 rows at a time, as `nearest` does; returns the first row that is left."""
    asked, length = queries.shape
    tiles, masks, apart = -(-asked // QUERIES), np.empty(QUERIES, np.uint64), np.empty(LANES, np.int64)
    paired = length >= PAIRED and length % 2 == 0
    searched, more = in_pairs(queries, paired)
    limits, ones, eight = np.empty((asked, 2)), np.empty(LANES), np.empty(ROWS, np.int64)
    for q in range(asked):
        limits[q, 0], limits[q, 1] = _bound(sets, out[0], q, sizes[q])
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
                for lane in range(LANES if mask else 0):
                    if (mask >> np.uint64(lane)) & np.uint64(1):
                        distance = distance_of(words, row + lane, queries, q)
                        size = np.int64(ones[lane])
                        _store(row + lane, size, q, sizes[q], distance, sets, out)
                if mask:
                    limits[q, 0], limits[q, 1] = _bound(sets, out[0], q, sizes[q])
                    limits[q, 0] += more[q]
        if ahead < stop:
            transpose(words, ahead, 1, beside, lanes, other)
        here = other
    return stop


@inner
def _by_rows(words, queries, sizes, nothing, sets, first, last, out):
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
                bound, slope = _bound(sets, out[0], q, sizes[q])
                limit = np.int64(bound + slope * ends[at, 1 if slope > 0.0 else 0]) + 1
                if near_rows(words, row * length, queries, q * length, length, limit, distances):
                    for i in range(ROWS):
                        if distances[i] < limit:
                            _store(row + i, ones[at + i], q, sizes[q], distances[i], sets, out)
            for row in range(whole, stop):
                size, distance = distance_of(words, row, nothing, 0), distance_of(words, row, queries, q)
                _store(row, size, q, sizes[q], distance, sets, out)
