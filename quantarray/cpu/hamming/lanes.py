"""Rows and queries in the order in which kernels count them: rows side by side, words in pairs."""

import numpy as np

from ..llvm.masks import popcount
from ..llvm.transpose import WOVEN, part_1, part_2, part_3, weave_lanes
from ..llvm.vectors import LANES, WIDTH
from ..runtime.jit import inline, inner

PAIRED = 12  # words of a row, an even number, from which on counting them in pairs pays


@inner
def transpose(words, row, apart, start, lanes, to):
    """lanes[to + k, 8 * j + i] = word k of row + 8 * j + i where `apart` is 1, or of row + j + 4 * i where it is 4.

    Transposes 32 rows from word `start`, a multiple of 4, on.
    """
    length, ahead = words.shape[1], WIDTH if apart == 1 else 1
    for j in range(LANES // WIDTH):
        first = row + j * ahead
        if length < WOVEN:
            _transpose_short(words, first, apart, lanes, to, j * WIDTH)
            continue
        for k in range(start, length, WOVEN):
            k = min(k, length - WOVEN)  # the last words overlap those before
            weave_lanes(words, first * length + k, apart * length, lanes, (to + k) * LANES + j * WIDTH)


@inline
def _transpose_short(words, row, apart, lanes, to, lane):
    """Transpose 8 rows of 1, 2 or 3 words, as `transpose` does."""
    length = words.shape[1]
    at, place = row * length, to * LANES + lane
    if apart > 1:
        for k in range(length):
            for i in range(WIDTH):
                lanes[to + k, lane + i] = words[row + i * apart, k]
    elif length == 1:
        part_1(words, at, lanes, place)
    elif length == 2:
        part_2(words, at, lanes, place)
    else:
        part_3(words, at, lanes, place)


@inner
def in_pairs(queries, paired):
    """Return (queries, ones): if words are `paired`, odd words are exclusive ors with the words before, and `ones`
    counts the ones of those.
    """
    paired_queries, ones = queries.copy(), np.zeros(len(queries), np.int64)
    for q in range(len(queries) if paired else 0):
        for k in range(1, queries.shape[1], 2):
            paired_queries[q, k] ^= queries[q, k - 1]
            ones[q] += popcount(paired_queries[q, k])
    return paired_queries, ones


@inner
def distance_of(words, row, queries, q):
    distance = 0
    for k in range(words.shape[1]):
        distance += popcount(words[row, k] ^ queries[q, k])
    return distance
