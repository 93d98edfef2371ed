"""Functions of elements one after the other, a second operand's sum among them, and codes of the result.

64 channels stay in registers while all steps are applied to them: one pass over memory, where NumPy takes one or two
for each step. With a loop for each step over a row in L1 it took twice as long.
"""

import numpy as np

from ..llvm.masks import mask_over
from ..llvm.steps import apply_steps
from ..llvm.vectors import LANES
from ..runtime import threads
from ..runtime.jit import borrowing
from ..runtime.schedule import Kernel, share
from .ranks import put_ranks

_LEAST = 1 << 14  # elements that are worth a parallel region
_APART = 32  # unused numbers after a thread's row, so that no other thread writes to its cache lines


def elementwise(x, other, chain, limits, flip, nan, values, out):
    if not x.size:
        return
    arguments = x, other, *chain, limits, flip, nan, values, out
    workers = threads.workers(x.size, _LEAST)
    pieces = len(nan) if workers > 1 else 1
    threads.run(_elementwise, (*arguments, pieces), pieces, workers, pieces)


@Kernel
def _elementwise(
    x, other, scale, other_scale, steps, constants, limits, flip, nan, values, out, pieces, first_piece, last_piece
):
    rows, channels = x.shape
    v, no_lines = np.zeros(constants.shape[1] + _APART, np.float32), np.empty((0, 0))
    # A search takes less time than comparing with each limit: with 15 limits and 24 channels three quarters
    search = out.shape[0] > 1 and limits.shape[0] == (1 << out.shape[0]) - 1
    for piece in range(first_piece, last_piece):
        first, last = share(piece, pieces, rows)
        wrong = 0
        for row in range(first, last):
            at = row * channels
            wrong |= apply_steps(x, at, scale, other, at, other_scale, steps, constants, v, channels)
            if values.size:
                for c in range(channels):
                    values[row, c] = v[c]
            if out.size and search:
                _search(v, channels, limits, no_lines, flip, out, row)
            elif out.size:
                _encode(v, limits, flip, out, row)
        nan[piece] = out.size > 0 and wrong != 0


@borrowing
def _search(v, channels, limits, no_lines, flip, out, row):
    """Compute what `_encode` does where every code has a limit, in steps of a bit."""
    out[:, row] = 0
    for at in range(0, channels, LANES):
        flips = (flip[0, at // 64] >> np.uint64(at % 64)) & np.uint64(2**LANES - 1)
        put_ranks(v, at, limits, no_lines, at, flips, min(LANES, channels - at), at, out, row)


@borrowing
def _encode(v, limits, flip, out, row):
    """out[:, row] = the planes of how many limits each value is over, or of how many it is not where flipped."""
    for word in range(out.shape[2]):
        for plane in range(out.shape[0]):
            out[plane, row, word] = 0
        for t in range(limits.shape[0]):
            carry = (mask_over(v, word * 64, limits, (t * out.shape[2] + word) * 64) ^ flip[0, word]) & flip[1, word]
            for plane in range(out.shape[0]):
                before = out[plane, row, word]
                out[plane, row, word] = before ^ carry
                carry &= before
