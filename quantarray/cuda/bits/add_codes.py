"""Add codes plane by plane: a thread a word of all planes."""

import numpy as np

from ...core.format import tail_mask
from ..runtime import launch
from ..runtime.target import cuda


def add_codes(words, others, turned, length, out):
    if out.size:
        tail = np.uint64(tail_mask(length))
        grid, block = launch.rows_by_items(*out.shape[1:])
        launch.run(_add, grid, block, words, others, bool(turned[0]), bool(turned[1]), tail, out)


@cuda.jit
def _add(words, others, turn, other_turn, tail, out):
    item, row = cuda.grid(2)
    while row < out.shape[1] and item < out.shape[2]:
        inside = tail if item == out.shape[2] - 1 else ~np.uint64(0)
        carry = np.uint64(0)
        for plane in range(out.shape[0]):
            x = y = np.uint64(0)
            if plane < words.shape[0]:
                x = words[plane, row, item]
                x = (~x if turn else x) & inside
            if plane < others.shape[0]:
                y = others[plane, row, item]
                y = (~y if other_turn else y) & inside
            out[plane, row, item] = x ^ y ^ carry
            carry = (x & y) | ((x ^ y) & carry)
        row += cuda.gridDim.y * cuda.blockDim.y
