"""Compare values in memory with thresholds into bits."""

import numpy as np

from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.schedule import Kernel
from .finish import Lanes, store, target

_TOGETHER = 64  # rows that meet the thresholds of 32 channels, 32 KiB for 8 bits, before the next
_LEAST = 1 << 14  # values that are worth a parallel region


def threshold(values, finish, out):
    if not values.size:
        return
    threads.run(_threshold, (values, finish, out), len(values), threads.workers(values.size, _LEAST))


@Kernel
def _threshold(values, finish, out, first, last):
    channels = values.shape[1]
    near = np.zeros((1, LANES), finish.thresholds.dtype)
    to = target(finish, near[:0], out)  # not `values`, which nobody may write to
    for begin in range(first, last, _TOGETHER):
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            for row in range(begin, min(begin + _TOGETHER, last)):
                for lane in range(valid):
                    near[0, lane] = values[row, channel + lane]
                store(near, 0, 0, Lanes(channel, channel, valid, 1), row, to)
