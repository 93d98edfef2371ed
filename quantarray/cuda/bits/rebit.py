"""Rows of bits cut into other segments, a thread a word."""

import numpy as np

from ..runtime import launch
from ..runtime.target import cuda


def rebit(words, length, start, new_length, out):
    if not out.size:
        return
    grid, block = launch.rows_by_items(out.shape[0], out.shape[1] * out.shape[2])
    launch.run(_rebit, grid, block, words, length, start, new_length, out)


@cuda.jit
def _rebit(words, length, start, new_length, out):
    item, row = cuda.grid(2)
    rows, segments, count = out.shape
    while row < rows and item < segments * count:
        to = item // count
        word = item - to * count
        want, have, bits = min(np.int64(64), new_length - word * 64), np.int64(0), np.uint64(0)
        at = start + to * new_length + word * 64
        segment = at // length
        offset = at - segment * length
        while have < want:
            piece = words[row, segment, offset >> 6] >> np.uint64(offset & 63)
            bits |= piece << np.uint64(have)
            taken = min(64 - (offset & 63), length - offset)
            have += taken
            offset += taken
            if offset == length:
                segment, offset = segment + 1, np.int64(0)
        out[row, to, word] = bits & (~np.uint64(0) >> np.uint64(64 - want))
        row += cuda.gridDim.y * cuda.blockDim.y
