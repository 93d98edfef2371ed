"""Count codes without unpacking them.

A *set* of planes has the elements whose bits are one in all of them. A set extends another one by a plane, so one
`and` and one popcount count it in 64 elements. The sets of single planes are all that a sum of affine levels needs;
all sets of planes say, by inclusion and exclusion, how often each code occurs.
"""

import numpy as np

from ..llvm.masks import popcount
from ..runtime.jit import entry, inner

_COUNTER_BITS = 32  # of a vertical counter: rows that are added in one call


def count(words, start, stop, group, sets, out):
    if words.size and stop > start:
        _count(words, start, stop, group, sets, out)


def count_lanes(words, sets, out):
    if words.size:
        _count_lanes(words, sets, out)


@entry
def _count(words, start, stop, group, sets, out):
    _, rows, folds, _ = words.shape
    ones, masks = np.zeros(len(sets), np.int64), np.zeros(len(sets), np.uint64)
    for r in range(rows):
        for f in range(folds):
            at, segment = start, 0
            while at < stop:
                word, low = at >> 6, at & 63
                end = min(stop, word * 64 + 64, start + (segment + 1) * group)
                inside = (~np.uint64(0) >> np.uint64(64 - (end - at))) << np.uint64(low)
                for s in range(len(sets)):
                    base = inside if sets[s, 0] < 0 else masks[sets[s, 0]]
                    masks[s] = base & words[sets[s, 1], r, f, word]
                    ones[s] += popcount(masks[s])
                at = end
                if at == stop or at == start + (segment + 1) * group:
                    for s in range(len(sets)):
                        out[s, r, segment] += ones[s]
                        ones[s] = 0
                    segment += 1


@entry
def _count_lanes(words, sets, out):
    """Count in bit-sliced counters: bit j of the counts of 64 elements is one word; adding is a ripple of carries."""
    _, rows, folds, count = words.shape
    masks = np.zeros(len(sets), np.uint64)
    counters = np.zeros((len(sets), _COUNTER_BITS), np.uint64)
    for r in range(rows):
        for word in range(count):
            counters[:] = 0
            for f in range(folds):
                for s in range(len(sets)):
                    carry = words[sets[s, 1], r, f, word]
                    if sets[s, 0] >= 0:
                        carry &= masks[sets[s, 0]]
                    masks[s] = carry
                    j = 0
                    while carry:
                        both = counters[s, j] & carry
                        counters[s, j] ^= carry
                        carry = both
                        j += 1
            for s in range(len(sets)):
                _spill(counters[s], folds, r, word, s, out)


@inner
def _spill(counter, most, r, word, s, out):
    """out += 64 counts, none larger than `most`."""
    for i in range(min(64, out.shape[2] - word * 64)):
        total, j = 0, 0
        while most >> j:
            total |= np.int64((counter[j] >> np.uint64(i)) & np.uint64(1)) << j
            j += 1
        out[s, r, word * 64 + i] += total
