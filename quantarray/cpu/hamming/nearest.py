"""Find the nearest rows by Hamming distance. `docs/kernels/nearest.md` explains the order of the loops.

Rows that fit into L1 meet all queries before the next ones are read from memory, and distances are looked at only where
one of some is below the worst that is stored. With AVX-512 and several queries, rows are transposed into lanes of
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
from ..runtime import threads
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel, share
from .distance_pairs import near_pairs
from .distances import QUERIES, ROWS, near_lanes, near_rows
from .lanes import PAIRED, distance_of, in_pairs, transpose

STRETCH = 1 << 13  # bytes of rows that meet all queries before the next ones
LEAST = 1 << 16  # words compared that are worth a parallel region
FAR = np.iinfo(np.int64).max
ROOM = 1 << 62  # more than any distance, to which a number of ones can be added
SEVERAL = 4  # queries from which on rows are transposed into lanes
_MANY = 32  # rows of a result from which on inserting them takes a time that counts
_BEYOND = 65535  # all sums of MOST words
BY_LANES = IN_REGISTERS  # a branch on a global is not even compiled where it is False


def nearest(words, queries, out):
    out[0], out[1] = FAR, -1
    rows, work = words.shape[0], words.size * queries.shape[0]
    if not rows or not out.size:
        return
    workers = threads.workers(work, LEAST)
    best = np.repeat(out[None], pieces_of(rows, workers, out.shape[2]), axis=0) if workers > 1 else out[None]
    threads.run(_nearest_range, (words, queries, best), len(best), workers, len(best))
    if workers > 1:
        _merge(best, out)


def pieces_of(rows, workers, k):
    """Return the number of pieces of rows: few where many rows are stored, as each piece sorts as many."""
    return 1 if workers == 1 else workers if k > _MANY else threads.pieces(-(-rows // ROWS), workers)


def _merge(best, out):
    """Merge the best of each piece; of equal distances the lowest index wins, which is the first piece's."""
    distances, indices = (best[:, i].transpose(1, 0, 2).reshape(out.shape[1], -1) for i in (0, 1))
    order = np.argsort(distances, axis=1, kind="stable")[:, : out.shape[2]]
    out[0], out[1] = (np.take_along_axis(a, order, axis=1) for a in (distances, indices))


@Kernel
def _nearest_range(words, queries, best, piece, _):
    out = best[piece]
    first, last = share(piece, len(best), len(words))
    if queries.shape[0] >= SEVERAL and words.shape[1]:
        if BY_LANES:
            first = _nearest_by_lanes(words, queries, first, last, out)
        elif BY_SHUFFLES and words.shape[1] <= MOST:
            first = _nearest_by_shuffles(words, queries, first, last, out)
    _nearest_by_rows(words, queries, first, last, out)


@inner
def _nearest_by_lanes(words, queries, first, last, out):
    """Scan 32 rows at a time; returns the first row that is left.

    While rows meet the first queries, the next rows are transposed into lanes.
    """
    (asked, length), k = queries.shape, out.shape[2]
    tiles, masks, ones = -(-asked // QUERIES), np.empty(QUERIES, np.uint64), np.empty(LANES, np.int64)
    paired, no_sizes = length >= PAIRED and length % 2 == 0, np.empty(0)
    searched, more = in_pairs(queries, paired)
    limits = np.minimum(out[0, :, k - 1], ROOM) + more
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
            if near and _keep_near(masks, words, row, queries, query, end, out):
                for q in range(query, end):
                    limits[q] = min(out[0, q, k - 1], ROOM) + more[q]
        if ahead < stop:
            transpose(words, ahead, 1, beside, lanes, other)
        here = other
    return stop


@inner
def _nearest_by_shuffles(words, queries, first, last, out):
    """Scan 128 rows at a time."""
    length, origins = words.shape[1], _tiles(queries)
    runs, masks = np.array([[0, 0, length]]), np.empty(TILE, np.uint64)
    lanes, split = empty_lines(2 * length, np.uint64), empty_lines(SHUFFLED // PAIR * length * SPLIT // LANES, np.uint8)
    sums, least = empty_lines(TILE * SHUFFLED // LANES, np.uint16), empty_lines(len(origins), np.uint16)
    for tile in range(len(origins)):
        least[tile] = min(_worst(out, tile), _BEYOND)
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
                nearer |= _keep_near(masks, words, row + block * LANES, queries, query, end, out)
            if nearer:
                least[tile] = min(_worst(out, tile), _BEYOND)
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
def _worst(out, tile):
    """Return the distance from which on a row is too far for all queries of a tile."""
    return out[0, tile * TILE : (tile + 1) * TILE, -1].max()


@inline
def _keep_near(masks, words, row, queries, first, last, out):
    """Insert those of 32 rows whose bit in the mask of a query, first .. last, is 1 and that are near enough.

    True where there are any.
    """
    any_near, k = False, out.shape[2]
    for q in range(first, last):
        near = masks[q - first]
        for lane in range(LANES if near else 0):
            if (near >> np.uint64(lane)) & np.uint64(1):
                distance = distance_of(words, row + lane, queries, q)
                if distance < out[0, q, k - 1]:
                    _insert(out, q, distance, row + lane)
                    any_near = True
    return any_near


@inner
def _nearest_by_rows(words, queries, first, last, out):
    length, k = words.shape[1], out.shape[2]
    distances = np.empty(ROWS, np.int64)
    stretch = max(ROWS, STRETCH // (8 * max(length, 1)) // ROWS * ROWS)
    for start in range(first, last, stretch):
        stop = min(start + stretch, last)
        for q in range(queries.shape[0]):
            worst = out[0, q, k - 1]
            row = start
            while row + ROWS <= stop:
                near = near_rows(words, row * length, queries, q * length, length, worst, distances)
                if near:
                    for i in range(ROWS):
                        if distances[i] < worst:
                            worst = _insert(out, q, distances[i], row + i)
                row += ROWS
            for r in range(row, stop):
                distance = distance_of(words, r, queries, q)
                if distance < worst:
                    worst = _insert(out, q, distance, r)


@inner
def _insert(out, q, distance, row):
    """Insert a row after those that are as near, drop the worst, and return the worst that is left."""
    at = out.shape[2] - 1
    while at and out[0, q, at - 1] > distance:
        out[0, q, at], out[1, q, at] = out[0, q, at - 1], out[1, q, at - 1]
        at -= 1
    out[0, q, at], out[1, q, at] = distance, row
    return out[0, q, out.shape[2] - 1]
