"""The windows of a band side by side, as rows of bytes at equal distances: what a matrix unit takes."""

import numpy as np

from .compiled import inner
from .lines import first_line
from .micro import HALF, QUAD, TILE, clear_bytes, copy_windows
from .windows import BAND, WINDOWS, WORD


@inner
def row_bytes(length):
    """From one window of `length` words to the next: a line more, or the rows of many would share a few sets of L1."""
    return (length + 1) * WORD


@inner
def most_tiles(matrix, length):
    """The tiles of a band, whole pieces of what the matrix unit takes at once: WINDOWS words at most, or one piece."""
    piece = matrix.rows // TILE
    return max(1, min(BAND, WINDOWS // (TILE * (length + 1))) // piece) * piece


@inner
def whole_spans(length, stretches):
    """int64[stretches 3]: (at, to, length) in quads of the words of each stretch, in a row and in its weights."""
    spans = np.zeros((stretches, 3), np.int64)
    for s in range(stretches):
        begin, end = length * s // stretches, length * (s + 1) // stretches
        spans[s, 0], spans[s, 2] = begin * WORD // QUAD, (end - begin) * WORD // QUAD
    return spans


@inner
def line_up(matrix, codes, places, plan, low, band, firsts, spans, length, rows):
    """(rows, row): the windows of the tiles from `low` on, whole, with zeros for the taps outside.

    That of pixel p of tile i begins at rows[row + (i * TILE + p) * row_bytes(length)]; there is room for as many as the
    unit takes at once. `rows` is a larger buffer where it has to be.
    """
    apart, classes, stretches = row_bytes(length), plan.classes, firsts.shape[0]
    pixels = -(-band * TILE // matrix.rows) * matrix.rows
    if rows.size < pixels * apart + WORD:
        rows = np.empty(pixels * apart + WORD, np.uint8)
    row = first_line(rows)
    for i in range(band):
        kind, begin, covered = classes[(low + i) % classes.size], row + i * TILE * apart, 0
        for s in range(stretches):
            for j in range(firsts[s, kind], firsts[s, kind + 1]):
                covered += -(-spans[j, 2] * QUAD // HALF)
        if covered * HALF < length * WORD:
            clear_bytes(rows, begin, TILE * apart)
        for s in range(stretches):
            to = begin + length * s // stretches * WORD
            spans_first, spans_last = firsts[s, kind], firsts[s, kind + 1]
            copy_windows(codes, places, i * TILE, spans, spans_first, spans_last, QUAD, 0, rows, to, apart)
    return rows, row
