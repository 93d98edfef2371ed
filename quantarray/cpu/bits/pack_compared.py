"""Pack a bit for each value: where it is with regard to two numbers, in one pass over the values."""

import numpy as np

from ..llvm.masks import low_bits, mask_at_least
from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 16  # values that are worth a parallel region
_LARGEST = np.finfo(np.float32).max


def pack_compared(x, low, high, between, wrong, out):
    arguments = x, np.float32(low), np.float32(high), between, wrong, out
    threads.run(_compare, arguments, out.size, threads.workers(x.size, _LEAST), None, between)


@Kernel
def _compare(x, low, high, between, wrong, out, first, last):
    infinite, lowest = np.float32(np.inf), np.float32(-_LARGEST)
    rest, refused = np.zeros((1, 64), np.float32), np.uint64(0)
    for word in range(first, last):
        at, used = word * 64, low_bits(min(64, x.size - word * 64))
        if at + 64 <= x.size:
            over, above = mask_at_least(x, at, low), mask_at_least(x, at, high)
            finite = mask_at_least(x, at, lowest) & ~mask_at_least(x, at, infinite)
        else:
            for i in range(x.size - at):
                rest[0, i] = x[0, at + i]
            over, above = mask_at_least(rest, 0, low), mask_at_least(rest, 0, high)
            finite = mask_at_least(rest, 0, lowest) & ~mask_at_least(rest, 0, infinite)
        refused |= ~finite & used
        if between:
            out[0, 0, word] = over & ~above & used
        else:
            out[0, 0, word] = above & used
            refused |= over & ~above & used
        if refused:
            wrong[0] = True
            return
