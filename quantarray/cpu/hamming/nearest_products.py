"""Find the nearest rows by products of queries of int8 and their words, a run of rows at a time.

A run's sums and products stay in a cache, where an array of all products was written and read. Few queries wait for the
rows: each row is read once for four of them.
"""

import numpy as np

from ..int8.bit_rows import (
    ENTRIES,
    ENTRY,
    HAS_TABLES,
    MOST_QUERIES,
    OUTPUTS,
    ROOM,
    WORDS,
    laid_out,
    look_up_rows,
    tables_of_row,
)
from ..int8.byte_rows import divide, put_rows_in_order
from ..int8.group_bytes import BYTES, LANES
from ..int8.group_rows import MOST_ROWS, SHORT, add_lanes, dot_byte_rows
from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.aligned import empty_lines
from ..runtime.schedule import Kernel, share
from .candidates import look_along
from .reservoir import FAR, FEW, LEAST, empty_reservoir, finish, pieces_of

_TOGETHER = 256  # queries, whose tables a thread has in memory: 128 KiB a word of a row
_RUN = 512  # rows, whose lanes of sums stay in a cache: a multiple of OUTPUTS
_BLOCK = 8  # words
_TAIL = 2 * OUTPUTS  # rows at the end, at most, of which a copy is read


def nearest_products(codes, scales, words, first, apart, by, offset, of_query, of_row, metric, out):
    asked, k = out.shape[1:]
    if asked > _TOGETHER:
        for q in range(0, asked, _TOGETHER):
            some = slice(q, min(q + _TOGETHER, asked))
            part = np.empty((2, some.stop - q, k), np.int64)
            queries = codes[some], scales[some]
            nearest_products(*queries, words, first, apart, by, offset, of_query[some], of_row, metric, part)
            out[:, some] = part
        return
    planes, rows, length = words.shape
    if not words[0].flags.c_contiguous:
        words = np.ascontiguousarray(words)
    workers = threads.workers(words.size * asked, LEAST)
    pieces = min(pieces_of(rows, workers, k), -(-rows // _RUN))
    alone = pieces == 1 and k <= FEW
    pairs = out[None] if alone else np.empty((pieces, 2, asked, min(2 * k, -(-rows // pieces) + _RUN)), np.int64)
    counts = np.empty((pieces, asked), np.int64)
    of_words = words[0].reshape(-1), words.strides[0] // words.itemsize, planes, length
    values = np.float64(first), np.float64(apart), by, offset
    kind = np.empty(0, np.float32 if len(scales) else np.float64)  # of products
    scales = scales if len(scales) else np.ones(asked, np.float32)
    arguments = codes, scales, kind, *of_words, *values, of_query, of_row, metric, pairs, counts, k
    threads.run(_search, arguments, pieces, workers, pieces)
    if not alone:
        finish(pairs, counts, k, 0, out)


@Kernel
def _search(
    codes, scales, kind, words, between, planes, length, lowest, apart, by, offset, of_query, of_row, metric, pairs,
    counts, k, first, last,
):  # fmt: skip
    """Look at the rows of some pieces, a run of them at a time."""
    prefer_wide()
    asked, rows, blocks = len(codes), len(words) // length, -(-length // _BLOCK)
    looked_up = HAS_TABLES and asked <= MOST_QUERIES and planes == 1 and length % WORDS == 0
    tables = np.empty((asked, length * ENTRIES if looked_up else 0), ENTRY)
    room = np.empty(_RUN * length * ROOM if looked_up else 0, words.dtype)
    x = np.empty((0 if looked_up else asked, blocks * _BLOCK * BYTES), np.int8)
    totals, products = np.empty(asked, np.int64), np.empty(_RUN, kind.dtype)
    if looked_up:
        for q in range(asked):
            totals[q] = tables_of_row(codes, q, tables[q])
    else:
        put_rows_in_order(codes, length, 1, totals, x, 0, asked)
    together, size = _BLOCK // length if length in SHORT else 1, _TAIL * length + _BLOCK
    padded, flat = np.empty(planes * size, np.uint64), x.reshape(-1)
    lanes = empty_lines(min(asked, MOST_ROWS) * _RUN * LANES // 32, np.int32).reshape(-1)
    inside = max(0, rows - _BLOCK) // OUTPUTS * OUTPUTS  # rows after which there are words that may be read with them
    for piece in range(first, last):
        best = empty_reservoir(pairs[piece], counts[piece], asked, FAR, k)
        at, end = share(piece, len(pairs), -(-rows // _RUN))
        at, end = at * _RUN, min(end * _RUN, rows)
        while at < end:
            count, here, step = min(_RUN, (inside if at < inside else end) - at), words[at * length :], between
            if at >= inside:
                for plane in range(planes):
                    for i in range(count * length):
                        padded[plane * size + i] = words[plane * between + at * length + i]
                here, step = padded, size
            vectors, whole = -(-count // together), -(-count // OUTPUTS) * OUTPUTS
            if looked_up:
                here = laid_out(here, length, whole, room)
            for tile in range(0, asked, MOST_ROWS):
                several = min(MOST_ROWS, asked - tile)
                if looked_up:
                    for r in range(several):
                        look_up_rows(tables[tile + r], here, length, whole, lanes[r * _RUN * LANES :])
                else:
                    row = flat[tile * blocks * _BLOCK * BYTES :]
                    to, next_row = vectors * together, _RUN * LANES
                    dot_byte_rows(row, several, blocks, here, step, length, next_row, planes, 0, to, lanes)
                for r in range(several):
                    q, start = tile + r, r * _RUN * LANES
                    if not looked_up:
                        add_lanes(lanes, start, vectors, LANES // together)
                    values = lowest, apart, by, offset
                    divide(lanes, start, count, totals[q], scales[q], *values, at, products, 0)
                    look_along(products, count, True, 1.0, of_query[q], of_row, at, metric, q, at, best)
            at += count
