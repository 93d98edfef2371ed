"""Words to words: codes through a table, a lane an element."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import place_of_lane, put_code


def recode(words, others, tables, row, group, length, out):
    if not out.size:
        return
    read, above, result = (launch.halves(a) for a in (words, others, out))
    grid, block = launch.rows_by_halves(*result.shape[1:])
    launch.run(_recode, grid, block, read, above, launch.resident(tables), launch.resident(row), group, length, result)


@cuda.jit
def _recode(words, others, tables, row, group, length, out):
    lane, half, r, step = place_of_lane()
    planes, rows, halves = words.shape
    element, at = half * LANES + lane, min(half, halves - 1)
    part = min(element, length - 1) // group if tables.shape[1] > 1 else 0
    while r < rows:
        code = np.uint32(0)
        for plane in range(planes):
            code |= ((words[plane, r, at] >> np.uint32(lane)) & np.uint32(1)) << np.uint32(plane)
        for plane in range(others.shape[0]):
            code |= ((others[plane, r, at] >> np.uint32(lane)) & np.uint32(1)) << np.uint32(planes + plane)
        mapped = tables[row[min(r, row.shape[0] - 1)], part, code]
        put_code(mapped if element < length else np.uint32(0), lane, out, r, half)
        r += step
