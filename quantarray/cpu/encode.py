"""Floats to packed codes in one pass: 64 values are compared with each threshold into one mask.

The masks of ascending thresholds are nested, so plane k of the codes is the exclusive or of the masks of those
thresholds at which bit k of the code changes: no code is ever written as a number, and codes may come in any order.
"""

from functools import lru_cache

import numpy as np
from numba import njit, prange

from . import threads
from .deal import next_piece, none_dealt, share
from .micro import mask_at_least, mask_nan, prefetch

_LEAST = 1 << 16  # values that are worth a parallel region
_FEW = 256  # codes whose toggles are kept: finding them takes 5 us


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    x, toggles = _rows(x, thresholds.dtype), _toggles(codes, out.shape[0])
    words = x.shape[0] * out.shape[2]
    if threads.serial(x.size, _LEAST):
        _encode_range(x, thresholds, codes, toggles, row, group, 0, words, nan, 0, out)
    else:
        threads.run(_encode_parallel, x, thresholds, codes, toggles, row, group, words, nan, out)


def _rows(x, dtype):
    """x[before length after] as rows [rows length] of the thresholds' type; itself where it is that."""
    x = x.transpose(0, 2, 1).reshape(-1, x.shape[1])
    if x.dtype == np.uint16:
        return np.ascontiguousarray(x.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.ascontiguousarray(x, dtype)


def _toggles(codes, planes):
    """uint64[tables groups T planes]: all ones where a plane's bit changes from code t to code t + 1."""
    if codes.size <= _FEW:
        return _kept_toggles(codes.tobytes(), codes.shape, planes)
    return _found_toggles(codes, planes)


@lru_cache(maxsize=256)
def _kept_toggles(codes, shape, planes):
    return _found_toggles(np.frombuffer(codes, np.uint8).reshape(shape), planes)


def _found_toggles(codes, planes):
    changed = codes[..., :-1, None] ^ codes[..., 1:, None]
    return np.where((changed >> np.arange(planes)) & 1 == 1, ~np.uint64(0), np.uint64(0))


@njit(cache=True, nogil=True, error_model="numpy")
def _encode_range(x, thresholds, codes, toggles, row, group, first, last, nan, piece, out):
    planes, _, words = out.shape
    length, count = x.shape[1], thresholds.shape[2]
    rest, made = np.zeros((1, 64), x.dtype), np.zeros(8, np.uint64)
    unordered, single = np.uint64(0), planes == 1 and count == 1 and thresholds.shape[1] == 1
    at = first
    while at < last:
        r, word = at // words, at % words
        table, part = row[min(r, row.size - 1)], word * 64 // group if thresholds.shape[1] > 1 else 0
        valid, whole = min(64, length - word * 64), min(last - at, length // 64 - word)
        if single and whole:
            start, toggle = np.uint64(codes[table, 0, 0]), toggles[table, 0, 0, 0]
            unordered |= _bits(x, r * length + word * 64, thresholds[table, 0, 0], start, toggle, out, r, word, whole)
            at += whole
            continue
        if valid == 64:
            prefetch(x, r * length + word * 64)
            unordered |= _word(x, r * length + word * 64, thresholds, codes, toggles, table, part, count, planes, made)
            for plane in range(planes):
                out[plane, r, word] = made[plane]
        else:
            for i in range(valid):
                rest[0, i] = x[r, word * 64 + i]
            unordered |= _word(rest, 0, thresholds, codes, toggles, table, part, count, planes, made)
            for plane in range(planes):
                out[plane, r, word] = made[plane] & (~np.uint64(0) >> np.uint64(64 - valid))
        at += 1
    nan[piece] = unordered != 0


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _bits(x, at, threshold, start, toggle, out, r, word, count):
    """`count` words of single bits from one threshold; not 0 where a value is NaN. Looking `_word`'s lists up for each
    word took as long as the comparing."""
    unordered, low, to = np.uint64(0), ~np.uint64(0) * (start & np.uint64(1)), np.uint64(word)
    for k in range(count):
        prefetch(x, at + 64 * k)
        out[0, r, to + np.uint64(k)] = low ^ (mask_at_least(x, at + 64 * k, threshold) & toggle)
        unordered |= mask_nan(x, at + 64 * k)
    return unordered


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _word(x, at, thresholds, codes, toggles, table, part, count, planes, made):
    """made[plane] = the bits of 64 codes; not 0 where a value is NaN."""
    start = codes[table, part, 0]
    for plane in range(planes):
        made[plane] = ~np.uint64(0) * np.uint64((start >> plane) & 1)
    for t in range(count):
        mask = mask_at_least(x, at, thresholds[table, part, t])
        for plane in range(planes):
            made[plane] ^= mask & toggles[table, part, t, plane]
    return mask_nan(x, at)


@njit(cache=True, parallel=True, nogil=True)
def _encode_parallel(x, thresholds, codes, toggles, row, group, words, nan, out, workers):
    pieces = nan.size
    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, words)
            _encode_range(x, thresholds, codes, toggles, row, group, first, last, nan, piece, out)
            piece = next_piece(dealt)
