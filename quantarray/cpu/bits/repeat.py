"""Repeat each bit of a row. `docs/kernels/place.md` has the algebra and what was tried."""

import numpy as np

from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from . import picks
from .stride import squeezing

_LEAST = 1 << 15  # words that are worth a parallel region
_STRETCH = 128  # words of the source whose copies stay in cache
_BLOCK = 32  # stretches in one task
_MANY = 64  # copies: from here on a word has those of two bits at most


def spread(words, times, out):
    copies = picks.of_copies(times) if times < _MANY else None
    if copies is not None:
        picks.fill(words, copies, out)
        return
    blocks = -(-words.shape[1] // (_STRETCH * _BLOCK))
    arguments = words, times, squeezing(times), out, blocks
    threads.run(_spread_tasks, arguments, out.shape[0] * blocks, threads.workers(out.size, _LEAST))


@inner
def _spread_words(low, high, first, times, rounds, to):
    """to[k] = 64 bits, from bit `first` on, of the copies of the bits of low[k], then high[k].

    They begin within the copies of bit first // times. The bits after it go to every `times`-th bit, by the rounds of
    `squeezing` in reverse. A product with (1 << times) - 1 then gives the copies of each; of the first bit only some
    are left.
    """
    at, before = first // times, first % times
    right, left = np.uint64(at & 63), np.uint64(63 - (at & 63))
    rest, n = np.uint64(times - before), np.uint64(times)
    head = (np.uint64(1) << rest) - np.uint64(1)
    a, b, c = rounds[0], rounds[1], rounds[2]
    d, e, f, every = rounds[3], rounds[4], rounds[5], rounds[6]
    for k in range(len(low)):
        bits = (low[k] >> right) | ((high[k] << np.uint64(1)) << left)
        x = bits >> np.uint64(1)
        x = (x & ~f) | ((x << np.uint64(32)) & f)
        x = (x & ~e) | ((x << np.uint64(16)) & e)
        x = (x & ~d) | ((x << np.uint64(8)) & d)
        x = (x & ~c) | ((x << np.uint64(4)) & c)
        x = (x & ~b) | ((x << np.uint64(2)) & b)
        x = (x & ~a) | ((x << np.uint64(1)) & a)
        x = (x & every) << rest
        to[k] = ((x << n) - x) | (head & (np.uint64(0) - (bits & np.uint64(1))))


@inner
def _spread_stretch(words, row, begin, end, times, rounds, copies, out):
    """Repeat the bits of words begin .. end: words c, c + times, .. of out have their bits at the same places.

    They are computed side by side and then scattered: a store to every `times`-th word would keep the loop from SIMD.
    """
    for c in range(times):
        to = out[row, begin * times + c : end * times : times]
        n = len(to)
        inner = min(n, words.shape[1] - 1 - begin)
        low, high = words[row, begin : begin + inner], words[row, begin + 1 : begin + 1 + inner]
        _spread_words(low, high, 64 * c, times, rounds, copies)
        if inner < n:  # the last word has no next one
            last = words[row, begin + inner : begin + inner + 1]
            _spread_words(last, np.zeros(1, np.uint64), 64 * c, times, rounds, copies[inner:])
        for k in range(n):
            to[k] = copies[k]


@inner
def _fill(words, row, begin, end, times, out):
    """Repeat the bits of words begin .. end many times each."""
    for word in range(begin * times, min(end * times, out.shape[1])):
        i, copies = word * 64 // times, times - word * 64 % times
        bits = np.uint64(0) - (words[row, i >> 6] >> np.uint64(i & 63) & np.uint64(1))
        if copies < 64 and i + 1 < words.shape[1] * 64:
            above = np.uint64(0) - (words[row, (i + 1) >> 6] >> np.uint64((i + 1) & 63) & np.uint64(1))
            bits = (bits & ((np.uint64(1) << np.uint64(copies)) - np.uint64(1))) | (above << np.uint64(copies))
        out[row, word] = bits


@Kernel
def _spread_tasks(words, times, rounds, out, blocks, first, last):
    copies = np.empty(_STRETCH, np.uint64)
    for task in range(first, last):
        row, begin = task // blocks, task % blocks * _STRETCH * _BLOCK
        stop = min(begin + _STRETCH * _BLOCK, words.shape[1])
        for word in range(begin, stop, _STRETCH):
            end = min(word + _STRETCH, stop)
            if times < _MANY:
                _spread_stretch(words, row, word, end, times, rounds, copies, out)
            else:
                _fill(words, row, word, end, times, out)
