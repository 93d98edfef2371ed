"""Convolution and matrix product by and-popcount; `docs/kernels/conv.md` explains the algebra and the tile.

The exact integer product of a term u of x and a term v of w, over the taps inside the image, is

    sum u*v = base_x * sum v + step_x * (base_w * |a| + step_w * sum_ij 2^(i+j) |a_j & b_i|)

where |a| sums the codes of x. sum v depends on the output channel and the border class only and comes in a table; for
integer results `finish.extra` holds it already, times base_x, with padding and bias.
"""

from functools import partial

import numpy as np

from ...core.format import RUN_PLANES, RUN_WORDS
from ..epilogue.finish import finish_tile, target
from ..llvm.stream import STREAMED
from ..llvm.vectors import LANES, TILE
from ..llvm.views import Planes, RunSpan, View
from ..runtime.jit import inline, inner
from ..runtime.schedule import Kernel
from .affine import as_counts, is_power
from .bands import BAND, BLOCKS, IN_BANDS, TOGETHER, count_band, counted, empty_band, read_band
from .packed_weights import COUNTED, interleave, restore
from .tile_tasks import Effort, Task, drive, tiles_of
from .tiles import (
    IN_REGISTERS,
    WORD,
    Group,
    Patch,
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

if IN_REGISTERS:
    from .in_registers import mask_blocks, value_blocks
elif IN_BANDS:
    from .bands import mask_blocks, value_blocks

_WEIGHT = 0.01 if IN_REGISTERS else 0.04  # of `Effort`: read from L2 while others are counted, or split again
_AT_ONCE = IN_REGISTERS or IN_BANDS  # a branch on a global is not even compiled where it is False
_NO_VALUES = {lanes: np.empty((0, 0), lanes) for lanes in (np.dtype(np.int32), np.dtype(np.int64))}


def conv_weights(words, groups, out):
    interleave(words, groups, COUNTED, out)


def conv_words(laid_out, groups, out):
    restore(laid_out, groups, COUNTED, out)


def conv(x, fixed, out):
    drive(_conv_range, x, fixed, out, _task)


def _task(x, fixed):
    pairs, counts = x.words.shape[0] * fixed.w.words.shape[0], fixed.plan.counts
    word = 1 if x.images * counts.sum() == 1 else WORD  # a single row is bound by loading weights
    plan, words = tiles_of(fixed)
    effort = Effort(word=pairs * word, tile=6, weight=_WEIGHT, pixel=0.03, together=TOGETHER)
    no_values, counts = _NO_VALUES[fixed.finish.extra.dtype], as_counts(x, fixed)
    return Task(plan, words * counted(plan.counts), x.images, no_values, effort, (counts,))


@partial(Kernel, takes=True)
def _conv_range(prepared, counts, starts, x, values, words, dealt, worker):
    (w, plan, finish), (added, limits) = prepared, counts
    product = Product(x, w, plan)
    band = empty_band(x.words, w.words, plan.counts, longest(starts), 1)
    size = band.sums.shape[2] // TILE if band.sums.size else BAND
    straight = _is_straight(x, w, added, band)
    compared = straight and limits.size > 0
    dense = straight and words.size == 0 and values.size * values.itemsize < STREAMED
    places, ones = empty_places(size), np.zeros((size, TILE), np.int64)
    sums = empty_dots(finish.extra)
    to, group_blocks = target(finish, values, words), w.words.shape[1] // w.groups
    chunk, low, end = next_stretch(dealt, worker, starts)
    while low < end:
        near = min(size, end - low)
        for nth in range(w.groups):
            group = Group(nth * group_blocks, nth * w.group_lanes, w.group_lanes)
            place_tiles(plan, low, near, nth * w.group_words, places)
            for i in range(near if added.along else 0):
                sum_codes(product, places, i, places.kinds[i], 0, ones, i)
            first, last = blocks(group.block, group_blocks, TOGETHER, chunk, len(starts))
            patch = Patch(places, near, group, first, last)
            if _AT_ONCE and compared:
                mask_blocks(product, patch, added, limits, band, to)
            elif _AT_ONCE and dense:
                value_blocks(product, patch, added, band, sums, to)
            else:
                _tile_blocks(product, patch, added, ones, band, sums, to)
        low += near
        if low == end:
            chunk, low, end = next_stretch(dealt, worker, starts)


@inner
def _is_straight(x, w, added, band):
    """True where a result is a constant and a power of two times one count, which need not go through a tile.

    The count itself is compared with limits, so that 32 bits must hold it, not only the result modulo 2**32.
    """
    planes, others = x.terms[0, 1], w.terms[0, 1]
    fits = planes <= RUN_PLANES and w.words.shape[2] <= RUN_WORDS
    counted = fits if IN_REGISTERS else planes == 1 and band.sums.size > 0
    return counted and others == 1 and added.along == 0 and is_power(abs(added.step))


@inline
def _tile_blocks(product, patch, added, ones, band, sums, to):
    """Store the results of a patch, block by block, a tile after the other."""
    x, w, plan, places = product.x, product.w, product.plan, patch.places
    i0, planes_i, j0, planes_j = x.terms[0, 0], x.terms[0, 1], w.terms[0, 0], w.terms[0, 1]
    plane, size = x.words.shape[1], w.words.shape[2] * LANES
    left = Planes(x.words, i0 * plane, planes_i, plane)
    for block in range(patch.first, patch.last, BLOCKS):
        near = min(BLOCKS, patch.last - block)
        if IN_BANDS and band.sums.size:
            count_band(product, places, patch.tiles, block, near, added.differ, band)
        for i in range(patch.tiles):
            kind = places.kinds[i]
            for nth in range(near):
                lanes = lanes_of(patch.group, block + nth)
                if IN_BANDS and band.sums.size:
                    read_band(band.sums, (i0, planes_i), (j0, planes_j), i, nth, sums)
                else:
                    at = (j0 * w.words.shape[1] + block + nth) * size
                    right = Planes(w.words, at, planes_j, w.words.shape[1] * size)
                    runs = RunSpan(plan.runs, plan.first_run[kind], plan.first_run[kind + 1])
                    count(left, View(places.origins, i * TILE), right, runs, added.differ, lanes.valid, sums)
                finish_tile(sums.total, 0, i, lanes, places, added, ones, to)
