"""Sums of whole rows by counts of their codes, as a GPU computes them in one launch."""

import numpy as np

from ..runtime.jit import entry


def total(words, length, levels, row, over, out):
    if out.size:
        _total(words, length, levels, row, levels.dtype.type(0), over, out)


@entry
def _total(words, length, levels, row, nothing, over, out):
    planes, rows, folds, _ = words.shape
    for r in range(rows):
        counts, value = np.zeros(1 << planes, np.int64), nothing
        for f in range(folds):
            for i in range(length):
                code = 0
                for plane in range(planes):
                    code |= np.int64((words[plane, r, f, i >> 6] >> np.uint64(i & 63)) & np.uint64(1)) << plane
                counts[code] += 1
        table = row[min(r, row.size - 1)]
        for code in range(counts.size):
            if counts[code] > 0:  # a value that does not occur may be infinite
                value += counts[code] * levels[table, code]
        if over > 0:
            out[r] = np.float64(value) / np.float64(over)
        else:
            out[r] = value
