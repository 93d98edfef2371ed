"""Scan elements in order: the largest of each line, running sums, and by counting sort orders of lines."""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, WARPS
from ..runtime.target import cuda
from ..runtime.warp import ALL, ballot, place_of_lane
from . import counting_sort
from .lines import value_at

STRETCH = 1024  # elements of a line that a warp, or a thread, looks at for the largest


def argmax(words, length, levels, row, group, floor, lanes, out):
    if not out.size:
        return
    read, tables = launch.halves(words), (launch.resident(levels), launch.resident(row), group)
    stretches = max(1, -(-(words.shape[2] if lanes else length) // STRETCH))
    shape = (*out.shape, stretches) if stretches > 1 else (1, 1, 1)
    best, places = (launch.scratch(shape, dtype) for dtype in (np.float64, np.int64))
    scratch = best, places, launch.arrivals(out.size if stretches > 1 else 1)
    if lanes:
        grid, block = launch.rows_by_items(out.shape[0] * stretches, out.shape[1])
        launch.run(_best_of_lanes, grid, block, read, *tables, float(floor), *scratch, out)
    else:
        grid, block = launch.rows_by_halves(out.shape[0], stretches)
        launch.run(_best_of_rows, grid, block, read, length, *tables, float(floor), *scratch, out)


def cumulate(words, length, levels, row, group, lanes, out):
    if not out.size:
        return
    args = launch.halves(words), launch.resident(levels), launch.resident(row), group, out
    if lanes:
        grid, block = launch.rows_by_items(out.shape[0], out.shape[2])
        launch.run(_sums_of_lanes(levels.dtype.type), grid, block, *args)
    else:
        launch.run(_sums_of_rows(levels.dtype.type), *launch.rows_by_halves(out.shape[0], 1), *args)


def argsort(words, length, ranks, row, group, lanes, out):
    if out.size:
        counting_sort.places(words, length, ranks, row, group, lanes, out)


def sort(words, length, order, row, group, lanes, out):
    if out.size:
        counting_sort.codes(words, length, order, row, group, lanes, out)


@cuda.jit
def _best_of_rows(words, length, levels, row, group, floor, best, places, arrived, out):
    """Find the largest value of each stretch of a row, and its first place: a warp a stretch, the last one of all."""
    lane, stretch, r, step = place_of_lane()
    end, stretches = min((stretch + 1) * STRETCH, length), best.shape[2]
    while r < words.shape[1] and stretch < stretches:
        value, place, i = floor, np.int64(-1), stretch * STRETCH + lane
        while i < end:
            candidate = value_at(words, r, 0, i, levels, row, group)
            if candidate > value:
                value, place = candidate, np.int64(i)
            i += LANES
        value, place = _first_largest(value, place)
        last = False
        if lane == 0 and stretches == 1:
            out[r, 0] = place
        elif lane == 0:
            best[r, 0, stretch], places[r, 0, stretch] = value, place
            cuda.threadfence()
            last = cuda.atomic.inc(arrived, r, np.uint32(stretches - 1)) == stretches - 1
        if ballot(last):
            cuda.threadfence()
            value, place, k = floor, np.int64(-1), lane
            while k < stretches:
                if best[r, 0, k] > value:
                    value, place = best[r, 0, k], places[r, 0, k]
                k += LANES
            value, place = _first_largest(value, place)
            if lane == 0:
                out[r, 0] = place
        r += step


@cuda.jit
def _best_of_lanes(words, levels, row, group, floor, best, places, arrived, out):
    """Find the largest value of each stretch of folds: a thread an element of the packed axis, the last one of all."""
    i, item = cuda.grid(2)
    _, rows, folds, _ = words.shape
    stretches = best.shape[2]
    while item < rows * stretches and i < out.shape[1]:
        r = item // stretches
        stretch = item - r * stretches
        value, place, f = floor, np.int64(-1), stretch * STRETCH
        end = min(f + STRETCH, folds)
        while f < end:
            candidate = value_at(words, r, f, i, levels, row, group)
            if candidate > value:
                value, place = candidate, np.int64(f)
            f += 1
        if stretches == 1:
            out[r, i] = place
        else:
            best[r, i, stretch], places[r, i, stretch] = value, place
            cuda.threadfence()
            if cuda.atomic.inc(arrived, r * out.shape[1] + i, np.uint32(stretches - 1)) == stretches - 1:
                cuda.threadfence()
                value, place = floor, np.int64(-1)
                for k in range(stretches):
                    if best[r, i, k] > value:
                        value, place = best[r, i, k], places[r, i, k]
                out[r, i] = place
        item += cuda.gridDim.y * cuda.blockDim.y


@launch.inline
def _first_largest(value, place):
    """Return the largest value of the warp's lanes and, of equal ones, the lowest place; in every lane."""
    offset = 16
    while offset > 0:
        other, at = cuda.shfl_xor_sync(ALL, value, offset), cuda.shfl_xor_sync(ALL, place, offset)
        if other > value or (other == value and at < place):
            value, place = other, at
        offset >>= 1
    return value, place


@cache
def _sums_of_rows(total):
    """Sum in `total`, the levels' type: floats one after the other, as their order asks for."""

    @cuda.jit
    def sums_of_rows(words, levels, row, group, out):
        """Sum a line by a warp: lanes look 32 values up, all add them in order, and each keeps the sum at its place."""
        shown = cuda.shared.array((WARPS, LANES), total)
        lane, _, r, step = place_of_lane()
        warp, length = cuda.threadIdx.y, out.shape[2]
        while r < out.shape[0]:
            value, mine, first = total(0), total(0), 0
            while first < length:
                i = first + lane
                shown[warp, lane] = value_at(words, r, 0, min(i, length - 1), levels, row, group)
                cuda.syncwarp()
                for k in range(LANES):
                    value += shown[warp, k]
                    if k == lane:
                        mine = value
                cuda.syncwarp()
                if i < length:
                    out[r, 0, i] = mine
                first += LANES
            r += step

    return sums_of_rows


@cache
def _sums_of_lanes(total):
    @cuda.jit
    def sums_of_lanes(words, levels, row, group, out):
        """Sum along the folds, a thread a line."""
        i, r = cuda.grid(2)
        rows, folds, length = out.shape
        while r < rows and i < length:
            value = total(0)
            for f in range(folds):
                value += value_at(words, r, f, i, levels, row, group)
                out[r, f, i] = value
            r += cuda.gridDim.y * cuda.blockDim.y

    return sums_of_lanes
