"""Last steps of depthwise products, from sums in registers to results.

Lane 4 * g + t has outputs 8t to 8t + 7 of a half-word, of pixels g and g + 8 of each fragment of 16. Loops over
them have constant bounds and become straight code.
"""

from functools import cache

import numpy as np

from ..bits.exchange import exchange
from ..popcount.conv_real import plus
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import low_bits
from ..tensor_cores import ptx
from ..tensor_cores.stages import PIXELS, SIDES, place_in_fragment

CHANNELS = 8  # that a lane has results of


@inline
def place_of(fragment, side):
    """Count the pixels from a lane's first to another one."""
    return fragment * PIXELS + side * (PIXELS // SIDES)


@inline
def first_output(half):
    """Return the first of the outputs of this lane."""
    return half * LANES + CHANNELS * place_in_fragment()[1]


@inline
def clear(sums):
    for r in range(sums.shape[0]):
        for side in range(SIDES):
            for i in range(CHANNELS):
                sums[r, side, i] = 0


@inline
def shift(sums):
    """Make room for the next digit."""
    for r in range(sums.shape[0]):
        for side in range(SIDES):
            for i in range(CHANNELS):
                sums[r, side, i] <<= 8


@inline
def add_extra(shape, c, half, kinds, sums):
    """sums = extra + step * sums, modulo 2^32."""
    step = np.int32(c.terms[0, 3])
    for r in range(sums.shape[0]):
        for side in range(SIDES):
            at = kinds[r, side] * c.extra.shape[1] + first_output(half)
            for i in range(0, CHANNELS, 2):
                first, second = ptx.read_pair(c.extra, at + i)
                sums[r, side, i] = np.int32(first + step * sums[r, side, i])
                sums[r, side, i + 1] = np.int32(second + step * sums[r, side, i + 1])


@inline
def _constant(constants, t, image, channel):
    """Return the constant of a term, an image and a channel; constants float64[terms, images or 1, channels or 1]."""
    images, channels = constants.shape[1], constants.shape[2]
    at = (t * images + (image if images > 1 else 0)) * channels
    return ptx.read(constants, at + (channel if channels > 1 else 0))


@inline
def add_products(shape, c, t, s, half, images, kinds, sums, values):
    """values += the products of term t of x with term s of the weights; after the last comes their offset."""
    lanes, terms, base, step, output = (
        shape.halves * LANES,
        c.sums.shape[1],
        c.terms[t, 2],
        c.terms[t, 3],
        first_output(half),
    )
    for r in range(sums.shape[0]):
        for side in range(SIDES):
            image, kind = images[r, side], np.int64(kinds[r, side])
            for i in range(CHANNELS):
                scale = _constant(c.x_scale, t, image, channel_of(shape, output + i))
                other = ptx.read(c.w_scale, s * lanes + output + i)
                fixed = ptx.read(c.sums, (kind * terms + s) * lanes + output + i)
                exact = base * fixed + step * np.int64(sums[r, side, i])
                values[r, side, i] = plus(values[r, side, i], scale, other, exact)


@inline
def channel_of(shape, output):
    """Return the channel of x of an output, or x's last one after the last output."""
    channel = np.int32(output)
    if shape.copies > 1:
        channel //= np.int32(shape.copies)
    return min(channel, np.int32(shape.channels - 1))


@inline
def add_offsets(shape, c, half, images, kinds, values):
    """values = the results in float32: x's offset times the weights, padding and bias are added."""
    lanes, terms, output = shape.halves * LANES, c.sums.shape[1], first_output(half)
    for s in range(terms):
        for r in range(values.shape[0]):
            for side in range(SIDES):
                image, at = images[r, side], (kinds[r, side] * terms + s) * lanes + output
                for i in range(CHANNELS):
                    offset = _constant(c.x_offset, 0, image, channel_of(shape, output + i))
                    other = ptx.read(c.w_scale, s * lanes + output + i)
                    values[r, side, i] = plus(values[r, side, i], offset, other, ptx.read(c.sums, at + i))
    for r in range(values.shape[0]):
        for side in range(SIDES):
            kind, divided = kinds[r, side], c.divisor.size > 0
            divisor = c.divisor[kind] if divided else 1.0
            for i in range(CHANNELS):
                pad, bias = ptx.read(c.pad, kind * lanes + output + i), ptx.read(c.bias, output + i)
                total = libdevice.dadd_rn(libdevice.dadd_rn(values[r, side, i], pad), bias)
                values[r, side, i] = np.float32(total / divisor if divided else total)


@cache
def storer(form):
    return _code_storer(form) if form.planes else _value_storer(form)


@cache
def _value_storer(form):
    real, whole = form.real, form.whole

    @inline
    def store(shape, c, row, half, values, out):
        """Write values, four at a time where all outputs are fours that begin at 16 bytes, to int32 out[rows outputs].

        Floats are written as their bits."""
        bits = cuda.local.array(CHANNELS, np.int32)
        outputs, first = shape.channels * shape.copies, first_output(half)
        for r in range(values.shape[0]):
            for side in range(SIDES):
                to = row + place_of(r, side)
                for i in range(CHANNELS):
                    value = values[r, side, i]
                    bits[i] = libdevice.float_as_int(np.float32(value)) if real else value
                if to < shape.rows:
                    at = to * outputs + first
                    for i in range(0, CHANNELS, 4):
                        if whole:
                            if first + i < outputs:
                                ptx.write_bytes16(out, at + i, bits[i], bits[i + 1], bits[i + 2], bits[i + 3])
                        else:
                            for e in range(4):
                                if first + i + e < outputs:
                                    ptx.write(out, at + i + e, bits[i + e])

    return store


@cache
def _code_storer(form):
    planes, steps = form.planes, form.steps

    @inline
    def store(shape, c, row, half, values, out):
        """Write codes to uint8 out[planes rows bytes]: a lane has a byte of each plane of each of its pixels."""
        words = cuda.local.array(CHANNELS, np.uint32)
        outputs, first = shape.channels * shape.copies, first_output(half)
        for i in range(CHANNELS):
            words[i] = 0
            for r in range(values.shape[0]):
                for side in range(SIDES):
                    value, rank = values[r, side, i], np.int32((first + i) << steps)
                    for k in range(steps):  # a threshold NaN is below all values
                        further = np.int32(rank + (1 << (steps - 1 - k)))
                        if not (value <= ptx.read(c.thresholds, further - 1)):
                            rank = further
                    words[i] |= ptx.read(c.codes, rank) << np.uint32(8 * (SIDES * r + side))
        exchange(words)
        used = low_bits(outputs - first) & np.uint32(0xFF)
        for r in range(values.shape[0]):
            for side in range(SIDES):
                to = row + place_of(r, side)
                if to < shape.rows:
                    for plane in range(planes):
                        byte = (words[plane] >> np.uint32(8 * (SIDES * r + side))) & used
                        ptx.write(out, (plane * shape.rows + to) * shape.halves * 4 + (first >> 3), np.uint8(byte))

    return store
