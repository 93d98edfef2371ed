"""Encode floats to packed codes in one pass: 64 values are compared with each threshold into one mask.

The masks of ascending thresholds are nested, so plane k of the codes is the exclusive or of the masks of those
thresholds at which bit k of the code changes: no code is ever written as a number, and codes may come in any order.
"""

from functools import lru_cache

import numpy as np

from ..llvm.masks import low_bits, mask_at_least, mask_nan, prefetch
from ..llvm.widening import widen
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel, share
from .encode_search import encode_searched, searches

_LEAST = 1 << 16  # values that are worth a parallel region
_HALF = np.dtype(np.float16)
_FEW = 256  # codes whose toggles are kept: finding them takes 5 us


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    x, workers = rows_of(x), threads.workers(x.size, _LEAST)
    nan = nan if workers > 1 else nan[:1]
    if searches(thresholds, x.size):
        encode_searched(x, thresholds, codes, row, group, nan, workers, out)
        return
    toggles = _toggles(codes, out.shape[0])
    kind = x.dtype.char, *[a.flags.num for a in (x, thresholds, codes, row)]  # all others have one type
    arguments = x, thresholds, codes, toggles, row, group, nan, out
    threads.run(_encode_range, arguments, len(nan), workers, len(nan), kind)


def encode_small(x, fixed, nan, out):
    thresholds, codes, row, group, cache = fixed
    ready = cache.get("cpu")
    if ready is None:
        toggles = None if searches(thresholds, x.size) else _toggles(codes, out.shape[0])
        ready = cache["cpu"] = toggles, [a.flags.num for a in (thresholds, codes, row)]
    toggles, flags = ready
    x = x.view(np.int16) if x.dtype == _HALF else x
    if toggles is None:
        encode_searched(x, thresholds, codes, row, group, nan, 1, out)
        return
    arguments = x, thresholds, codes, toggles, row, group, nan, out
    _encode_range(arguments, (x.dtype.char, x.flags.num, *flags), 1, 1, 1, 0)


def rows_of(x):
    """Return x[before length after] as rows [rows length]; float16, which Numba does not know, as its bits in int16."""
    rows = x[:, :, 0] if x.shape[2] == 1 else np.ascontiguousarray(x.transpose(0, 2, 1).reshape(-1, x.shape[1]))
    return rows.view(np.int16) if rows.dtype == np.float16 else rows


def _toggles(codes, planes):
    """Return uint64[tables groups T planes]: all ones where a plane's bit changes from code t to code t + 1."""
    if codes.size <= _FEW:
        return _kept_toggles(codes.tobytes(), codes.shape, planes)
    return _found_toggles(codes, planes)


@lru_cache(maxsize=256)
def _kept_toggles(codes, shape, planes):
    return _found_toggles(np.frombuffer(codes, np.uint8).reshape(shape), planes)


def _found_toggles(codes, planes):
    changed = codes[..., :-1, None] ^ codes[..., 1:, None]
    return np.where((changed >> np.arange(planes)) & 1 == 1, ~np.uint64(0), np.uint64(0))


@Kernel
def _encode_range(x, thresholds, codes, toggles, row, group, nan, out, piece, _):
    planes, _, words = out.shape
    first, last = share(piece, len(nan), x.shape[0] * words)
    length, count = x.shape[1], thresholds.shape[2]
    rest, wide, bits = np.zeros((1, 64), x.dtype), np.zeros(64, thresholds.dtype), np.zeros(8, np.uint64)
    unordered, short = np.uint64(0), thresholds.shape[1] == 1 and planes <= 2 and 0 < count < 1 << planes
    at, r, word = first, first // words, first % words
    while at < last:
        table, part = row[min(r, row.size - 1)], word * 64 // group if thresholds.shape[1] > 1 else 0
        from_, whole = r * length + word * 64, min(last - at, length // 64 - word)
        valid, done = min(64, length - word * 64), max(1, whole) if short else 1
        # The last word of a row is 64 values too: those of the next row are masked out
        inside = from_ + 64 * done <= x.size
        if not inside:
            for i in range(valid):
                rest[0, i] = x[r, word * 64 + i]
        if short and inside and planes == 1:
            unordered |= _one_bit(x, from_, thresholds, codes, toggles, table, out, r, word, done)
        elif short and inside:
            unordered |= _two_bits(x, from_, thresholds, codes, toggles, table, out, r, word, done)
        else:
            if inside:
                prefetch(x, from_)
                unordered |= _word(x, from_, thresholds, codes, toggles, table, part, count, planes, wide, bits)
            else:
                unordered |= _word(rest, 0, thresholds, codes, toggles, table, part, count, planes, wide, bits)
            for plane in range(planes):
                out[plane, r, word] = bits[plane]
        for plane in range(planes if valid < 64 else 0):
            out[plane, r, word] &= low_bits(valid)
        at, word = at + done, word + done
        if word == words:
            r, word = r + 1, 0
    nan[piece] = unordered != 0


@inline
def _one_bit(x, at, thresholds, codes, toggles, table, out, r, word, count):
    """Encode `count` words by one threshold; not 0 where a value is NaN. Looking `_word`'s lists up for each word took
    as long as comparing.
    """
    cut, toggle, to = thresholds[table, 0, 0], toggles[table, 0, 0, 0], np.uint64(word)
    low, unordered = _all_of(codes[table, 0, 0], 0), np.uint64(0)
    for k in range(count):
        prefetch(x, at + 64 * k)
        unordered |= mask_nan(x, at + 64 * k)  # before the store: after it, x would be read again
        out[0, r, to + np.uint64(k)] = low ^ (mask_at_least(x, at + 64 * k, cut) & toggle)
    return unordered


@inline
def _two_bits(x, at, thresholds, codes, toggles, table, out, r, word, count):
    """Encode `count` words of two planes by up to three thresholds, as `_one_bit` does: missing ones toggle nothing."""
    cuts, turns, n = thresholds[table, 0], toggles[table, 0], thresholds.shape[2]
    a, b, c, none = cuts[0], cuts[min(1, n - 1)], cuts[n - 1], np.uint64(0)
    a0, b0, c0 = turns[0, 0], turns[1, 0] if n > 1 else none, turns[2, 0] if n > 2 else none
    a1, b1, c1 = turns[0, 1], turns[1, 1] if n > 1 else none, turns[2, 1] if n > 2 else none
    low, high, unordered, to = _all_of(codes[table, 0, 0], 0), _all_of(codes[table, 0, 0], 1), none, np.uint64(word)
    for k in range(count):
        prefetch(x, at + 64 * k)
        p, q, s = (mask_at_least(x, at + 64 * k, a), mask_at_least(x, at + 64 * k, b), mask_at_least(x, at + 64 * k, c))
        unordered |= mask_nan(x, at + 64 * k)
        out[0, r, to + np.uint64(k)] = low ^ (p & a0) ^ (q & b0) ^ (s & c0)
        out[1, r, to + np.uint64(k)] = high ^ (p & a1) ^ (q & b1) ^ (s & c1)
    return unordered


@inline
def _all_of(code, plane):
    """Repeat bit `plane` of a code 64 times."""
    return ~np.uint64(0) * np.uint64((code >> plane) & 1)


@inline
def _word(x, at, thresholds, codes, toggles, table, part, count, planes, wide, bits):
    """bits[plane] = the bits of 64 codes; not 0 where a value is NaN. Values are widened once, to `wide`."""
    widen(x, at, wide)
    start = codes[table, part, 0]
    for plane in range(planes):
        bits[plane] = _all_of(start, plane)
    for t in range(count):
        mask = mask_at_least(wide, 0, thresholds[table, part, t])
        for plane in range(planes):
            bits[plane] ^= mask & toggles[table, part, t, plane]
    return mask_nan(wide, 0)
