"""The left operand of dot products as byte blocks: the windows of a band of tiles, in a buffer that stays in L2.

Planes of bits are expanded where they lie, so that windows that overlap share their bytes. Arrays that come as bytes
have few channels as a rule: their windows are copied side by side, without the gaps that whole words would leave.
"""

import numpy as np
from numba.extending import overload

from ..llvm.vectors import TILE
from ..runtime.aligned import first_line
from ..runtime.jit import inline, inner
from .copy_windows import HALF, copy_windows
from .expand import clear_bytes, copy_bytes, expand
from .interface import QUAD

WORD = 64  # bytes that a word of each plane becomes
BAND = 64  # tiles that meet one block of weights before the next is expanded
WINDOWS = 1 << 13  # words that a band's windows may span, unless those of one tile span more: 512 KiB of bytes
_FAR = 1 << 62


def spans_of(words, plan, length, stretches):
    """(firsts, spans) for `dot_tile`, those of stretch s and class c are firsts[s, c] .. firsts[s, c + 1].

    Stretches are those of `length` words of the weights.
    """
    raise NotImplementedError


def bring(words, terms, plan, length, begin, end, shift, codes, marks, mark, origins, places):
    """(tiles, codes, marks): the windows of a band from tile `begin` on, in `codes` from places[tile, pixel] on.

    Their origins are `shift` from the plan's. The buffers are larger ones where they have to be; `mark` is a number
    that no band before had.
    """
    raise NotImplementedError


@overload(spans_of)
def _spans_of(words, plan, length, stretches):
    return _spans_of_words if words.dtype.bitwidth == 64 else _spans_of_bytes


@overload(bring)
def _bring(words, terms, plan, length, begin, end, shift, codes, marks, mark, origins, places):
    return _bring_words if words.dtype.bitwidth == 64 else _bring_bytes


@inner
def find_band(plan, begin, end, shift, origins):
    """(tiles, first, stop): the next tiles, at most BAND, whose windows span at most WINDOWS words, or one tile."""
    pixels, classes, origin, runs, first_run = plan.pixels, plan.classes, plan.origin, plan.runs, plan.first_run
    low, high = _FAR, -_FAR
    for i in range(min(BAND, end - begin)):
        image, tile = (begin + i) // classes.size, (begin + i) % classes.size
        first, stop = low, high
        for p in range(TILE):
            origins[i, p] = image * plan.image_words + origin[pixels[tile, p]] + shift
        for r in range(first_run[classes[tile]], first_run[classes[tile] + 1]):
            for p in range(TILE):
                first = min(first, origins[i, p] + runs[r, 0])
                stop = max(stop, origins[i, p] + runs[r, 0] + runs[r, 2])
        if i and stop - first > WINDOWS:
            return i, low, high
        low, high = first, stop
    return min(BAND, end - begin), low, high


# planes


def _spans_of_words(words, plan, length, stretches):
    runs, first_run, kinds, quads, made = plan.runs, plan.first_run, plan.first_run.size - 1, WORD // QUAD, 0
    firsts, spans = np.empty((stretches, kinds + 1), np.int64), np.empty((stretches * len(runs), 3), np.int64)
    for s in range(stretches):
        low, high = length * s // stretches, length * (s + 1) // stretches
        for kind in range(kinds):
            firsts[s, kind] = made
            for r in range(first_run[kind], first_run[kind + 1]):
                begin, end = max(low, runs[r, 1]), min(high, runs[r, 1] + runs[r, 2])
                if begin < end:
                    spans[made, 0] = (runs[r, 0] + begin - runs[r, 1]) * quads
                    spans[made, 1], spans[made, 2] = (begin - low) * quads, (end - begin) * quads
                    made += 1
        firsts[s, kinds] = made
    return firsts, spans


def _bring_words(words, terms, plan, length, begin, end, shift, codes, marks, mark, origins, places):
    first, planes = terms[0, 0], terms[0, 1]
    band, low, high = find_band(plan, begin, end, shift, origins)
    size = max(0, high - low)
    if size > marks.size:
        marks, codes = np.zeros(size, np.int32), np.empty((size + 1) * WORD, np.uint8)
    code = first_line(codes)
    dense = size <= band * TILE * length
    if dense and size:
        expand(words, first * words.shape[1] + low, 1, words.shape[1], planes, size, 0, 1, codes, code)
    for i in range(band):
        kind = plan.classes[(begin + i) % plan.counts.size]
        for p in range(TILE):
            places[i, p] = code + (origins[i, p] - low) * WORD
        for r in range(0 if dense else plan.first_run[kind], 0 if dense else plan.first_run[kind + 1]):
            expand_run(words, first, planes, origins, i, plan.runs, r, low, mark, marks, codes, code)
    return band, codes, marks


@inline
def expand_run(words, first, planes, origins, tile, runs, r, low, mark, marks, codes, code):
    """A run of the windows of a tile's pixels: those of neighbours overlap, and are taken as one stretch of words."""
    begin, length, apart = origins[tile, 0] + runs[r, 0], runs[r, 2], origins[tile, TILE - 1] - origins[tile, 0]
    if 0 <= apart <= (TILE - 1) * length:
        expand_missing(words, first, planes, begin, apart + length, low, mark, marks, codes, code)
    else:
        for p in range(TILE):
            begin = origins[tile, p] + runs[r, 0]
            expand_missing(words, first, planes, begin, length, low, mark, marks, codes, code)


@inline
def expand_missing(words, first, planes, begin, length, low, mark, marks, codes, code):
    """Words begin .. begin + length of a term's planes as bytes from codes[code] on, which stands for word `low`.

    Those that `mark` marks are there already.
    """
    k = begin - low
    end = k + length
    while k < end:
        missing = 0
        while k + missing < end and marks[k + missing] != mark:
            marks[k + missing] = mark
            missing += 1
        if missing:
            word = first * words.shape[1] + low + k
            expand(words, word, 1, words.shape[1], planes, missing, 0, 1, codes, code + k * WORD)
        k += missing + 1


# bytes


def _spans_of_bytes(words, plan, length, stretches):
    kinds, quads, used = plan.first_run.size - 1, WORD // QUAD, quads_used(plan.runs)
    firsts, spans = np.empty((stretches, kinds + 1), np.int64), np.empty((stretches * kinds, 3), np.int64)
    for s in range(stretches):
        low, high = length * s // stretches * quads, length * (s + 1) // stretches * quads
        for kind in range(kinds + 1):
            firsts[s, kind] = s * kinds + kind
        for i in range(s * kinds, (s + 1) * kinds):
            spans[i, 0], spans[i, 1], spans[i, 2] = low, 0, max(0, min(high, used) - low)
    return firsts, spans


@inner
def quads_used(runs):
    """Quads of a window of bytes, all taps inside."""
    used = 0
    for r in range(len(runs)):
        used = max(used, runs[r, 1] + runs[r, 2])
    return -(-used // QUAD)


def _bring_bytes(words, terms, plan, length, begin, end, shift, codes, marks, mark, origins, places):
    stride = (length + 1) * WORD
    band = min(BAND, end - begin, max(1, WINDOWS * WORD // (TILE * stride)))
    if codes.size < (band * TILE + 1) * stride:
        codes = np.empty((band * TILE + 1) * stride, np.uint8)
    used = quads_used(plan.runs) * QUAD
    copy_rows(words, terms, plan, used, begin, band, shift, codes, stride, origins, places)
    return band, codes, marks


@inner
def copy_rows(words, terms, plan, used, begin, band, shift, codes, stride, origins, places):
    """The windows of `band` tiles side by side, `used` bytes of each being read; arguments as of `bring`."""
    runs, first_run, base = plan.runs, plan.first_run, terms[0, 2]
    pixels, classes, origin = plan.pixels, plan.classes, plan.origin
    code = first_line(codes)
    reach, gaps = reach_and_gaps(runs, first_run, used)
    for i in range(band):
        image, tile = (begin + i) // classes.size, (begin + i) % classes.size
        kind, row, last = classes[tile], code + i * TILE * stride, 0
        start, stop = first_run[kind], first_run[kind + 1]
        for p in range(TILE):
            places[i, p] = row + p * stride
            origins[i, p] = image * plan.image_words + origin[pixels[tile, p]] + shift
            last = max(last, origins[i, p])
        if gaps[kind]:
            clear_bytes(codes, row, TILE * stride)
        if last + reach[kind] <= words.size:
            copy_windows(words, origins, i * TILE, runs, start, stop, 1, base, codes, row, stride)
            continue
        for p in range(TILE):
            for r in range(start, stop):
                at, to = origins[i, p] + runs[r, 0], places[i, p] + runs[r, 1]
                copy_bytes(words, at, words.size, runs[r, 2], base, codes, to)


@inner
def reach_and_gaps(runs, first_run, used):
    """For each border class: how far from an origin its runs are read, and whether they and the zeros behind them leave
    any of the `used` bytes of a window out."""
    kinds = first_run.size - 1
    reach, gaps = np.zeros(kinds, np.int64), np.zeros(kinds, np.bool_)
    for kind in range(kinds):
        filled = 0
        for r in range(first_run[kind], first_run[kind + 1]):
            reach[kind] = max(reach[kind], runs[r, 0] + ((runs[r, 2] + WORD - 1) & -WORD))
            gaps[kind] = gaps[kind] or filled < runs[r, 1]
            filled = runs[r, 1] + ((runs[r, 2] + HALF - 1) & -HALF)
        gaps[kind] = gaps[kind] or filled < used
    return reach, gaps
