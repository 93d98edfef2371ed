"""Max pooling on codes, 64 channels a thread: words are compared plane by plane from the highest bit down."""

from functools import cache

import numpy as np
from numba import cuda

from ..popcount import tiles
from ..popcount.tiles import OUTSIDE
from ..runtime import launch


def max_pool(words, plan, out):
    planes, rows, count = out.shape
    if not out.size:
        return
    taps = tiles.taps(plan)
    launch.run(
        _kernel(planes), *launch.rows_by_items(rows, count), words, taps.places, taps.offsets, plan.image_words, out
    )


@cache
def _kernel(planes):
    """A kernel for each number of planes, so that the best code stays in registers."""

    @cuda.jit
    def pool(words, places, offsets, image_words, out):
        best = cuda.local.array(planes, np.uint64)
        word, row = cuda.grid(2)
        rows, count = out.shape[1], out.shape[2]
        pixels = places.shape[0]
        while row < rows and word < count:
            image = row // pixels
            place = row - image * pixels
            kind, begin = places[place, 1], image * image_words + places[place, 2]
            for plane in range(planes):
                best[plane] = 0  # no code is smaller
            for tap in range(word, offsets.shape[1], count):
                if offsets[kind, tap] != OUTSIDE:
                    at = begin + offsets[kind, tap]
                    larger, same = np.uint64(0), ~np.uint64(0)
                    for down in range(planes):
                        plane = planes - 1 - down
                        new = words[plane, at]
                        larger |= same & new & ~best[plane]
                        same &= ~(new ^ best[plane])
                    for plane in range(planes):
                        best[plane] = (words[plane, at] & larger) | (best[plane] & ~larger)
            for plane in range(planes):
                out[plane, image * pixels + places[place, 0], word] = best[plane]
            row += cuda.gridDim.y * cuda.blockDim.y

    return pool
