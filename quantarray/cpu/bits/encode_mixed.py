"""Encode rows to bits of their own with stochastic rounding in groups, into one buffer: ActNN's mixed precision."""

import numpy as np

from ..llvm.masks import low_bits
from ..runtime import threads
from ..runtime.schedule import Kernel
from .encode_grid import put_grid
from .encode_grouped import HALF_STEP, draw_uniform
from .extremes import ends_of, grid_of_group

_LEAST = 1 << 14  # values that are worth a parallel region


def group_ends(x, group, out):
    arguments, kind = (x, group, out), (x.dtype.char, x.flags.num)
    threads.run(_find_ends, arguments, out.shape[1] * out.shape[2], threads.workers(x.size, 8 * _LEAST), None, kind)


def encode_mixed(x, ends, rows, group, digits, key, constants, out):
    arguments, kind = (x, ends, rows, group, digits, key, constants, out), (x.dtype.char, x.flags.num)
    threads.run(_encode_rows, arguments, ends.shape[1] * ends.shape[2], threads.workers(x.size, _LEAST), None, kind)


@Kernel
def _find_ends(x, group, out, first, last):
    rest, ends, more = np.zeros((1, 64), x.dtype), np.zeros(2), np.zeros(2)
    length, groups = x.shape[1], out.shape[2]
    for task in range(first, last):
        row, part = task // groups, task % groups
        begin, end = row * length + part * group, row * length + min(length, part * group + group)
        wrong = ends_of(x, begin, end, rest, ends, more)
        out[0, row, part], out[1, row, part] = (np.nan, np.nan) if wrong else (ends[0], ends[1])


@Kernel
def _encode_rows(x, ends, rows, group, digits, key, constants, out, first, last):
    """Encode groups of rows, whose planes follow one another in `out` from each row's first word on."""
    length, groups, rest = x.shape[1], ends.shape[2], np.zeros((1, 64), x.dtype)
    words = (length + 63) // 64
    codes, masks, u = np.zeros(64, np.uint8), np.zeros(8, np.uint64), np.full(64, HALF_STEP)
    block = np.zeros((4, 20), np.uint64)
    for task in range(first, last):
        row, part = task // groups, task % groups
        bits, begin = rows[0, row], rows[1, row]
        top = (1 << bits) - 1
        step, low = grid_of_group(ends[0, row, part], ends[1, row, part], top, digits)
        constants[0, row, part], constants[1, row, part] = step, low
        step, low = np.float64(constants[0, row, part]), np.float64(constants[1, row, part])
        planes = out[begin : begin + bits * words].reshape((bits, 1, words))
        column, end = part * group, min(length, part * group + group)
        while column < end:
            at, valid = row * length + column, min(64, length - column)
            if key.size:
                draw_uniform(at, 1, key, block, u)
            if at + 64 <= x.size:
                put_grid(x, at, low, 1.0, step, u, 0, top, True, masks, codes, low_bits(valid), planes, 0, column // 64)
            else:
                for i in range(valid):
                    rest[0, i] = x[row, column + i]
                put_grid(
                    rest, 0, low, 1.0, step, u, 0, top, True, masks, codes, low_bits(valid), planes, 0, column // 64
                )
            column += valid
