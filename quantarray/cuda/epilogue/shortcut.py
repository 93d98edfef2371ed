"""Add a shortcut to results in memory, and compare the sums with thresholds into bits: one pass for both."""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import place_of_lane, put_code
from .finish import changes, code_of


def add_shortcut(values, shortcut, finish, sums, over, out):
    if not values.size:
        return
    packed, real = shortcut.values.ndim == 3, shortcut.levels.dtype == np.float64
    unused = launch.array(values).view(np.uint32)[None]
    codes, totals = launch.halves(out) if out.size else unused, sums if sums.size else values
    tables = (launch.resident(a) for a in (finish.thresholds, finish.flip))
    grid, block = launch.rows_by_halves(len(values), -(-values.shape[1] // LANES))
    other = launch.halves(shortcut.values) if packed else shortcut.values
    run = _kernel(real, packed, bool(out.size), bool(sums.size), bool(over.size))
    constants = launch.resident(shortcut.levels), launch.resident(shortcut.bounds)
    launch.run(run, grid, block, values, other, *constants, *tables, changes(finish), totals, over, codes)


@cache
def _kernel(real, packed, codes, stored, checked):
    """Make a kernel for each form: float32 sums or integers, a shortcut of codes or of values, what is stored."""

    @cuda.jit
    def add(values, shortcut, levels, bounds, thresholds, flip, changed, sums, over, out):
        lane, half, row, step = place_of_lane()
        rows, channels = values.shape
        channel = half * LANES + lane
        while row < rows:
            code = np.uint32(0)
            if channel < channels:
                if packed:
                    level = np.uint32(0)
                    for plane in range(shortcut.shape[0]):
                        bit = (shortcut[plane, row, half] >> np.uint32(lane)) & np.uint32(1)
                        level |= bit << np.uint32(plane)
                    other = levels[level]
                else:
                    other = shortcut[row, channel]
                if real:
                    total = np.float64(np.float32(np.float64(values[row, channel]) + np.float64(other)))
                else:
                    total = np.int64(values[row, channel]) + np.int64(other)
                inside = total >= bounds[0] and total <= bounds[1]
                if checked and not inside:
                    over[0] = 1
                if stored and (real or inside):
                    sums[row, channel] = total
                if codes:
                    code = code_of(total, thresholds, flip, changed, channel)
            if codes:
                put_code(code, lane, out, row, half)
            row += step

    return add
