"""Products of rows of bytes and packed weights that have constants for each group.

Bytes of some outputs' weights are written to a panel, which stays in L1 while all rows meet it; `group_dots` has the
inner loop. One to four rows meet the bytes in registers, by `group_rows`.
"""

from typing import NamedTuple

import numpy as np

from ...core.format import empty_lines
from ..bits.constants import Numbers, address_of, are_floats, is_none, numbers_of, put_numbers, scratch_of, size_of
from ..llvm.vectors import prefer_wide
from ..runtime import threads
from ..runtime.aligned import first_line
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .group_bytes import BYTES, LANES, put_in_order, spread
from .group_dots import COLUMNS, ROWS, ByteRows, Panel, dot_blocks, sum_of_lanes
from .group_rows import MOST_ROWS, REPEATED, RowsOfConstants, RowsOfWords, dot_group_rows, fold_rows
from .tall_rows import FEW_PLANES, HAS_TALL, PAIR, TALL, dot_tall_groups, fold_tall

_LEAST = 1 << 17  # products that are worth a parallel region
_FEW, _MANY = 4, 8  # outputs of a panel, of few rows and of more
_PANEL = 1 << 14  # bytes of a panel
_ROWS = 128  # that meet a panel, and whose sums are in L2
_MOST_TALL = 32  # rows: 64 take 8.2 ms by panels, and 8.5 by tall tiles (4096x4096, 2 bits in groups of 64, Zen 4)
_STRETCH = 32  # words of a row, whose codes of a tall tile fill half of L1
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
    of_rows = codes, shares, starts, sums
    constants = numbers_of(low), numbers_of(step), group // unit if step.shape[1] > 1 else _ALL
    weights = Weights(words.reshape(-1), *words.shape, *constants, shares.shape[1], apart)
    rows, tall = len(out), _tall_rows(len(out), apart)
    if tall:
        x = _ordered([a[:tall] for a in of_rows], unit, TALL)
        chunks = -(-out.shape[1] // LANES)
        workers = threads.workers(out[:tall].size * codes.shape[1], _LEAST)
        threads.run(_multiply_tall, (x, weights, unit, chunks, out[:tall]), chunks * -(-tall // _ROWS), workers)
    if tall == rows:
        return
    x, out = _ordered([a[tall:] for a in of_rows], unit, 1), out[tall:]
    workers = threads.workers(out.size * codes.shape[1], _LEAST)
    if len(out) <= MOST_ROWS:
        kind = "contiguous" if out.flags.c_contiguous else None  # of types that are always the same: a look takes 3 us
        threads.run(_multiply_few, (x, weights, unit, out), out.shape[1], workers, kind=kind)
        return
    some = _FEW if len(out) <= ROWS[0] else _MANY
    panels = -(-out.shape[1] // some)
    threads.run(_multiply, (x, weights, unit, some, panels, out), panels * -(-len(out) // _ROWS), workers)


def _tall_rows(rows, apart):
    """Return how many rows tall tiles take: all, but up to four at the end; none of so many that a panel pays."""
    rest = rows % TALL
    tall = rows if rest > MOST_ROWS else rows - rest
    return tall if HAS_TALL and apart in (1, 2) and tall <= _MOST_TALL else 0


def _ordered(of_rows, unit, height):
    """Put rows and their constants in the order of products, `height` rows side by side."""
    codes, shares, starts, sums = of_rows
    vectors, blocks, tiles = unit // 4, -(-shares.shape[1] // LANES), -(-len(codes) // height)
    put = empty_lines((tiles, blocks * vectors * height * BYTES), np.dtype(np.int8))
    numbers = np.empty((3, tiles, blocks * height * LANES), np.float32)
    x = ByteRows(put, numbers[0], numbers[1], numbers[2, : tiles if len(sums) else 0], blocks)
    arguments = codes, shares, starts, sums, unit, height, x
    threads.run(_interleave, arguments, tiles, threads.workers(codes.size, _LEAST))
    return x


@Kernel
def _interleave(codes, shares, starts, sums, unit, height, x, first, last):
    """Put tiles of `height` rows in order: their vectors are one after another, zeros where rows and units end."""
    prefer_wide()
    units, vectors = shares.shape[1], unit // 4
    for tile in range(first, last):
        if (tile + 1) * height > len(codes) or units % LANES:
            x.codes[tile], x.shares[tile], x.starts[tile] = 0, 0, 0
            if tile < len(x.sums):
                x.sums[tile] = 0
        for row in range(tile * height, min((tile + 1) * height, len(codes))):
            nth = row % height
            for block in range(x.blocks):
                here = np.uint64(min(LANES, units - block * LANES))
                begin, at = np.uint64(block * LANES), np.uint64((block * height + nth) * LANES)
                for n in range(here):
                    x.shares[tile, at + n], x.starts[tile, at + n] = shares[row, begin + n], starts[row, begin + n]
                if row < len(sums):
                    for n in range(here):
                        x.sums[tile, at + n] = sums[row, begin + n]
                to = x.codes[tile, (block * vectors * height + nth) * BYTES :]
                put_in_order(codes[row, block * LANES * unit :], unit, here, to, height * BYTES)


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
                    dot_blocks(x, at, several, begin, panel, c, w.apart, w.planes, totals, to, some * LANES)
                at += several
        for r in range(row, stop):
            for c in range(outputs_here):
                out[r, column + c] = sum_of_lanes(totals, ((r - row) * some + c) * LANES)


@Kernel
def _multiply_few(x, w, unit, out, first, last):
    rows, length = out.shape[0], unit // 4
    scales, scratch = empty_floats(LANES * x.blocks), np.empty(max(scratch_of(w.step), scratch_of(w.low)), np.float32)
    lows = scales[:0] if is_none(w.low) else empty_floats(LANES * x.blocks)
    totals, ends = empty_floats((rows + 1) * LANES), np.zeros(LANES * w.planes * _WORDS, np.uint64)
    whole, between = min(x.blocks, w.length // length), w.outputs * w.length
    for o in range(first, last, LANES):
        here = min(LANES, last - o)
        totals[:] = 0
        words = RowsOfWords(w.words, o * w.length, w.length, between, w.planes)
        steps = _constants_of(w.step, o, here, w, w.each in REPEATED, scratch, scales, x.blocks)
        of_lows = _constants_of(w.low, o, here, w, w.each in REPEATED, scratch, lows, x.blocks)
        dot_group_rows(x, rows, 0, words, whole, unit, steps, of_lows, w.apart, here, totals)
        if whole < x.blocks:
            for c in range(here):
                _copy_end(w, o + c, whole * length, length, ends, c * _WORDS, LANES * _WORDS)
            words = RowsOfWords(ends, 0, _WORDS, LANES * _WORDS, w.planes)
            dot_group_rows(x, rows, whole, words, 1, unit, steps, of_lows, w.apart, here, totals)
        for r in range(rows):
            if here == LANES:
                fold_rows(totals, r * LANES, rows * LANES, out.reshape(-1), r * out.shape[1] + o)
                continue
            fold_rows(totals, r * LANES, rows * LANES, totals, rows * LANES * LANES)
            for c in range(here):
                out[r, o + c] = totals[rows * LANES * LANES + c]


@inline
def _constants_of(constants, o, outputs, w, in_place, scratch, to, blocks):
    """View the constants of some outputs, `in_place` where they are float32 of whole blocks, or as put into `to`."""
    size = size_of(constants)
    stored = address_of(constants) + o * size
    if is_none(constants):
        return RowsOfConstants(np.int64(0), 0, stored, 0, LANES)
    if in_place and are_floats(constants) and w.units == blocks * LANES:
        return RowsOfConstants(stored, constants.groups, stored, size, LANES // w.each)
    for c in range(outputs):
        _put_constants(constants, o + c, w, 0, w.units, scratch, to, c * blocks * LANES, blocks)
    return RowsOfConstants(np.int64(to.ctypes.data), blocks * LANES, stored, size, LANES)


@Kernel
def _multiply_tall(x, w, unit, chunks, out, first, last):
    """Multiply tiles of rows: the codes of a stretch of one, and the words of some outputs, stay in L1 meanwhile."""
    rows, outputs, length, stretch = out.shape[0], out.shape[1], unit // 4, _STRETCH // (unit // 4)
    scales, scratch = empty_floats(LANES * x.blocks), np.empty(max(scratch_of(w.step), scratch_of(w.low)), np.float32)
    lows = scales[:0] if is_none(w.low) else empty_floats(LANES * x.blocks)
    totals, ends = empty_floats(LANES * TALL), np.zeros(LANES * w.planes * _WORDS, np.uint64)
    whole, between, twice = w.length // length, w.outputs * w.length, w.apart == 2
    words_of_ends = RowsOfWords(ends, 0, _WORDS, LANES * _WORDS, w.planes)
    in_place = w.each in REPEATED if w.planes <= FEW_PLANES else w.each == 1
    for task in range(first, last):
        o, row = task % chunks * LANES, task // chunks * _ROWS
        here = min(LANES, outputs - o)
        steps = _constants_of(w.step, o, here, w, in_place, scratch, scales, x.blocks)
        of_lows = _constants_of(w.low, o, here, w, in_place, scratch, lows, x.blocks)
        for c in range(here if whole < x.blocks else 0):
            _copy_end(w, o + c, whole * length, length, ends, c * _WORDS, LANES * _WORDS)
        for tile in range(row // TALL, -(-min(row + _ROWS, rows) // TALL)):
            totals[:] = 0
            for begin in range(0, whole, stretch):
                words = RowsOfWords(w.words, o * w.length + begin * length, w.length, between, w.planes)
                some = min(stretch, whole - begin)
                dot_tall_groups(x, tile, begin, words, some, unit, steps, of_lows, twice, here, totals)
            if whole < x.blocks:
                dot_tall_groups(x, tile, whole, words_of_ends, 1, unit, steps, of_lows, twice, here, totals)
            for c in range(0, here, PAIR):
                if c + 1 < here and tile * TALL + TALL <= rows:
                    fold_tall(totals, c * TALL * LANES, out.reshape(-1), tile * TALL * outputs + o + c, outputs)
                else:
                    fold_tall(totals, c * TALL * LANES, totals, c * TALL * LANES, PAIR)
                    _put_some(totals, c * TALL * LANES, tile * TALL, o + c, out)


@inner
def _put_some(sums, at, row, column, out):
    """Put sums of a tall tile for those of its rows and outputs that there are."""
    for r in range(min(TALL, out.shape[0] - row)):
        for c in range(min(PAIR, out.shape[1] - column)):
            out[row + r, column + c] = sums[at + r * PAIR + c]


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
        _copy_end(w, o, (begin + whole) * length, length, ends, 0, _WORDS)
        spread(ends, 0, _WORDS, w.planes, 1, unit, panel.codes, to + whole * panel.vectors * BYTES)
    place, first = c * panel.blocks * LANES, begin * LANES
    last = min(w.units, first + panel.blocks * LANES)
    _put_constants(w.step, o, w, first, last, scratch, panel.scales, place, panel.blocks)
    if not is_none(w.low):
        _put_constants(w.low, o, w, first, last, scratch, panel.lows, place, panel.blocks)


@inline
def _copy_end(w, o, first, length, ends, to, between):
    """Write the words from `first` on of a block that is longer than the row, with zeros after it, to ends[to ..].

    Planes are `between` words apart there.
    """
    for plane in range(w.planes):
        for i in range(length):
            inside = first + i < w.length
            ends[to + plane * between + i] = (
                w.words[(plane * w.outputs + o) * w.length + first + i] if inside else np.uint64(0)
            )


@inline
def _put_constants(constants, o, w, first, last, scratch, to, place, blocks):
    """Write the constants of units first .. last of an output, and zeros where a row has ended."""
    put_numbers(constants, o, first, last, w.each, scratch, to, place)
    for n in range(last - first, blocks * LANES):
        to[place + n] = 0
