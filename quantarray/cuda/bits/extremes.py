"""The least and the largest value of parts of rows, and whether one is NaN, in one pass: a warp takes a part."""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import ALL, ballot
from ..tensor_cores import ptx
from .encode import reader

_AHEAD = 4  # values that a lane reads before it looks at the first


def extremes(x, out):
    if out.size:
        kernel = _extremes(reader(x), np.float64 if x.dtype == np.float64 else np.float32)
        launch.run(kernel, *launch.warps_of(out.shape[1] * out.shape[2]), x, out)


@cache
def _extremes(read, kind):
    @cuda.jit
    def extremes_of_parts(x, out):
        lane, task = cuda.threadIdx.x % LANES, cuda.grid(1) // LANES
        _, rows, pieces = out.shape
        if task >= rows * pieces:
            return  # all lanes of the warp
        values = cuda.local.array(_AHEAD, kind)
        row, length = task // pieces, x.shape[1]
        piece = task - row * pieces
        at, end = length * piece // pieces, length * (piece + 1) // pieces
        low = high = read(ptx.read(x, row * length + at))
        at, unordered = at + lane, False
        while at < end:
            for k in range(_AHEAD):  # beyond the end, the part's last value once more
                values[k] = read(ptx.read(x, row * length + min(at + k * LANES, end - 1)))
            for k in range(_AHEAD):
                unordered |= values[k] != values[k]
                low, high = min(low, values[k]), max(high, values[k])
            at += _AHEAD * LANES
        apart = LANES // 2
        while apart > 0:
            low = min(low, cuda.shfl_xor_sync(ALL, low, apart))
            high = max(high, cuda.shfl_xor_sync(ALL, high, apart))
            apart >>= 1
        wrong = ballot(unordered)
        if lane == 0:
            out[0, row, piece] = np.nan if wrong else low
            out[1, row, piece] = np.nan if wrong else high

    return extremes_of_parts
