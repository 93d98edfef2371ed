"""Products of float32 values in the CPU's order: taps, then channels, a fused product and sum for each.

A thread has one sum. Neighbours read neighbouring columns of w, and the same values of x: one read for a warp.
"""

import numpy as np

from ..runtime import launch
from ..runtime.target import cuda, libdevice


def float_product(x, form, grid, w, bias, out):
    if not out.size:
        return
    groups = int(form[0, 4] * grid[:, 0].prod()) // max(1, len(w))
    tables = launch.resident(form), launch.resident(grid)
    launch.run(_multiply, *launch.rows_by_items(*out.shape), x, *tables, w, bias, out, max(1, groups))


@cuda.jit
def _multiply(x, form, grid, w, bias, out, groups):
    column, row = cuda.grid(2)
    rows, columns = out.shape
    channels = form[0, 4] // groups
    while row < rows and column < columns:
        pixels = form[2, 1] * form[2, 2] * form[2, 3]
        image = row // pixels
        pixel = row - image * pixels
        at_0 = pixel // (form[2, 2] * form[2, 3]) * grid[0, 1] - grid[0, 3]
        at_1 = pixel // form[2, 3] % form[2, 2] * grid[1, 1] - grid[1, 3]
        at_2 = pixel % form[2, 3] * grid[2, 1] - grid[2, 3]
        first = column // (columns // groups) * channels * form[1, 4] + image * form[1, 0]
        total, k = np.float32(0), 0
        for i in range(grid[0, 0]):
            a = at_0 + i * grid[0, 2]
            for j in range(grid[1, 0]):
                b = at_1 + j * grid[1, 2]
                for m in range(grid[2, 0]):
                    c = at_2 + m * grid[2, 2]
                    inside = 0 <= a < form[0, 1] and 0 <= b < form[0, 2] and 0 <= c < form[0, 3]
                    at = first + a * form[1, 1] + b * form[1, 2] + c * form[1, 3]
                    for channel in range(channels):
                        value = x[at + channel * form[1, 4]] if inside else np.float32(0)
                        total = np.float32(libdevice.fmaf_rn(value, w[k, column], total))
                        k += 1
        out[row, column] = libdevice.fadd_rn(total, bias[column])
        row += cuda.gridDim.y * cuda.blockDim.y
