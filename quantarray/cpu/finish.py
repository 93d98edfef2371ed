"""The last step of every kernel: a row of lanes becomes values, or is counted against thresholds into bits."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def store_values(lanes, channel, valid, out, row):
    """out[row, channel + l] = lanes[l]."""
    for lane in range(valid):
        out[row, channel + lane] = lanes[lane]


@njit(cache=True, nogil=True)
def store_codes(lanes, finish, at, channel, valid, code, out, row):
    """Bits channel .. channel + valid of the row, in every plane, from the thresholds at .. of `finish`.

    One threshold is one compare into one mask. `code` is scratch for as many lanes.
    """
    count = finish.thresholds.shape[0]
    thresholds, flip = finish.thresholds, finish.flip
    if count == 1:
        mask = np.uint64(0)
        for lane in range(valid):
            mask |= np.uint64((lanes[lane] > thresholds[0, at + lane]) != flip[at + lane]) << np.uint64(lane)
        or_bits(mask, channel, valid, out[0, row])
        return
    for lane in range(valid):
        code[lane] = 0
    for t in range(count):
        for lane in range(valid):
            code[lane] += lanes[lane] > thresholds[t, at + lane]
    for lane in range(valid):
        passed = count - code[lane] if flip[at + lane] else code[lane]
        code[lane] = finish.codes[passed]
    for plane in range(out.shape[0]):
        mask = np.uint64(0)
        for lane in range(valid):
            mask |= np.uint64((code[lane] >> plane) & 1) << np.uint64(lane)
        or_bits(mask, channel, valid, out[plane, row])


@njit(cache=True, nogil=True)
def or_bits(mask, start, length, words):
    """Write `length` <= 64 bits of a mask at bit `start` of zeroed words."""
    word, shift = start >> 6, start & 63
    words[word] |= mask << np.uint64(shift)
    if shift + length > 64:
        words[word + 1] |= mask >> np.uint64(64 - shift)
