"""Rows of floats become int8, each run of elements by its largest magnitude."""

import numpy as np

from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # elements that are worth a parallel region
_INFINITE = np.uint32(0x7F800000)  # the bits of what is not finite, without the sign, are at least these
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_SMALLEST, _MOST = np.float32(1e-5), np.float32(127)


def encode_runs(x, run, unit, first, wrong, shares, starts, sums, out):
    if x.size:
        arguments = x, x.view(np.uint32), run, unit, first, out, shares, starts, sums, wrong
        threads.run(_encode, arguments, len(x), threads.workers(x.size, _LEAST))


@Kernel
def _encode(x, bits, run, unit, first, codes, shares, starts, sums, wrong, begin, end):
    length, largest = x.shape[1], np.empty(1, np.uint32)
    value = largest.view(np.float32)
    for row in range(begin, end):
        for start in range(0, length, run):
            stop = min(start + run, length)
            most = np.uint32(0)
            for i in range(start, stop):
                most = max(most, bits[row, i] & _MAGNITUDE)
            if most >= _INFINITE:
                wrong[0] = True
            largest[0] = most
            magnitude = max(value[0], _SMALLEST)
            factor, share = _MOST / magnitude, magnitude / _MOST
            for at in range(start, stop, unit):
                n, total = at // unit, _put_codes(x, row, at, min(at + unit, stop), factor, codes)
                for i in range(stop, at + unit):
                    codes[row, i] = 0
                shares[row, n], starts[row, n] = share, np.float32(first * total)
                if row < len(sums):
                    sums[row, n] = np.float32(total) * share


@inline
def _put_codes(x, row, first, last, factor, codes):
    """Write codes of some elements; return their sum."""
    total = np.int32(0)
    for i in range(first, last):
        code = np.int32(np.rint(x[row, i] * factor))
        codes[row, i] = code
        total += code
    return total
