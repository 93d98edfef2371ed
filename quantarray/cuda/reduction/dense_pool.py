"""Pooling of dense values whose channels are last: the largest of each window, or its mean; a thread for each."""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import inline
from ..runtime.target import cuda, libdevice

_MOST, _MEANS, _WIDE_MEANS = range(3)


def pool_values(x, grid, counts, flip, out):
    if not out.size:
        return
    flat, pixels = out.reshape(-1, out.shape[-1]), out.size // out.shape[-1]
    what = _MOST if not counts.size else _WIDE_MEANS if counts.dtype == np.float64 else _MEANS
    shape = launch.resident(np.array([*x.shape[1:4], *out.shape[1:4]]))
    divisors = launch.resident(counts if counts.size else np.ones(1, np.float32))
    sizes = launch.rows_by_items(pixels, out.shape[-1])
    run = _kernel(what, x.dtype == np.float32)
    launch.run(run, *sizes, x.reshape(-1), shape, launch.resident(grid), divisors, launch.resident(flip), flat)


@inline
def _larger(best, value):
    return value if value > best or value != value else best  # a NaN stays once it is there


@inline
def _sum(total, value):
    return np.float32(libdevice.fadd_rn(total, value))


@inline
def _wide_sum(total, value):
    return libdevice.dadd_rn(total, np.float64(value))


@cache
def _kernel(what, real):
    """Make a kernel for each way to join values: `what`, of float32 or of int32."""
    first = (np.float32(-np.inf) if real else np.int32(-(2**31)), np.float32(0), np.float64(0))[what]
    join = (_larger, _sum, _wide_sum)[what]

    @cuda.jit
    def pool(x, shape, grid, counts, flip, out):
        channel, row = cuda.grid(2)
        rows, channels = out.shape
        many = shape[3] * shape[4] * shape[5]
        while row < rows and channel < channels:
            image = row // many
            pixel = row - image * many
            at_0 = pixel // (shape[4] * shape[5]) * grid[0, 1] - grid[0, 3]
            at_1 = pixel // shape[5] % shape[4] * grid[1, 1] - grid[1, 3]
            at_2 = pixel % shape[5] * grid[2, 1] - grid[2, 3]
            turned, total = flip[channel] != 0, first
            for i in range(grid[0, 0]):
                a = at_0 + i * grid[0, 2]
                for j in range(grid[1, 0]):
                    b = at_1 + j * grid[1, 2]
                    for k in range(grid[2, 0]):
                        c = at_2 + k * grid[2, 2]
                        if 0 <= a < shape[0] and 0 <= b < shape[1] and 0 <= c < shape[2]:
                            value = x[(((image * shape[0] + a) * shape[1] + b) * shape[2] + c) * channels + channel]
                            if turned:
                                value = -value if real else ~value
                            total = join(total, value)
            if what == _MEANS:
                out[row, channel] = libdevice.fdiv_rn(total, counts[pixel])
            elif what == _WIDE_MEANS:
                out[row, channel] = np.float32(libdevice.ddiv_rn(total, counts[pixel]))
            elif turned:
                out[row, channel] = -total if real else ~total
            else:
                out[row, channel] = total
            row += cuda.gridDim.y * cuda.blockDim.y

    return pool
