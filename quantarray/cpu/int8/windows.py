"""Bring the left operand of dot products as byte blocks: the windows of a band of tiles, in a buffer that stays in L2.

Planes of bits are expanded in place, so that overlapping windows share their bytes; codes that are stored as bytes are
multiplied where they are. Arrays that come as bytes mostly have few channels: their windows are copied side by side,
without the gaps that whole words would leave.
"""

from typing import NamedTuple

import numpy as np
from numba.extending import overload

from ..llvm.vectors import TILE
from ..llvm.views import Rows, RunSpan, TileSpan, View
from ..runtime.aligned import first_line
from ..runtime.jit import borrowing, inline, inner
from .copy_windows import HALF, copy_windows
from .expand import are_bytes, bring_codes, clear_bytes, copy_bytes
from .interface import QUAD

WORD = 64  # bytes that a word of each plane becomes
BAND = 64  # tiles that meet one block of weights before the next is expanded
LONG_BAND = 256  # the same where few sums wait: fewer pixels are seen by two bands, and expanded twice
WINDOWS = 1 << 13  # words that a band's windows may span, unless those of one tile span more: 512 KiB of bytes
_FAR = 1 << 62


class ByteBuffer(NamedTuple):
    """A buffer of words as bytes, used again for each band."""

    codes: np.ndarray  # uint8
    marks: np.ndarray  # int32[words]: the band for which a word was expanded last
    mark: int  # the number of the band, which no band before had


class Expanded(NamedTuple):
    """A band's words as bytes: those of word `low` begin at codes[code]."""

    buffer: ByteBuffer
    low: int
    code: int


def spans_of(words, plan, length, stretches, unit, spare):
    """Return (firsts, spans) for `dot_tile`: those of stretch s and class c are firsts[s, c] .. firsts[s, c + 1].

    The stretches divide the `length` words of the weights. The last `spare` quads of each `unit` words are left out.
    """
    raise NotImplementedError


def bring(x, plan, length, span, buffer, origins, places):
    """Bring the windows of the first tiles of a `TileSpan`, each to buffer.codes[places[tile, pixel] ..].

    Returns (tiles, buffer): a new buffer where the old one is too small.
    """
    raise NotImplementedError


@overload(spans_of)
def _spans_of(words, plan, length, stretches, unit, spare):
    return _spans_of_words if words.dtype.bitwidth == 64 else _spans_of_bytes


@overload(bring)
def _bring(x, plan, length, span, buffer, origins, places):
    return _bring_words if has_words(x) else _bring_bytes


def has_words(x):
    """True where the type of a left operand has bit-planes, and not bytes."""
    return x.types[x.fields.index("words")].dtype.bitwidth == 64


@inner
def find_band(plan, span, origins):
    """Return (tiles, first, stop): the next tiles of a span, whose windows span at most WINDOWS words, or one."""
    pixels, classes, origin, image_words = plan.pixels, plan.classes, plan.origin, plan.image_words
    reach, tiles = _reach(plan.runs, plan.first_run), classes.size
    low, high, image, tile = _FAR, -_FAR, span.begin // tiles, span.begin % tiles
    for i in range(np.uint64(span.end - span.begin)):
        start, least, most = image * image_words + span.shift, _FAR, -_FAR
        for p in range(np.uint64(TILE)):
            at = start + origin[np.uint64(pixels[np.uint64(tile), p])]
            origins[i, p], least, most = at, min(least, at), max(most, at)
        kind = np.uint64(classes[np.uint64(tile)])
        first, stop = min(low, least + reach[kind, 0]), max(high, most + reach[kind, 1])
        if i and stop - first > WINDOWS:
            return np.int64(i), low, high
        low, high = first, stop
        image, tile = (image, tile + 1) if tile + 1 < tiles else (image + 1, 0)
    return span.end - span.begin, low, high


@inner
def _reach(runs, first_run):
    """Return the least word and the end of the runs of each border class, from a pixel's origin."""
    reach = np.empty((first_run.size - 1, 2), np.int64)
    for kind in range(len(reach)):
        reach[kind, 0], reach[kind, 1] = _FAR, -_FAR
        for r in range(first_run[kind], first_run[kind + 1]):
            reach[kind, 0] = min(reach[kind, 0], runs[r, 0])
            reach[kind, 1] = max(reach[kind, 1], runs[r, 0] + runs[r, 2])
    return reach


# planes


def _spans_of_words(words, plan, length, stretches, unit, spare):
    runs, first_run, kinds, quads, count = plan.runs, plan.first_run, plan.first_run.size - 1, WORD // QUAD, 0
    pieces = 0
    for r in range(len(runs)):
        pieces += runs[r, 2] // unit if spare else 1
    # One more than there are, as `dot_tile` reads a first one where there is none
    firsts, spans = np.empty((stretches, kinds + 1), np.int64), np.empty((stretches * pieces + 1, 3), np.int64)
    for s in range(stretches):
        low, high = length * s // stretches, length * (s + 1) // stretches
        for kind in range(kinds):
            firsts[s, kind] = count
            for r in range(first_run[kind], first_run[kind + 1]):
                size = unit if spare else runs[r, 2]
                for word in range(runs[r, 1], runs[r, 1] + runs[r, 2], max(1, size)):
                    begin, end = max(low, word), min(high, word + size)
                    if begin < end:
                        spans[count, 0] = (runs[r, 0] + begin - runs[r, 1]) * quads
                        spans[count, 1] = (begin - low) * quads
                        spans[count, 2] = (end - begin) * quads - (spare if end == word + size else 0)
                        count += 1
        firsts[s, kinds] = count
    return firsts, spans


def _bring_words(x, plan, length, span, buffer, origins, places):
    if are_bytes(x):
        return _see_bytes(plan, span, places), ByteBuffer(x.words[0].view(np.uint8), buffer.marks, buffer.mark)
    band, low, high = find_band(plan, span, origins)
    size = max(0, high - low)
    if size > buffer.marks.size:
        buffer = ByteBuffer(np.empty((size + 1) * WORD, np.uint8), np.zeros(size, np.int32), buffer.mark)
    code = first_line(buffer.codes)
    expanded, dense = Expanded(buffer, low, code), size <= band * TILE * length
    if dense and size:
        bring_codes(x, low, 1, size, View(buffer.codes, code))
    for i in range(np.uint64(band)):
        for p in range(np.uint64(TILE)):
            places[i, p] = code + (origins[i, p] - low) * WORD
    for i in range(0 if dense else band):
        kind = plan.classes[(span.begin + i) % plan.counts.size]
        for r in range(plan.first_run[kind], plan.first_run[kind + 1]):
            expand_run(x, origins, i, plan.runs, r, expanded)
    return band, buffer


@inline
def _see_bytes(plan, span, places):
    """places[i, p] = where pixel p of tile i begins among bytes; returns the number of tiles, as many as a band has.

    Nothing is copied, so it does not matter how many words they span. Indices are unsigned, as Numba checks others.
    """
    band, number, words = span.end - span.begin, plan.classes.size, np.uint64(plan.image_words)
    shift = np.uint64(span.shift)
    for i in range(np.uint64(band)):
        at = np.uint64(span.begin) + i
        image, tile = at // np.uint64(number), at % np.uint64(number)
        for p in range(np.uint64(TILE)):
            first = np.uint64(plan.origin[np.uint64(plan.pixels[tile, p])])
            places[i, p] = np.int64((image * words + first + shift) * np.uint64(WORD))
    return band


@inline
def expand_run(x, origins, tile, runs, r, expanded):
    """Expand run r of the windows of a tile's pixels; those of neighbours overlap, and are one stretch of words."""
    begin, length, apart = origins[tile, 0] + runs[r, 0], runs[r, 2], origins[tile, TILE - 1] - origins[tile, 0]
    if 0 <= apart <= (TILE - 1) * length:
        expand_missing(x, begin, apart + length, expanded)
    else:
        for p in range(TILE):
            begin = origins[tile, p] + runs[r, 0]
            expand_missing(x, begin, length, expanded)


@inline
def expand_missing(x, begin, length, expanded):
    """Expand words begin .. begin + length of x's planes, but those that are marked as expanded for this band."""
    k, marks, mark = begin - expanded.low, expanded.buffer.marks, expanded.buffer.mark
    end = k + length
    while k < end:
        missing = 0
        while k + missing < end and marks[k + missing] != mark:
            marks[k + missing] = mark
            missing += 1
        if missing:
            bring_codes(x, expanded.low + k, 1, missing, View(expanded.buffer.codes, expanded.code + k * WORD))
        k += missing + 1


# bytes


def _spans_of_bytes(words, plan, length, stretches, unit, spare):
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
    """Count the quads of a window of bytes that has all taps inside."""
    used = 0
    for r in range(len(runs)):
        used = max(used, runs[r, 1] + runs[r, 2])
    return -(-used // QUAD)


def _bring_bytes(x, plan, length, span, buffer, origins, places):
    stride = 0
    for r in range(len(plan.runs)):
        stride = max(stride, plan.runs[r, 1] + ((plan.runs[r, 2] + HALF - 1) & -HALF))
    stride = max(WORD, (stride + WORD - 1) & -WORD)
    band = min(span.end - span.begin, max(1, WINDOWS * WORD // (TILE * stride)))
    room = band * TILE * stride + 2 * WORD  # a line before the first one's, and one that is cleared after the last
    if buffer.codes.size < room:
        buffer = ByteBuffer(np.empty(room, np.uint8), buffer.marks, buffer.mark)
    used = quads_used(plan.runs) * QUAD
    rows = Rows(buffer.codes, first_line(buffer.codes), stride)
    ends = reach_and_gaps(plan.runs, plan.first_run, used)
    copy_rows(x, plan, ends, TileSpan(span.begin, span.begin + band, span.shift), rows, origins, places)
    return band, buffer


@borrowing
def copy_rows(x, plan, ends, span, rows, origins, places):
    """Copy the windows of the tiles of a span side by side to `Rows`; ends are those of `reach_and_gaps`.

    Those of neighbouring tiles of a border class are copied together. Rows ascend: what `copy_bytes` clears after a
    window is part of the next one, or of none.
    """
    words, runs, first_run, base = x.words, plan.runs, plan.first_run, x.terms[0, 2]
    (reach, gaps), codes, stride, count = ends, rows.data, rows.apart, span.end - span.begin
    tiles, first = plan.classes.size, span.begin % plan.classes.size
    image, tile = span.begin // tiles, first
    for i in range(np.uint64(count)):
        start = image * plan.image_words + span.shift
        for p in range(np.uint64(TILE)):
            origins[i, p] = start + plan.origin[np.uint64(plan.pixels[np.uint64(tile), p])]
            places[i, p] = rows.at + np.int64(i * np.uint64(TILE) + p) * stride
        image, tile = (image, tile + 1) if tile + 1 < tiles else (image + 1, 0)
    i, tile = 0, first
    following = _form(plan.classes, tile, reach, words.size, origins, i)
    while i < count:
        form, near = following, 1
        while i + near < count:
            tile = tile + 1 if tile + 1 < tiles else 0
            following = _form(plan.classes, tile, reach, words.size, origins, i + near)
            if following != form:
                break
            near += 1
        kind, row = max(form, -1 - form), rows.at + i * TILE * stride
        start, stop = first_run[kind], first_run[kind + 1]
        if gaps[kind]:
            clear_bytes(codes, row, near * TILE * stride)
        if form >= 0:
            to = Rows(codes, row, stride)
            copy_windows(words, View(origins, i * TILE), near * TILE, RunSpan(runs, start, stop), base, to)
        for near_tile in range(i, i if form >= 0 else i + near):
            for p in range(TILE):
                for r in range(start, stop):
                    at, to_run = origins[near_tile, p] + runs[r, 0], places[near_tile, p] + runs[r, 1]
                    copy_bytes(words, at, words.size, runs[r, 2], base, codes, to_run)
        i += near


@inline
def _form(classes, tile, reach, size, origins, i):
    """Return the border class of a tile, the i-th, or -1 less it where its vectors would read after `size` bytes."""
    kind, last, row = classes[np.uint64(tile)], 0, np.uint64(i)
    for p in range(np.uint64(TILE)):
        last = max(last, origins[row, p])
    return kind if last + reach[np.uint64(kind)] <= size else -1 - kind


@inner
def reach_and_gaps(runs, first_run, used):
    """Return two arrays by border class: how far from an origin its runs are read, and True where gaps remain.

    A gap is one of the `used` bytes of a window that neither runs nor the zeros after them fill.
    """
    kinds = first_run.size - 1
    reach, gaps = np.zeros(kinds, np.int64), np.zeros(kinds, np.bool_)
    for kind in range(kinds):
        filled = 0
        for r in range(first_run[kind], first_run[kind + 1]):
            reach[kind] = max(reach[kind], runs[r, 0] + ((runs[r, 2] + WORD - 1) & -WORD))
            gaps[kind] = gaps[kind] or filled < runs[r, 1]
            line = (runs[r, 1] + runs[r, 2] + WORD - 1) & -WORD
            filled = min(line, runs[r, 1] + ((runs[r, 2] + HALF - 1) & -HALF))
        gaps[kind] = gaps[kind] or filled < used
    return reach, gaps
