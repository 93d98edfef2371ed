"""Compute float32 values of rows with bits of their own, in one pass over one buffer."""

import numpy as np

from ..runtime import threads
from ..runtime.schedule import Kernel
from .decode_uniform import STRETCH, put_uniform
from .put_levels import LANES

_LEAST = 1 << 15  # values that are worth a parallel region


def decode_mixed(words, rows, low, step, group, out):
    tasks = out.shape[0] * -(-out.shape[1] // (STRETCH * 64))
    arguments = words, rows, low, step, group, out.reshape(-1), out.shape[1]
    threads.run(_decode_stretches, arguments, tasks, threads.workers(out.size, _LEAST))


@Kernel
def _decode_stretches(words, rows, low, step, group, out, length, first, last):
    count = (length + 63) // 64
    codes, table = np.arange(-64, LANES).astype(np.uint8), np.empty(2 * LANES, np.float32)
    stretches = (count + STRETCH - 1) // STRETCH
    for task in range(first, last):
        row, begin = task // stretches, task % stretches * STRETCH * 64
        end = min(length, begin + STRETCH * 64)
        put_uniform(
            words, rows[1, row], count, rows[0, row], low, step, 0, 1, row, group, begin, end, codes, table, out,
            row * length + begin,
        )  # fmt: skip
