"""Pick words whose bits lie within 64 bytes of the source, at the same places in every period: one `pick_bits` each.

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
_BLOCK = 1024  # periods in one task
_CACHED = 256  # words of out at a time, which stay in L1


class Picks(NamedTuple):
    """A table of the sources of a period's words: the bits that `pick_bits` takes for each."""

    starts: object  # int64[words]: bytes from the period's first to the first that is read
    bits: object  # int64[words 64]: which bits from there on, -1 where the word has a 0
    choices: object  # uint64[words 16]: the same for `pick_bits`
    masks: object  # uint64[words]


def choice(bits):
    """Return the choice uint64[.. 16] with which `pick_bits` takes bits[.. 64] of 64 bytes."""
    return np.concatenate([bits // 8, np.arange(64) % 8 * 8 + bits % 8], axis=-1).astype(np.uint8).view(np.uint64)


@lru_cache(maxsize=64)
def of_runs(runs, new_width):
    """Return the `Picks` of periods of `new_width` words from runs (from, number of bits, to), or None."""
    if pick_bits is None:
        return None
    bits = np.full(new_width * 64, -1)
    for first, count, to in runs:
        bits[to : to + count] = np.arange(first, first + count)
    return _picks(bits.reshape(new_width, 64))


@lru_cache(maxsize=64)
def of_copies(times):
    """Return the `Picks` that repeat each bit of a word `times` times."""
    return None if pick_bits is None else _picks(np.arange(64 * times).reshape(times, 64) // times)


def _picks(bits):
    used = bits >= 0
    starts = np.where(used, bits, np.iinfo(np.int64).max).min(axis=1) // 8
    starts[~used.any(axis=1)] = 0
    near = np.where(used, bits - starts[:, None] * 8, 0)
    if near.max() >= REACH:
        return None
    masks = (used.astype(np.uint64) << np.arange(64, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    return Picks(starts, np.where(used, near, -1), choice(near), masks)


def fill(words, width, picks, out):
    """Pick periods of `width` words of words[rows words] into out[rows new_words]; rows may end within a period."""
    per_period = len(picks.starts)
    blocks = -(-out.shape[1] // (_BLOCK * per_period))
    arguments = words, width, *picks, out, blocks
    threads.run(_fill_tasks, arguments, out.shape[0] * blocks, threads.workers(out.size, _LEAST))


@inner
def _collect(flat, byte, bits):
    """Collect the bits of `pick_bits` one by one, where it would read behind the last word."""
    word = np.uint64(0)
    for i in range(64):
        if bits[i] >= 0:
            at = byte * 8 + bits[i]
            word |= (flat[at >> 6] >> np.uint64(at & 63) & np.uint64(1)) << np.uint64(i)
    return word


@inner
def _fill_stretch(flat, byte, ahead, starts, bits, choices, masks, out):
    """Pick periods from `byte` on, `ahead` bytes apart, to words out: one word of all, then the next, is 2x faster."""
    per_period, behind = len(starts), flat.size * 8 - REACH // 8
    for k in range(min(per_period, len(out))):
        to, first, mask = out[k::per_period], byte + starts[k], masks[k]
        inside = min(len(to), max(0, (behind - first) // ahead + 1))
        for i in range(inside):
            to[i] = pick_bits(flat, first + i * ahead, choices, k * 16) & mask
        for i in range(inside, len(to)):
            to[i] = _collect(flat, first + i * ahead, bits[k])


@Kernel
def _fill_tasks(words, width, starts, bits, choices, masks, out, blocks, first, last):
    flat, chosen, per_period = words.reshape(-1), choices.reshape(-1), len(starts)
    for task in range(first, last):
        row, begin = task // blocks, task % blocks * _BLOCK
        end = min(begin + _BLOCK, -(-out.shape[1] // per_period))
        stretch = max(1, _CACHED // per_period)
        for period in range(begin, end, stretch):
            byte, stop = (row * words.shape[1] + period * width) * 8, min(end, period + stretch) * per_period
            for word in range(byte // 8, byte // 8 + stretch * width, 32):
                prefetch(flat, word)
            _fill_stretch(flat, byte, width * 8, starts, bits, chosen, masks, out[row, period * per_period : stop])
