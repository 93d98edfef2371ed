"""Rotate the bits of words within fields, once for each bit of a field: a thread a word of the result."""

import numpy as np

from ..runtime import launch
from ..runtime.target import cuda

_BITS = 64


def turn(words, field, out):
    if out.size:
        launch.run(_turn, *launch.rows_by_items(len(words) * field, words.shape[1]), words, field, out)


@cuda.jit
def _turn(words, field, out):
    item, row = cuda.grid(2)
    every = np.uint64(0)  # the lowest bit of each field
    for first in range(0, _BITS, field):
        every |= np.uint64(1) << np.uint64(first)
    while row < out.shape[0] * field and item < out.shape[2]:
        image = row // field
        places = row - image * field
        stay, back = ((np.uint64(1) << np.uint64(field - places)) - np.uint64(1)) * every, np.uint64(field - places)
        word = words[image, item]
        out[image, places, item] = ((word >> np.uint64(places)) & stay) | ((word << back) & ~stay)
        row += cuda.gridDim.y * cuda.blockDim.y
