"""Map codes through a table.

`docs/kernels/layout.md` has the algebra and what was tried.
"""

import numpy as np

from ...core.format import WORD_BITS, tail_mask
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel

_LEAST = 1 << 13  # words that are worth a parallel region
_BLOCK = 4096  # words of a row in one task


def recode(words, others, tables, row, group, length, out):
    if not out.size:
        return
    words, result = np.concatenate([words, others]) if len(others) else words, out
    if tables.size == tables.shape[2]:  # one table: all words are one row
        words, out = words.reshape(len(words), 1, -1), out.reshape(len(out), 1, -1)
        group = out.shape[2] * WORD_BITS
    planes, new_planes = words.shape[0], out.shape[0]
    # A word costs 0.75 ns for each code and plane made; 64 codes cost 24 ns and 2.4 for each plane
    by_words = tables.shape[1] == 1 and new_planes << planes <= 32 + 3 * (planes + new_planes)
    tasks = words.shape[1] * -(-words.shape[2] // _BLOCK)
    workers = threads.workers(max(words.size, out.size), _LEAST)
    threads.run(_recode_tasks, (words, tables, row, group, by_words, out), tasks, workers)
    result[..., -1] &= np.uint64(tail_mask(length))


@inner
def _recode_words(words, table, out):
    """Map 64 elements at once: each plane of the result is chosen from table bits by one plane read after another."""
    planes, count = words.shape
    chosen = np.empty(1 << planes, np.uint64)
    for new_plane in range(out.shape[0]):
        for word in range(count):
            for code in range(1 << planes):
                chosen[code] = np.uint64(0) - np.uint64((table[code] >> np.uint32(new_plane)) & np.uint32(1))
            for plane in range(planes - 1, -1, -1):
                upper, bits = 1 << plane, words[plane, word]
                for code in range(upper):
                    chosen[code] ^= (chosen[code] ^ chosen[code + upper]) & bits
            out[new_plane, word] = chosen[0]


@inner
def _recode_codes(words, tables, first, group, out):
    """Map 64 codes at a time, each through its table; `first` is the first word's first element."""
    codes, groups = np.empty(64, np.uint32), tables.shape[0]
    for word in range(words.shape[1]):
        codes[:] = 0
        for plane in range(words.shape[0]):
            bits = words[plane, word]
            for i in range(64):
                codes[i] |= np.uint32((bits >> np.uint64(i)) & np.uint64(1)) << np.uint32(plane)
        at = first + word * 64
        # the tail of the last word may be past the last group; `recode` clears what is written there
        begin, end = min(at // group, groups - 1), min((at + 63) // group, groups - 1)
        for i in range(64):
            table = begin if begin == end else min((at + i) // group, groups - 1)
            codes[i] = tables[table, codes[i]]
        for plane in range(out.shape[0]):
            bits = np.uint64(0)
            for i in range(64):
                bits |= np.uint64((codes[i] >> np.uint32(plane)) & np.uint32(1)) << np.uint64(i)
            out[plane, word] = bits


@Kernel
def _recode_tasks(words, tables, row, group, by_words, out, first, last):
    blocks = -(-words.shape[2] // _BLOCK)
    for task in range(first, last):
        r, begin = task // blocks, task % blocks * _BLOCK
        read, written = words[:, r, begin : begin + _BLOCK], out[:, r, begin : begin + _BLOCK]
        if by_words:
            _recode_words(read, tables[row[min(r, row.size - 1)], 0], written)
        else:
            _recode_codes(read, tables[row[min(r, row.size - 1)]], begin * 64, group, written)
