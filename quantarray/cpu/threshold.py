"""Values that already lie in memory, counted against thresholds into bits."""

import numpy as np
from numba import njit

from .finish import store_codes

_LANES = 64


def threshold(values, finish, out):
    _threshold(values, finish, out)


@njit(cache=True, nogil=True)
def _threshold(values, finish, out):
    rows, channels = values.shape
    code = np.empty(_LANES, np.int64)
    for row in range(rows):
        for channel in range(0, channels, _LANES):
            valid = min(_LANES, channels - channel)
            lanes = values[row, channel : channel + valid]
            store_codes(lanes, finish, channel, channel, valid, code, out, row)
