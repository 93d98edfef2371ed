"""Round float32 values to bytes by a step and a zero point, in one pass: NumPy takes one for each of six operations."""

import numpy as np

from ..runtime import threads
from ..runtime.jit import borrowing
from ..runtime.schedule import Kernel, share

_LEAST = 1 << 16  # values that are worth a parallel region


def round_values(x, scale, zero, low, high, form, nan, out):
    if not x.size:
        return
    workers = threads.workers(x.size, _LEAST)
    pieces = len(nan) if workers > 1 else 1
    arguments = x, scale, zero, low, high, form, nan, out, pieces
    threads.run(_round, arguments, pieces, workers, pieces)


@Kernel
def _round(x, scale, zero, low, high, form, nan, out, pieces, first_piece, last_piece):
    for piece in range(first_piece, last_piece):
        first, last = share(piece, pieces, x.size)
        if form == 0:
            nan[piece] = _clip_and_round(x, scale[0], zero[0], low, high, out, first, last)
        elif form == 1:
            nan[piece] = _round_and_clip(x, scale[0], zero[0], low, high, out, first, last)
        else:
            nan[piece] = _multiply_and_round(x, scale[0], zero[0], low, high, out, first, last)


@borrowing
def _clip_and_round(x, scale, zero, low, high, out, first, last):
    wrong = 0
    for i in range(np.uint64(first), np.uint64(last)):
        value = x[i] / scale + zero
        wrong |= np.int32(value != value)
        out[i] = np.int32(np.rint(min(max(value, low), high)))
    return wrong != 0


@borrowing
def _round_and_clip(x, scale, zero, low, high, out, first, last):
    wrong = 0
    for i in range(np.uint64(first), np.uint64(last)):
        value = np.rint(x[i] / scale)
        wrong |= np.int32(value != value)
        out[i] = np.int32(min(max(value + zero, low), high))
    return wrong != 0


@borrowing
def _multiply_and_round(x, factor, offset, low, high, out, first, last):
    wrong, wide, added = 0, np.float64(factor), np.float64(offset)
    for i in range(np.uint64(first), np.uint64(last)):
        value = np.float32(np.float64(x[i]) * wide + added)
        wrong |= np.int32(value != value)
        out[i] = np.int32(np.rint(min(max(value, low), high)))
    return wrong != 0
