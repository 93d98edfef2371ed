"""Convolution and matrix product with float constants, summed in float64 in one documented order and rounded once.

`docs/decisions/0001-real-results-in-float64.md` has the order. A basis of M planes by one of N planes is M * N exact
counts of the same words, which stay in L1 between counts: a tile's words are read from memory once.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from ..epilogue.finish import store_tile, target
from ..llvm.vectors import LANES, TILE
from ..llvm.views import Planes, RunSpan, View
from ..runtime.aligned import empty_lines
from ..runtime.jit import inline
from ..runtime.schedule import Kernel
from .bands import BLOCKS, IN_BANDS, TOGETHER, count_band, counted, empty_band, read_band
from .half_words import sums_of_halves
from .lanes import Exact, add_tile, clear_tile, round_tile
from .tile_tasks import Effort, Task, drive, tiles_of
from .tiles import (
    IN_REGISTERS,
    WORD,
    Group,
    Places,
    Product,
    blocks,
    count,
    empty_dots,
    empty_places,
    lanes_of,
    longest,
    next_stretch,
    place_tiles,
    sum_codes,
)

_NO_VALUES = np.empty((0, 0), np.float32)


class Spot(NamedTuple):
    """A tile by a block of channels."""

    places: Places
    tile: int
    block: int
    beside: int  # the block's number in its band


class Sides(NamedTuple):
    """A tile of sums, and x's constants that they are multiplied by."""

    value: np.ndarray  # float64[4 32]
    scales: np.ndarray  # float64[4]


def conv_real(x, fixed, out):
    drive(_real_range, x, fixed, out, _task)


def _task(x, fixed):
    pairs = x.words.shape[0] * fixed.w.words.shape[0]
    plan, words = tiles_of(fixed)
    effort = Effort(word=pairs * WORD, tile=6 * pairs, together=TOGETHER)
    return Task(plan, words * counted(plan.counts), x.images, _NO_VALUES, effort, (sums_of_halves(fixed, False),))


@inline
def _place_constants(x, plan, nth, rows, i):
    """rows[i, p] = the row of x's constants that pixel p of tile `nth` of the product has."""
    image, tile = nth // plan.counts.size, nth % plan.counts.size
    for p in range(TILE):
        rows[i, p] = plan.pixels[tile, p] if x.row_is_pixel else image


@inline
def _add_products(product, halves, spot, rows, ones, band, sums, sides):
    """sides.value = the scaled sums of products of codes, over all terms of all parts, for the tile of a spot."""
    x, w, plan, places, i, block = product.x, product.w, product.plan, spot.places, spot.tile, spot.block
    at, lanes, scales, value = block * LANES, w.words.shape[1] * LANES, sides.scales, sides.value
    plane, size = x.words.shape[1], w.words.shape[2] * LANES
    clear_tile(value)
    for part in range(plan.parts):
        run = places.kinds[i] * plan.parts + part
        for t in range(x.terms.shape[0]):
            i0, planes_i, base, step = x.terms[t, 0], x.terms[t, 1], x.terms[t, 2], x.terms[t, 3]
            _row_constants(x.scale[part, t], rows[i], scales)
            for s in range(w.terms.shape[0]):
                j0, planes_j = w.terms[s, 0], w.terms[s, 1]
                if IN_BANDS and band.sums.size:
                    read_band(band.sums, (i0, planes_i), (j0, planes_j), i, spot.beside, sums)
                else:
                    left = Planes(x.words, i0 * plane, planes_i, plane)
                    right = Planes(w.words, (j0 * w.words.shape[1] + block) * size, planes_j, w.words.shape[1] * size)
                    runs = RunSpan(plan.runs, plan.first_run[run], plan.first_run[run + 1])
                    count(left, View(places.origins, i * TILE), right, runs, 0, LANES, sums)
                    if IN_REGISTERS:
                        _add_halves(halves[run, s], at, (1 << planes_i) - 1, sums.total)
                w_at = (part * w.terms.shape[0] + s) * lanes + at
                sums_at = (run * w.terms.shape[0] + s) * lanes + at
                ones_at = ((i * plan.parts + part) * x.terms.shape[0] + t) * TILE
                along, factor = step * w.terms[s, 2], step * w.terms[s, 3]
                exact = Exact(base, w.sums, sums_at, along, ones, ones_at, factor, sums.total)
                add_tile(value, scales, View(w.scale, w_at), exact)


@inline
def _add_halves(halves, at, times, dots):
    """dots[p, l] += times * halves[at + l], which counting in registers leaves out."""
    for p in range(TILE):
        for lane in range(np.uint64(LANES)):
            dots[p, lane] += times * halves[np.uint64(at) + lane]


@inline
def _add_offsets(product, spot, rows, ones, sides):
    """sides.value += terms of x times w's offset, terms of w times x's offset, then both offsets.

    An offset is a term whose integer is 1 everywhere.
    """
    x, w, places, i, block = product.x, product.w, spot.places, spot.tile, spot.block
    scales, value = sides.scales, sides.value
    parts, terms, w_terms, lanes = ones.shape[1], x.terms.shape[0], w.terms.shape[0], w.words.shape[1] * LANES
    run, at = places.kinds[i] * parts, block * LANES
    for part in range(parts):
        for t in range(terms):
            _row_constants(x.scale[part, t], rows[i], scales)
            base, ones_at = x.terms[t, 2] * w.inside[run + part], ((i * parts + part) * terms + t) * TILE
            exact = Exact(base, None, 0, x.terms[t, 3], ones, ones_at, 0, None)
            add_tile(value, scales, View(w.offset, part * lanes + at), exact)
    for part in range(parts):
        _row_constants(x.offset[part], rows[i], scales)
        for s in range(w_terms):
            w_at, sums_at = (part * w_terms + s) * lanes + at, ((run + part) * w_terms + s) * lanes + at
            add_tile(value, scales, View(w.scale, w_at), Exact(1, w.sums, sums_at, 0, None, 0, 0, None))
    for part in range(parts):
        _row_constants(x.offset[part], rows[i], scales)
        exact = Exact(w.inside[run + part], None, 0, 0, None, 0, 0, None)
        add_tile(value, scales, View(w.offset, part * lanes + at), exact)


@inline
def _row_constants(constants, rows, out):
    """out[p] = constants[rows[p], 0], or the one constant that all rows share; constants float64[rows 1]."""
    for p in range(TILE):
        out[p] = constants[min(rows[p], constants.shape[0] - 1), 0]


@partial(Kernel, takes=True)
def _real_range(prepared, halves, starts, x, values, words, dealt, worker):
    w, plan, finish = prepared
    product = Product(x, w, plan)
    parts, group_blocks = plan.parts, w.words.shape[1] // w.groups
    band = empty_band(x.words, w.words, plan.counts, longest(starts), parts)
    size = band.sums.shape[2] // TILE if band.sums.size else 1
    places, rows = empty_places(size), np.empty((size, TILE), np.int64)
    ones = np.zeros((size, parts, x.terms.shape[0], TILE), np.int64)
    sums, to = empty_dots(w.sums), target(finish, values, words)
    sides = Sides(empty_lines(TILE, np.float64), np.empty(TILE, np.float64))
    chunk, low, end = next_stretch(dealt, worker, starts)
    while low < end:
        near = min(size, end - low)
        for nth in range(w.groups):
            group = Group(nth * group_blocks, nth * w.group_lanes, w.group_lanes)
            place_tiles(plan, low, near, nth * w.group_words, places)
            for i in range(near):
                _place_constants(x, plan, low + i, rows, i)
                for part in range(parts):
                    for t in range(x.terms.shape[0]):
                        sum_codes(product, places, i, places.kinds[i] * parts + part, t, ones[i, part], t)
            first, last = blocks(group.block, group_blocks, TOGETHER, chunk, len(starts))
            for block in range(first, last):
                lanes, beside = lanes_of(group, block), (block - first) % BLOCKS
                if IN_BANDS and band.sums.size and not beside:
                    count_band(product, places, near, block, min(BLOCKS, last - block), 0, band)
                for i in range(near):
                    spot = Spot(places, i, block, beside)
                    _add_products(product, halves, spot, rows, ones, band, sums, sides)
                    _add_offsets(product, spot, rows, ones, sides)
                    fixed = places.kinds[i] * finish.pad.shape[1] + lanes.at
                    round_tile(sides.value, finish.pad, fixed, finish.bias, lanes.at)
                    store_tile(sides.value, 0, i, lanes, places.rows, places.sizes[i], to)
        low += near
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, starts)
