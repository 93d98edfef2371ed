"""Products of rows of bytes and packed weights with constants for each group: 16 threads for each result."""

import numpy as np

from ..runtime import launch
from ..runtime.target import cuda, libdevice
from ..runtime.warp import sum_of_halves

_LANES, _EACH = 16, 4  # threads of a result, and neighbouring products that a thread adds as integers


def group_product(codes, shares, starts, sums, words, low, step, apart, group, out):
    if out.size:
        tables = (launch.resident(a) for a in (low, step))
        grid = launch.warps_of(-(-out.size * _LANES // launch.LANES))
        launch.run(_multiply, *grid, codes, shares, starts, sums, words, *tables, apart, group, out)


@cuda.jit
def _multiply(codes, shares, starts, sums, words, low, step, apart, group, out):
    place, lane = cuda.grid(1) // _LANES, cuda.threadIdx.x % _LANES
    row, column = min(place // out.shape[1], out.shape[0] - 1), place % out.shape[1]
    total = np.float32(0)
    for word in range(words.shape[2]):
        at = word * _LANES + lane
        whole = starts[row, at]
        for i in range(_EACH):
            code = 0
            for plane in range(words.shape[0]):
                bit = (words[plane, column, word] >> np.uint64(_EACH * lane + i)) & np.uint64(1)
                code |= np.int32(bit) << plane
            whole += np.int32(codes[row, _EACH * at + i]) * (code * apart)
        part = _EACH * at // group
        scale = libdevice.fmul_rn(step[column, part], shares[row, at])
        total = np.float32(libdevice.fmaf_rn(np.float32(whole), scale, total))
        if low.shape[0]:
            total = np.float32(libdevice.fmaf_rn(low[column, part], sums[row, at], total))
    total = sum_of_halves(total)
    if place < out.size and lane == 0:
        out[row, column] = total
