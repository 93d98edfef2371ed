"""Depthwise convolution, one input channel an output channel; average pooling is one with weights of 1.

This kernel takes what products of bytes on tensor cores (`tensor_cores.py`) do not: sums that pass 32 bits, windows
that span more pixels than shared memory holds, and GPUs without the instruction. A warp's lanes are 32 output channels
of a pixel: whatever the multiplier, their codes are half a word of the result.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..epilogue.finish import changes, code_of
from ..popcount import tiles
from ..popcount.conv_real import plus
from ..popcount.tiles import OUTSIDE
from ..runtime import isa, launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import place_of_lane, put_code
from . import tensor_cores


class Weights(NamedTuple):
    """A tuple of the terms and constants of both operands, `Left` and `Right`, without their words."""

    x_terms: object
    x_scale: object
    x_offset: object
    w_scale: object
    w_offset: object
    sums: object
    inside: object
    divisor: object  # float64[classes], or empty


class Last(NamedTuple):
    """An epilogue's arrays, for integers and for floats."""

    extra: object
    pad: object
    bias: object
    thresholds: object
    flip: object
    changed: object


class Shape(NamedTuple):
    """A set of the sizes that a kernel needs of its operands."""

    pixels: int
    image_words: int
    pixel_words: int
    channels: int  # of the input; outputs are `copies` times as many
    taps: int  # up to the last that is inside the image for any pixel


def depthwise(x, fixed, divisor, out):
    w, plan, finish = fixed[:3]
    if not out.size:
        return
    tile = tensor_cores.tile_for(x, w, plan, finish, out) if isa.multiplies_windows(launch.capability()) else None
    if tile:
        tensor_cores.run(tile, x, w, plan, finish, divisor, out)
        return
    taps, codes, real = tiles.taps(plan), out.dtype == np.uint64, finish.thresholds.dtype == np.float64
    inner = taps.offsets.shape[1] // w.group_words
    shape = Shape(plan.origin.size, plan.image_words, w.group_words, w.group_lanes, inner)
    weights = Weights(x.terms, x.scale, x.offset, w.scale, w.offset, w.sums, w.inside, divisor)
    last = Last(finish.extra, finish.pad, finish.bias, finish.thresholds, finish.flip, changes(finish))
    outputs = w.group_lanes * w.words.shape[1]
    grid, block = launch.rows_by_halves(x.images * plan.origin.size, -(-outputs // LANES))
    launch.run(
        _kernel(_real if real else _integer(finish.extra.dtype.type), codes), grid, block, shape, x.words,
        launch.resident(w.words), taps.places, taps.offsets, launch.all_resident(weights), launch.all_resident(last),
        launch.halves(out) if codes else out,
    )  # fmt: skip


@inline
def _codes_times(left, first, planes, begin, kind, offsets, channel, shape, values, s, copy, weighed):
    """Sum over taps inside a channel's code times values[s, copy, tap, channel], or of the codes alone."""
    total = np.int64(0)
    word, shift = channel >> 6, np.uint64(channel & 63)
    for tap in range(shape.taps):
        offset = offsets[kind, tap * shape.pixel_words + word]
        if offset != OUTSIDE:
            code = np.int64(0)
            for j in range(planes):
                code |= np.int64((left[first + j, begin + offset] >> shift) & np.uint64(1)) << j
            total += code * values[s, copy, tap, channel] if weighed else code
    return total


@cache
def _integer(total):
    @inline
    def integer(shape, left, values, offsets, c, last, kind, begin, image, channel, copy, at):
        """Return the exact sum as `total`, the type of `extra` and of the thresholds."""
        terms = c.x_terms
        dot = _codes_times(left, terms[0, 0], terms[0, 1], begin, kind, offsets, channel, shape, values, 0, copy, True)
        return total(last.extra[kind, at] + terms[0, 3] * dot)

    return integer


@inline
def _of_channel(constants, image, channel):
    """Return the constant of an image and a channel; constants float64[images or 1, channels or 1]."""
    return constants[min(image, constants.shape[0] - 1), min(channel, constants.shape[1] - 1)]


@inline
def _real(shape, left, values, offsets, c, last, kind, begin, image, channel, copy, at):
    """Sum in the documented order: products, then A, B and n terms."""
    terms, n, value = c.x_terms, c.inside[kind], 0.0
    for t in range(terms.shape[0]):
        scale = _of_channel(c.x_scale[0, t], image, channel)
        for s in range(values.shape[0]):
            dot = _codes_times(
                left, terms[t, 0], terms[t, 1], begin, kind, offsets, channel, shape, values, s, copy, True
            )
            value = plus(value, scale, c.w_scale[0, s, at], terms[t, 2] * c.sums[kind, s, at] + terms[t, 3] * dot)
    for t in range(terms.shape[0]):
        scale = _of_channel(c.x_scale[0, t], image, channel)
        dot = _codes_times(left, terms[t, 0], terms[t, 1], begin, kind, offsets, channel, shape, values, 0, copy, False)
        value = plus(value, scale, c.w_offset[0, at], terms[t, 2] * n + terms[t, 3] * dot)
    offset = _of_channel(c.x_offset[0], image, channel)
    for s in range(values.shape[0]):
        value = plus(value, offset, c.w_scale[0, s, at], c.sums[kind, s, at])
    value = plus(value, offset, c.w_offset[0, at], n)
    total = libdevice.dadd_rn(libdevice.dadd_rn(value, last.pad[kind, at]), last.bias[at])
    return np.float64(np.float32(total / c.divisor[kind] if c.divisor.size else total))


@inline
def _store_codes(value, used, last, at, lane, half, out, row):
    code = code_of(value, last.thresholds, last.flip, last.changed, at) if used else np.uint32(0)
    put_code(code, lane, out, row, half)


@inline
def _store_values(value, used, last, at, lane, half, out, row):
    if used:
        out[row, half * LANES + lane] = value


@cache
def _kernel(compute, codes):
    store = _store_codes if codes else _store_values

    @cuda.jit
    def lane_a_channel(shape, left, values, places, offsets, c, last, out):
        lane, half, row, step = place_of_lane()
        output, copies = half * LANES + lane, values.shape[1]
        used = output < shape.channels * copies
        channel = output // copies if used else 0
        copy = output - channel * copies if used else 0
        at = copy * values.shape[3] + channel
        rows = left.shape[1] // shape.image_words * shape.pixels
        while row < rows:
            image = row // shape.pixels
            place = row - image * shape.pixels
            kind, begin = places[place, 1], image * shape.image_words + places[place, 2]
            value = compute(shape, left, values, offsets, c, last, kind, begin, image, channel, copy, at)
            store(value, used, last, at, lane, half, out, image * shape.pixels + places[place, 0])
            row += step

    return lane_a_channel
