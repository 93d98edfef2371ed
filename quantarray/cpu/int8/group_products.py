"""Products of rows of bytes and packed weights that have constants for each group.

Bytes of some outputs' weights are written to a panel, which stays in L1 while all rows meet it; `group_dots` has the
inner loop. One to four rows meet the bytes in registers, by `group_rows`.
"""

from typing import NamedTuple

import numpy as np

from ...core.format import empty_lines
from ..bits.constants import Numbers, is_none, numbers_of, put_numbers, scratch_of
from ..runtime import threads
from ..runtime.aligned import first_line
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .group_bytes import BYTES, LANES, place_in_group, spread
from .group_dots import COLUMNS, ROWS, ByteRows, Panel, dot_blocks, sum_of_lanes
from .group_rows import MOST_ROWS, dot_group_rows

_LEAST = 1 << 17  # products that are worth a parallel region
_FEW, _MANY = 4, 8  # outputs of a panel, of few rows and of more
_PANEL = 1 << 14  # bytes of a panel
_ROWS = 128  # that meet a panel, and whose sums are in L2
_ALL = 1 << 30  # units with one constant, where there is one for all
_WORDS = 8  # of a plane in the longest block


class Weights(NamedTuple):
    """A view of weights, flat: words, and constants of groups, one for `each` so many units of a row."""

    words: np.ndarray
    planes: int
    outputs: int
    length: int  # words of a row
    low: Numbers
    step: Numbers
    each: int
    units: int
    apart: int


def group_product(codes, shares, starts, sums, words, low, step, apart, group, unit, out):
    if not out.size:
        return
    blocks, vectors = -(-shares.shape[1] // LANES), unit // 4
    x = ByteRows(
        empty_lines((len(out), blocks * vectors * BYTES), np.dtype(np.int8)),
        *(empty_lines((len(a), blocks * LANES), a.dtype) for a in (shares, starts, sums)),
        blocks,
    )
    threads.run(_interleave, (codes, shares, starts, sums, unit, x), len(out), threads.workers(codes.size, _LEAST))
    constants = numbers_of(low), numbers_of(step), group // unit if step.shape[1] > 1 else _ALL
    weights = Weights(words.reshape(-1), *words.shape, *constants, shares.shape[1], apart)
    workers = threads.workers(out.size * codes.shape[1], _LEAST)
    if len(out) <= MOST_ROWS:
        threads.run(_multiply_few, (x, weights, unit, out), out.shape[1], workers)
        return
    some = _FEW if len(out) <= ROWS[0] else _MANY
    panels = -(-out.shape[1] // some)
    threads.run(_multiply, (x, weights, unit, some, panels, out), panels * -(-len(out) // _ROWS), workers)


@Kernel
def _interleave(codes, shares, starts, sums, unit, x, first, last):
    units, vectors = shares.shape[1], unit // 4
    for row in range(first, last):
        x.codes[row, units // LANES * vectors * BYTES :] = 0
        x.shares[row, units:] = 0
        x.starts[row, units:] = 0
        for n in range(units):
            x.shares[row, n], x.starts[row, n] = shares[row, n], starts[row, n]
            at = n // LANES * vectors * BYTES + n % LANES * 4
            for element in range(unit):
                x.codes[row, at + place_in_group(unit, element)] = codes[row, n * unit + element]
        if row < len(sums):
            x.sums[row, units:] = 0
            x.sums[row, :units] = sums[row]


@inner
def empty_floats(vectors):
    """Allocate undefined vectors of 16 float32, flat, that begin a line."""
    buffer = np.empty((vectors + 1) * LANES, np.float32)
    first = first_line(buffer) // 4
    return buffer[first : first + vectors * LANES]


@Kernel
def _multiply(x, w, unit, some, panels, out, first, last):
    rows, outputs, vectors = out.shape[0], out.shape[1], unit // 4
    at_once = max(1, min(x.blocks, _PANEL // (some * vectors * BYTES)))
    codes = np.empty(some * at_once * vectors * BYTES + BYTES, np.uint8)
    scales, lows = empty_floats(some * at_once), empty_floats(some * at_once)
    totals, ends = empty_floats(min(rows, _ROWS) * some), np.zeros(w.planes * _WORDS, np.uint64)
    place, scratch = first_line(codes), np.empty(max(scratch_of(w.step), scratch_of(w.low)), np.float32)
    without = is_none(w.low)
    for task in range(first, last):
        column, row = task % panels * some, task // panels * _ROWS  # rows stay in L2 for all panels
        outputs_here, stop = min(some, outputs - column), min(row + _ROWS, rows)
        totals[: (stop - row) * some * LANES] = 0
        for begin in range(0, x.blocks, at_once):
            count = min(at_once, x.blocks - begin)
            panel = Panel(codes, place, scales, lows[:0] if without else lows, count, vectors)
            for c in range(outputs_here):
                _fill(w, column + c, begin, unit, ends, scratch, c, panel)
            at = row
            while at < stop:
                several = _tallest(stop - at)
                for c in range(0, outputs_here, COLUMNS):
                    to = ((at - row) * some + c) * LANES
                    dot_blocks(x, at, several, begin, panel, c, w.apart, w.planes == 8, totals, to, some * LANES)
                at += several
        for r in range(row, stop):
            for c in range(outputs_here):
                out[r, column + c] = sum_of_lanes(totals, ((r - row) * some + c) * LANES)


@Kernel
def _multiply_few(x, w, unit, out, first, last):
    rows, length, deep = out.shape[0], unit // 4, w.planes == 8
    scales, scratch, without = (
        empty_floats(x.blocks),
        np.empty(max(scratch_of(w.step), scratch_of(w.low)), np.float32),
        is_none(w.low),
    )
    lows = scales[:0] if without else empty_floats(x.blocks)
    totals, ends = empty_floats(rows), np.zeros(w.planes * _WORDS, np.uint64)
    whole, apart = min(x.blocks, w.length // length), w.outputs * w.length
    for o in range(first, last):
        totals[:] = 0
        _put_constants(w.step, o, w, 0, w.units, scratch, scales, 0, x.blocks)
        if not without:
            _put_constants(w.low, o, w, 0, w.units, scratch, lows, 0, x.blocks)
        at = o * w.length
        dot_group_rows(x, rows, 0, w.words, at, apart, w.planes, whole, unit, scales, lows, w.apart, deep, totals)
        if whole < x.blocks:
            _copy_end(w, o, whole * length, length, ends)
            dot_group_rows(x, rows, whole, ends, 0, _WORDS, w.planes, 1, unit, scales, lows, w.apart, deep, totals)
        for r in range(rows):
            out[r, o] = sum_of_lanes(totals, r * LANES)


@inline
def _tallest(rows):
    """Return the rows of the tallest tile that so many fill."""
    for tall in ROWS:
        if tall <= rows:
            return tall
    return 1


@inline
def _fill(w, o, begin, unit, ends, scratch, c, panel):
    """Write the codes and constants of output o, from block `begin` on, as output c of a panel."""
    length = unit // 4
    whole = min(panel.blocks, w.length // length - begin)  # blocks whose words are all there
    at, to = o * w.length + begin * length, panel.at + c * panel.blocks * panel.vectors * BYTES
    spread(w.words, at, w.outputs * w.length, w.planes, whole, unit, panel.codes, to)
    if whole < panel.blocks:
        _copy_end(w, o, (begin + whole) * length, length, ends)
        spread(ends, 0, _WORDS, w.planes, 1, unit, panel.codes, to + whole * panel.vectors * BYTES)
    place, first = c * panel.blocks * LANES, begin * LANES
    last = min(w.units, first + panel.blocks * LANES)
    _put_constants(w.step, o, w, first, last, scratch, panel.scales, place, panel.blocks)
    if not is_none(w.low):
        _put_constants(w.low, o, w, first, last, scratch, panel.lows, place, panel.blocks)


@inline
def _copy_end(w, o, first, length, ends):
    """Write the words from `first` on of a block that is longer than the row, with zeros after it."""
    for plane in range(w.planes):
        for i in range(length):
            inside = first + i < w.length
            ends[plane * _WORDS + i] = (
                w.words[(plane * w.outputs + o) * w.length + first + i] if inside else np.uint64(0)
            )


@inline
def _put_constants(constants, o, w, first, last, scratch, to, place, blocks):
    """Write the constants of units first .. last of an output, and zeros where a row has ended."""
    put_numbers(constants, o, first, last, w.each, scratch, to, place)
    for n in range(last - first, blocks * LANES):
        to[place + n] = 0
