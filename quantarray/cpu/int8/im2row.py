"""Windows as rows of bytes side by side at equal distances, zeros for taps outside: what a matrix unit takes."""

import numpy as np
from numba.extending import overload

from ..llvm.vectors import TILE
from ..runtime.aligned import first_line
from ..runtime.jit import inner
from .expand import clear_bytes, expand
from .interface import QUAD
from .windows import BAND, WORD, copy_rows

_WORDS = 1 << 14  # of the rows of a band, or one piece: 1 MiB of the 2 MiB of L2 that every CPU with a matrix unit has


def line_up(matrix, words, terms, plan, length, begin, end, shift, rows, origins, places):
    """(tiles, rows): the windows of a band from tile `begin` on, whole, in `rows` from places[tile, pixel] on.

    From one to the next it is `row_bytes(length)`, and there is room for as many as the unit takes at once. Origins
    are `shift` from the plan's; `rows` is a larger buffer where it has to be.
    """
    raise NotImplementedError


@overload(line_up)
def _line_up(matrix, words, terms, plan, length, begin, end, shift, rows, origins, places):
    return _expand_rows if words.dtype.bitwidth == 64 else _copy_rows


@inner
def row_bytes(length):
    """From one window of `length` words to the next: a line more, or the rows of many would share a few sets of L1."""
    return (length + 1) * WORD


@inner
def whole_spans(plan, length, stretches):
    """(firsts, spans) as `spans_of` has them, for windows that have all taps."""
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
def _band_and_room(matrix, length, tiles, rows):
    """(tiles, rows): how many of the next tiles a band has, whole pieces if there are more; and room for them."""
    piece = matrix.rows // TILE
    most = max(1, min(BAND, _WORDS // (TILE * (length + 1))) // piece) * piece
    room = (-(-min(tiles, most) // piece) * matrix.rows) * row_bytes(length) + WORD
    return min(tiles, most), np.empty(room, np.uint8) if rows.size < room else rows


def _expand_rows(matrix, words, terms, plan, length, begin, end, shift, rows, origins, places):
    band, rows = _band_and_room(matrix, length, end - begin, rows)
    pixels, classes, origin, runs, first_run = plan.pixels, plan.classes, plan.origin, plan.runs, plan.first_run
    at, first = first_line(rows), terms[0, 0] * words.shape[1] + shift
    for i in range(band):
        image, tile = (begin + i) // classes.size, (begin + i) % classes.size
        start, stop, there = first_run[classes[tile]], first_run[classes[tile] + 1], 0
        for r in range(start, stop):
            there += runs[r, 2]
        if there < length:
            clear_bytes(rows, at, TILE * row_bytes(length))
        for p in range(TILE):
            places[i, p], word = at, first + image * plan.image_words + origin[pixels[tile, p]]
            for r in range(start, stop):
                to = at + runs[r, 1] * WORD
                expand(words, word + runs[r, 0], 1, words.shape[1], terms[0, 1], runs[r, 2], 0, 1, rows, to)
            at += row_bytes(length)
    return band, rows


def _copy_rows(matrix, words, terms, plan, length, begin, end, shift, rows, origins, places):
    band, rows = _band_and_room(matrix, length, end - begin, rows)
    copy_rows(words, terms, plan, length * WORD, begin, band, shift, rows, row_bytes(length), origins, places)
    return band, rows
