"""Rows of floats become int8 by their largest magnitude, and sums of their products are divided by the same scale.

NumPy took six passes over x and four over the sums: a third of a product of 512 rows by AMX.
"""

import numpy as np
from numba import types
from numba.extending import overload

from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # elements that are worth a parallel region
_INFINITE = np.uint32(0x7F800000)  # the bits of what is not finite, without the sign, are at least these
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_MOST, _NOTHING = np.float32(127), np.float32(0)
_EXACT = 1 << 24  # integers up to this are float32


def encode_rows(x, least, wrong, scales, out):
    arguments = x, x.view(np.uint32), np.float32(least), out, scales, wrong
    if len(x):
        threads.run(_encode, arguments, len(x), threads.workers(x.size, _LEAST))


def divide_rows(sums, scales, out):
    if sums.size:
        threads.run(_divide, (sums, scales, out), len(sums), threads.workers(sums.size, _LEAST))


@Kernel
def _encode(x, bits, least, codes, scales, wrong, begin, end):
    prefer_wide()
    largest = np.empty(1, np.uint32)
    value = largest.view(np.float32)
    for row in range(begin, end):
        most = np.uint32(0)
        for i in range(x.shape[1]):
            most = max(most, bits[row, i] & _MAGNITUDE)
        if most >= _INFINITE:
            wrong[0] = True
        largest[0] = most
        factor = _MOST / max(value[0], least)
        scales[row] = factor
        for i in range(x.shape[1]):
            codes[row, i] = np.int32(np.rint(x[row, i] * factor))


def _are_floats(sums, row):
    """Return True where all sums of a row are float32 values."""
    raise NotImplementedError


@overload(_are_floats)
def _are_floats_of(sums, row):
    if isinstance(sums.dtype, types.Float):
        return lambda sums, row: True

    def are_small(sums, row):
        most = 0
        for i in range(sums.shape[1]):
            most = max(most, abs(sums[row, i]))
        return most <= _EXACT

    return are_small


@inner
def _small(sums, row):
    return _are_floats(sums, row)


@Kernel
def _divide(sums, scales, out, begin, end):
    prefer_wide()
    for row in range(begin, end):
        scale, wide = scales[row], np.float64(scales[row])
        # A quotient of two float32 that is rounded to float64 first is rounded to the same float32
        if _small(sums, row):
            for i in range(sums.shape[1]):
                out[row, i] = np.float32(sums[row, i]) / scale + _NOTHING
        else:
            for i in range(sums.shape[1]):
                out[row, i] = np.float32(np.float64(sums[row, i]) / wide)
