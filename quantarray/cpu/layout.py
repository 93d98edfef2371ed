"""Words to words: codes through a table, and bits cut anew."""

import numpy as np
from numba import njit, prange

from . import threads

_LEAST = 1 << 13  # words that are worth a parallel region
_BLOCK = 4096  # words of a segment in one task


def recode(words, tables, row, group, out):
    planes, made = words.shape[0], out.shape[0]
    # Word by word costs about 4 operations for each code and plane made, element by element 64 times as many as planes
    if tables.shape[1] == 1 and made << planes <= 16 * (planes + made):
        _recode_words(words, tables, row, out)
    else:
        _recode(words, tables, row, group, out)


def rebit(words, length, start, new_length, out):
    if not out.size:
        return
    blocks = -(-out.shape[2] // _BLOCK)
    tasks = out.shape[0] * out.shape[1] * blocks
    if threads.serial(out.size, _LEAST):
        _rebit_tasks(words, length, start, new_length, out, blocks, 0, tasks)
    else:
        threads.run(_rebit_parallel, words, length, start, new_length, out, blocks, threads.pieces(tasks))


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
def _rebit_words(words, row, length, at, want, out):
    """`want` bits of a row's stream of segments of `length` bits, from bit `at` on, to the words of out."""
    segment, offset = at // length, at % length
    for word in range(len(out)):
        most, done, bits = min(64, want - word * 64), 0, np.uint64(0)
        while done < most:
            shift = offset & 63
            taken = min(most - done, min(64 - shift, length - offset))
            part = (words[row, segment, offset >> 6] >> np.uint64(shift)) << np.uint64(64 - taken)
            bits |= (part >> np.uint64(64 - taken)) << np.uint64(done)
            done += taken
            offset += taken
            if offset == length:
                segment, offset = segment + 1, 0
        out[word] = bits


@njit(cache=True, nogil=True)
def _rebit_tasks(words, length, start, new_length, out, blocks, first, last):
    _, segments, count = out.shape
    for task in range(first, last):
        block, rest = task % blocks, task // blocks
        row, segment = rest // segments, rest % segments
        begin = block * _BLOCK
        end = min(begin + _BLOCK, count)
        at = start + segment * new_length + begin * 64
        _rebit_words(words, row, length, at, new_length - begin * 64, out[row, segment, begin:end])


@njit(cache=True, parallel=True, nogil=True)
def _rebit_parallel(words, length, start, new_length, out, blocks, pieces):
    tasks = out.shape[0] * out.shape[1] * blocks
    for piece in prange(pieces):
        first, last = tasks * piece // pieces, tasks * (piece + 1) // pieces
        _rebit_tasks(words, length, start, new_length, out, blocks, first, last)
