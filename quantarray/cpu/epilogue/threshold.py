"""Compare values in memory with thresholds into bits."""

import numpy as np

from ..llvm.vectors import LANES
from ..runtime.jit import entry
from .finish import Lanes, store, target


def threshold(values, finish, out):
    _threshold(values, finish, out)


@entry
def _threshold(values, finish, out):
    rows, channels = values.shape
    near = np.zeros((1, LANES), values.dtype)
    to = target(finish, near[:0], out)  # not `values`, which nobody may write to
    for row in range(rows):
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            for lane in range(valid):
                near[0, lane] = values[row, channel + lane]
            store(near, 0, 0, Lanes(channel, channel, valid, 1), row, to)
