"""Divide sums of products by the scale of each row, rounding once."""

import numpy as np

from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # elements that are worth a parallel region
_EXACT = 1 << 24  # integers up to this are float32
_NOTHING = np.float32(0)  # that makes 0 of -0


def divide_rows(sums, scales, out):
    if sums.size:
        arguments = sums, sums.dtype.kind == "f", scales, out
        threads.run(_divide, arguments, len(sums), threads.workers(sums.size, _LEAST))


@Kernel
def _divide(sums, are_floats, scales, out, begin, end):
    prefer_wide()
    for row in range(begin, end):
        scale, wide, most = scales[row], np.float64(scales[row]), 0
        for i in range(0 if are_floats else sums.shape[1]):
            most = max(most, abs(sums[row, i]))
        # A quotient of two float32 is the same where it is rounded to float64 before, which takes twice as long
        if most <= _EXACT:
            for i in range(sums.shape[1]):
                out[row, i] = np.float32(sums[row, i]) / scale + _NOTHING
        else:
            for i in range(sums.shape[1]):
                out[row, i] = np.float32(np.float64(sums[row, i]) / wide) + _NOTHING
