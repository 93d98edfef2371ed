"""Products of rows of bytes and packed weights with constants for each group: 16 threads for each result."""

import numpy as np

from ..runtime import launch
from ..runtime.target import cuda, libdevice
from ..runtime.warp import sum_of_halves

_LANES = 16  # threads of a result


def group_product(codes, shares, starts, sums, words, low, step, apart, group, unit, out):
    if out.size:
        tables = (launch.resident(a) for a in (low, step))
        grid = launch.warps_of(-(-out.size * _LANES // launch.LANES))
        launch.run(_multiply, *grid, codes, shares, starts, sums, words, *tables, apart, group, unit, out)


@cuda.jit
def _multiply(codes, shares, starts, sums, words, low, step, apart, group, unit, out):
    place, lane = cuda.grid(1) // _LANES, cuda.threadIdx.x % _LANES
    row, column = min(place // out.shape[1], out.shape[0] - 1), place % out.shape[1]
    total = np.float32(0)
    for at in range(lane, shares.shape[1], _LANES):
        whole, begin = 0, at * unit
        for plane in range(words.shape[0]):
            bits, count = words[plane, column, begin // 64] >> np.uint64(begin % 64), 0
            for i in range(unit):
                count += np.int32((bits >> np.uint64(i)) & np.uint64(1)) * np.int32(codes[row, begin + i])
            whole += count << plane
        part = min(begin // group, step.shape[1] - 1)
        scale = libdevice.fmul_rn(step[column, part], shares[row, at])
        total = np.float32(libdevice.fmaf_rn(starts[row, at] + np.float32(apart * whole), scale, total))
        if low.shape[0]:
            total = np.float32(libdevice.fmaf_rn(low[column, part], sums[row, at], total))
    total = sum_of_halves(total)
    if place < out.size and lane == 0:
        out[row, column] = total
