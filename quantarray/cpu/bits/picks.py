"""Words whose bits lie within 64 bytes of the source, in the same way every period: one `pick_bits` each.

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
    """How the words of a period are made."""

    starts: object  # int64[words]: bytes from the period's first to the first that is read
    bits: object  # int64[words 64]: which bits from there on, -1 where the word has a 0
    choices: object  # uint64[words 16]: the same for `pick_bits`
    masks: object  # uint64[words]


def choice(bits):
    """uint64[.. 16] for `pick_bits`: of 64 bytes the bits[.. 64]."""
    return np.concatenate([bits // 8, np.arange(64) % 8 * 8 + bits % 8], axis=-1).astype(np.uint8).view(np.uint64)


@lru_cache(maxsize=64)
def of_runs(runs, new_width):
    """The `Picks` of periods of `new_width` words made of runs (from, how many bits, to); None where none are made."""
    if pick_bits is None:
        return None
    bits = np.full(new_width * 64, -1)
    for first, count, to in runs:
        bits[to : to + count] = np.arange(first, first + count)
    return _picks(bits.reshape(new_width, 64))


@lru_cache(maxsize=64)
def of_copies(times):
    """The `Picks` of each bit of a word `times` times."""
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
    """Periods of `width` words of words[rows words] become those of out[rows new_words], which may end within one."""
    made = len(picks.starts)
    blocks = -(-out.shape[1] // (_BLOCK * made))
    arguments = words, width, *picks, out, blocks
    threads.run(_fill_tasks, arguments, out.shape[0] * blocks, threads.workers(out.size, _LEAST))


@inner
def _collect(flat, byte, bits):
    """What `pick_bits` gives, where it would read behind the last word."""
    found = np.uint64(0)
    for i in range(64):
        if bits[i] >= 0:
            at = byte * 8 + bits[i]
            found |= (flat[at >> 6] >> np.uint64(at & 63) & np.uint64(1)) << np.uint64(i)
    return found


@inner
def _fill_stretch(flat, byte, ahead, starts, bits, choices, masks, out):
    """Periods from `byte` on, `ahead` bytes apart, to words out. One word of all, then the next: 2x faster."""
    made, behind = len(starts), flat.size * 8 - REACH // 8
    for k in range(min(made, len(out))):
        to, first, mask = out[k::made], byte + starts[k], masks[k]
        inside = min(len(to), max(0, (behind - first) // ahead + 1))
        for i in range(inside):
            to[i] = pick_bits(flat, first + i * ahead, choices, k * 16) & mask
        for i in range(inside, len(to)):
            to[i] = _collect(flat, first + i * ahead, bits[k])


@Kernel
def _fill_tasks(words, width, starts, bits, choices, masks, out, blocks, first, last):
    flat, chosen, made = words.reshape(-1), choices.reshape(-1), len(starts)
    for task in range(first, last):
        row, begin = task // blocks, task % blocks * _BLOCK
        end = min(begin + _BLOCK, -(-out.shape[1] // made))
        stretch = max(1, _CACHED // made)
        for period in range(begin, end, stretch):
            byte, stop = (row * words.shape[1] + period * width) * 8, min(end, period + stretch) * made
            for word in range(byte // 8, byte // 8 + stretch * width, 32):
                prefetch(flat, word)
            _fill_stretch(flat, byte, width * 8, starts, bits, chosen, masks, out[row, period * made : stop])
