"""Floats to packed codes in one pass: each lane finds its value's place among the thresholds, ballots pack the codes.

Places are found by bisection in which every lane takes the same steps, so nothing diverges before a ballot: 8 bits
are 8 compares, where one compare for each threshold would be 255.
"""

from numba import cuda

from . import launch
from .launch import LANES, inline
from .warp import place_of_lane, put_code


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = (launch.resident(a) for a in (thresholds, codes, row))
    grid, block = launch.rows_by_halves(*halves.shape[1:])
    launch.run(_encode, grid, block, x, *tables, group, nan, halves)


@inline
def _count_at_least(value, thresholds, table, part):
    """How many of the ascending thresholds[table, part] a value is at least; NaN is at least none."""
    count = thresholds.shape[2]
    found, step = 0, 128
    while step > count:
        step >>= 1
    while step > 0:
        at = found + step
        if at <= count and value >= thresholds[table, part, min(at, count) - 1]:
            found = at
        step >>= 1
    return found


@cuda.jit
def _encode(x, thresholds, codes, row, group, nan, out):
    lane, half, r, step = place_of_lane()
    rows, length = x.shape
    element = half * LANES + lane
    inside = element < length
    at = element if inside else 0
    part = at // group if thresholds.shape[1] > 1 else 0
    while r < rows:
        value = x[r, at]
        if value != value and inside:
            nan[0] = True
        table = row[r]
        code = codes[table, part, _count_at_least(value, thresholds, table, part)]
        put_code(code if inside else 0, lane, out, r, half)
        r += step
