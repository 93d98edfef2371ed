"""Values already in memory, compared with thresholds into bits."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import place_of_lane, put_code
from .finish import changes, code_of


def threshold(values, finish, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = (launch.resident(a) for a in (finish.thresholds, finish.flip))
    grid, block = launch.rows_by_halves(*halves.shape[1:])
    launch.run(_threshold, grid, block, values, *tables, changes(finish), halves)


@cuda.jit
def _threshold(values, thresholds, flip, changed, out):
    lane, half, row, step = place_of_lane()
    rows, channels = values.shape
    channel = half * LANES + lane
    while row < rows:
        code = np.uint32(0)
        if channel < channels:
            code = code_of(values[row, channel], thresholds, flip, changed, channel)
        put_code(code, lane, out, row, half)
        row += step
