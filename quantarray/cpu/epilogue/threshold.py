"""Compare values in memory with thresholds into bits."""

from functools import partial

import numpy as np

from ..llvm.vectors import LANES
from ..llvm.views import Limits, Rows, View
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .finish import Lanes, flips_and_lanes, store, target
from .strips import are_in_strips, put_codes, single_lines

_TOGETHER = 64  # rows that meet the thresholds of 32 channels, 32 KiB for 8 bits, before the next
_LEAST = 1 << 14  # values that are worth a parallel region


def threshold(values, finish, out):
    if not values.size:
        return
    threads.run(_threshold, (values, finish, out), len(values), threads.workers(values.size, _LEAST))


@partial(Kernel, of_bytes=True)
def _threshold(values, finish, out, first, last):
    channels, apart = values.shape[1], out.shape[2]
    near = np.zeros((_TOGETHER, LANES), finish.thresholds.dtype)
    to = target(finish, near[:0], out)  # not `values`, which nobody may write to
    singles, extra = single_lines(to.lines), np.zeros(LANES, near.dtype)
    in_strips = are_in_strips(to, singles)
    for begin in range(first, last, _TOGETHER):
        count = min(_TOGETHER, last - begin)
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            lanes = Lanes(channel, channel, valid, 1)
            _bring(values, begin, count, channel, valid, near)
            if in_strips:
                flips, used = flips_and_lanes(to.flip, lanes)
                limits, words = Limits(to.thresholds, channel, flips, used), Rows(out, begin * apart, apart)
                put_codes(Rows(near, 0, LANES), count, View(extra, 0), limits, singles, 1, channel, words)
                continue
            for row in range(count):
                store(near, row, 0, lanes, begin + row, to)


@inline
def _bring(values, begin, rows, channel, valid, near):
    """near[i, l] = values[begin + i, channel + l]; of int32, the lowest becomes the one after it.

    Only a threshold that is below all values is the lowest int32 (`products/epilogue.py`), so their codes are equal.
    """
    for i in range(np.uint64(rows)):
        row = np.uint64(begin) + i
        for lane in range(np.uint64(valid)):
            v = values[row, np.uint64(channel) + lane]
            near[i, lane] = max(v, -(2**31) + 1) if near.itemsize == 4 else v
