"""Gather bits by indices, within each row or of the rows along an axis. `docs/kernels/place.md` has what was tried."""

import numpy as np

from ..runtime import threads
from ..runtime.schedule import Kernel
from . import gather_across
from .gather_across import from_start

_LEAST = 1 << 12  # words that are worth a parallel region: each takes 64 loads
_BLOCK = 512  # words of a row in one task


def gather(words, length, indices, out):
    if not out.size:
        return
    if gather_across.worth(words, indices):
        gather_across.gather(words, length, indices[0], out)
        return
    tasks = out.shape[0] * -(-out.shape[1] // _BLOCK)
    threads.run(_gather_tasks, (words, length, indices, out), tasks, threads.workers(out.size, _LEAST))


def gather_rows(words, indices, out):
    if not out.size:
        return
    threads.run(_rows_tasks, (words, indices, out), out.size // out.shape[4], threads.workers(out.size, _LEAST))


@Kernel
def _gather_tasks(words, length, indices, out, first, last):
    blocks = -(-out.shape[1] // _BLOCK)
    for task in range(first, last):
        row, block = task // blocks, task % blocks
        named = indices[row % indices.shape[0]]
        for word in range(block * _BLOCK, min(block * _BLOCK + _BLOCK, out.shape[1])):
            bits = np.uint64(0)
            for k in range(min(64, len(named) - word * 64)):
                i = from_start(named[word * 64 + k], length)
                bits |= ((words[row, i >> 6] >> np.uint64(i & 63)) & np.uint64(1)) << np.uint64(k)
            out[row, word] = bits


@Kernel
def _rows_tasks(words, indices, out, first, last):
    _, before, new_length, between, count = out.shape
    for task in range(first, last):
        b, rest = task % between, task // between
        j, rest = rest % new_length, rest // new_length
        a, plane = rest % before, rest // before
        named, column = indices[a, j, b], words[plane, a, :, b]
        for word in range(count):
            bits = np.uint64(0)
            for k in range(min(64, len(named) - word * 64)):
                bit = column[from_start(named[word * 64 + k], len(column)), word] >> np.uint64(k)
                bits |= (bit & np.uint64(1)) << np.uint64(k)
            out[plane, a, j, b, word] = bits
