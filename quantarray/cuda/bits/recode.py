"""Words to words: codes through a table, a lane an element."""

import numpy as np
from numba import cuda

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.warp import place_of_lane, put_code


def recode(words, tables, row, group, out):
    if not out.size:
        return
    read, result = launch.halves(words), launch.halves(out)
    grid, block = launch.rows_by_halves(*result.shape[1:])
    launch.run(_recode, grid, block, read, launch.resident(tables), launch.resident(row), group, result)


@cuda.jit
def _recode(words, tables, row, group, out):
    lane, half, r, step = place_of_lane()
    planes, rows, halves = words.shape
    # The tail may be past the last group; the caller clears what is written there
    part = min((half * LANES + lane) // group, tables.shape[1] - 1)
    at = min(half, halves - 1)
    while r < rows:
        code = np.uint32(0)
        for plane in range(planes):
            code |= ((words[plane, r, at] >> np.uint32(lane)) & np.uint32(1)) << np.uint32(plane)
        put_code(tables[row[min(r, row.shape[0] - 1)], part, code], lane, out, r, half)
        r += step
