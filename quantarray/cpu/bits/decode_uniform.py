"""Compute float32 values of evenly spaced levels in one pass: no array of codes, no table of all levels."""

import numpy as np

from ...core.bfloat16 import narrowed
from ..llvm.masks import put_plane
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .put_levels import FEW, LANES, put_computed, put_few

_LEAST = 1 << 15  # values that are worth a parallel region
STRETCH = 64  # words of a task: groups of up to 4,096 elements have their levels computed once


def decode_uniform(words, low, step, group, out):
    decode_spaced(words, low, step, 0, 1, group, out)


def decode_spaced(words, low, step, first, apart, group, out):
    if not out.size:
        return
    if out.dtype != np.float32:
        values = np.empty(out.shape, np.float32)
        decode_spaced(words, low, step, first, apart, group, values)
        out[:] = narrowed(values, out.dtype)
        return
    _, rows, count = words.shape
    arguments = words, low, step, first, apart, group, out
    kind = words.flags.num, low.flags.num, step.flags.num, out.flags.num, type(group)
    workers = threads.count() if out.size >= _LEAST else 1
    threads.run(_decode_stretches, arguments, rows * -(-count // STRETCH), workers, None, kind)


@Kernel
def _decode_stretches(words, low, step, lowest, apart, group, out, first, last):
    (planes, rows, count), length = words.shape, out.shape[1]
    stretches, between = (count + STRETCH - 1) // STRETCH, rows * count
    flat, values = words.reshape(-1), out.reshape(-1)
    codes, table = np.arange(-64, LANES).astype(np.uint8), np.empty(2 * LANES, np.float32)
    for task in range(first, last):
        row, begin = task // stretches, task % stretches * STRETCH * 64
        end = min(length, begin + STRETCH * 64)
        put_uniform(
            flat, row * count, between, planes, low, step, lowest, apart, row, group, begin, end, codes, table, values,
            row * length + begin,
        )  # fmt: skip


@inline
def put_uniform(
    words, at, between, planes, low, step, lowest, apart, row, group, begin, end, codes, table, out, to
):  # fmt: skip
    """Store the values of elements begin .. end of a row, begin a multiple of 64, to out[to ..].

    They are low[row] + step[row] * (lowest + apart * code), in float64 and rounded once; without low, 0 is. Bits of
    element i in plane p are in words[at + p * between + i // 64]. codes uint8[80], whose last 16 are 0 .. 15, and
    table float32[32] are scratch.
    """
    part, stop = begin // group, (begin // group + 1) * group
    few, whole = planes <= FEW, group % LANES == 0 or step.shape[1] == 1
    element = begin
    while element < end:
        stop = min(stop, end)
        s = np.float64(step[row, part])
        a = s * lowest + (np.float64(low[row, part]) if low.size else 0.0)
        s *= apart
        if few and whole:
            put_computed(codes, 64, a, s, table, 0)
            unit, count = at * 4 + element // LANES, (stop - element) // LANES
            put_few(words, unit, between * 4, planes, table, 0, count, out, to + element - begin)
            element += count * LANES
            if element < stop:  # the end of a row
                put_few(words, unit + count, between * 4, planes, table, 0, 1, table, LANES)
                for i in range(stop - element):
                    out[to + element - begin + i] = table[LANES + i]
        else:
            _put_codes(words, at, between, planes, a, s, element, stop, whole, codes, out, to - begin)
        element, part = stop, part + 1
        stop += group


@inline
def _put_codes(words, at, between, planes, a, s, element, stop, whole, codes, out, to):
    """Store a + s * code of elements element .. stop to out[to + element ..]; `whole` if they begin at multiples of
    16.
    """
    while element < stop:
        word, place = element // 64, element % 64
        if place == 0 or not whole:
            for plane in range(planes):
                put_plane(words[at + plane * between + word], plane, codes, 0)
        valid = min(64 - place, stop - element)
        vectors = valid // LANES * LANES if whole else 0
        for i in range(0, vectors, LANES):
            put_computed(codes, place + i, a, s, out, to + element + i)
        for i in range(vectors, valid):
            out[to + element + i] = np.float32(a + s * codes[place + i])
        element += valid
