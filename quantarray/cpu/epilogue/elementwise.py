"""Functions of elements one after the other, a second operand's sum among them, and codes of the result.

64 channels stay in registers while all steps are applied to them: one pass over memory, where NumPy takes one or two
for each step. With a loop for each step over a row in L1 it took twice as long. Some rows stay in L1 for their codes.
"""

from functools import partial

import numpy as np

from ..llvm.masks import mask_over
from ..llvm.steps import apply_steps
from ..llvm.vectors import LANES
from ..llvm.views import Limits, Rows, View
from ..runtime import threads
from ..runtime.jit import borrowing, inline
from ..runtime.schedule import Kernel, share
from .ranks import BLENDED, put_ranks
from .strips import put_strip

_LEAST = 1 << 14  # elements that are worth a parallel region
_TOGETHER = 16  # rows that are compared with limits in registers
_NEAR = 1 << 11  # values of rows that stay in L1 between the two, with constants and limits; or 4 rows
_NO_LEVELS = np.empty(0, np.int32)
_APART = 32  # unused numbers after a thread's row, so that no other thread writes to its cache lines


def elementwise(x, other, chain, limits, flip, nan, values, out):
    if not x.size:
        return
    arguments = x, other, _NO_LEVELS, *chain, limits, flip, nan, values, out
    workers = threads.workers(x.size, _LEAST)
    pieces = len(nan) if workers > 1 else 1
    threads.run(_elementwise, (*arguments, pieces), pieces, workers, pieces)


@partial(Kernel, of_bytes=True)
def _elementwise(
    x, other, levels, scale, other_scale, steps, constants, limits, flip, nan, values, out, pieces, first_piece,
    last_piece,
):  # fmt: skip
    rows, channels = x.shape
    width, copied = constants.shape[1], values.size > 0
    together = max(4, min(_TOGETHER, _NEAR // max(1, width)))
    v = np.zeros(together * width + _APART, np.float32)
    in_place = copied and channels % 64 == 0  # codes are then made of the values where they belong
    if in_place:
        v, width, copied = values.reshape(values.size), channels, False
    no_extra, no_lines = np.empty(0, np.float32), np.empty((0, 0))
    # A search takes less time than comparing with each limit: with 15 limits and 24 channels three quarters
    count = limits.shape[0]
    search = out.size > 0 and count > 1 and count & (count + 1) == 0
    search = search and (out.shape[0] == 1 or count + 1 == 1 << out.shape[0])
    for piece in range(first_piece, last_piece):
        first, last = share(piece, pieces, rows)
        wrong = 0
        for begin in range(first, last, together):
            end = min(begin + together, last)
            number, place = end - begin, begin * channels if in_place else 0
            wrong |= apply_steps(
                x, begin, scale, other, levels, other_scale, steps, constants, v, place, channels, number, width
            )  # fmt: skip
            for i in range(np.uint64(number if copied else 0)):
                for c in range(np.uint64(channels)):
                    values[np.uint64(begin) + i, c] = v[i * np.uint64(width) + c]
            if search and count < 1 << BLENDED:
                words = Rows(out, begin * out.shape[2], out.shape[2])
                wide = limits.shape[1] if out.shape[0] > 1 else channels  # planes: zeros after them, too
                for at in range(0, wide, LANES):
                    bounds = Limits(limits, at, _half(flip, 0, at), _half(flip, 1, at))
                    put_strip(Rows(v, place + at, width), number, View(no_extra, 0), bounds, 1, at, words)
            elif search:
                _search(v, place, width, channels, limits, no_lines, flip, out, begin, end)
            elif out.size:
                for row in range(begin, end):
                    _encode(v, place + (row - begin) * width, limits, flip, out, row)
        nan[piece] = out.size > 0 and wrong != 0


@inline
def _half(flip, i, at):
    """Return the bits of lanes at .. at + 32 of flip[i]."""
    return (flip[i, at // 64] >> np.uint64(at % 64)) & np.uint64(2**LANES - 1)


@borrowing
def _search(v, place, width, channels, limits, no_lines, flip, out, begin, end):
    """Compute what `_encode` does where every code has a limit, in steps of a bit."""
    for row in range(begin, end):
        out[:, row] = 0
        for at in range(0, channels, LANES):
            flips, valid, start = _half(flip, 0, at), min(LANES, channels - at), place + (row - begin) * width + at
            put_ranks(v, start, limits, no_lines, at, flips, valid, at, out, row)


@borrowing
def _encode(v, at, limits, flip, out, row):
    """out[:, row] = the planes of how many limits each value is over, or of how many it is not where flipped."""
    for word in range(out.shape[2]):
        for plane in range(out.shape[0]):
            out[plane, row, word] = 0
        for t in range(limits.shape[0]):
            carry = (mask_over(v, at + word * 64, limits, (t * out.shape[2] + word) * 64) ^ flip[0, word]) & flip[
                1, word
            ]
            for plane in range(out.shape[0]):
                before = out[plane, row, word]
                out[plane, row, word] = before ^ carry
                carry &= before
