"""Encode floats to evenly spaced codes in one pass, by the arithmetic that defines them.

A division in float64 takes as long as two compares, so from 3 bits on this is less work than comparing with every
threshold, and constants that were fitted to this array need no thresholds found for them.
"""

import numpy as np

from ..llvm.masks import low_bits, mask_nan, mask_of_plane, prefetch
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel, share
from .encode import rows_of
from .extremes import ORDINARY, ends_of, fit_range
from .grid_codes import grid_codes, grid_masks

_LEAST = 1 << 16  # values that are worth a parallel region
_HALF = np.dtype(np.float16)


def encode_grid(x, start, step, factor, low, high, down, row, group, nan, out):
    if not out.size:
        return
    x, workers = rows_of(x), threads.workers(x.size, _LEAST)
    nan = nan if workers > 1 else nan[:1]
    arguments = x, start, step, factor, low, high, down, row, group, nan, out
    kind = x.dtype.char, x.flags.num  # all others have one type
    threads.run(_encode_range, arguments, len(nan), workers, len(nan), kind)


def encode_grid_small(x, fixed, nan, out):
    x = x.view(np.int16) if x.dtype == _HALF else x
    _encode_range((x, *fixed, nan, out), (x.dtype.char, x.flags.num), 1, 1, 1, 0)


def encode_range(x, run, rule, wrong, constants, out):
    x = x.view(np.int16) if x.dtype == _HALF else x
    arguments, kind = (x, run, *rule, wrong, constants, out), (x.dtype.char, x.flags.num)
    threads.run(_fit_and_encode, arguments, constants.shape[1], threads.workers(x.size, _LEAST), None, kind)


@inline
def put_grid(x, at, start, factor, step, shifts, low, high, down, masks, codes, used, out, r, word):
    """out[:, r, word] = the planes of 64 codes, 0 where `used` has no bit. `masks` and `codes` are scratch."""
    planes = out.shape[0]
    if planes == 8:
        grid_codes(x, at, start, factor, step, shifts, low, high, down, codes)
        for plane in range(8):
            out[plane, r, word] = mask_of_plane(codes, 0, plane) & used
    else:
        grid_masks(x, at, start, factor, step, shifts, low, high, down, masks, planes)
        for plane in range(planes):
            out[plane, r, word] = masks[plane] & used


@Kernel
def _encode_range(x, start, step, factor, low, high, down, row, group, nan, out, piece, _):
    words = out.shape[2]
    first, last = share(piece, len(nan), x.shape[0] * words)
    length, many = x.shape[1], start.shape[1] > 1
    rest, codes, unordered = np.zeros((1, 64), x.dtype), np.zeros(64, np.uint8), np.uint64(0)
    shifts, masks = np.zeros(64, np.uint32), np.zeros(8, np.uint64)
    for at in range(first, last):
        r, word = at // words, at % words
        table, part = row[min(r, row.size - 1)], word * 64 // group if many else 0
        begin, valid = r * length + word * 64, min(64, length - word * 64)
        a, s = start[table, part], step[table, part]
        used = low_bits(valid)
        # The last word of a row is 64 values too: those of the next row are masked out
        if begin + 64 <= x.size:
            prefetch(x, begin)
            unordered |= mask_nan(x, begin)
            put_grid(x, begin, a, factor, s, shifts, low, high, down, masks, codes, used, out, r, word)
        else:
            for i in range(valid):
                rest[0, i] = x[r, word * 64 + i]
            unordered |= mask_nan(rest, 0)
            put_grid(rest, 0, a, factor, s, shifts, low, high, down, masks, codes, used, out, r, word)
    nan[piece] = unordered != 0


@Kernel
def _fit_and_encode(
    x, run, top, signed, symmetric, zero, times, low, high, down, wrong, constants, out, first, last
):  # fmt: skip
    """Fit constants to ranges of x and encode them, in one call: a call for each step would take 10 us more in all."""
    length, rest, shifts = x.shape[1], np.zeros((1, 64), x.dtype), np.zeros(64, np.uint32)
    codes, masks = np.zeros(64, np.uint8), np.zeros(8, np.uint64)
    ends, more, fitted = np.zeros(2), np.zeros(2), np.zeros((2, 1))
    for task in range(first, last):
        at, end = task * run, task * run + run
        nan = ends_of(x, at, end, rest, ends, more)
        if nan or not (-ORDINARY < ends[0] and ends[1] < ORDINARY):
            wrong[0] = True
            continue
        fit_range(ends.reshape(2, 1), top, signed, symmetric, zero, fitted)
        scale, offset = np.float32(fitted[0, 0]) + np.float32(0), np.float32(fitted[1, 0])  # not -0
        constants[0, task] = scale
        if not symmetric:
            constants[1, task] = offset
        step = np.float64(scale) * times if times else 1.0
        step, start = step if step != 0 else 1.0, np.float64(offset) if times else 0.0
        while at < end:
            r, column = at // length, at % length
            valid, word = min(64, length - column), column // 64
            used = low_bits(valid)
            if at + 64 <= x.size:
                put_grid(x, at, start, 1.0, step, shifts, low, high, down, masks, codes, used, out, r, word)
            else:
                for i in range(valid):
                    rest[0, i] = x[r, column + i]
                put_grid(rest, 0, start, 1.0, step, shifts, low, high, down, masks, codes, used, out, r, word)
            at += valid
