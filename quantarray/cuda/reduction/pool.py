"""Max pooling on codes, 64 channels a thread: words are compared plane by plane from the highest bit down."""

from functools import cache

import numpy as np

from ..popcount import tiles
from ..popcount.tiles import OUTSIDE
from ..runtime import launch
from ..runtime.target import cuda


def max_pool(words, plan, flip, out):
    planes, (_, rows, count) = words.shape[0], out.shape
    if not out.size:
        return
    taps = tiles.taps(plan)
    launch.run(
        _kernel(planes, out.shape[0] - planes),
        *launch.rows_by_items(rows, count),
        words,
        taps.places,
        taps.offsets,
        plan.image_words,
        launch.resident(flip),
        out,
    )


@cache
def _kernel(planes, places):
    """Make a kernel for each number of planes, so that the best code stays in registers, and `places` bits of its
    tap."""
    if places:
        return _numbering_kernel(planes, places)

    @cuda.jit
    def pool(words, places, offsets, image_words, flip, out):
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
                        new = words[plane, at] ^ flip[word]
                        larger |= same & new & ~best[plane]
                        same &= ~(new ^ best[plane])
                    for plane in range(planes):
                        best[plane] = ((words[plane, at] ^ flip[word]) & larger) | (best[plane] & ~larger)
            for plane in range(planes):
                out[plane, image * pixels + places[place, 0], word] = best[plane] ^ flip[word]
            row += cuda.gridDim.y * cuda.blockDim.y

    return pool


@cache
def _numbering_kernel(planes, places):
    """Make a kernel that writes the number of the first tap of the best code too."""

    @cuda.jit
    def pool_and_number(words, places_of_pixels, offsets, image_words, flip, out):
        best, number = cuda.local.array(planes, np.uint64), cuda.local.array(places, np.uint64)
        word, row = cuda.grid(2)
        rows, count = out.shape[1], out.shape[2]
        pixels = places_of_pixels.shape[0]
        while row < rows and word < count:
            image = row // pixels
            place = row - image * pixels
            kind, begin = places_of_pixels[place, 1], image * image_words + places_of_pixels[place, 2]
            for plane in range(planes):
                best[plane] = 0
            for plane in range(places):
                number[plane] = 0
            some = False
            for tap in range(word, offsets.shape[1], count):
                if offsets[kind, tap] != OUTSIDE:
                    at = begin + offsets[kind, tap]
                    larger, same = np.uint64(0), ~np.uint64(0)
                    for down in range(planes):
                        plane = planes - 1 - down
                        new = words[plane, at] ^ flip[word]
                        larger |= same & new & ~best[plane]
                        same &= ~(new ^ best[plane])
                    if not some:
                        larger, some = ~np.uint64(0), True
                    for plane in range(planes):
                        best[plane] = ((words[plane, at] ^ flip[word]) & larger) | (best[plane] & ~larger)
                    for plane in range(places):
                        one = np.uint64(0) - np.uint64((tap // count >> plane) & 1)
                        number[plane] = (one & larger) | (number[plane] & ~larger)
            for plane in range(planes):
                out[plane, image * pixels + places_of_pixels[place, 0], word] = best[plane] ^ flip[word]
            for plane in range(places):
                out[planes + plane, image * pixels + places_of_pixels[place, 0], word] = number[plane]
            row += cuda.gridDim.y * cuda.blockDim.y

    return pool_and_number
