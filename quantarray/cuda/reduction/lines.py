"""Lines of codes, as `scan` and `counting_sort` read them: code by code, through tables.

A line is a row along the packed axis, or one element of it along the folds. In the first form the lanes of a warp share
a line, in the second each has its own, and neighbours read the same word.
"""

import numpy as np

from ..runtime.launch import inline


@inline
def code_at(words, r, f, i):
    """The code of element i; words uint32[planes rows folds halves]."""
    code = np.uint32(0)
    for plane in range(words.shape[0]):
        code |= ((words[plane, r, f, i >> 5] >> np.uint32(i & 31)) & np.uint32(1)) << np.uint32(plane)
    return code


@inline
def table_of(row, fold):
    """Which table a fold of a row has, of [rows folds]; or the one that all have."""
    return row[fold if row.shape[0] > 1 else 0]


@inline
def value_at(words, r, f, i, levels, row, group):
    """A code through its table: levels[tables groups codes]."""
    table = table_of(row, r * words.shape[2] + f)
    return levels[table, i // group if levels.shape[1] > 1 else 0, code_at(words, r, f, i)]
