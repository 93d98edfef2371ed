"""Max pooling on codes, 64 channels a word, from the highest plane down.

Of the taps of a window those are still in question whose planes so far are the largest's. A plane of the largest is the
or of theirs, and those that lack it drop out: `docs/kernels/max_pool.md`. The words of some pixels of one border class
lie side by side while that is done, so that it is done for vectors of them.
"""

import numpy as np

from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .largest import SIDE, keep_largest

_LEAST = 1 << 14  # words that are worth a parallel region


def max_pool(words, plan, out):
    planes, rows, count = out.shape
    if not out.size:
        return
    work = rows * count * planes * plan.runs.shape[0]
    threads.run(_pool_rows, (words, plan, out), rows, threads.workers(work, _LEAST))


@Kernel
def _pool_rows(words, plan, out, first, last):
    planes, _, count = out.shape
    most = _most_taps(plan, count)
    seen, asked = np.zeros((most, SIDE), np.uint64), np.empty((most, SIDE), np.uint64)
    largest, taps = np.empty(SIDE, np.uint64), np.empty(most, np.int64)
    together, kind, inside = max(1, SIDE // count), -1, 0
    origins, rows = np.empty(together, np.int64), np.empty(together, np.int64)
    row = first
    while row < last:
        if plan.classes[row % plan.origin.size] != kind:
            kind = plan.classes[row % plan.origin.size]
            inside = _find_taps(plan, kind, count, taps)
        near = _find_pixels(plan, row, min(together, last - row), kind, origins, rows)
        for start in range(0, count, SIDE):
            width = min(SIDE, count - start)
            asked[...] = ~np.uint64(0)
            for plane in range(planes - 1, -1, -1):
                for t in range(inside):
                    _bring(words, plane, origins, near, taps[t] + start, width, seen, t)
                keep_largest(seen, asked, inside, largest)
                _put(largest, near, width, out, plane, rows, start)
        row += near


@inner
def _most_taps(plan, count):
    most = 0
    for kind in range(plan.first_run.size - 1):
        most = max(most, plan.runs[plan.first_run[kind] : plan.first_run[kind + 1], 2].sum() // count)
    return most


@inner
def _find_taps(plan, kind, count, taps):
    """Count the taps of a class inside the image; taps[t] = the words from a pixel's origin to its tap."""
    inside = 0
    for r in range(plan.first_run[kind], plan.first_run[kind + 1]):
        for at in range(plan.runs[r, 0], plan.runs[r, 0] + plan.runs[r, 2], count):
            taps[inside] = at
            inside += 1
    return inside


@inner
def _find_pixels(plan, row, most, kind, origins, rows):
    """Count the pixels of a class that follow each other from `row` on; list where they begin, and their rows of the
    result.
    """
    pixels = plan.origin.size
    image, tile = row // pixels, row % pixels
    for near in range(most):
        if plan.classes[tile] != kind:
            return near
        pixel = plan.pixels[tile, 0]
        origins[near], rows[near] = image * plan.image_words + plan.origin[pixel], image * pixels + pixel
        tile += 1
        if tile == pixels:
            image, tile = image + 1, 0
    return most


@inner
def _bring(words, plane, origins, near, at, width, seen, t):
    """Copy to row t of `seen` `width` words of each pixel, `at` words behind its origin."""
    if width == 1:
        for i in range(np.uint64(near)):
            seen[t, i] = words[plane, np.uint64(origins[i] + at)]
        return
    k = np.uint64(0)
    for i in range(np.uint64(near)):
        place = np.uint64(origins[i] + at)
        for j in range(np.uint64(width)):
            seen[t, k] = words[plane, place + j]
            k += np.uint64(1)


@inner
def _put(largest, near, width, out, plane, rows, start):
    """Store `width` words of a plane of each pixel, from word `start` of their rows on."""
    if width == 1:
        for i in range(np.uint64(near)):
            out[plane, np.uint64(rows[i]), start] = largest[i]
        return
    k = np.uint64(0)
    for i in range(np.uint64(near)):
        for j in range(np.uint64(width)):
            out[plane, np.uint64(rows[i]), np.uint64(start) + j] = largest[k]
            k += np.uint64(1)
