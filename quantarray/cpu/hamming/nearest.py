"""Find the nearest rows by Hamming distance. `docs/kernels/nearest.md` explains the order of the loops.

Rows that fit into L1 meet all queries before the next ones are read from memory, and distances are looked at only where
one of some is below the limit (`reservoir.py`). With AVX-512 and several queries, rows are transposed into lanes of
vectors while others are counted, and up to 5 queries meet them at once; else one query meets 8 rows, a row at a time.
"""

import numpy as np

from ..llvm.transpose import WOVEN
from ..llvm.vectors import LANES, PAIR, TILE, WIDTH
from ..llvm.views import RunSpan, View
from ..popcount.band_avx512bw_pshufb import SHUFFLED, SPLIT, SplitWeights, shuffle_tile, split_lanes
from ..popcount.band_sums import mask_sums
from ..popcount.bands import BY_SHUFFLES, MOST
from ..popcount.tiles import IN_REGISTERS
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel, share
from .distance_pairs import near_pairs
from .distances import QUERIES, ROWS, near_lanes, near_rows
from .lanes import PAIRED, distance_of, in_pairs, transpose
from .reservoir import add, empty_reservoir, search, search_all

STRETCH = 1 << 13  # bytes of rows that meet all queries before the next ones
ROOM = 1 << 62  # more than any distance, to which a number of ones can be added
SEVERAL = 4  # queries from which on rows are transposed into lanes
_BEYOND = 65535  # all sums of MOST words
BY_LANES = IN_REGISTERS  # a branch on a global is not even compiled where it is False


def nearest(words, queries, out):
    search(_nearest_range, words, queries, (), out)


def within_distance(words, queries, radius, counts, out):
    search_all(_nearest_range, words, queries, (), radius + 1, counts, out)


@Kernel
def _nearest_range(words, queries, pairs, counts, limit, k, first, last):
    for piece in range(first, last):
        best = empty_reservoir(pairs[piece], counts[piece], len(queries), limit, k)
        row, end = share(piece, len(pairs), len(words))
        if queries.shape[0] >= SEVERAL and words.shape[1]:
            if BY_LANES:
                row = _nearest_by_lanes(words, queries, row, end, best)
            elif BY_SHUFFLES and words.shape[1] <= MOST:
                row = _nearest_by_shuffles(words, queries, row, end, best)
        _nearest_by_rows(words, queries, row, end, best)


@inner
def _nearest_by_lanes(words, queries, first, last, best):
    """Scan 32 rows at a time; returns the first row that is left.

    While rows meet the first queries, the next rows are transposed into lanes.
    """
    asked, length = queries.shape
    tiles, masks, ones = -(-asked // QUERIES), np.empty(QUERIES, np.uint64), np.empty(LANES, np.int64)
    distances = np.empty(ROWS, np.int64)
    paired, no_sizes = length >= PAIRED and length % 2 == 0, np.empty(0)
    searched, more = in_pairs(queries, paired)
    limits = np.minimum(best.limits, ROOM) + more
    lanes, here, beside = empty_lines(2 * length, np.uint64), 0, length // WOVEN * WOVEN
    stop = first + max(0, last - first) // LANES * LANES
    if first < stop:
        transpose(words, first, 1, 0, lanes, here)
    for row in range(first, stop, LANES):
        ahead, other = row + LANES, length - here
        transposed = beside if ahead < stop else 0
        for tile in range(tiles):
            query, end = share(tile, tiles, asked)
            if paired:
                near = near_pairs(
                    lanes, here * LANES, length, searched, query * length, end - query, limits, query, masks, words,
                    ahead * length, transposed, other * LANES, ones, tile == 0, no_sizes,
                )  # fmt: skip
            else:
                near = near_lanes(
                    lanes, here * LANES, length, queries, query * length, end - query, limits, query, masks, words,
                    ahead * length, transposed, other * LANES, no_sizes,
                )  # fmt: skip
            transposed = 0
            if near and _add_near(masks, words, row, queries, query, end, distances, best):
                for q in range(query, end):
                    limits[q] = min(best.limits[q], ROOM) + more[q]
        if ahead < stop:
            transpose(words, ahead, 1, beside, lanes, other)
        here = other
    return stop


@inner
def _nearest_by_shuffles(words, queries, first, last, best):
    """Scan 128 rows at a time."""
    length, origins = words.shape[1], _tiles(queries)
    runs, masks = np.array([[0, 0, length]]), np.empty(TILE, np.uint64)
    lanes, split = empty_lines(2 * length, np.uint64), empty_lines(SHUFFLED // PAIR * length * SPLIT // LANES, np.uint8)
    sums, least = empty_lines(TILE * SHUFFLED // LANES, np.uint16), empty_lines(len(origins), np.uint16)
    distances = np.empty(ROWS, np.int64)
    for tile in range(len(origins)):
        least[tile] = min(_farthest(best, tile), _BEYOND)
    for row in range(first, last - SHUFFLED + 1, SHUFFLED):
        for pair in range(SHUFFLED // PAIR):
            for block in range(2):
                transpose(words, row + pair * PAIR + block * LANES, LANES // WIDTH, 0, lanes, block * length)
            split_lanes(lanes, 0, length * LANES, length, split, pair * length * SPLIT)
        for tile in range(len(origins)):
            _shuffle(queries, origins, tile, split, runs, sums)
            nearer = False
            for block in range(SHUFFLED // LANES):
                mask_sums(sums, block * LANES, SHUFFLED, least, tile * LANES, masks)
                for p in range(TILE):
                    masks[p] = ~masks[p] & np.uint64(0xFFFFFFFF)
                query = tile * TILE
                end = min(query + TILE, queries.shape[0])
                nearer |= _add_near(masks, words, row + block * LANES, queries, query, end, distances, best)
            if nearer:
                least[tile] = min(_farthest(best, tile), _BEYOND)
    return first + max(0, last - first) // SHUFFLED * SHUFFLED


@inline
def _shuffle(queries, origins, tile, split, runs, sums):
    """sums[128 * p + l] = |queries ^ rows| of the 4 queries of a tile and of 128 rows, whose words are `split`."""
    columns = SplitWeights(split, runs[0, 2] * SPLIT, SHUFFLED // PAIR)
    queried, sums = View(queries, 0), View(sums, 0)
    shuffle_tile(queried, View(origins, tile * TILE), columns, RunSpan(runs, 0, 1), -1, sums)


@inner
def _tiles(queries):
    """Return where the queries of each tile begin; the last one fills a tile up."""
    asked, length = queries.shape
    origins = np.empty((-(-asked // TILE), TILE), np.int64)
    for tile in range(len(origins)):
        for p in range(TILE):
            origins[tile, p] = min(tile * TILE + p, asked - 1) * length
    return origins


@inner
def _farthest(best, tile):
    """Return the distance from which on a row is too far for all queries of a tile."""
    return best.limits[tile * TILE : (tile + 1) * TILE].max()


@inline
def _add_near(masks, words, row, queries, first, last, distances, best):
    """Add those of 32 rows that are near enough; True where this lowers a limit.

    Others have no bit in the mask of a query, first .. last.
    """
    lower = False
    for q in range(first, last):
        near = masks[q - first]
        for at in range(0, LANES if near else 0, ROWS):
            if (near >> np.uint64(at)) & np.uint64((1 << ROWS) - 1):
                lower |= _add_rows(words, row + at, queries, q, distances, best)
    return lower


@inline
def _add_rows(words, row, queries, q, distances, best):
    """Add those of 8 rows that are near enough; True where this lowers the limit."""
    length, lower = words.shape[1], False
    if near_rows(words, row * length, queries, q * length, length, best.limits[q], distances):
        for i in range(ROWS):
            if distances[i] < best.limits[q]:
                lower |= add(best, q, distances[i], row + i)
    return lower


@inner
def _nearest_by_rows(words, queries, first, last, best):
    distances = np.empty(ROWS, np.int64)
    stretch = max(ROWS, STRETCH // (8 * max(words.shape[1], 1)) // ROWS * ROWS)
    for start in range(first, last, stretch):
        stop = min(start + stretch, last)
        whole = start + (stop - start) // ROWS * ROWS
        for q in range(queries.shape[0]):
            for row in range(start, whole, ROWS):
                _add_rows(words, row, queries, q, distances, best)
            for row in range(whole, stop):
                distance = distance_of(words, row, queries, q)
                if distance < best.limits[q]:
                    add(best, q, distance, row)
