"""Copy every k-th bit of a row next to each other. `docs/kernels/place.md` has the algebra and what was tried."""

from functools import lru_cache

import numpy as np

from ..runtime.jit import entry, inner
from .pick import pick_bits
from .picks import REACH, choice

_EVERY, _TAKEN = 6, 7  # where in a table, after the masks of the rounds
_REACHED = _TAKEN + 64
_CHOICE = _REACHED + 1
_STRETCH = 128  # words at a time, whose source stays in cache


@lru_cache(maxsize=64)
def squeezing(step):
    """Return a table for a step: a mask for each round, the bits it takes from bit 0 on, then how many it takes from
    each bit on.

    Bits 0, step, 2 * step, .. of a word come next to each other in 6 rounds: in round i all those move down by 2**i
    that have an odd number of 2**i other bits below them yet. Warren, Hacker's Delight, 7-4 (compress).
    """
    ones, step = 2**64 - 1, max(1, abs(step))
    every = wanted = sum(1 << i for i in range(0, 64, step))
    odd, masks = ~wanted << 1 & ones, []
    for i in range(6):
        parity = odd
        for shift in (1, 2, 4, 8, 16, 32):
            parity ^= parity << shift & ones
        masks.append(parity & wanted)
        wanted = (wanted ^ masks[-1]) | masks[-1] >> (1 << i)
        odd &= ~parity
    return np.array([*masks, every] + [(63 - first) // step + 1 for first in range(64)], np.uint64)


def table_for(start, step, at):
    """Return the table that kernels take for bits start, start + step, .. that go to bit `at` of a row and on."""
    return _table(step, (start - (at + 1 if step < 0 else at) * step) % 8)


@lru_cache(maxsize=512)
def _table(step, phase):
    """Return `squeezing`, then the number of elements that one `pick_bits` reaches and their bits of 64 bytes.

    The lowest is bit `phase` of the first byte: of any 8 and more the next pick begins at the same bit of a byte.
    """
    reached = next((n for n in (64, 32, 16, 8) if 7 + (n - 1) * abs(step) < REACH), 0)
    bits = phase + np.arange(reached) * abs(step)
    bits = np.pad(bits[::-1] if step < 0 else bits, (0, 64 - reached))
    return np.concatenate([squeezing(step), np.array([reached], np.uint64), choice(bits)])


@inner
def reversed_bits(x):
    """Reverse the 64 bits of a word by swapping ever smaller halves."""
    x = (x >> np.uint64(32)) | (x << np.uint64(32))
    x = ((x >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)) | ((x & np.uint64(0x0000FFFF0000FFFF)) << np.uint64(16))
    x = ((x >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)) | ((x & np.uint64(0x00FF00FF00FF00FF)) << np.uint64(8))
    x = ((x >> np.uint64(4)) & np.uint64(0x0F0F0F0F0F0F0F0F)) | ((x & np.uint64(0x0F0F0F0F0F0F0F0F)) << np.uint64(4))
    x = ((x >> np.uint64(2)) & np.uint64(0x3333333333333333)) | ((x & np.uint64(0x3333333333333333)) << np.uint64(2))
    return ((x >> np.uint64(1)) & np.uint64(0x5555555555555555)) | ((x & np.uint64(0x5555555555555555)) << np.uint64(1))


@inner
def _down(word, moving, by):
    return (word ^ moving) | (moving >> np.uint64(by))


@inner
def squeeze(words, row, i, step, n, table):
    """Load bits i, i + step, .. of a row for a step above 1, the first n in place; bits above them are undefined."""
    bits, have = np.uint64(0), 0
    while have < n:
        part = words[row, i >> 6] >> np.uint64(i & 63)
        part &= table[_EVERY]
        for k in range(6):
            part = _down(part, part & table[k], 1 << k)
        bits |= part << np.uint64(have)
        taken = np.int64(table[_TAKEN + (i & 63)])
        have += taken
        i += taken * step
    return bits


@entry
def _squeezed_words(words, row, start, step, at, table, out, begin, end):
    """Write words begin .. end of out, which are zero: 64 elements are `step` words of the source.

    So the k-th words of all stretches are shifted and squeezed alike, and no word waits for the one before. Bits
    start, start + step, .. go to bit `at` of out and on. Returns (begin, end): all words.
    """
    apart = abs(step)
    a, b, c = table[0], table[1], table[2]
    d, e, f, every = table[3], table[4], table[5], table[_EVERY]
    for first in range(begin, end, _STRETCH):
        last = min(first + _STRETCH, end)
        to, n = out[row, first:last], last - first
        i = start + (first * 64 - at if step > 0 else last * 64 - 1 - at) * step
        have = 0
        while have < 64:
            source, right, left = words[row, i >> 6 :: apart], np.uint64(i & 63), np.uint64(have)
            for k in range(n):
                part = (source[k] >> right) & every
                part = _down(part, part & a, 1)
                part = _down(part, part & b, 2)
                part = _down(part, part & c, 4)
                part = _down(part, part & d, 8)
                part = _down(part, part & e, 16)
                part = _down(part, part & f, 32)
                to[k] |= part << left
            taken = np.int64(table[_TAKEN + (i & 63)])
            have += taken
            i += taken * apart
        if step < 0:
            for k in range(n):
                to[k] = reversed_bits(to[k])
            for k in range(n >> 1):
                to[k], to[n - 1 - k] = to[n - 1 - k], to[k]
    return begin, end


@entry
def _picked_words(words, row, start, step, at, table, out, begin, end):
    """Write words as `_squeezed_words` does, by picks of 64 bytes inside `words`; steps that none reaches twice are
    squeezed.
    """
    n = np.int64(table[_REACHED])
    if n == 0:
        return _squeezed_words(words, row, start, step, at, table, out, begin, end)
    most, apart = words.size * 8 - REACH // 8, n * step // 8  # bytes
    # The lowest bit of the first pick of word 0, from the start of all rows, and how far apart words' picks are
    byte = (row * words.shape[1] * 64 + start + ((n - 1 if step < 0 else 0) - at) * step) >> 3
    ahead = 8 * step
    last = 64 // n - 1
    while begin < end and byte + begin * ahead > most:
        begin += 1
    while begin < end and byte + (end - 1) * ahead + last * apart > most:
        end -= 1
    flat, to, part, picked = words.reshape(-1), out[row], np.uint64(n), ~np.uint64(0) >> np.uint64(64 - n)
    for word in range(begin, end):
        bits, place = np.uint64(0), byte + word * ahead
        for i in range(last, 0, -1):
            bits = (bits | (pick_bits(flat, place + i * apart, table, _CHOICE) & picked)) << part
        to[word] = bits | (pick_bits(flat, place, table, _CHOICE) & picked)
    return begin, end


stepped_words = _squeezed_words if pick_bits is None else _picked_words
