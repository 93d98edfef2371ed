"""Depthwise weights as operands of products of bytes.

A weight is a sum of digits d * 256^i with -128 <= d < 128. An instruction multiplies by 32 rows, 16 channels of two
taps, and 8 columns: column 2c has channel 8c + i, column 2c + 1 channel 8c + i + 1, for i = 0, 2, 4 and 6.
"""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES

TAPS = 2  # of an instruction
NBYTES = 32  # of a lane, for two taps of 32 channels


def largest(w):
    """Bound the sums of an output's weights times single bits; `w` is the `Right` of `depthwise`."""
    return launch.cached(_largest, (w.words,))


def _largest(values):
    """values int64[terms copies taps lanes]; codes alone are sums with weights of 1."""
    return int(max(np.abs(values.astype(np.float64)).sum(axis=2).max(initial=0), values.shape[2]))


def digits_of(w, taps, halves):
    """Return uint8[terms + 1, digits, halves, pairs of taps, lanes, 32], the last term weights of 1, made once.

    Lane 4 * g + t has two registers for each i = 0, 2, 4, 6, of one tap and of the other: channel 8c + j of column g,
    in byte c, if word j of a pixel is the lane's, j % 4 == t; else zeros.
    """
    return launch.cached(_digits, (w.words,), taps, halves, w.group_lanes)


def _digits(words, taps, halves, channels):
    terms, copies, real_taps, _ = words.shape
    values = np.zeros((terms + 1, taps, halves * LANES), np.int64)
    of_outputs = words[:, :, :taps, :channels].transpose(0, 2, 3, 1).reshape(terms, -1, channels * copies)
    values[:terms, : of_outputs.shape[1], : channels * copies] = of_outputs
    values[terms, :real_taps, : channels * copies] = 1
    digits = []
    while not digits or values.any():
        digits.append((values + 128 & 255) - 128)
        values = (values - digits[-1]) >> 8
    digits = np.array(digits[::-1], np.int8).reshape(len(digits), terms + 1, taps // TAPS, TAPS, halves, LANES)
    digits = digits.transpose(1, 0, 4, 2, 3, 5)  # [terms digits halves pairs taps channels]
    laid_out = np.zeros((*digits.shape[:4], 8, 4, 4, TAPS, 4), np.int8)  # .. g t i/2 taps bytes
    for g in range(8):
        for i in range(0, 8, 2):
            j, byte = i + (g & 1), g >> 1
            laid_out[..., g, j % 4, i // 2, :, byte] = digits[..., 8 * byte + j]
    return launch.resident(laid_out.reshape(*digits.shape[:4], LANES, NBYTES).view(np.uint8))
