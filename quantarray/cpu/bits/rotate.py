"""Rotate the bits of words within fields, once for each bit of a field."""

import numpy as np

from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # words that are worth a parallel region


def turn(words, field, out):
    threads.run(_turn_images, (words, field, out), len(out) * field, threads.workers(out.size, _LEAST))


@Kernel
def _turn_images(words, field, out, first, last):
    every = np.uint64(2**64 - 1) // ((np.uint64(1) << np.uint64(field)) - np.uint64(1))  # the lowest bit of each field
    for task in range(first, last):
        image, places = np.uint64(task // field), np.uint64(task % field)
        stay = ((np.uint64(1) << (np.uint64(field) - places)) - np.uint64(1)) * every
        back = np.uint64(field) - places
        for i in range(np.uint64(words.shape[1])):
            word = words[image, i]
            out[image, places, i] = ((word >> places) & stay) | ((word << back) & ~stay)
