"""Convolutions at stride 1 by a matrix unit: windows are multiplied in place, in images with a border of zeros.

A matrix unit takes rows of bytes at equal distances. Windows that begin at neighbouring pixels are such rows if an
image has columns and rows of zeros around it: no window is copied, and shared bytes are expanded once. Between the
rows of an image a few positions are multiplied in vain. `docs/kernels/framed.md` has the figures.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from ..epilogue.finish import flips_and_lanes, store_tile, target
from ..epilogue.strips import are_in_strips, put_codes, single_lines
from ..llvm.vectors import LANES, TILE
from ..llvm.views import ByteWeights, Limits, Rows, RunSpan, View
from ..popcount.affine import Added
from ..popcount.lanes import shift_tile
from ..popcount.tile_tasks import Task, drive
from ..popcount.tiles import Group, blocks, empty_places, lanes_of, next_stretch
from ..runtime.aligned import empty_lines, first_line
from ..runtime.jit import entry, inline, inner
from ..runtime.schedule import Kernel
from .amx_unit import UNIT
from .dot import EFFORT as DOT
from .dot import PAIR, STRETCH, bytes_of_levels, expand_blocks
from .dot_amx import dot_rows
from .expand import are_bytes, bring_codes, clear_bytes
from .windows import WORD, spans_of

_NO_VALUES = np.empty((0, 0), np.int32)
POSITIONS = 512  # that meet one pair of blocks before the next
_WORDS = 1 << 13  # that they span, unless those of one row span more: 512 KiB of bytes
_REUSED = STRETCH * LANES * PAIR  # words of weights that a thread keeps as bytes: all of few channels
EFFORT = DOT._replace(tile=3.5, pixel=0.1)


def framed(x, fixed, out):
    drive(_framed_range, x, fixed, out, _task)


def _task(x, fixed):
    """Describe the work as rows of the result, in `plan.together` images at once."""
    plan, tiles = fixed.plan, fixed.plan.row / TILE
    words = np.full(len(plan.first_strip) - 1, fixed.w.words.shape[2])
    band = 1 << 62 if fixed.w.words.size <= _REUSED else rows_of_band.py_func(plan)
    effort = EFFORT._replace(word=EFFORT.word * tiles, tile=EFFORT.tile * tiles, band=band)
    return Task(plan, words, -(-x.images // plan.together), _NO_VALUES, effort, (UNIT,))


@entry
def rows_of_band(plan):
    """Return the rows of a result that are worked on together: at least one."""
    return max(1, min(POSITIONS // plan.row, _WORDS // (plan.row * plan.pixel_words) - plan.seen + 1))


class Band(NamedTuple):
    """A span of neighbouring rows of the result, in neighbouring images."""

    image: int
    images: int
    row: int
    rows: int


@inline
def next_band(plan, images, low, end):
    """Return the band of rows from row `low` of all images on."""
    rows = len(plan.first_strip) - 1
    image, row = low // rows * plan.together, low % rows
    count = min(end - low, rows - row, rows_of_band(plan))
    return Band(image, min(plan.together, images - image), row, count)


@inner
def words_of(plan, positions):
    """Count the words that windows at some positions see, with the zeros between them."""
    seen = ((plan.seen - 1) * plan.row + plan.left) * plan.pixel_words
    for r in range(len(plan.runs)):
        seen = max(seen, plan.runs[r, 0] + plan.runs[r, 2])
    return positions * plan.pixel_words + seen


@inline
def frame(x, plan, band, codes, code):
    """Expand the rows that a band's windows see to bytes from codes[code] on, with zeros around them."""
    pitch, gap = plan.pitch * plan.pixel_words, plan.pitch * plan.pixel_words - plan.row_words
    word, at = band.image * plan.image_words, code + plan.left * plan.pixel_words * WORD
    clear_bytes(codes, code, at - code)
    for i in range(band.rows + plan.seen - 1):
        row = band.row - plan.top + i
        for image in range(plan.together):
            if 0 <= row < plan.image_rows and image < band.images:
                first = word + image * plan.image_words + row * plan.row_words
                bring_codes(x, first, 1, plan.row_words, View(codes, at))
                clear_bytes(codes, at + plan.row_words * WORD, gap * WORD)
            else:
                clear_bytes(codes, at, pitch * WORD)
            at += pitch * WORD


@inline
def _stays(x, plan, first, size):
    """Return True where codes are stored as bytes, `size` words from word `first` on, in the order of a frame."""
    rows, alone = len(plan.first_strip) - 1, plan.seen == 1 and plan.together == 1
    no_border = plan.top == 0 and rows <= plan.image_rows and plan.pitch * plan.pixel_words == plan.row_words
    return are_bytes(x) and alone and no_border and (first + size) * WORD <= x.words.size * x.words.itemsize


@inline
def strips_of(plan, band, row, image):
    """Return (first strip, last, position of the first sum, pixel of the first result) of a row of the result."""
    position = (row - band.row) * plan.row + image * plan.pitch
    pixel = ((band.image + image) * (len(plan.first_strip) - 1) + row) * plan.columns
    return plan.first_strip[row], plan.first_strip[row + 1], position, pixel


@inline
def _put_band(totals, total, band, lanes, plan, added, singles, to):
    """Store codes of a band's pixels by 32 channels, whose sums begin at totals[total]."""
    flips, used = flips_and_lanes(to.flip, lanes)
    apart = to.words.shape[2]
    for row in range(band.row, band.row + band.rows):
        for image in range(band.images):
            first, last, position, pixel = strips_of(plan, band, row, image)
            for strip in range(first, last):
                column, count, kind = plan.strips[strip, 0], plan.strips[strip, 1], plan.strips[strip, 2]
                sums = Rows(totals, (total + position + column) * LANES, LANES)
                extra = View(added.fixed, kind * added.fixed.shape[1] + lanes.at)
                words = Rows(to.words, (pixel + column) * apart, apart)
                limits = Limits(to.thresholds, lanes.at, flips, used)
                put_codes(sums, count, extra, limits, singles, added.step, lanes.channel, words)


@inline
def _store_band(sums, band, lanes, plan, added, tile, places, to):
    """Store results of a band's pixels by 32 channels, whose sums are a `View` of rows; `tile` is a buffer for 4."""
    totals, total = sums.data, sums.at
    for row in range(band.row, band.row + band.rows):
        for image in range(band.images):
            first, last, position, pixel = strips_of(plan, band, row, image)
            for strip in range(first, last):
                column, count, kind = plan.strips[strip, 0], plan.strips[strip, 1], plan.strips[strip, 2]
                for p in range(column, column + count, TILE):
                    for i in range(TILE):
                        places.rows[0, i] = pixel + p + i
                    dots = View(totals, (total + position + p) * LANES)
                    extra = View(added.fixed, kind * added.fixed.shape[1] + lanes.at)
                    shift_tile(dots, extra, 0, View(places.origins, 0), added.step, View(tile, 0))
                    store_tile(tile, 0, 0, lanes, places.rows, min(TILE, column + count - p), to)


@partial(Kernel, takes=True, of_bytes=True)
def _framed_range(prepared, matrix, starts, x, values, words, dealt, worker):
    w, plan, finish = prepared
    base, unit, _, step = bytes_of_levels(w.terms)
    added = Added(finish.extra, 0, x.terms[0, 3] * step, 0)
    length, all_blocks = w.words.shape[2], w.words.shape[1]
    stretches = -(-length // STRETCH)
    firsts, spans = spans_of(x.words, plan, length, stretches, 1, 0)
    apart = -(-length // stretches) * LANES * WORD
    keeps = all_blocks * length * LANES <= _REUSED  # then a block alone may have two stretches
    weights = np.empty((-(-all_blocks // PAIR) * stretches if keeps else 1) * PAIR * apart + WORD, np.uint8)
    weight, ready = first_line(weights), -1
    most = min(rows_of_band(plan), starts[0, -1])
    positions = -(-most * plan.row // matrix.rows) * matrix.rows
    size, stored = words_of(plan, positions), x.words[0].view(np.uint8)
    framed = np.empty((size + 1) * WORD, np.uint8)
    totals, tile = empty_lines(PAIR * positions + TILE, np.int32), empty_lines(TILE, np.int32)
    places, to = empty_places(1), target(finish, values, words)
    places.origins[...] = 0
    singles = single_lines(to.lines)
    in_strips = are_in_strips(to, singles)
    chunk, low, end = next_stretch(dealt, worker, starts)
    while low < end:
        band = next_band(plan, x.images, low, end)
        first_word = band.image * plan.image_words + band.row * plan.row_words
        codes, code = stored, first_word * WORD
        if not _stays(x, plan, first_word, size):
            codes, code = framed, first_line(framed)
            frame(x, plan, band, codes, code)
        first, last = blocks(0, all_blocks, PAIR, chunk, len(starts))
        for task in range(-(-(last - first) // PAIR) * stretches):
            pair, s = first + task // stretches * PAIR, task % stretches
            near, begin, stop = min(PAIR, last - pair), length * s // stretches, length * (s + 1) // stretches
            at = weight + (task * PAIR * apart if keeps else 0)
            if not keeps or ready != chunk:
                expand_blocks(w, pair, (begin, stop), base, unit, ByteWeights(weights, at, apart, near))
            rows, sums = Rows(codes, code, plan.pixel_words * WORD), Rows(totals, 0, positions * LANES)
            some = RunSpan(spans, firsts[s, 0], firsts[s, 1])
            dot_rows(matrix, rows, band.rows * plan.row, ByteWeights(weights, at, apart, near), some, s == 0, sums)
            for b in range(near if s + 1 == stretches else 0):
                lanes, total = lanes_of(Group(0, 0, w.group_lanes), pair + b), b * positions
                if in_strips:
                    _put_band(totals, total, band, lanes, plan, added, singles, to)
                else:
                    _store_band(View(totals, total), band, lanes, plan, added, tile, places, to)
        ready = chunk
        low += band.rows
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, starts)
