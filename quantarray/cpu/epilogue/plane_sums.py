"""Add scaled sums of planes to real results, rounded once, or compare these with thresholds into bits."""

import numpy as np

from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .finish import Lanes, store, target
from .scaled_row import scaled_sums

_LEAST = 1 << 14  # results that are worth a parallel region
_NO_VALUES, _NO_WORDS = np.empty((0, 0), np.float32), np.empty((0, 0, 0), np.uint64)


def add_planes(sums, factor, along, kinds, fixed, finish, out):
    if not out.size:
        return
    values, words = (out, _NO_WORDS) if out.ndim == 2 else (_NO_VALUES, out)
    arguments = sums, factor, along, kinds, fixed, finish, values, words
    rows, channels = sums.shape[1], factor.shape[2]
    threads.run(_add_planes, arguments, rows, threads.workers(rows * channels * len(sums), _LEAST))


@Kernel
def _add_planes(sums, factor, along, kinds, fixed, finish, values, words, first, last):
    terms, planes, channels = factor.shape
    near, to = np.zeros((1, LANES), np.float64), target(finish, values, words)
    for row in range(first, last):
        kind = kinds[row % kinds.size]
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            if valid == LANES:
                scaled_sums(near, sums, factor, terms, planes, row, channel)
            else:
                _scaled_sums(near, sums, factor, row, channel, valid)
            for t in range(along.shape[0]):
                ones = np.float64(sums[t, row, planes * channels])
                for lane in range(np.uint64(valid)):
                    near[0, lane] += along[t, np.uint64(channel) + lane] * ones
            for i in range(fixed.shape[0]):
                for lane in range(np.uint64(valid)):
                    near[0, lane] += fixed[i, kind, np.uint64(channel) + lane]
            for lane in range(np.uint64(valid)):
                near[0, lane] = np.float32(near[0, lane])
            store(near, 0, 0, Lanes(channel, channel, valid, 1), row, to)


@inline
def _scaled_sums(near, sums, factor, row, channel, valid):
    """Compute what `scaled_sums` does for fewer lanes."""
    terms, planes, channels = factor.shape
    for lane in range(valid):
        near[0, lane] = 0.0
        for t in range(terms):
            for s in range(planes):
                near[0, lane] += factor[t, s, channel + lane] * sums[t, row, s * channels + channel + lane]
