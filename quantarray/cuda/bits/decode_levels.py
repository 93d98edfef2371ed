"""Values of codes by tables of levels: one for all is in shared memory, several are read from L1."""

import numpy as np

from ...core.format import WORD_BITS
from ..runtime.launch import inline
from ..tensor_cores import ptx
from . import unpacking


def decode_levels(words, levels, row, group, out):
    if not out.size:
        return
    bits, one = levels.view(f"u{levels.dtype.itemsize}"), levels.size == levels.shape[2]
    if one:
        if out.shape[1] % WORD_BITS == 0:
            words, out = unpacking.in_one_row(words, out)
        unpacking.run(words, out, bits, row, 0, _nothing, _shown, levels.size)
    else:
        unpacking.run(words, out, bits, row, group if levels.shape[1] > 1 else 0, _table, _read)


@inline
def _nothing(levels, row, r, part):
    return 0, 0


@inline
def _shown(code, first, second, levels, shown):
    return shown[code]


@inline
def _table(levels, row, r, part):
    return (row[min(r, row.shape[0] - 1)] * levels.shape[1] + part) * levels.shape[2], 0


@inline
def _read(code, first, second, levels, shown):
    return np.uint32(ptx.read(levels, first + code))
