"""Convolve with float constants: products are summed in float64 in one documented order, rounded once.

`docs/decisions/0001-real-results-in-float64.md` has the order. Products and sums are rounded one by one, by libdevice's
functions that say so: the compiler would join a multiplication and an addition to one rounding, and agree with no CPU.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..epilogue.finish import changes, store_codes, store_values
from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from . import tiles
from .tiles import column_at, columns, counter, locator, sum_codes


class Constants(NamedTuple):
    """A tuple of the terms and constants of both operands, `Left` and `Right`."""

    x_terms: object
    x_scale: object
    x_offset: object
    w_terms: object
    w_scale: object
    w_offset: object
    sums: object
    inside: object
    parts: object  # first and last word of each part


class Last(NamedTuple):
    """An epilogue's arrays: what is added, and thresholds."""

    pad: object
    bias: object
    thresholds: object
    flip: object
    changed: object


def conv_real(x, fixed, out):
    w, plan, finish = fixed[:3]
    shape = tiles.shape_of(x, w, plan)
    if not out.size or not shape.rows:
        return
    codes, tile, taps = out.dtype == np.uint64, tiles.real_tile_for(shape.group_blocks), tiles.taps(plan)
    constants = Constants(x.terms, x.scale, x.offset, w.terms, w.scale, w.offset, w.sums, w.inside, taps.parts)
    last = Last(finish.pad, finish.bias, finish.thresholds, finish.flip, changes(finish))
    result = launch.halves(out) if codes else out
    tiles.run(
        _kernel(tile, codes), tile, shape, int(x.row_is_pixel), x.words, w.words, taps.places, taps.offsets,
        launch.all_resident(constants), launch.all_resident(last), result,
    )  # fmt: skip


@inline
def plus(value, left, right, exact):
    """value + (left * right) * exact, each step rounded on its own; exact is an int64."""
    return libdevice.dadd_rn(value, libdevice.dmul_rn(libdevice.dmul_rn(left, right), np.float64(exact)))


@inline
def _of_row(constants, row):
    """Return the constant of a row, float64[rows or 1, 1]."""
    return constants[min(row, constants.shape[0] - 1), 0]


@inline
def _sum_term(c, part, t, left, begin, kind, offsets):
    """Return the sum of a pixel's codes of term t in a part."""
    return sum_codes(left, c.x_terms[t, 0], c.x_terms[t, 1], begin, kind, offsets, c.parts[part, 0], c.parts[part, 1])


@cache
def _products(tile):
    """Add the product of a term of each operand."""
    pixels, blocks = tile.pixels, tile.blocks

    @inline
    def add_products(c, part, t, s, left, shift, begins, kinds, rows, offsets, block, dot, value):
        """value += (sx * sw) * U."""
        lane, warp, lanes = cuda.threadIdx.x, cuda.threadIdx.y, c.w_scale.shape[2]
        base_x, step_x, base_w, step_w = c.x_terms[t, 2], c.x_terms[t, 3], c.w_terms[s, 2], c.w_terms[s, 3]
        along, step = step_x * base_w, step_x * step_w
        for p in range(pixels):
            place = warp * pixels + p
            kind, ones = kinds[place], np.int64(0)
            if along != 0:
                ones = _sum_term(c, part, t, left, begins[place] + shift, kind, offsets)
            scale = _of_row(c.x_scale[part, t], rows[place])
            for b in range(blocks):
                i, at = p * blocks + b, min((block + b) * LANES + lane, lanes - 1)
                exact = (
                    base_x * c.sums[kind * c.parts.shape[0] + part, s, at] + along * ones + step * dot[warp, i, lane]
                )
                value[warp, i, lane] = plus(value[warp, i, lane], scale, c.w_scale[part, s, at], exact)

    return add_products


@cache
def _offsets(tile):
    """Add the terms of the operands' offsets to a pixel."""
    pixels, blocks = tile.pixels, tile.blocks

    @inline
    def add_offsets(c, left, shift, begins, kinds, rows, offsets, block, p, value):
        """Add terms of x times w's offset, of w times x's, then both."""
        lane, warp, lanes = cuda.threadIdx.x, cuda.threadIdx.y, c.w_scale.shape[2]
        place, parts = warp * pixels + p, c.parts.shape[0]
        kind, row = kinds[place], rows[place]
        for part in range(parts):
            for t in range(c.x_terms.shape[0]):
                ones = _sum_term(c, part, t, left, begins[place] + shift, kind, offsets)
                exact = c.x_terms[t, 2] * c.inside[kind * parts + part] + c.x_terms[t, 3] * ones
                scale = _of_row(c.x_scale[part, t], row)
                for b in range(blocks):
                    i, at = p * blocks + b, min((block + b) * LANES + lane, lanes - 1)
                    value[warp, i, lane] = plus(value[warp, i, lane], scale, c.w_offset[part, at], exact)
        for b in range(blocks):
            i, at = p * blocks + b, min((block + b) * LANES + lane, lanes - 1)
            total = value[warp, i, lane]
            for part in range(parts):
                offset = _of_row(c.x_offset[part], row)
                for s in range(c.w_terms.shape[0]):
                    total = plus(total, offset, c.w_scale[part, s, at], c.sums[kind * parts + part, s, at])
            for part in range(parts):
                offset = _of_row(c.x_offset[part], row)
                total = plus(total, offset, c.w_offset[part, at], c.inside[kind * parts + part])
            value[warp, i, lane] = total

    return add_offsets


@cache
def _sums(tile):
    """Sum all products of a chunk of channels."""
    each, count, add_products = tile.pixels * tile.blocks, counter(tile), _products(tile)

    @inline
    def sum_products(c, left, shift, begins, kinds, rows, right, offsets, block, end, a, b, dot, value):
        """value = the products of all terms of all parts, in that order."""
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        for i in range(each):
            value[warp, i, lane] = 0.0
        for part in range(c.parts.shape[0]):
            for t in range(c.x_terms.shape[0]):
                for s in range(c.w_terms.shape[0]):
                    for i in range(each):
                        dot[warp, i, lane] = 0
                    for i in range(c.x_terms[t, 1]):
                        for j in range(c.w_terms[s, 1]):
                            count(
                                left, c.x_terms[t, 0] + i, right, c.w_terms[s, 0] + j, begins, kinds, shift, offsets,
                                block, end, c.parts[part, 0], c.parts[part, 1], a, b, dot, i + j,
                            )  # fmt: skip
                    add_products(c, part, t, s, left, shift, begins, kinds, rows, offsets, block, dot, value)

    return sum_products


@cache
def _finisher(tile, codes):
    """Make results of a pixel's sums."""
    pixels, blocks = tile.pixels, tile.blocks
    size, store = tile.warps * pixels, store_codes if codes else store_values

    @inline
    def finish(shape, last, kinds, rows, group, block, end, p, value, out):
        """Add padding and bias, round once to float32, then apply thresholds, if any."""
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        place = warp * pixels + p
        for i in range(blocks):
            if block + i < end and cuda.blockIdx.x * size + place < shape.rows:
                at, channel = (block + i) * LANES + lane, (block + i - group * shape.group_blocks) * LANES
                total = libdevice.dadd_rn(value[warp, p * blocks + i, lane], last.pad[kinds[place], at])
                store(
                    np.float64(np.float32(libdevice.dadd_rn(total, last.bias[at]))),
                    channel + lane < shape.group_lanes, last.thresholds, last.flip, last.changed, at,
                    group * shape.group_lanes + channel, shape.alone, out, rows[place],
                )  # fmt: skip

    return finish


@cache
def _kernel(tile, codes):
    warps, pixels, blocks, words = tile
    size, each = warps * pixels, pixels * blocks
    locate, sum_products, add_offsets, finish = locator(size), _sums(tile), _offsets(tile), _finisher(tile, codes)

    @cuda.jit
    def real_tile(shape, row_is_pixel, left, right, places, offsets, c, last, out):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        rows = cuda.shared.array(size, np.int64)
        own_rows = cuda.shared.array(size, np.int64)
        a = cuda.shared.array((size, words), np.uint64)
        b = cuda.shared.array((blocks, words, LANES), np.uint64)
        dot = cuda.shared.array((warps, each, LANES), np.int64)
        value = cuda.shared.array((warps, each, LANES), np.float64)
        locate(shape, places, begins, kinds, rows)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        if lane < pixels:  # a matrix' rows have constants of their own, and images
            place = warp * pixels + lane
            own_rows[place] = rows[place] if row_is_pixel else rows[place] // shape.pixels
        cuda.syncthreads()
        column = cuda.blockIdx.y
        while column < columns(shape, blocks):
            group, block, end, shift = column_at(shape, blocks, column)
            sum_products(c, left, shift, begins, kinds, own_rows, right, offsets, block, end, a, b, dot, value)
            for p in range(pixels):
                add_offsets(c, left, shift, begins, kinds, own_rows, offsets, block, p, value)
                finish(shape, last, kinds, rows, group, block, end, p, value, out)
            column += cuda.gridDim.y

    return real_tile
