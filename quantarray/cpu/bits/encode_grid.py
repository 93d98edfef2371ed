"""Encode floats to evenly spaced codes in one pass, by the arithmetic that defines them.

A division in float64 takes as long as two compares, so from 3 bits on this is less work than comparing with every
threshold, and constants that were fitted to this array need no thresholds found for them.
"""

import numpy as np

from ..llvm.masks import low_bits, mask_nan, mask_of_plane, prefetch
from ..runtime import threads
from ..runtime.schedule import Kernel, share
from .encode import rows_of
from .grid_codes import grid_codes

_LEAST = 1 << 16  # values that are worth a parallel region


def encode_grid(x, start, step, factor, low, high, down, row, group, nan, out):
    if not out.size:
        return
    x, workers = rows_of(x), threads.workers(x.size, _LEAST)
    nan = nan if workers > 1 else nan[:1]
    arguments = x, start, step, factor, low, high, down, row, group, nan, out
    kind = x.dtype.char, x.flags.num  # all others have one type
    threads.run(_encode_range, arguments, len(nan), workers, len(nan), kind)


@Kernel
def _encode_range(x, start, step, factor, low, high, down, row, group, nan, out, piece, _):
    planes, _, words = out.shape
    first, last = share(piece, len(nan), x.shape[0] * words)
    length, many = x.shape[1], start.shape[1] > 1
    rest, codes, unordered = np.zeros((1, 64), x.dtype), np.zeros(64, np.uint8), np.uint64(0)
    shifts = np.zeros(64)
    for at in range(first, last):
        r, word = at // words, at % words
        table, part = row[min(r, row.size - 1)], word * 64 // group if many else 0
        begin, valid = r * length + word * 64, min(64, length - word * 64)
        a, s = start[table, part], step[table, part]
        # The last word of a row is 64 values too: those of the next row are masked out
        if begin + 64 <= x.size:
            prefetch(x, begin)
            unordered |= mask_nan(x, begin)
            grid_codes(x, begin, a, factor, s, shifts, low, high, down, codes)
        else:
            for i in range(valid):
                rest[0, i] = x[r, word * 64 + i]
            unordered |= mask_nan(rest, 0)
            grid_codes(rest, 0, a, factor, s, shifts, low, high, down, codes)
        for plane in range(planes):
            out[plane, r, word] = mask_of_plane(codes, 0, plane) & low_bits(valid)
    nan[piece] = unordered != 0
