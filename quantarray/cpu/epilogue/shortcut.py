"""Add a shortcut to results in memory, and compare the sums with thresholds into bits: one pass for both."""

import numpy as np

from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .finish import Lanes, store, target

_LEAST = 1 << 14  # results that are worth a parallel region


def add_shortcut(values, shortcut, finish, sums, over, out):
    if not values.size:
        return
    arguments = values, *shortcut, finish, sums, over, out
    run = _add_codes if shortcut.values.ndim == 3 else _add_values
    threads.run(run, arguments, len(values), threads.workers(values.size, _LEAST))


@Kernel
def _add_values(values, shortcut, levels, bounds, finish, sums, over, out, first, last):
    channels = values.shape[1]
    near, rounded = np.ones((1, LANES), levels.dtype), np.zeros(LANES, sums.dtype)
    to, one = target(finish, near[:0], out), near[0, 0]
    for row in range(first, last):
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            for lane in range(np.uint64(valid)):
                at = np.uint64(channel) + lane
                near[0, lane] = values[row, at] * one + shortcut[row, at] * one
            _finish(near, rounded, bounds, valid, channel, row, sums, over, to)


@Kernel
def _add_codes(values, shortcut, levels, bounds, finish, sums, over, out, first, last):
    channels = values.shape[1]
    near, rounded = np.ones((1, LANES), levels.dtype), np.zeros(LANES, sums.dtype)
    to, one = target(finish, near[:0], out), near[0, 0]
    codes, others = np.empty(LANES, np.uint64), np.empty(LANES, levels.dtype)
    for row in range(first, last):
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            half = shortcut[0, row, channel >> 6] >> np.uint64(channel & 63)
            if shortcut.shape[0] == 1:
                low, high = levels[0], levels[levels.size - 1]
                for lane in range(np.uint64(LANES)):
                    others[lane] = high if (half >> lane) & np.uint64(1) else low
            else:
                for lane in range(np.uint64(LANES)):
                    codes[lane] = (half >> lane) & np.uint64(1)
                for plane in range(1, shortcut.shape[0]):
                    half = shortcut[plane, row, channel >> 6] >> np.uint64(channel & 63)
                    for lane in range(np.uint64(LANES)):
                        codes[lane] |= ((half >> lane) & np.uint64(1)) << np.uint64(plane)
                for lane in range(np.uint64(LANES)):
                    others[lane] = levels[codes[lane]]
            for lane in range(np.uint64(valid)):
                near[0, lane] = values[row, np.uint64(channel) + lane] * one + others[lane]
            _finish(near, rounded, bounds, valid, channel, row, sums, over, to)


@inline
def _finish(near, rounded, bounds, valid, channel, row, sums, over, to):
    """Round 32 sums, note one that is NaN or beyond the bounds, and store them and their codes."""
    low, high, beyond = bounds[0], bounds[1], False
    for lane in range(np.uint64(valid)):
        beyond |= not (near[0, lane] >= low and near[0, lane] <= high)
        rounded[lane] = near[0, lane]
        near[0, lane] = rounded[lane]
    if beyond and over.size:
        over[0] = 1
    if sums.size:
        for lane in range(np.uint64(valid)):
            sums[row, np.uint64(channel) + lane] = rounded[lane]
    if to.words.size:
        store(near, 0, 0, Lanes(channel, channel, valid, 1), row, to)
