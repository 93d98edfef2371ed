"""Sums of rows of floats in the CPU's order: a warp takes a block, and lanes are added by shuffles.

The host adds up blocks, one number of each: no launch follows another.
"""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import ALL, warp_sum


def sums(x, size, cuts, shift, power, out):
    if out.size:
        launch.run(_sums(power), *launch.warps_of(out[0].size), x, size, cuts, shift, out)


def below(x, size, row, thresholds, out):
    if thresholds.size:
        launch.run(_below, *launch.warps_of(thresholds.size), x, size, row, thresholds, out)


@inline
def _plus(total, value):
    """Round the sum, where a fused instruction would round it and the product before it once."""
    return libdevice.dadd_rn(total, value)


@inline
def _of_lanes(value):
    """Return the sum of a float64 over the warp, in every lane: the two halves, then the halves of what is left."""
    apart = LANES // 2
    while apart > 0:
        value = _plus(value, cuda.shfl_xor_sync(ALL, value, apart))
        apart >>= 1
    return value


@cache
def _sums(power):
    @cuda.jit
    def sums_of_blocks(x, size, cuts, shift, out):
        """Add up the values of one rank: its neighbours in the thread block, of the other ranks, share them in L1."""
        lane, task = cuda.threadIdx.x % LANES, cuda.grid(1) // LANES
        ranks, blocks = out.shape[2:]
        if task >= x.shape[0] * blocks * ranks:
            return  # all lanes of the warp
        item = task // ranks
        rank, row = task - item * ranks, item // blocks
        block = item - row * blocks
        low, high = -np.inf, np.inf
        if rank > 0:
            low = cuts[row, rank - 1]
        if rank < ranks - 1:
            high = cuts[row, rank]
        start, total, count = shift[row], 0.0, np.int32(0)
        at, end = block * size + lane, min(x.shape[1], (block + 1) * size)
        while at < end:
            value = np.float64(x[row, at])
            if (rank == 0 or value >= low) and not (rank < ranks - 1 and value >= high):
                t = value - start
                if power == 0:
                    t = abs(t)
                elif power == 2:
                    t = libdevice.dmul_rn(t, t)
                total, count = _plus(total, t), np.int32(count + 1)
            at += LANES
        total, counted = _of_lanes(total), warp_sum(np.int64(count))
        if lane == 0:
            out[0, row, rank, block], out[1, row, rank, block] = counted, total

    return sums_of_blocks


@cuda.jit
def _below(x, size, row, thresholds, out):
    """Search a place: all lanes take the same steps, and then each adds every 32nd value of its block."""
    lane, task = cuda.threadIdx.x % LANES, cuda.grid(1) // LANES
    if task >= thresholds.size:
        return  # all lanes of the warp
    r = task // thresholds.shape[1]
    t = task - r * thresholds.shape[1]
    at, threshold, length = row[r], thresholds[r, t], x.shape[1]
    low, high = np.int64(0), np.int64(length)
    while low < high:
        middle = (low + high) >> 1
        if np.float64(x[at, middle]) < threshold:
            low = middle + 1
        else:
            high = middle
    i, total = low // size * size + lane, 0.0
    while i < low:
        total = _plus(total, np.float64(x[at, i]))
        i += LANES
    total = _of_lanes(total)
    if lane == 0:
        out[0, r, t], out[1, r, t] = low, total
        out[2, r, t], out[3, r, t] = x[at, max(low - 1, 0)], x[at, min(low, length - 1)]
