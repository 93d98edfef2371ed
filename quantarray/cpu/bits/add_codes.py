"""Add codes plane by plane: full adders of 64 elements a word.

`docs/kernels/add_codes.md` has the algebra and what was tried.
"""

import numpy as np

from ...core.format import tail_mask
from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 13  # words that are worth a parallel region
_BLOCK = 512  # words of a plane in one task, whose carries stay in the cache


def add_codes(words, others, turned, length, out):
    if not out.size:
        return
    a, b, result = (x.reshape(len(x), -1) for x in (words, others, out))
    flips = [np.uint64(2**64 - 1 if turn else 0) for turn in turned]
    tasks = -(-result.shape[1] // _BLOCK)
    threads.run(_add_words, (a, b, *flips, result), tasks, threads.workers(out.size, _LEAST))
    if any(turned):
        out[..., -1] &= np.uint64(tail_mask(length))


@Kernel
def _add_words(words, others, flip, other_flip, out, first, last):
    carries, count = np.empty(_BLOCK, np.uint64), out.shape[1]
    for task in range(first, last):
        begin = task * _BLOCK
        n = np.uint64(min(_BLOCK, count - begin))
        carries[:] = np.uint64(0)
        at = np.uint64(begin)
        for plane in range(out.shape[0]):
            if plane < words.shape[0] and plane < others.shape[0]:
                for i in range(n):
                    x, y, carry = words[plane, at + i] ^ flip, others[plane, at + i] ^ other_flip, carries[i]
                    out[plane, at + i] = x ^ y ^ carry
                    carries[i] = (x & y) | ((x ^ y) & carry)
            elif plane < words.shape[0]:
                for i in range(n):
                    x, carry = words[plane, at + i] ^ flip, carries[i]
                    out[plane, at + i] = x ^ carry
                    carries[i] = x & carry
            elif plane < others.shape[0]:
                for i in range(n):
                    x, carry = others[plane, at + i] ^ other_flip, carries[i]
                    out[plane, at + i] = x ^ carry
                    carries[i] = x & carry
            else:
                for i in range(n):
                    out[plane, at + i] = carries[i]
                    carries[i] = np.uint64(0)
