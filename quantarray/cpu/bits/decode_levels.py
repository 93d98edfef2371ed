"""Compute values of codes by tables of levels in one pass: no array of codes, and no indices of 8 bytes."""

import numpy as np

from ..llvm.masks import put_plane
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .decode_uniform import STRETCH
from .put_levels import FEW, LANES, put_few

_LEAST = 1 << 15  # values that are worth a parallel region


def decode_levels(words, levels, row, group, out):
    if not out.size:
        return
    bits, read = out.view(f"u{out.itemsize}"), levels.view(f"u{levels.itemsize}")  # Numba has no floats of 16 bits
    planes, rows, count = words.shape
    arguments = words.reshape(-1), planes, count, read, row, group, bits.reshape(-1), out.shape[1]
    threads.run(_decode_stretches, arguments, rows * -(-count // STRETCH), threads.workers(out.size, _LEAST))


@Kernel
def _decode_stretches(words, planes, count, levels, row, group, out, length, first, last):
    stretches, apart = (count + STRETCH - 1) // STRETCH, len(words) // planes
    codes, chosen = np.empty(64, np.uint8), np.empty(2 * LANES, np.uint32)
    for task in range(first, last):
        r, begin = task // stretches, task % stretches * STRETCH * 64
        end, table = min(length, begin + STRETCH * 64), row[min(r, row.size - 1)]
        put_levels(
            words, r * count, apart, planes, levels, table, group, begin, end, codes, chosen, out, r * length + begin
        )


@inline
def put_levels(words, at, apart, planes, levels, table, group, begin, end, codes, chosen, out, to):
    """Store levels[table, i // group, code i] of elements begin .. end of a row, as `put_uniform` does.

    codes uint8[64] and chosen uint32[32] are scratch.
    """
    one = levels.shape[1] == 1
    if planes <= FEW and out.itemsize == 4 and (one or group % LANES == 0):
        _put_few(words, at, apart, planes, levels, table, end if one else group, begin, end, chosen, out, to)
        return
    for element in range(begin, end, 64):
        for plane in range(planes):
            put_plane(words[at + plane * apart + element // 64], plane, codes, 0)
        place, valid = to + element - begin, min(64, end - element)
        if one:
            for i in range(valid):
                out[place + i] = levels[table, 0, codes[i]]
        else:
            for i in range(valid):
                out[place + i] = levels[table, np.uint64(element + i) // np.uint64(group), codes[i]]


@inline
def _put_few(words, at, apart, planes, levels, table, group, begin, end, chosen, out, to):
    element, part = begin, begin // group
    while element < end:
        stop = min(end, (part + 1) * group)
        unit, count = at * 4 + element // LANES, (stop - element) // LANES
        first = (table * levels.shape[1] + part) * levels.shape[2]
        if levels.shape[2] == LANES:
            put_few(words, unit, apart * 4, planes, levels, first, count, out, to + element - begin)
        if levels.shape[2] < LANES or element + count * LANES < stop:
            for code in range(min(LANES, levels.shape[2])):
                chosen[code] = levels[table, part, code]
        if levels.shape[2] < LANES:
            put_few(words, unit, apart * 4, planes, chosen, 0, count, out, to + element - begin)
        element += count * LANES
        if element < stop:  # the end of a row
            put_few(words, unit + count, apart * 4, planes, chosen, 0, 1, chosen, LANES)
            for i in range(stop - element):
                out[to + element - begin + i] = chosen[LANES + i]
            element = stop
        part += 1
