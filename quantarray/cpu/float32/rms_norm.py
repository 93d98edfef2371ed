"""Rows of float32 divided by the root of the mean of their squares."""

import math

import numpy as np

from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel

_LANES = 16
_LEAST = 1 << 15  # elements that are worth a parallel region


def rms_norm(x, weight, eps, out):
    if out.size:
        threads.run(_normalize, (x, weight, eps, out), len(x), threads.workers(out.size, _LEAST))


@Kernel
def _normalize(x, weight, eps, out, first, last):
    length, sums = x.shape[1], np.empty(_LANES)
    for row in range(first, last):
        factor = 1 / math.sqrt(_squares(x, row, sums) / length + eps)
        for k in range(length):
            out[row, k] = x[row, k] * factor * weight[k if len(weight) > 1 else 0]


@inline
def _squares(x, row, sums):
    """Return the sum of squares of a row, in float64, where each square is exact."""
    length = x.shape[1]
    whole = length // _LANES * _LANES
    sums[:] = 0
    for k in range(0, whole, _LANES):
        for lane in range(_LANES):
            sums[lane] += np.float64(x[row, k + lane]) * np.float64(x[row, k + lane])
    for k in range(whole, length):
        sums[k - whole] += np.float64(x[row, k]) * np.float64(x[row, k])
    count = _LANES // 2
    while count:
        for lane in range(count):
            sums[lane] += sums[lane + count]
        count //= 2
    return sums[0]
