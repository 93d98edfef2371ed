"""Values that already lie in memory, compared with thresholds into bits."""

import numpy as np

from .compiled import entry
from .finish import codes_are_ranks, store_bits, store_codes, store_ranks
from .micro import LANES


def threshold(values, finish, out):
    _threshold(values, finish.thresholds, finish.flip, finish.toggles, out)


@entry
def _threshold(values, thresholds, flip, toggles, out):
    rows, channels = values.shape
    plain = codes_are_ranks(thresholds, toggles)
    lanes, made = np.zeros((1, LANES), values.dtype), np.zeros(8, np.uint64)
    for row in range(rows):
        for channel in range(0, channels, LANES):
            valid = min(LANES, channels - channel)
            for lane in range(valid):
                lanes[0, lane] = values[row, channel + lane]
            if thresholds.shape[0] == 1:
                store_bits(lanes, 0, 0, thresholds, flip, channel, channel, valid, 1, out, row)
            elif plain:
                store_ranks(lanes, 0, 0, thresholds, flip, channel, channel, valid, out, row)
            else:
                store_codes(lanes, 0, 0, thresholds, flip, toggles, channel, channel, valid, 1, made, out, row)
