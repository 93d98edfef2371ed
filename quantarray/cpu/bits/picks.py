"""Repeat bits by picks: each word of the copies comes from one word of the source, by one `pick_bits`.

`docs/kernels/place.md` has what was tried.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..llvm.masks import prefetch
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .pick import pick_bits

REACH = 512  # bits from which one word is picked
_LEAST = 1 << 13  # words that are worth a parallel region
_BLOCK = 1024  # words of the source in one task
_CACHED = 256  # words of out at a time, which stay in L1


class Picks(NamedTuple):
    """A table of the sources of the words that copies of a word's bits fill, as `pick_bits` takes them."""

    starts: object  # int64[words]: bytes from the word's first to the first that is read
    bits: object  # int64[words 64]: the bits from this byte on
    choices: object  # uint64[words 16]: the same for `pick_bits`


def choice(bits):
    """Return the choice uint64[.. 16] with which `pick_bits` takes bits[.. 64] of 64 bytes."""
    return np.concatenate([bits // 8, np.arange(64) % 8 * 8 + bits % 8], axis=-1).astype(np.uint8).view(np.uint64)


@lru_cache(maxsize=64)
def of_copies(times):
    """Return the `Picks` that repeat each bit of a word `times` times, or None where the CPU has no picks."""
    if pick_bits is None:
        return None
    bits = np.arange(64 * times).reshape(times, 64) // times
    starts = bits.min(axis=1) // 8
    near = bits - starts[:, None] * 8
    return Picks(starts, near, choice(near))


def fill(words, picks, out):
    """Pick the copies of words[rows words] into out[rows new_words], whose rows may end within the copies of a word."""
    blocks = -(-out.shape[1] // (_BLOCK * len(picks.starts)))
    arguments = words, *picks, out, blocks
    threads.run(_fill_tasks, arguments, out.shape[0] * blocks, threads.workers(out.size, _LEAST))


@inner
def _collect(flat, byte, bits):
    """Collect the bits of `pick_bits` one by one, where it would read past the last word."""
    word = np.uint64(0)
    for i in range(64):
        at = byte * 8 + bits[i]
        word |= (flat[at >> 6] >> np.uint64(at & 63) & np.uint64(1)) << np.uint64(i)
    return word


@inner
def _fill_stretch(flat, byte, starts, bits, choices, out):
    """Pick the copies of the words from `byte` on: the first words of all, then the second ones, is 2x faster."""
    times, limit = len(starts), flat.size * 8 - REACH // 8
    for k in range(min(times, len(out))):
        to, first = out[k::times], byte + starts[k]
        inside = min(len(to), max(0, (limit - first) // 8 + 1))
        for i in range(inside):
            to[i] = pick_bits(flat, first + i * 8, choices, k * 16)
        for i in range(inside, len(to)):
            to[i] = _collect(flat, first + i * 8, bits[k])


@Kernel
def _fill_tasks(words, starts, bits, choices, out, blocks, first, last):
    flat, chosen, times = words.reshape(-1), choices.reshape(-1), len(starts)
    for task in range(first, last):
        row, begin = task // blocks, task % blocks * _BLOCK
        end = min(begin + _BLOCK, -(-out.shape[1] // times))
        stretch = max(1, _CACHED // times)
        for source in range(begin, end, stretch):
            word, stop = row * words.shape[1] + source, min(end, source + stretch) * times
            for line in range(word, word + stretch, 32):
                prefetch(flat, line)
            _fill_stretch(flat, word * 8, starts, bits, chosen, out[row, source * times : stop])
