"""Rows of floats become int8, each run of elements, or each row, by its largest magnitude."""

import numpy as np

from ..llvm.vectors import prefer_wide
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


def encode_rows(x, least, wrong, scales, out):
    if len(x):
        arguments = x, x.view(np.uint32), np.float32(least), out, scales, wrong
        threads.run(_encode_rows, arguments, len(x), threads.workers(x.size, _LEAST))


@Kernel
def _encode_rows(x, bits, least, codes, scales, wrong, begin, end):
    prefer_wide()
    largest = np.empty(1, np.uint32)
    for row in range(begin, end):
        scales[row] = _MOST / max(_magnitude(bits, row, 0, x.shape[1], largest, wrong), least)
        _put_codes(x, row, 0, x.shape[1], scales[row], codes)


@inline
def _magnitude(bits, row, start, stop, largest, wrong):
    """Return the largest magnitude of some elements; wrong[0] = True where one is not finite. `largest` is a buffer."""
    most, r = np.uint32(0), np.uint64(row)
    for i in range(np.uint64(start), np.uint64(stop)):
        most = max(most, bits[r, i] & _MAGNITUDE)
    if most >= _INFINITE:
        wrong[0] = True
    largest[0] = most
    return largest.view(np.float32)[0]


@Kernel
def _encode(x, bits, run, unit, first, codes, shares, starts, sums, wrong, begin, end):
    length, largest = x.shape[1], np.empty(1, np.uint32)
    for row in range(begin, end):
        for start in range(0, length, run):
            stop = min(start + run, length)
            magnitude = max(_magnitude(bits, row, start, stop, largest, wrong), _SMALLEST)
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
    """Write codes of some elements; return their sum.

    Indices are unsigned: for signed ones, which may be negative, LLVM does not vectorise, and it took 5 times as long.
    """
    total, r = np.int32(0), np.uint64(row)
    for i in range(np.uint64(first), np.uint64(last)):
        code = np.int32(np.rint(x[r, i] * factor))
        codes[r, i] = code
        total += code
    return total
