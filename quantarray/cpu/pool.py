"""Max pooling on codes, 64 channels at a time: words are compared plane by plane from the highest bit down."""

import numpy as np

from . import threads
from .compiled import inner
from .deal import Kernel

_LEAST = 1 << 16  # words that are worth a parallel region


def max_pool(words, plan, out):
    planes, rows, count = out.shape
    if not out.size:
        return
    work = rows * count * planes * plan.runs.shape[0]
    threads.run(_pool_rows, (words, plan, out), rows, threads.workers(work, _LEAST))


@Kernel
def _pool_rows(words, plan, out, first, last):
    planes, _, count = out.shape
    pixels = plan.origin.size
    best = np.empty(planes, np.uint64)
    for row in range(first, last):
        image, tile = row // pixels, row % pixels
        pixel, kind = plan.pixels[tile, 0], plan.classes[tile]
        origin = image * plan.image_words + plan.origin[pixel]
        for word in range(count):
            best[:] = 0  # no code is smaller
            for r in range(plan.first_run[kind], plan.first_run[kind + 1]):
                for at in range(plan.runs[r, 0], plan.runs[r, 0] + plan.runs[r, 2], count):
                    _keep_larger(words, origin + at + word, best)
            for plane in range(planes):
                out[plane, image * pixels + pixel, word] = best[plane]


@inner
def _keep_larger(words, at, best):
    """best = max(best, codes at a word), each of 64 channels for itself."""
    larger, same = np.uint64(0), ~np.uint64(0)
    for plane in range(best.size - 1, -1, -1):
        new = words[plane, at]
        larger |= same & new & ~best[plane]
        same &= ~(new ^ best[plane])
    for plane in range(best.size):
        best[plane] = (words[plane, at] & larger) | (best[plane] & ~larger)
