"""Line windows up as rows of bytes at equal distances, with zeros for taps outside, as a matrix unit takes them."""

import numpy as np
from numba.extending import overload

from ..llvm.vectors import TILE
from ..llvm.views import Rows, TileSpan, View
from ..runtime.aligned import first_line
from ..runtime.jit import inner
from .expand import bring_codes, clear_bytes
from .interface import QUAD
from .windows import BAND, WORD, ByteBuffer, copy_rows, has_words, reach_and_gaps

_WORDS = 1 << 14  # of the rows of a band, or one piece: 1 MiB of the 2 MiB of L2 that every CPU with a matrix unit has


def line_up(matrix, x, plan, length, span, buffer, origins, places):
    """Copy the whole windows of a band of tiles of a `TileSpan`, each to buffer.codes[places[tile, pixel] ..].

    Windows are `row_bytes(length)` apart, and the buffer has room for as many as the unit takes at once. Returns
    (tiles, buffer): a new buffer where the old one is too small.
    """
    raise NotImplementedError


@overload(line_up)
def _line_up(matrix, x, plan, length, span, buffer, origins, places):
    return _expand_rows if has_words(x) else _copy_rows


@inner
def row_bytes(length):
    """Return the distance of windows of `length` words: a line more, or many rows would share a few sets of L1."""
    return (length + 1) * WORD


@inner
def whole_spans(plan, length, stretches):
    """Return (firsts, spans) as `spans_of` does, for windows that have all taps."""
    kinds = plan.first_run.size - 1
    firsts, spans = np.empty((stretches, kinds + 1), np.int64), np.zeros((stretches * kinds, 3), np.int64)
    for s in range(stretches):
        first, last = length * s // stretches * WORD // QUAD, length * (s + 1) // stretches * WORD // QUAD
        for kind in range(kinds + 1):
            firsts[s, kind] = s * kinds + kind
        for i in range(s * kinds, (s + 1) * kinds):
            spans[i, 0], spans[i, 2] = first, last - first
    return firsts, spans


@inner
def _band_and_room(matrix, length, tiles, buffer):
    """Return (tiles of the next band, buffer with room for them); all bands but the last are whole pieces."""
    piece = matrix.rows // TILE
    most = max(1, min(BAND, _WORDS // (TILE * (length + 1))) // piece) * piece
    room = (-(-min(tiles, most) // piece) * matrix.rows) * row_bytes(length) + WORD
    if buffer.codes.size < room:
        buffer = ByteBuffer(np.empty(room, np.uint8), buffer.marks, buffer.mark)
    return min(tiles, most), buffer


def _expand_rows(matrix, x, plan, length, span, buffer, origins, places):
    band, buffer = _band_and_room(matrix, length, span.end - span.begin, buffer)
    rows, begin = buffer.codes, span.begin
    pixels, classes, origin, runs, first_run = plan.pixels, plan.classes, plan.origin, plan.runs, plan.first_run
    at = first_line(rows)
    for i in range(band):
        image, tile = (begin + i) // classes.size, (begin + i) % classes.size
        start, stop, inside = first_run[classes[tile]], first_run[classes[tile] + 1], 0
        for r in range(start, stop):
            inside += runs[r, 2]
        if inside < length:
            clear_bytes(rows, at, TILE * row_bytes(length))
        for p in range(TILE):
            places[i, p], word = at, span.shift + image * plan.image_words + origin[pixels[tile, p]]
            for r in range(start, stop):
                bring_codes(x, word + runs[r, 0], 1, runs[r, 2], View(rows, at + runs[r, 1] * WORD))
            at += row_bytes(length)
    return band, buffer


def _copy_rows(matrix, x, plan, length, span, buffer, origins, places):
    band, buffer = _band_and_room(matrix, length, span.end - span.begin, buffer)
    rows = Rows(buffer.codes, first_line(buffer.codes), row_bytes(length))
    ends = reach_and_gaps(plan.runs, plan.first_run, length * WORD)
    copy_rows(x, plan, ends, TileSpan(span.begin, span.begin + band, span.shift), rows, origins, places)
    return band, buffer
