"""Compute float32 values of rows with bits of their own, in one pass over one buffer."""

import numpy as np

from ..llvm.masks import put_plane
from ..runtime import threads
from ..runtime.schedule import Kernel
from .decode_uniform import values_in_groups
from .put_levels import put_chosen, put_computed

_LEAST = 1 << 15  # values that are worth a parallel region


def decode_mixed(words, rows, low, step, group, out):
    tasks = out.shape[0] * ((out.shape[1] + 63) // 64)
    threads.run(_decode_rows, (words, rows, low, step, group, out), tasks, threads.workers(out.size, _LEAST))


@Kernel
def _decode_rows(words, rows, low, step, group, out, first, last):
    length, codes, levels = out.shape[1], np.zeros(64, np.uint8), np.zeros(4, np.float32)
    count = (length + 63) // 64
    for task in range(first, last):
        row, word = task // count, task % count
        planes, begin = rows[0, row], rows[1, row] + word
        at = word * 64
        valid, part = min(64, length - at), at // group
        whole = valid == 64 and part == (at + 63) // group
        if planes > 2 or not whole:
            for plane in range(planes):
                put_plane(words[begin + plane * count], plane, codes, 0)
        if not whole:
            values_in_groups(codes, low, step, group, row, at, valid, out)
            continue
        a, s = np.float64(low[row, part]), np.float64(step[row, part])
        if planes <= 2:
            for code in range(4):
                levels[code] = np.float32(a + s * code)
            high = words[begin + count] if planes == 2 else np.uint64(0)
            put_chosen(words[begin], high, levels, out, row * length + at)
        else:
            put_computed(codes, a, s, out, row * length + at)
