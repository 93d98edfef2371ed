"""Compute float32 values of uniform laws in one pass: no array of codes, no table of levels."""

import numpy as np

from ...core.bfloat16 import narrowed
from ..llvm.masks import put_plane
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .put_levels import put_chosen, put_computed

_LEAST = 1 << 15  # values that are worth a parallel region


def decode_uniform(words, low, step, group, out):
    if not out.size:
        return
    if out.dtype != np.float32:
        values = np.empty(out.shape, np.float32)
        decode_uniform(words, low, step, group, values)
        out[:] = narrowed(values, out.dtype)
        return
    arguments, kind = (words, low, step, group, out), (words.flags.num, low.flags.num, step.flags.num, out.flags.num)
    workers = threads.count() if out.size >= _LEAST else 1
    threads.run(_decode_words, arguments, words.shape[1] * words.shape[2], workers, None, (*kind, type(group)))


@Kernel
def _decode_words(words, low, step, group, out, first, last):
    planes, _, count = words.shape
    length, codes, levels = out.shape[1], np.zeros(64, np.uint8), np.zeros(4, np.float32)
    row, word = first // count, first % count
    for _ in range(first, last):
        at = word * 64
        valid, part = min(64, length - at), at // group
        whole = valid == 64 and part == (at + 63) // group
        if planes > 2 or not whole:
            for plane in range(planes):
                put_plane(words[plane, row, word], plane, codes, 0)
        if whole:
            a, s = np.float64(low[row, part]), np.float64(step[row, part])
            if planes <= 2:
                for code in range(4):
                    levels[code] = np.float32(a + s * code)
                high = words[1, row, word] if planes == 2 else np.uint64(0)
                put_chosen(words[0, row, word], high, levels, out, row * length + at)
            else:
                put_computed(codes, a, s, out, row * length + at)
        else:
            values_in_groups(codes, low, step, group, row, at, valid, out)
        word += 1
        if word == count:
            row, word = row + 1, 0


@inline
def values_in_groups(codes, low, step, group, row, at, valid, out):
    """Compute the values of a word that spans groups, or the last of a row."""
    for i in range(valid):
        part = (at + i) // group
        out[row, at + i] = np.float32(np.float64(low[row, part]) + np.float64(step[row, part]) * codes[i])
