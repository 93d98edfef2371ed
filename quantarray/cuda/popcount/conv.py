"""Convolution and matrix product by and-popcount. `docs/kernels/conv.md` explains the algebra and the tile.

The exact integer product of a term u of x and a term v of w, over the taps inside the image, is

    sum u*v = base_x * sum v + step_x * (base_w * |a| + step_w * sum_ij 2^(i+j) |a_j & b_i|)

where |a| sums the codes of x. sum v depends on the output channel and the border class only; for integer results
`finish.extra` holds it already, times base_x, with padding and bias.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..epilogue.finish import changes, store_codes, store_values
from ..runtime import isa, launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..tensor_cores import bmma, imma, wgmma
from . import few_rows, tiles
from .tiles import column_at, columns, counter, locator, sum_codes

TENSOR_CORES = {"bmma": bmma, "wgmma": wgmma, "imma": imma}
_ROW = LANES + 1  # words of a row of the square that transposes weights: columns are then in different banks


class Terms(NamedTuple):
    """A pair of terms that are multiplied: their planes, and the factors of |a| and |a & b|."""

    first_x: int
    planes_x: int
    first_w: int
    planes_w: int
    along: int
    step: int


class Last(NamedTuple):
    """An epilogue's arrays: what is added to every pixel, and thresholds."""

    extra: object  # int32 or int64 [classes lanes]
    thresholds: object
    flip: object
    changed: object


def conv_weights(words, groups, out):
    if not out.size:
        return
    grid = -(-words.shape[2] // LANES), min(out.shape[1], launch.MOST_ROWS), out.shape[0]
    launch.run(_lay_out, grid, (LANES, 1), words, groups, out)


@cuda.jit
def _lay_out(words, groups, out):
    """Turn 32 words of 32 channels through shared memory: rows of both arrays are read and written whole."""
    square = cuda.shared.array((LANES, _ROW), np.uint64)
    lane, plane, start = cuda.threadIdx.x, cuda.blockIdx.z, cuda.blockIdx.x * LANES
    channels, length = words.shape[1], words.shape[2]
    blocks, group_lanes = out.shape[1] // groups, channels // groups
    block = cuda.blockIdx.y
    while block < out.shape[1]:
        group = block // blocks
        first = (block - group * blocks) * LANES
        for i in range(LANES):
            inside = first + i < group_lanes and start + lane < length
            square[i, lane] = words[plane, group * group_lanes + first + i, start + lane] if inside else np.uint64(0)
        cuda.syncthreads()
        for k in range(LANES):
            if start + k < length:
                out[plane, block, start + k, lane] = square[lane, k]
        cuda.syncthreads()
        block += cuda.gridDim.y


class Job(NamedTuple):
    """A product as kernels take it."""

    shape: tiles.Shape
    terms: Terms
    last: Last
    out: object  # int32 or int64 [rows channels], or uint32[planes rows halves] of codes


def job(x, fixed, out):
    """Return a product's `Job`, or None where there is nothing to compute."""
    w, plan, finish = fixed[:3]
    shape = tiles.shape_of(x, w, plan)
    if not out.size or not shape.rows:
        return None
    (first_x, planes_x, _, step_x), (first_w, planes_w, base_w, step_w) = x.terms[0].tolist(), w.terms[0].tolist()
    terms = Terms(first_x, planes_x, first_w, planes_w, step_x * base_w, step_x * step_w)
    last = launch.all_resident(Last(finish.extra, finish.thresholds, finish.flip, changes(finish)))
    return Job(shape, terms, last, launch.halves(out) if out.dtype == np.uint64 else out)


def units_of(asked, fixed):
    """Return the units of a `Job`."""
    if fixed.finish.extra.dtype != np.int32:
        return "popc"
    terms, words = asked.terms, fixed.w.words.shape[2]
    return isa.units(launch.capability(), asked.shape.rows, words, terms.planes_x, terms.planes_w)


def conv(x, fixed, out):
    asked = job(x, fixed, out)
    if asked is None:
        return
    shape, terms, last, result = asked
    w, total, taps, units = fixed.w, fixed.finish.extra.dtype.type, tiles.taps(fixed.plan), units_of(asked, fixed)
    if units in TENSOR_CORES:
        TENSOR_CORES[units].run(shape, terms, x.words, w.words, taps, last, result)
        return
    if few_rows.fits(shape, terms):
        few_rows.run(shape, terms, x.words, w.words, taps, last, result)
        return
    tile = tiles.tile_for(shape.group_blocks)
    kernel = _kernel(tile, out.dtype == np.uint64, total)
    tiles.run(kernel, tile, shape, terms, x.words, w.words, taps.places, taps.offsets, last, result)


@cache
def _kernel(tile, codes, total):
    """Sum in int64, then convert to `total`, the type of `extra` and of the thresholds."""
    warps, pixels, blocks, words = tile
    size, each = warps * pixels, pixels * blocks
    locate, count, store = locator(tile.warps * tile.pixels), counter(tile), store_codes if codes else store_values

    @cuda.jit
    def integer_tile(shape, terms, left, right, places, offsets, last, out):
        begins = cuda.shared.array(size, np.int64)
        kinds = cuda.shared.array(size, np.int32)
        rows = cuda.shared.array(size, np.int64)
        a = cuda.shared.array((size, words), np.uint64)
        b = cuda.shared.array((blocks, words, LANES), np.uint64)
        dot = cuda.shared.array((warps, each, LANES), np.int64)
        locate(shape, places, begins, kinds, rows)
        lane, warp, length = cuda.threadIdx.x, cuda.threadIdx.y, offsets.shape[1]
        column = cuda.blockIdx.y
        while column < columns(shape, blocks):
            group, block, end, shift = column_at(shape, blocks, column)
            for i in range(each):
                dot[warp, i, lane] = 0
            for i in range(terms.planes_x):
                for j in range(terms.planes_w):
                    count(
                        left, terms.first_x + i, right, terms.first_w + j, begins, kinds, shift, offsets, block, end, 0,
                        length, a, b, dot, i + j,
                    )  # fmt: skip
            for p in range(pixels):
                place = warp * pixels + p
                kind, ones = kinds[place], np.int64(0)
                if terms.along != 0:
                    begin = begins[place] + shift
                    ones = sum_codes(left, terms.first_x, terms.planes_x, begin, kind, offsets, 0, length)
                for c in range(blocks):
                    if block + c < end and cuda.blockIdx.x * size + place < shape.rows:
                        at, channel = (block + c) * LANES + lane, (block + c - group * shape.group_blocks) * LANES
                        value = last.extra[kind, at] + terms.along * ones + terms.step * dot[warp, p * blocks + c, lane]
                        store(
                            total(value), channel + lane < shape.group_lanes, last.thresholds, last.flip, last.changed,
                            at, group * shape.group_lanes + channel, shape.alone, out, rows[place],
                        )  # fmt: skip
            column += cuda.gridDim.y

    return integer_tile
