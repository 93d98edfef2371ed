"""Stochastic rounding in groups: a lane makes its element's random number and code, ballots pack the codes.

Each lane computes a Philox block of its own and takes one of its four words. If the packed axis is the last, neighbours
could share a block, as the CPU's do; otherwise their numbers are in different blocks.
"""

import math

import numpy as np
from numba import cuda
from numba.cuda import libdevice

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.warp import ALL, place_of_lane, put_code

_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ORDINARY = 1e30  # magnitudes up to which no constant and no level is beyond float32


def encode_grouped(values, low, step, start, stride, group, key, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = (launch.resident(a) for a in (low, step, start))
    grid, block = launch.rows_by_halves(*halves.shape[1:])
    seeds = [np.uint64(k) for k in key] or [np.uint64(0)] * 3
    launch.run(_encode_grouped, grid, block, values, *tables, stride, group, int(key.size > 0), *seeds, halves)


def encode_groups(x, run, digits, key, wrong, constants, out):
    if not out.size:
        return
    seeds = [np.uint64(k) for k in key] or [np.uint64(0)] * 3
    grid, block = -(-constants.shape[1] // launch.WARPS), launch.WARPS * LANES
    rules, flat = (run, digits, int(key.size > 0), *seeds), x.reshape(-1)
    launch.run(_fit_and_encode, grid, block, flat, x.shape[1], *rules, wrong, constants, launch.halves(out))


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


@inline
def _code(value, low, step, number, top, random, k0, k1, use):
    """Return floor((value - low) / step + u), clipped: rounded constants may leave a value beyond the last level."""
    u = 0.5
    if random:
        u = libdevice.dmul_rn(2.0**-32, np.float64(_philox(number, k0, k1, use)))
    t = libdevice.dadd_rn((np.float64(value) - np.float64(low)) / np.float64(step), u)
    code = np.uint32(0)
    if t >= top:
        code = np.uint32(top)
    elif t > 0:
        code = np.uint32(t)
    return code


@cuda.jit
def _encode_grouped(values, low, step, start, stride, group, random, k0, k1, use, out):
    lane, half, row, rows_on = place_of_lane()
    rows, length = values.shape
    i = half * LANES + lane
    at = min(i, length - 1)
    part, top = at // group, (1 << out.shape[0]) - 1
    while row < rows:
        number = start[row] + at * stride
        code = _code(values[row, at], low[row, part], step[row, part], number, top, random, k0, k1, use)
        put_code(code if i < length else np.uint32(0), lane, out, row, half)
        row += rows_on


@inline
def _unit(x, digits):
    """Return the unit of the last of `digits` binary digits of x, as float32 has them at least."""
    return math.ldexp(1.0, max(math.frexp(x)[1], -125) - digits)


@inline
def _ends(x, at, end, lane, wrong):
    """Return the least and the largest of x[at:end], in every lane of the warp."""
    low = high = x[min(at + lane, end - 1)]
    i = at + lane
    while i < end:
        value = x[i]
        if not abs(value) < _ORDINARY:  # NaN too
            wrong[0] = True
        low, high = min(low, value), max(high, value)
        i += LANES
    offset = LANES // 2
    while offset > 0:
        low = min(low, cuda.shfl_xor_sync(ALL, low, offset))
        high = max(high, cuda.shfl_xor_sync(ALL, high, offset))
        offset >>= 1
    return np.float64(low), np.float64(high)


@cuda.jit
def _fit_and_encode(x, length, run, digits, random, k0, k1, use, wrong, constants, out):
    """Fit and encode a run a warp: constants from its extremes, then half words of codes, whose values L1 still has."""
    lane = cuda.threadIdx.x % LANES
    task = cuda.blockIdx.x * (cuda.blockDim.x // LANES) + cuda.threadIdx.x // LANES
    top = (1 << out.shape[0]) - 1
    if task >= constants.shape[1]:
        return  # all lanes of the warp
    at, end = task * run, min(task * run + run, x.size)
    low, high = _ends(x, at, end, lane, wrong)
    unit = _unit(low, digits)
    start = np.float32(libdevice.dadd_rn(libdevice.dmul_rn(libdevice.floor(low / unit), unit), 0.0))  # not -0
    step = (high - np.float64(start)) / top
    unit = _unit(step, digits)
    step = libdevice.ceil(step / unit) * unit
    size = np.float32(step if step != 0 else 1.0)
    if lane == 0:
        constants[0, task], constants[1, task] = size, start
    row = at // length
    while at < end:
        first = row * length
        stop = min(length, end - first)
        last = out.shape[2] if stop == length else stop // LANES
        for half in range((at - first) // LANES, last):
            i = half * LANES + lane
            code = np.uint32(0)
            if i < stop:
                code = _code(x[first + i], start, size, first + i, top, random, k0, k1, use)
            put_code(code, lane, out, row, half)
        row, at = row + 1, first + stop
