"""Compute values of codes by tables of levels in one pass: no array of codes, and no indices of 8 bytes."""

import numpy as np

from ..llvm.masks import put_plane
from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # values that are worth a parallel region


def decode_levels(words, levels, row, group, out):
    if not out.size:
        return
    bits, read = out.view(f"u{out.itemsize}"), levels.view(f"u{levels.itemsize}")  # Numba has no floats of 16 bits
    tasks = words.shape[1] * words.shape[2]
    threads.run(_decode_words, (words, read, row, group, bits), tasks, threads.workers(out.size, _LEAST))


@Kernel
def _decode_words(words, levels, row, group, out, first, last):
    planes, _, count = words.shape
    length, codes = np.uint64(out.shape[1]), np.zeros(64, np.uint8)
    r, word = first // count, first % count
    for _ in range(first, last):
        at = np.uint64(word * 64)
        for plane in range(planes):
            put_plane(words[plane, r, word], plane, codes, 0)
        table = row[min(r, row.size - 1)]
        n = min(np.uint64(64), length - at)
        if levels.shape[1] == 1:
            for i in range(n):
                out[r, at + i] = levels[table, 0, codes[i]]
        else:
            for i in range(n):
                out[r, at + i] = levels[table, (at + i) // np.uint64(group), codes[i]]
        word += 1
        if word == count:
            r, word = r + 1, 0
