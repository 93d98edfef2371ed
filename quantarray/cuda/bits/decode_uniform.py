"""Values of uniform laws: a lane takes an element, the lanes of a warp the bits of half a word."""

import numpy as np
from numba import cuda
from numba.cuda import libdevice

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.warp import place_of_lane


def decode_uniform(words, low, step, group, out):
    if not out.size:
        return
    halves = launch.halves(words)
    grid, block = launch.rows_by_halves(out.shape[0], -(-out.shape[1] // LANES))
    launch.run(_decode, grid, block, halves, launch.resident(low), launch.resident(step), group, out)


@cuda.jit
def _decode(words, low, step, group, out):
    lane, half, row, rows_on = place_of_lane()
    rows, length = out.shape
    i = half * LANES + lane
    if i >= length:
        return
    part = i // group
    while row < rows:
        code = np.uint32(0)
        for plane in range(words.shape[0]):
            code |= ((words[plane, row, half] >> np.uint32(lane)) & np.uint32(1)) << np.uint32(plane)
        above = libdevice.dmul_rn(np.float64(step[row, part]), np.float64(code))
        out[row, i] = np.float32(libdevice.dadd_rn(np.float64(low[row, part]), above))
        row += rows_on
