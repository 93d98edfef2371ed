"""Convolution of groups of few channels, single bits to single bits, on whole words: `docs/kernels/sliced.md`.

A thread has a word of the result, of 64 channels. Its counters are planes of words, one bit of each in every channel.
"""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.target import cuda
from ..tensor_cores import ptx


def sliced(x, w, out):
    if not out.size:
        return
    tables = map(launch.resident, (w.taps, w.limits, w.flip, w.seen, w.first_seen))
    grid, block = launch.rows_by_items(x.images, w.result_words)
    places = launch.cached(_places, (w.runs,), w.result_words)
    first = int(x.terms[0, 0])
    launch.run(_kernel(w.limits.shape[1]), grid, block, x.words, first, w.image_words, w.period, places, *tables, out)


def _places(runs, words):
    """int32[words 2] of the result: word of x under the first tap, border class."""
    places = np.zeros((words, 2), np.int32)
    for at, to, count, kind in runs.tolist():
        places[to : to + count, 0], places[to : to + count, 1] = np.arange(at, at + count), kind
    return launch.resident(places)


@cache
def _kernel(planes):
    @cuda.jit
    def slice_words(words, first, image_words, period, places, taps, limits, flip, seen, first_seen, out):
        item, image = cuda.grid(2)
        counts = cuda.local.array(planes, np.uint64)
        rows = out.shape[1] * out.shape[2] // places.shape[0]
        while image < rows and item < places.shape[0]:
            kind, word = places[item, 1], item % period
            begin = first * words.shape[1] + image * image_words + places[item, 0]
            for p in range(planes):
                counts[p] = 0
            for i in range(first_seen[kind], first_seen[kind + 1]):
                at, tap = ptx.read(seen, 2 * i), ptx.read(seen, 2 * i + 1)
                carry = ptx.read(words, begin + at) ^ ptx.read(taps, tap + word)
                for p in range(planes):
                    counts[p], carry = counts[p] ^ carry, counts[p] & carry
            below = np.uint64(0)  # the borrow of count - limit
            for p in range(planes):
                limit = limits[kind, p, word]
                below = (~counts[p] & limit) | (~(counts[p] ^ limit) & below)
            out[0, (image * places.shape[0] + item) // period, word] = below ^ flip[word]
            image += cuda.gridDim.y * cuda.blockDim.y

    return slice_words
