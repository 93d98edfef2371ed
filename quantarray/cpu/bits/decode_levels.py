"""Compute values of codes by a table of levels in one pass: no array of codes, and no indices of 8 bytes."""

import numpy as np

from ..llvm.masks import put_plane
from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # values that are worth a parallel region


def decode_levels(words, levels, out):
    if not out.size:
        return
    threads.run(_decode_words, (words, levels, out), words.shape[1] * words.shape[2], threads.workers(out.size, _LEAST))


@Kernel
def _decode_words(words, levels, out, first, last):
    planes, _, count = words.shape
    length, codes = np.uint64(out.shape[1]), np.zeros(64, np.uint8)
    row, word = first // count, first % count
    for _ in range(first, last):
        at = np.uint64(word * 64)
        for plane in range(planes):
            put_plane(words[plane, row, word], plane, codes, 0)
        for i in range(min(np.uint64(64), length - at)):
            out[row, at + i] = levels[codes[i]]
        word += 1
        if word == count:
            row, word = row + 1, 0
