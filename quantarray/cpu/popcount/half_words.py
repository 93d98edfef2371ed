"""Sum the part of counts that depends on channels alone, which `avx512_vpopcntdq.py` leaves out of its loop."""

import numpy as np

from ..llvm.masks import popcount
from ..llvm.vectors import LANES
from ..runtime.jit import entry, inner
from .tiles import IN_REGISTERS

_NONE = np.empty((0, 0, 0), np.int64)


def sums_of_halves(fixed, differ):
    """Sum up halves of a product's weights: int64[classes*parts terms lanes]; empty where whole words are counted.

    Of counts of differing bits, or of common ones. Not kept: what is made of it is.
    """
    if not IN_REGISTERS:
        return _NONE
    w, plan = fixed.w, fixed.plan
    sums = np.zeros((plan.first_run.size - 1, len(w.terms), w.words.shape[1] * LANES), np.int64)
    sum_halves(w.words, w.terms, differ, plan.first_run, plan.runs, sums)
    return sums


@entry
def sum_halves(words, terms, differ, first_run, runs, sums):
    """sums[i, s, l] += sum_j 2^j |common ones of halves of b_j| over runs first_run[i] .. first_run[i + 1], for the
    planes j of term s; or where bits differ, |their differing ones|.
    """
    for i in range(first_run.size - 1):
        for s in range(terms.shape[0]):
            for j in range(terms[s, 1]):
                for r in range(first_run[i], first_run[i + 1]):
                    for k in range(runs[r, 1], runs[r, 1] + runs[r, 2]):
                        _add_word(words, terms[s, 0] + j, k, j, differ, sums[i, s])


@inner
def _add_word(words, plane, k, shift, differ, sums):
    for block in range(words.shape[1]):
        for pair in range(LANES // 2):  # two channels of a block are halves of a number
            low, alike = words[plane, block, k, pair], words[plane, block, k, LANES // 2 + pair]
            ones = ~alike if differ else low & alike
            at = block * LANES + 2 * pair
            sums[at] += popcount(ones & np.uint64(0xFFFFFFFF)) << shift
            sums[at + 1] += popcount(ones >> np.uint64(32)) << shift
