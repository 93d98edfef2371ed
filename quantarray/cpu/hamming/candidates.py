"""Store the k best of scores that are computed elsewhere, a block of rows at a time."""

import numpy as np

from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .reservoir import FAR, LEAST, add, finish, reservoir_of

_AT_ONCE = 64  # scores of which the least is compared with the limit


def add_candidates(scores, flip, first, k, counts, limits, out):
    asked = len(scores)
    workers = min(asked, threads.workers(scores.size, LEAST))
    threads.run(_add_range, (scores, np.int64(flip), first, k, counts, limits, out), asked, workers)


def least_candidates(counts, candidates, out):
    finish(candidates[None], counts[None], out.shape[2], 0, out)


@Kernel
def _add_range(scores, flip, start, k, counts, limits, out, first, last):
    best = reservoir_of(out, counts, limits, k)
    for q in range(first, last):
        for at in range(0, scores.shape[1], _AT_ONCE):
            end = min(at + _AT_ONCE, scores.shape[1])
            if _least(scores, flip, q, at, end) < limits[q]:
                for i in range(at, end):
                    key = _key(scores[q, i], flip)
                    if key < limits[q]:
                        add(best, q, key, start + i)


@inner
def _least(scores, flip, q, first, last):
    least = FAR
    for i in range(first, last):
        least = min(least, _key(scores[q, i], flip))
    return least


@inner
def _key(score, flip):
    return score ^ ((score >> 63) & flip)
