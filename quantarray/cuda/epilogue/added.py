"""A shortcut in the last step of tensor cores' products: the sums with it, their codes, or both, from registers.

Sums are 32 bits wherever they go. Those of floats are float32, and are compared with thresholds as integers of the same
order, so that codes are made by the instructions of integers.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..tensor_cores import ptx
from ..tensor_cores.stages import CHANNELS, paired, place_in_fragment

_COLUMNS = LANES // CHANNELS  # of instructions in a block of 32 channels
_LOWEST, _HIGHEST, _MAGNITUDE = -(2**31), 2**31 - 1, 0x7FFFFFFF


class Added(NamedTuple):
    """List what an epilogue that adds a shortcut is compiled for."""

    planes: int  # of the shortcut's codes, 0 for numbers
    pairs: bool  # numbers of 4 bytes are read two at a time
    real: bool  # sums are float32
    checked: bool  # a sum that int32 does not hold is noted
    stored: bool  # sums are stored besides their codes,
    paired: bool  # two at a time


class Last(NamedTuple):
    """An epilogue's arrays: what a product adds to every pixel, thresholds of the sums, and the shortcut."""

    extra: object  # int32[classes lanes]
    thresholds: object  # int32[T lanes]
    flip: object
    changed: object
    shortcut: object  # numbers [rows channels], float32 as int32, or codes uint32[planes rows halves]
    levels: object  # int32[codes], values of the codes, float32 as int32
    sums: object  # int32[rows channels]
    over: object  # int64[1] if sums are checked


def prepared(shape, product, shortcut, finish, changed, sums, over, codes):
    """Return the `Last` and the `Added` of a product whose epilogue adds a shortcut.

    product: the `Last` of the product alone. sums int32: the result, or what is stored besides `codes`.
    """
    real, values = shortcut.levels.dtype == np.float64, launch.array(shortcut.values)
    packed = values.ndim == 3
    if packed:
        values = launch.halves(values)
    elif values.dtype == np.float32:
        values = values.view(np.int32)
    levels = shortcut.levels.astype(np.float32).view(np.int32) if real else shortcut.levels.astype(np.int32)
    limits = launch.cached(_limits, (finish.thresholds,))
    tables = (launch.resident(a) for a in (limits, finish.flip))
    last = Last(product.extra, *tables, changed, values, launch.resident(levels), sums, over)
    planes, stored = values.shape[0] if packed else 0, codes and sums.size > 0
    pairs = not packed and values.dtype == np.int32 and paired(shape, values)
    form = Added(planes, pairs, real, over.size > 0, stored, stored and paired(shape, sums))
    return last, form


def _limits(thresholds):
    """Return thresholds int64 or float64 [T lanes] as int32.

    A float32 is at most a threshold if it is at most the next float32 below. NaN is below all values.
    """
    if thresholds.dtype != np.float64:
        return np.clip(thresholds, _LOWEST, _HIGHEST).astype(np.int32)
    with np.errstate(over="ignore"):
        near = thresholds.astype(np.float32)
    near = np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near) + np.float32(0)  # no -0.0
    bits = near.view(np.int32)
    return np.where(np.isnan(near), _LOWEST, bits ^ (bits >> 31 & _MAGNITUDE)).astype(np.int32)


@cache
def adder(added, blocks):
    """Build add(shape, last, group, block, inside, values, row), which adds to values int32[columns 2] of a pixel.

    A block of 32 channels is read and added before the next one, as there are no registers for all of them.
    """
    real, checked = added.real, added.checked
    read = _code_reader(added.planes) if added.planes else _number_reader(added.pairs)

    @inline
    def add(shape, last, group, block, inside, values, row):
        others, beyond = cuda.local.array((_COLUMNS, 2), np.int32), False
        for c in range(blocks):
            read(shape, last, group, block, c, inside, others, row)
            for n in range(_COLUMNS):
                for e in range(2):
                    value, other = values[c * _COLUMNS + n, e], others[n, e]
                    if real:
                        total = np.float32(np.float64(value) + np.float64(libdevice.int_as_float(other)))
                        values[c * _COLUMNS + n, e] = libdevice.float_as_int(total)
                    else:
                        exact = np.int64(value) + np.int64(other)
                        beyond |= exact <= _LOWEST or exact > _HIGHEST
                        values[c * _COLUMNS + n, e] = np.int32(exact)
        if checked and beyond:
            last.over[0] = 1

    return add


@cache
def _number_reader(pairs):
    @inline
    def read(shape, last, group, block, c, inside, others, row):
        before = (block - group * shape.group_blocks) * LANES + 2 * place_in_fragment()[1]  # channels of the group
        at = row * last.shortcut.shape[1] + group * shape.group_lanes + before
        left = np.int32(shape.group_lanes - before) if inside else np.int32(0)
        for n in range(_COLUMNS):
            channel = np.int32(c * LANES + n * CHANNELS)
            others[n, 0], others[n, 1] = 0, 0
            if pairs:
                if channel < left:
                    others[n, 0], others[n, 1] = ptx.read_pair(last.shortcut, at + channel)
            else:
                for e in range(2):
                    if np.int32(channel + e) < left:
                        others[n, e] = ptx.read(last.shortcut, at + channel + e)

    return read


@cache
def _code_reader(planes):
    @inline
    def read(shape, last, group, block, c, inside, others, row):
        """Read the half-words of 32 channels; each of the four lanes of a pixel has 8 bits of them."""
        first, shift = block - group * shape.group_blocks + c, np.uint32(2 * place_in_fragment()[1])
        rows, halves = last.shortcut.shape[1], last.shortcut.shape[2]
        at = row * halves + group * (shape.group_lanes // LANES) + first
        used = inside and np.int32(first * LANES) < np.int32(shape.group_lanes)
        bits = cuda.local.array(planes, np.uint32)
        for plane in range(planes):
            bits[plane] = 0
            if used:
                bits[plane] = np.uint32(ptx.read(last.shortcut, plane * (rows * halves) + at) >> shift)
        low, high = ptx.read(last.levels, 0), ptx.read(last.levels, 1)
        for n in range(_COLUMNS):
            for e in range(2):
                code = np.int32(0)
                for plane in range(planes):
                    bit = np.uint32(bits[plane] >> np.uint32(n * CHANNELS + e)) & np.uint32(1)
                    code |= np.int32(bit << np.uint32(plane))
                if planes == 1:  # without a load for each
                    others[n, e] = high if code else low
                else:
                    others[n, e] = ptx.read(last.levels, code)

    return read


@cache
def orderer(columns):
    """Build order(values): bits of float32 become int32 of the same order, NaN above all."""

    @inline
    def order(values):
        for n in range(columns):
            for e in range(2):
                values[n, e] ^= np.int32((values[n, e] >> 31) & np.int32(_MAGNITUDE))

    return order
