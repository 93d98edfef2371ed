"""Pooling of dense values whose channels are last: the largest of each window, or its mean.

The rows under a window are listed, then combined 16 channels at a time in a register. NumPy takes a pass over memory
for each tap.
"""

import numpy as np

from ..llvm.rows import join_rows
from ..runtime import threads
from ..runtime.jit import borrowing
from ..runtime.schedule import Kernel

_LEAST = 1 << 14  # elements that are worth a parallel region


def pool_values(x, grid, counts, flip, out):
    if not out.size:
        return
    pixels = out.size // out.shape[-1]
    workers = threads.workers(out.size * int(grid[:, 0].prod()), _LEAST)
    image, result = np.array(x.shape[1:4]), np.array(out.shape[1:4])
    if counts.dtype == np.float64:
        arguments = x.reshape(-1), image, grid, counts, result, out.reshape(pixels, -1)
        threads.run(_mean_pixels, arguments, pixels, workers)
        return
    threads.run(_pool_pixels, (x, image, grid, counts, flip, result, out.reshape(pixels, -1)), pixels, workers)


@Kernel
def _pool_pixels(x, image, grid, counts, flip, result, out, first, last):
    many, channels = result[0] * result[1] * result[2], out.shape[1]
    places = np.empty(grid[0, 0] * grid[1, 0] * grid[2, 0], np.int64)
    for row in range(first, last):
        image_at, pixel = row // many, row % many
        inside = _find_rows(pixel, image, grid, result, places, image_at, channels)
        join_rows(x, places, inside, flip, out, row * channels, channels, counts.size)
        if counts.size:
            for c in range(channels):
                out[row, c] = out[row, c] / counts[pixel]


@Kernel
def _mean_pixels(x, image, grid, counts, result, out, first, last):
    """Divide sums in float64: of whole images, where float32 would lose digits."""
    many, channels = result[0] * result[1] * result[2], out.shape[1]
    places = np.empty(grid[0, 0] * grid[1, 0] * grid[2, 0], np.int64)
    total = np.empty(channels, np.float64)
    for row in range(first, last):
        image_at, pixel = row // many, row % many
        total[:] = 0
        for tap in range(_find_rows(pixel, image, grid, result, places, image_at, channels)):
            values = x[places[tap] : places[tap] + channels]
            for c in range(channels):
                total[c] += values[c]
        for c in range(channels):
            out[row, c] = total[c] / counts[pixel]


@borrowing
def _find_rows(pixel, image, grid, result, places, image_at, channels):
    """List the places of the rows of channels under a window, in the order of taps; return how many there are."""
    at_0 = pixel // (result[1] * result[2]) * grid[0, 1] - grid[0, 3]
    at_1 = pixel // result[2] % result[1] * grid[1, 1] - grid[1, 3]
    at_2 = pixel % result[2] * grid[2, 1] - grid[2, 3]
    inside = 0
    for i in range(grid[0, 0]):
        a = at_0 + i * grid[0, 2]
        for j in range(grid[1, 0] if 0 <= a < image[0] else 0):
            b = at_1 + j * grid[1, 2]
            for k in range(grid[2, 0] if 0 <= b < image[1] else 0):
                c = at_2 + k * grid[2, 2]
                if 0 <= c < image[2]:
                    row = ((image_at * image[0] + a) * image[1] + b) * image[2] + c
                    places[inside] = row * channels
                    inside += 1
    return inside
