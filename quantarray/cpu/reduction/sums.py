"""Sums of rows of floats in an order that a GPU has too: that of 32 lanes, block by block.

`sums` reads all values, `below` those of a sorted row that it needs.
"""

import numpy as np

from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel

LANES = 32
_LEAST = 1 << 14  # values that are worth a parallel region


def sums(x, size, cuts, shift, power, out):
    arguments, kind = (x, size, cuts, shift, power, out), (x.dtype.char, x.flags.num)
    threads.run(_sums, arguments, out.shape[1] * out.shape[3], threads.workers(x.size, _LEAST), None, kind)


def below(x, size, row, thresholds, out):
    arguments, kind = (x, size, row, thresholds, out), (x.dtype.char, x.flags.num)
    tasks = thresholds.size
    threads.run(_below, arguments, tasks, threads.workers(tasks * size, _LEAST), None, kind)


@inline
def _of_lanes(lanes):
    """Add up lanes as shuffles do: the two halves, then the halves of what is left."""
    apart = LANES // 2
    while apart:
        for lane in range(apart):
            lanes[lane] += lanes[lane + apart]
        apart //= 2
    return lanes[0]


@inline
def _add(x, row, begin, end, shift, power, lanes):
    """Add the values of a part of a row to the lanes, all lanes at once: Numba turns the inner loop into vectors."""
    lanes[:] = 0
    for first in range(begin, end, LANES):
        for lane in range(min(LANES, end - first)):
            t = np.float64(x[row, first + lane]) - shift
            lanes[lane] += abs(t) if power == 0 else t if power == 1 else t * t
    return _of_lanes(lanes)


@Kernel
def _sums(x, size, cuts, shift, power, out, first, last):
    ranks, blocks = out.shape[2:]
    lanes, counts = np.zeros((ranks, LANES)), np.zeros(ranks)
    for task in range(first, last):
        row, block = task // blocks, task % blocks
        begin, end = block * size, min(x.shape[1], block * size + size)
        if ranks == 1:
            out[0, row, 0, block], out[1, row, 0, block] = (
                end - begin,
                _add(x, row, begin, end, shift[row], power, lanes[0]),
            )
            continue
        lanes[:], counts[:] = 0, 0
        for i in range(begin, end):
            value, rank = np.float64(x[row, i]), 0
            for cut in range(ranks - 1):
                rank += value >= cuts[row, cut]
            t = value - shift[row]
            lanes[rank, (i - begin) % LANES] += abs(t) if power == 0 else t if power == 1 else t * t
            counts[rank] += 1
        for rank in range(ranks):
            out[0, row, rank, block], out[1, row, rank, block] = counts[rank], _of_lanes(lanes[rank])


@Kernel
def _below(x, size, row, thresholds, out, first, last):
    count, length, lanes = thresholds.shape[1], x.shape[1], np.zeros(LANES)
    for task in range(first, last):
        r, t = task // count, task % count
        at, low, high = row[r], 0, length
        while low < high:
            middle = (low + high) // 2
            if np.float64(x[at, middle]) < thresholds[r, t]:
                low = middle + 1
            else:
                high = middle
        out[0, r, t], out[1, r, t] = low, _add(x, at, low // size * size, low, 0.0, 1, lanes)
        out[2, r, t], out[3, r, t] = x[at, max(low - 1, 0)], x[at, min(low, length - 1)]
