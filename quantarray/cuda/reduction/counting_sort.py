"""A stable counting sort of each line: how often each rank occurs, where each begins, then elements to their places.

In begins int64[rows ranks lines], neighbouring threads have neighbouring lines. Its size is bounded: rows are sorted in
batches.
"""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import alike, place_of_lane, put_code
from .lines import table_of, value_at

STRETCH = 1024  # elements of a line that a warp, or a thread, counts
_ROOM = 1 << 26  # counts in memory at a time


def places(words, length, ranks, row, group, lanes, out):
    """out int64[rows folds length]: places along each line in the order of their ranks."""
    read, tables = launch.halves(words), (launch.resident(ranks), launch.resident(row), group)
    for first, begins in _batches(read, length, int(ranks.max()) + 1, tables, lanes):
        if lanes:
            grid, block = launch.rows_by_items(begins.shape[0], length)
            launch.run(_places_of_lanes, grid, block, read, first, *tables, begins, out)
        else:
            launch.run(_places_of_rows, *launch.rows_by_halves(begins.shape[0], 1), read, first, *tables, begins, out)


def codes(words, length, order, row, group, lanes, out):
    """out uint64[planes rows folds words]: the codes of each line in the order that `order` has them in."""
    read, result, tables = launch.halves(words), launch.halves(out), launch.resident(row)
    ranks = np.argsort(order, axis=-1)
    wanted, looked_up = launch.resident(order), (launch.resident(ranks), tables, group)
    flat = result.reshape(result.shape[0], -1, result.shape[3])
    for first, begins in _batches(read, length, order.shape[2], looked_up, lanes):
        grid, block = launch.rows_by_halves(begins.shape[0] * read.shape[2], read.shape[3])
        launch.run(
            _codes_in_order, grid, block, begins, first, length, read.shape[2], wanted, tables, group, int(lanes), flat
        )  # fmt: skip


def _batches(words, length, count, tables, lanes):
    """Yield (first row, where each rank begins in each line of the rows from there on), batch by batch."""
    _, rows, folds, _ = words.shape
    lines, most = (length, folds) if lanes else (1, length)
    at_a_time = min(rows, max(1, _ROOM // (count * lines)))
    begins = launch.scratch((at_a_time, count, lines), np.int64)
    stretches = -(-most // STRETCH)
    for first in range(0, rows, at_a_time):
        now = begins[: min(at_a_time, rows - first)]
        launch.run(_clear, *launch.rows_by_items(len(now) * count, lines), now)
        if lanes:
            grid, block = launch.rows_by_items(len(now) * stretches, length)
            launch.run(_count_lanes, grid, block, words, first, stretches, *tables, now)
        else:
            grid, block = launch.rows_by_halves(len(now), stretches)
            launch.run(_count_rows, grid, block, words, first, length, *tables, now)
        launch.run(_begin, *launch.rows_by_items(len(now), lines), now)
        yield first, now


@cuda.jit
def _clear(counts):
    line, item = cuda.grid(2)
    rows, count, lines = counts.shape
    while item < rows * count and line < lines:
        counts[item // count, item % count, line] = 0
        item += cuda.gridDim.y * cuda.blockDim.y


@cuda.jit
def _count_rows(words, first, length, ranks, row, group, counts):
    """Count each rank in a stretch of a row; of a warp's equal ranks one lane adds them all."""
    lane, stretch, r, step = place_of_lane()
    end = min((stretch + 1) * STRETCH, length)
    while r < counts.shape[0]:
        start = stretch * STRETCH
        while start < end:
            i = start + lane
            rank = np.int64(-1)
            if i < end:
                rank = np.int64(value_at(words, first + r, 0, i, ranks, row, group))
            before, all_of_them = alike(rank)
            if before == 0 and rank >= 0:
                cuda.atomic.add(counts, (r, rank, 0), np.int64(all_of_them))
            start += LANES
        r += step


@cuda.jit
def _count_lanes(words, first, stretches, ranks, row, group, counts):
    """Count each rank in a stretch of folds, a thread a line."""
    i, item = cuda.grid(2)
    while item < counts.shape[0] * stretches and i < counts.shape[2]:
        r = item // stretches
        f = (item - r * stretches) * STRETCH
        end = min(f + STRETCH, words.shape[2])
        while f < end:
            cuda.atomic.add(counts, (r, value_at(words, first + r, f, i, ranks, row, group), i), np.int64(1))
            f += 1
        item += cuda.gridDim.y * cuda.blockDim.y


@cuda.jit
def _begin(counts):
    """Turn counts into the places at which ranks begin."""
    line, r = cuda.grid(2)
    rows, count, lines = counts.shape
    while r < rows and line < lines:
        total = np.int64(0)
        for rank in range(count):
            occurrences = counts[r, rank, line]
            counts[r, rank, line] = total
            total += occurrences
        r += cuda.gridDim.y * cuda.blockDim.y


@cuda.jit
def _places_of_rows(words, first, ranks, row, group, begins, out):
    """Compute the places of 32 elements at a time, a warp a line; equal ranks keep the order of their lanes."""
    lane, _, r, step = place_of_lane()
    length = out.shape[2]
    while r < begins.shape[0]:
        start = 0
        while start < length:
            i = start + lane
            rank = np.int64(-1)
            if i < length:
                rank = np.int64(value_at(words, first + r, 0, i, ranks, row, group))
            before, all_of_them = alike(rank)
            at = begins[r, rank, 0] if rank >= 0 else np.int64(0)
            cuda.syncwarp()
            if rank >= 0:
                out[first + r, 0, at + before] = i
                if before == 0:
                    begins[r, rank, 0] = at + all_of_them
            cuda.syncwarp()
            start += LANES
        r += step


@cuda.jit
def _places_of_lanes(words, first, ranks, row, group, begins, out):
    """Compute the places of elements fold by fold, a thread a line."""
    i, r = cuda.grid(2)
    while r < begins.shape[0] and i < begins.shape[2]:
        for f in range(words.shape[2]):
            rank = value_at(words, first + r, f, i, ranks, row, group)
            at = begins[r, rank, i]
            begins[r, rank, i] = at + 1
            out[first + r, at, i] = f
        r += cuda.gridDim.y * cuda.blockDim.y


@cuda.jit
def _codes_in_order(begins, first, length, folds, order, row, group, lanes, out):
    """Write to each place of a line the code of the last rank that begins at it or before; a lane an element."""
    lane, half, item, step = place_of_lane()
    count, i = begins.shape[1], half * LANES + lane
    at = min(i, length - 1)
    part = at // group if order.shape[1] > 1 else 0
    while item < begins.shape[0] * folds:
        r = item // folds
        fold = item - r * folds
        line, place = (at, fold) if lanes else (0, at)
        rank, jump = 0, 128
        while jump > 0:
            if rank + jump < count and begins[r, min(rank + jump, count - 1), line] <= place:
                rank += jump
            jump >>= 1
        code = order[table_of(row, (first + r) * folds), part, rank]
        put_code(code if i < length else 0, lane, out, first * folds + item, half)
        item += step
