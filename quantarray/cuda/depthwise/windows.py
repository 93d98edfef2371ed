"""A plan's windows by output pixel in order, as tiles of neighbours need them: what they see is a range of pixels."""

from typing import NamedTuple

import numpy as np

from ..popcount.tiles import OUTSIDE
from ..runtime import launch
from .weights import TAPS

KIND, BEGIN, FIRST, LAST = range(4)  # columns of `Windows.places`
_FAR = 1 << 30


class Windows(NamedTuple):
    """A table of windows; pixels of x are numbered from the image's first.

    Of a pixel of the result: its border class, the pixel under the first tap, which may be outside, the first one that
    windows from this one on see, and the last one that windows up to this one see.
    """

    table: object  # int32[pixels 4] on the host
    places: object  # the same on the device
    offsets: object  # int32[classes taps]: pixels from that under the first tap, or OUTSIDE; taps in pairs
    image: int  # pixels of an image of x


def windows_of(plan, words):
    """Return the windows of a plan for pixels of so many words, made once."""
    arrays = plan.pixels, plan.counts, plan.classes, plan.origin, plan.first_run, plan.runs
    return launch.cached(_windows, arrays, plan.image_words, words)


def _windows(pixels, counts, classes, origin, first_run, runs, image_words, words):
    used = np.arange(pixels.shape[1]) < counts[:, None]
    kinds, image = np.empty(origin.size, np.int64), image_words // words
    kinds[pixels[used]] = np.broadcast_to(classes[:, None], used.shape)[used]
    taps = -(-max(1, int((runs[:, 1] + runs[:, 2]).max(initial=0)) // words) // TAPS) * TAPS
    in_words = np.full((len(first_run) - 1, taps * words), OUTSIDE)
    for kind in range(len(first_run) - 1):
        for at, weight, length in runs[first_run[kind] : first_run[kind + 1]].tolist():
            in_words[kind, weight : weight + length] = np.arange(at, at + length)
    offsets = in_words[:, ::words] // words  # OUTSIDE is -1, and stays
    inside, begin = offsets != OUTSIDE, origin // words
    first = (begin + np.where(inside, offsets, _FAR).min(axis=1)[kinds]).clip(max=image)
    last = (begin + np.where(inside, offsets, -_FAR).max(axis=1)[kinds]).clip(-1)
    first, last = np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(last)
    table = np.stack([kinds, begin, first, last], axis=1).astype(np.int32)
    return Windows(table, launch.resident(table), launch.resident(offsets.astype(np.int32)), image)


def most_seen(windows, size):
    """Count the pixels of x that `size` neighbouring pixels of the result see, at most; images are side by side."""
    end = np.arange(len(windows.table)) + (size - 1)
    image, place = np.divmod(end, len(windows.table))
    seen = image * windows.image + windows.table[place, LAST] + 1 - windows.table[:, FIRST]
    return max(0, int(seen.max()))
