"""Repeat each bit of a row several times, a lane a copy."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import ballot, place_of_lane


def spread(words, times, out):
    if not out.size:
        return
    read, result = launch.halves(words), launch.halves(out)
    launch.run(_spread, *launch.rows_by_halves(*result.shape), read, times, result)


@cuda.jit
def _spread(words, times, out):
    lane, half, row, step = place_of_lane()
    source = (half * LANES + lane) // times
    inside = source >> 5 < words.shape[1]
    while row < out.shape[0]:
        bit = np.uint32(0)
        if inside:
            bit = (words[row, source >> 5] >> np.uint32(source & 31)) & np.uint32(1)
        bits = ballot(bit)
        if lane == 0 and half < out.shape[1]:
            out[row, half] = bits
        row += step
