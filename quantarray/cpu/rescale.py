"""From exact sums to real results: a multiplication and a few additions an element, rounded once."""

import numpy as np
from numba import njit, prange

from . import threads
from .deal import next_piece, none_dealt

_LEAST = 1 << 14  # results that are worth a parallel region


def rescale(sums, x_scale, x_offset, kinds, scale, ones, pad, bias, out):
    if not out.size:
        return
    args = sums, x_scale, x_offset, kinds, scale, ones, pad, bias, out
    if threads.serial(out.size, _LEAST):
        _rescale_rows(*args, 0, len(out))
    else:
        threads.run(_rescale_parallel, *args, threads.pieces(len(out)))


@njit(cache=True, nogil=True, error_model="numpy")
def _rescale_rows(sums, x_scale, x_offset, kinds, scale, ones, pad, bias, out, first, last):
    """By way of `value`, because sums and out may be one array, which would keep the loops from SIMD."""
    channels, value = out.shape[1], np.empty(out.shape[1])
    for row in range(first, last):
        image, kind = row // kinds.size, kinds[row % kinds.size]
        along, shift = x_scale[min(image, x_scale.size - 1)], x_offset[min(image, x_offset.size - 1)]
        row_sums, row_ones, row_pad, made = sums[row], ones[kind], pad[kind], out[row]
        for c in range(channels):
            value[c] = 0.0 + (along * scale[c]) * row_sums[c]
        if shift != 0.0:
            for c in range(channels):
                value[c] += (shift * scale[c]) * row_ones[c]
        for c in range(channels):
            made[c] = (value[c] + row_pad[c]) + bias[c]


@njit(cache=True, parallel=True, nogil=True)
def _rescale_parallel(sums, x_scale, x_offset, kinds, scale, ones, pad, bias, out, pieces, workers):
    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = len(out) * piece // pieces, len(out) * (piece + 1) // pieces
            _rescale_rows(sums, x_scale, x_offset, kinds, scale, ones, pad, bias, out, first, last)
            piece = next_piece(dealt)
