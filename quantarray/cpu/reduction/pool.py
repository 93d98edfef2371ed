"""Max pooling on codes, 64 channels a word, from the highest plane down.

A tap of a window is a candidate as long as its planes so far are the largest's. The next plane of the largest is the or
of the candidates' planes, and candidates without that bit drop out: `docs/kernels/max_pool.md`. Words of some pixels of
one border class are copied side by side meanwhile, so that vectors hold them. The first tap that is left in the end has
the largest: planes of `out` beyond those of the words take its number.
"""

from functools import partial

import numpy as np

from ..int8.expand import expand
from ..llvm.masks import mask_of_plane
from ..llvm.vectors import prefer_wide
from ..llvm.views import Planes, View
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .largest import SIDE, keep_largest

_LEAST = 1 << 14  # words that are worth a parallel region


def max_pool(words, plan, flip, out):
    planes, (_, rows, count) = words.shape[0], out.shape
    if not out.size:
        return
    work = rows * count * planes * plan.runs.shape[0]
    arguments = words, plan, flip, np.int64(planes), np.int64(out.shape[0] - planes), out
    threads.run(_pool_rows, arguments, rows, threads.workers(work, _LEAST))


@partial(Kernel, of_bytes=True)
def _pool_rows(words, plan, flip, planes, places, out, first, last):
    if planes > 1 and (words.shape[0] == 1 or out.shape[0] == 1):
        _pool_bytes(words, plan, flip, planes, out, first, last)
        return
    count = out.shape[2]
    most = _most_taps(plan, count)
    seen, asked = np.zeros((most, SIDE), np.uint64), np.empty((most, SIDE), np.uint64)
    largest, taps = np.empty(SIDE, np.uint64), np.empty((2, most), np.int64)
    numbers = np.empty((places + 2, SIDE), np.uint64)
    plain = np.zeros(SIDE, np.uint64)
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
                    _bring(words, plane, origins, near, taps[0, t] + start, flip[start : start + width], seen, t)
                keep_largest(seen, asked, inside, largest)
                _put(largest, near, flip[start : start + width], out, plane, rows, start)
            if places:
                _number_first(asked, taps, inside, numbers)
                for plane in range(places):
                    _put(numbers[plane], near, plain[:width], out, planes + plane, rows, start)
        row += near


@inner
def _pool_bytes(words, plan, flip, planes, out, first, last):
    """Find the largest codes where words or results, or both, have bytes (`int8/stored_bytes.py`)."""
    prefer_wide()
    count = flip.size
    taps, (largest, flips) = np.empty((2, _most_taps(plan, count)), np.int64), np.zeros((2, count * 64), np.uint8)
    for i in range(flips.size):
        flips[i] = ((1 << planes) - 1) * (flip[i // 64] >> np.uint64(i % 64) & np.uint64(1))
    codes, size = np.empty(count * 64, np.uint8), np.uint64(count * 64)
    read, written = words.reshape(-1).view(np.uint8), out.reshape(-1).view(np.uint8)
    pixels, kind, inside = plan.origin.size, -1, 0
    for row in range(first, last):
        image, tile = row // pixels, row % pixels
        if plan.classes[tile] != kind:
            kind = plan.classes[tile]
            inside = _find_taps(plan, kind, count, taps)
        pixel = plan.pixels[tile, 0]
        origin, to = image * plan.image_words + plan.origin[pixel], image * pixels + pixel
        largest[:] = 0
        for t in range(inside):
            word = origin + taps[0, t]
            if words.shape[0] == 1:
                at = np.uint64(word * 64)
                for i in range(size):
                    largest[i] = max(largest[i], read[at + i] ^ flips[i])
            else:
                expand(Planes(words, word, planes, words.shape[1]), 1, count, 0, 1, View(codes, 0))
                for i in range(size):
                    largest[i] = max(largest[i], codes[i] ^ flips[i])
        for i in range(size):
            largest[i] ^= flips[i]
        if out.shape[0] == 1:
            at = np.uint64(to) * size
            for i in range(size):
                written[at + i] = largest[i]
        else:
            for k in range(count):
                for plane in range(planes):
                    out[plane, to, k] = mask_of_plane(largest, k * 64, plane)


@inner
def _most_taps(plan, count):
    most = 0
    for kind in range(plan.first_run.size - 1):
        most = max(most, plan.runs[plan.first_run[kind] : plan.first_run[kind + 1], 2].sum() // count)
    return most


@inner
def _find_taps(plan, kind, count, taps):
    """Count the taps of a class inside the image: tap number taps[1, t] is taps[0, t] words from an origin."""
    inside = 0
    for r in range(plan.first_run[kind], plan.first_run[kind + 1]):
        for at in range(0, plan.runs[r, 2], count):
            taps[0, inside], taps[1, inside] = plan.runs[r, 0] + at, (plan.runs[r, 1] + at) // count
            inside += 1
    return inside


@inner
def _number_first(asked, taps, inside, numbers):
    """Write the number of the first tap that is asked for: numbers[p] is bit p, the last two rows are scratch."""
    places = numbers.shape[0] - 2
    left, first = numbers[places], numbers[places + 1]
    numbers[:places] = np.uint64(0)
    left[:] = ~np.uint64(0)
    for t in range(inside):
        for k in range(SIDE):
            first[k] = asked[t, k] & left[k]
            left[k] &= ~first[k]
        for p in range(places):
            if (taps[1, t] >> p) & 1:
                for k in range(SIDE):
                    numbers[p, k] |= first[k]


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
def _bring(words, plane, origins, near, at, flip, seen, t):
    """Copy to row t of `seen` a few words of each pixel, `at` words after its origin: as many as `flip` has, whose
    ones invert bits."""
    width = flip.size
    if width == 1:
        for i in range(np.uint64(near)):
            seen[t, i] = words[plane, np.uint64(origins[i] + at)] ^ flip[0]
        return
    k = np.uint64(0)
    for i in range(np.uint64(near)):
        place = np.uint64(origins[i] + at)
        for j in range(np.uint64(width)):
            seen[t, k] = words[plane, place + j] ^ flip[j]
            k += np.uint64(1)


@inner
def _put(largest, near, flip, out, plane, rows, start):
    """Store some words of a plane of each pixel, as many as `flip` has, from word `start` of their rows on."""
    width = flip.size
    if width == 1:
        for i in range(np.uint64(near)):
            out[plane, np.uint64(rows[i]), start] = largest[i] ^ flip[0]
        return
    k = np.uint64(0)
    for i in range(np.uint64(near)):
        for j in range(np.uint64(width)):
            out[plane, np.uint64(rows[i]), np.uint64(start) + j] = largest[k] ^ flip[j]
            k += np.uint64(1)
