"""Words to words: codes through a table, and bits cut anew."""

import numpy as np
from numba import njit


def recode(words, tables, row, group, out):
    planes, made = words.shape[0], out.shape[0]
    # Word by word costs about 4 operations for each code and plane made, element by element 64 times as many as planes
    if tables.shape[1] == 1 and made << planes <= 16 * (planes + made):
        _recode_words(words, tables, row, out)
    else:
        _recode(words, tables, row, group, out)


def rebit(words, length, start, new_length, out):
    _rebit(words, length, start, new_length, out)


@njit(cache=True, nogil=True)
def _recode_words(words, tables, row, out):
    """64 elements at once: each plane made is chosen among the codes' bits by one plane read after another."""
    planes, rows, count = words.shape
    chosen = np.empty(1 << planes, np.uint64)
    for r in range(rows):
        table = tables[row[r], 0]
        for made in range(out.shape[0]):
            for word in range(count):
                for code in range(1 << planes):
                    chosen[code] = np.uint64(0) - np.uint64((table[code] >> np.uint32(made)) & np.uint32(1))
                for plane in range(planes - 1, -1, -1):
                    upper, bits = 1 << plane, words[plane, r, word]
                    for code in range(upper):
                        chosen[code] ^= (chosen[code] ^ chosen[code + upper]) & bits
                out[made, r, word] = chosen[0]


@njit(cache=True, nogil=True)
def _recode(words, tables, row, group, out):
    planes, rows, count = words.shape
    groups = tables.shape[1]
    for r in range(rows):
        for word in range(count):
            for i in range(64):
                code = np.uint64(0)
                for plane in range(planes):
                    code |= ((words[plane, r, word] >> np.uint64(i)) & np.uint64(1)) << np.uint64(plane)
                # the tail of the last word may lie behind the last group; the caller clears what it makes there
                new = tables[row[r], min((word * 64 + i) // group, groups - 1), code]
                for plane in range(out.shape[0]):
                    bit = np.uint64((new >> np.uint32(plane)) & np.uint32(1))
                    out[plane, r, word] |= bit << np.uint64(i)


@njit(cache=True, nogil=True)
def _bits(words, row, length, at, want):
    """(bits, how many) of a row's stream of segments of `length` bits, from bit `at` on, at most `want` <= 64."""
    segment, offset = at // length, at % length
    word, shift = offset >> 6, offset & 63
    taken = min(want, min(64 - shift, length - offset))
    mask = words[row, segment, word] >> np.uint64(shift)
    if taken < 64:
        mask &= (np.uint64(1) << np.uint64(taken)) - np.uint64(1)
    return mask, taken


@njit(cache=True, nogil=True)
def _rebit(words, length, start, new_length, out):
    rows, segments, count = out.shape
    for r in range(rows):
        for s in range(segments):
            for word in range(count):
                at = start + s * new_length + word * 64
                want, done = min(64, new_length - word * 64), 0
                out[r, s, word] = 0
                while done < want:
                    mask, taken = _bits(words, r, length, at + done, want - done)
                    out[r, s, word] |= mask << np.uint64(done)
                    done += taken
