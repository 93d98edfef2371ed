"""Values to packed codes in one pass: each lane finds its value's place among the thresholds.

Places are found by bisection in which every lane takes the same steps, so nothing diverges before a ballot: 8 bits
are 8 compares, where one compare for each threshold would be 255. Values of 8 and 16 bits are widened in a register,
where the compare is exact.
"""

from functools import cache

import numpy as np
from numba import cuda

from . import launch
from .launch import LANES, inline
from .warp import place_of_lane, put_code


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = (launch.resident(a) for a in (thresholds, codes, row))
    before, _, after = x.shape
    if after == 1:
        kernel, (grid, block) = _along(_reader(x)), launch.rows_by_halves(*halves.shape[1:])
    else:
        kernel = _across(out.shape[0], _reader(x))
        grid, block = launch.rows_by_items(before * halves.shape[2], after)
    launch.run(kernel, grid, block, x, *tables, group, nan, halves)


def _reader(x):
    if x.dtype == np.uint16:
        return _of_bfloat16
    return _as_float64 if x.dtype == np.float64 else _as_float32


@inline
def _as_float32(value):
    return np.float32(value)


@inline
def _as_float64(value):
    return np.float64(value)


@inline
def _of_bfloat16(value):
    """bfloat16 is the upper half of float32."""
    return np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)


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


@cache
def _along(read):
    @cuda.jit
    def encode_along(x, thresholds, codes, row, group, nan, out):
        """x[rows length 1]: a lane is an element, and ballots pack the codes."""
        lane, half, r, step = place_of_lane()
        rows, length, _ = x.shape
        element = half * LANES + lane
        inside = element < length
        at = element if inside else 0
        part = at // group if thresholds.shape[1] > 1 else 0
        while r < rows:
            value = read(x[r, at, 0])
            if value != value and inside:
                nan[0] = True
            table = row[min(r, row.shape[0] - 1)]
            code = codes[table, part, _count_at_least(value, thresholds, table, part)]
            put_code(code if inside else 0, lane, out, r, half)
            r += step

    return encode_along


@cache
def _across(planes, read):
    """A kernel for each number of planes, so that what a thread makes stays in registers."""

    @cuda.jit
    def encode_across(x, thresholds, codes, row, group, nan, out):
        """x[before length after]: a thread takes 32 elements of a row, its neighbour those of the next row.

        So a warp reads 32 neighbours each time, and a thread has half a word of each plane of its own: what is packed
        along an axis in front is turned on the way, without a ballot or shared memory.
        """
        bits = cuda.local.array(planes, np.uint32)
        a, item = cuda.grid(2)
        before, length, after = x.shape
        halves = out.shape[2]
        while item < before * halves and a < after:
            b = item // halves
            half = item - b * halves
            first, r = half * LANES, b * after + a
            end = min(first + LANES, length)
            part = min(first, length - 1) // group if thresholds.shape[1] > 1 else 0
            table = row[min(r, row.shape[0] - 1)]
            for plane in range(planes):
                bits[plane] = 0
            for i in range(first, end):
                value = read(x[b, i, a])
                if value != value:
                    nan[0] = True
                code = np.uint32(codes[table, part, _count_at_least(value, thresholds, table, part)])
                for plane in range(planes):
                    bits[plane] |= np.uint32(((code >> np.uint32(plane)) & np.uint32(1)) << np.uint32(i - first))
            for plane in range(planes):
                out[plane, r, half] = bits[plane]
            item += cuda.gridDim.y * cuda.blockDim.y

    return encode_across
