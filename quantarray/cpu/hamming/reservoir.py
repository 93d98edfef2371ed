"""Store the k best rows of each query: candidates are appended until there is no room, then all but the k best dropped.

A candidate is a key, int64, and a row. The smaller key is the better one; of equal keys the one that came first is.
Rows whose key is not below the limit, the k-th key when some were dropped last, are no candidates. So a row that is
stored costs the same whatever k is. The k-th key is found, and the k best are sorted, by counts of their digits.

A few candidates are inserted in order instead, which takes up to k steps, and no counts of digits.
"""

from typing import NamedTuple

import numpy as np

from ..runtime import threads
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .distances import ROWS

LEAST = 1 << 16  # words compared that are worth a parallel region
FAR = np.iinfo(np.int64).max
_MOST = 1 << 22  # candidates that are in memory at once, at 16 bytes
FEW = 32  # candidates that are inserted in order
_BITS = np.uint64(10)  # of a digit
_DIGITS = np.uint64(1) << _BITS
_SIGN = np.uint64(1 << 63)


class Reservoir(NamedTuple):
    """A list of candidates for each query: few in order of their keys, many in the order in which they came."""

    pairs: object  # int64[2 asked room]: keys, then rows
    counts: object  # int64[asked]: how many there are
    limits: object  # int64[asked]: keys below it are candidates
    k: int  # 0 where all are stored, those of all queries together as candidates of the first
    bins: object  # int64: counts of digits


@inner
def empty_reservoir(pairs, counts, asked, limit, k):
    counts[:] = 0
    return reservoir_of(pairs, counts, np.full(asked, limit), k)


@inner
def reservoir_of(pairs, counts, limits, k):
    return Reservoir(pairs, counts, limits, k, np.empty(0 if _in_order(k) else np.int64(_DIGITS), np.int64))


@inline
def add(best, q, key, row):
    """Add a candidate; True where this lowers the limit. Among those of all queries, its row is row * queries + q."""
    if _in_order(best.k):
        return _insert(best, q, key, row)
    if best.k == 0:
        q, row = 0, row * len(best.limits) + q
    at = best.counts[q]
    best.pairs[0, q, at], best.pairs[1, q, at], best.counts[q] = key, row, at + 1
    if at + 1 < best.pairs.shape[2]:
        return False
    return drop(best, q)


@inline
def _in_order(k):
    return 0 < k <= FEW


@inner
def _insert(best, q, key, row):
    """Insert a candidate after those of smaller or equal keys, in place of the last one where there are k."""
    pairs, at = best.pairs, min(best.counts[q], best.k - 1)
    best.counts[q] = at + 1
    while at > 0 and pairs[0, q, at - 1] > key:
        pairs[0, q, at], pairs[1, q, at] = pairs[0, q, at - 1], pairs[1, q, at - 1]
        at -= 1
    pairs[0, q, at], pairs[1, q, at] = key, row
    if best.counts[q] < best.k:
        return False
    best.limits[q] = pairs[0, q, best.k - 1]
    return True


@inner
def drop(best, q):
    """Drop all candidates of a query but the k best; True where there were more."""
    count, k = best.counts[q], best.k
    if count <= k or k == 0:
        return False
    last, equal = _last_of(best, q)
    at = 0
    for i in range(count):
        key, row = best.pairs[0, q, i], best.pairs[1, q, i]
        best.pairs[0, q, at], best.pairs[1, q, at] = key, row
        ties = key == last and equal > 0
        equal -= ties
        at += key < last or ties
    best.counts[q], best.limits[q] = k, last
    return True


@inner
def _last_of(best, q):
    """Return (a key, a number): the k best are those below the key and the first of that number of those equal to it.

    Keys within low .. high, which are distances from the least key, are counted by their first digit, then those of
    the digit in which the k-th is. If all of its digit are among the k best, any key above them and below others does.
    """
    count, left, bins = best.counts[q], best.k, best.bins
    least, most = best.pairs[0, q, 0], best.pairs[0, q, 0]
    for i in range(count):
        least, most = min(least, best.pairs[0, q, i]), max(most, best.pairs[0, q, i])
    base, low = np.uint64(least), np.uint64(0)
    high = np.uint64(most) - base
    while low < high:
        shift = np.uint64(0)
        while (high - low) >> shift >= _DIGITS:
            shift += np.uint64(1)
        bins[:] = 0
        for i in range(count):
            away = np.uint64(best.pairs[0, q, i]) - base - low
            if away <= high - low:
                bins[np.int64(away >> shift)] += 1
        digit = 0
        while left > bins[digit]:
            left -= bins[digit]
            digit += 1
        low += np.uint64(digit) << shift
        high = min(high, low + (np.uint64(1) << shift) - np.uint64(1))
        if left == bins[digit]:
            break
    return np.int64(base + high), left


@inner
def sort(pairs, count, bins):
    """Sort `count` candidates of pairs int64[2 2 room], keys and rows, at pairs[:, 0]; returns 0 or 1, where they are
    then. Equal keys stay in their order."""
    differing, here, shift = np.uint64(0), 0, np.uint64(0)
    for i in range(count):
        differing |= np.uint64(pairs[0, 0, i] ^ pairs[0, 0, 0])
    while shift < np.uint64(64) and differing >> shift:
        if (differing >> shift) & (_DIGITS - np.uint64(1)):
            bins[:] = 0
            for i in range(count):
                bins[_digit(pairs[0, here, i], shift)] += 1
            at = 0
            for digit in range(len(bins)):
                at, bins[digit] = at + bins[digit], at
            for i in range(count):
                digit = _digit(pairs[0, here, i], shift)
                to = bins[digit]
                bins[digit] = to + 1
                pairs[0, 1 - here, to], pairs[1, 1 - here, to] = pairs[0, here, i], pairs[1, here, i]
            here = 1 - here
        shift += _BITS
    return here


@inline
def _digit(key, shift):
    return np.int64(((np.uint64(key) ^ _SIGN) >> shift) & (_DIGITS - np.uint64(1)))


@Kernel
def _finish(pairs, counts, k, start, out, first, last):
    """out[:, start + q] = the k best of the candidates of all pieces [pieces 2 asked room], best first."""
    pieces, room = len(pairs), pairs.shape[3]
    merged, limits = np.empty((2, 2, pieces * room), np.int64), np.empty(2, np.int64)
    best = reservoir_of(merged, np.empty(2, np.int64), limits, k)
    for q in range(first, last):
        best.counts[0], limits[0] = 0, FAR
        for piece in range(pieces):
            for i in range(counts[piece, q]):
                if pairs[piece, 0, q, i] < limits[0]:
                    add(best, 0, pairs[piece, 0, q, i], pairs[piece, 1, q, i])
        drop(best, 0)
        count = best.counts[0]
        here = 0 if _in_order(k) else sort(merged, count, best.bins)
        for i in range(count):
            out[0, start + q, i], out[1, start + q, i] = merged[0, here, i], merged[1, here, i]


def pieces_of(rows, workers, k):
    """Return the number of pieces of rows: few where many rows are stored, as each piece stores as many."""
    return 1 if workers == 1 else threads.pieces(-(-rows // ROWS), workers) if k <= FEW else workers


def search(kernel, words, queries, settings, out):
    """out int64[2 asked k]: keys and rows of the best; a kernel adds those of each piece of the rows to its reservoir.

    Queries are searched for some at a time if k is so large that all candidates would take much memory.
    """
    asked, k = out.shape[1:]
    if len(words) < k:
        out[0], out[1] = FAR, -1
    if not len(words) or not out.size:
        return
    workers = threads.workers(words.size * asked, LEAST)
    pieces = pieces_of(len(words), workers, k)
    if pieces == 1 and k <= FEW:  # the candidates are the result
        counts = np.empty((1, asked), np.int64)
        threads.run(kernel, (words, queries, *settings, out[None], counts, FAR, k), 1, 1)
        return
    room = min(2 * k, -(-len(words) // pieces))
    at_once = min(asked, max(1, _MOST // (pieces * room)))
    pairs = np.empty((pieces, 2, at_once, room), np.int64)
    for first in range(0, asked, at_once):
        part = queries[first : first + at_once]
        counts = np.empty((pieces, len(part)), np.int64)
        threads.run(kernel, (words, part, *settings, pairs, counts, FAR, k), pieces, workers, pieces)
        finish(pairs, counts, k, first, out)


def search_all(kernel, words, queries, settings, limit, counts, out):
    """Store all rows whose keys are below a limit in out int64[pieces 2 1 room]: keys, and row * queries + query."""
    workers = threads.workers(words.size * len(queries), LEAST)
    threads.run(kernel, (words, queries, *settings, out, counts, limit, 0), len(counts), workers, len(counts))


def finish(pairs, counts, k, first, out):
    """out[:, first ..]: the k best of the candidates of some queries."""
    asked = counts.shape[1]
    workers = min(asked, threads.workers(counts.size * pairs.shape[3], LEAST))
    threads.run(_finish, (pairs, counts, k, first, out), asked, workers)
