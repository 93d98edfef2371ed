"""Stochastic rounding in groups: a lane makes its element's random number and code, ballots pack the codes.

Each lane computes a Philox block of its own and takes one of its four words. Neighbours could share one, as the CPU's
do, where the packed axis is the last; elsewhere their numbers lie in different blocks.
"""

import numpy as np
from numba import cuda
from numba.cuda import libdevice

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.warp import place_of_lane, put_code

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def encode_grouped(values, low, step, start, stride, group, key, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = (launch.resident(a) for a in (low, step, start))
    grid, block = launch.rows_by_halves(*halves.shape[1:])
    seeds = [np.uint64(k) for k in key] or [np.uint64(0)] * 3
    launch.run(_encode_grouped, grid, block, values, *tables, stride, group, int(key.size > 0), *seeds, halves)


@inline
def _philox(number, k0, k1, use):
    """Compute word number % 4 of the Philox4x32-10 block at counter (number // 4, use, 0): 32 bits, in uint64."""
    block = np.uint64(number) >> np.uint64(2)
    c0, c1, c2, c3 = block & _LOW, block >> _HALF, use, np.uint64(0)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c2 = (p1 >> _HALF) ^ c1 ^ k0, (p0 >> _HALF) ^ c3 ^ k1
        c1, c3 = p1 & _LOW, p0 & _LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW
    pair = (c0, c1) if number & 2 == 0 else (c2, c3)
    return pair[0] if number & 1 == 0 else pair[1]


@cuda.jit
def _encode_grouped(values, low, step, start, stride, group, random, k0, k1, use, out):
    lane, half, row, rows_on = place_of_lane()
    rows, length = values.shape
    i = half * LANES + lane
    at = min(i, length - 1)
    part, top = at // group, (1 << out.shape[0]) - 1
    while row < rows:
        u = 0.5
        if random:
            u = libdevice.dmul_rn(2.0**-32, np.float64(_philox(start[row] + at * stride, k0, k1, use)))
        t = (np.float64(values[row, at]) - np.float64(low[row, part])) / np.float64(step[row, part])
        t = libdevice.dadd_rn(t, u)
        code = np.uint32(0)
        if t >= top:  # rounded constants may leave a value beyond the last level
            code = np.uint32(top)
        elif t > 0:
            code = np.uint32(t)
        put_code(code if i < length else np.uint32(0), lane, out, row, half)
        row += rows_on
