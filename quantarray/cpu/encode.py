"""Floats to packed codes in one pass: 64 values are compared with each threshold into one mask.

The masks of ascending thresholds are nested, so plane k of the codes is the exclusive or of the masks of those
thresholds at which bit k of the code changes: no code is ever written as a number, and codes may come in any order.
"""

import numpy as np
from numba import njit, prange

from . import threads
from .micro import mask_at_least

_LEAST = 1 << 16  # values that are worth a parallel region


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    toggles = _toggles(codes, out.shape[0])
    words = x.shape[0] * out.shape[2]
    if threads.serial(x.size, _LEAST):
        _encode_range(x, thresholds, codes, toggles, row, group, 0, words, nan, 0, out)
    else:
        threads.run(_encode_parallel, x, thresholds, codes, toggles, row, group, words, nan, out)


def _toggles(codes, planes):
    """uint64[tables groups T planes]: all ones where a plane's bit changes from code t to code t + 1."""
    changed = codes[..., :-1, None] ^ codes[..., 1:, None]
    return np.where((changed >> np.arange(planes)) & 1 == 1, ~np.uint64(0), np.uint64(0))


@njit(cache=True, nogil=True, error_model="numpy")
def _encode_range(x, thresholds, codes, toggles, row, group, first, last, nan, piece, out):
    planes, _, words = out.shape
    length, count = x.shape[1], thresholds.shape[2]
    rest = np.zeros(64, x.dtype)
    found = np.uint64(0)
    for task in range(first, last):
        r, word = task // words, task % words
        table, part = row[r], word * 64 // group
        valid = min(64, length - word * 64)
        values, at = x, r * length + word * 64
        if valid < 64:
            for i in range(valid):
                rest[i] = x[r, word * 64 + i]
            values, at = rest.reshape(1, 64), 0
        used = ~np.uint64(0) >> np.uint64(64 - valid)
        ordered = mask_at_least(values, at, x.dtype.type(-np.inf))
        found |= ~ordered & used
        for plane in range(planes):
            start = np.uint64((codes[table, part, 0] >> plane) & 1)
            out[plane, r, word] = (~start + np.uint64(1)) & used
        for t in range(count):
            mask = mask_at_least(values, at, thresholds[table, part, t]) & used
            for plane in range(planes):
                out[plane, r, word] ^= mask & toggles[table, part, t, plane]
    nan[piece] = found != 0


@njit(cache=True, parallel=True, nogil=True)
def _encode_parallel(x, thresholds, codes, toggles, row, group, words, nan, out):
    pieces = nan.size
    for piece in prange(pieces):
        first, last = words * piece // pieces, words * (piece + 1) // pieces
        _encode_range(x, thresholds, codes, toggles, row, group, first, last, nan, piece, out)
