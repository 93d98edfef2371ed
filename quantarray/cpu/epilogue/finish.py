"""Epilogue of every kernel: lanes become values, or are compared with thresholds into bits."""

from typing import NamedTuple

import numpy as np

from ..llvm.masks import mask_above
from ..llvm.stream import STREAMED, stream_lanes
from ..llvm.vectors import LANES, TILE
from ..llvm.views import View
from ..popcount.lanes import mask_tile, shift_tile
from ..runtime.jit import inline, inner
from .ranks import put_ranks


class Lanes(NamedTuple):
    """32 output channels."""

    at: int  # the first one among those of weights, tables and thresholds, a multiple of 32
    channel: int  # the result's
    valid: int  # lanes that are channels
    stride: int  # from a lane's channel to the next lane's


class Target(NamedTuple):
    """A destination of a kernel's results: an array of values, or one of codes with thresholds on the values."""

    values: np.ndarray  # [rows channels]; empty where results are codes
    words: np.ndarray  # uint64[planes rows words], zero on entry; empty where results are values
    thresholds: np.ndarray  # as in a `Finish`; none where results are values
    flip: np.ndarray
    toggles: np.ndarray
    lines: np.ndarray
    plain: bool  # `codes_are_ranks`
    masks: np.ndarray  # uint64[4]: bits of 32 lanes of a tile's pixels
    begins: np.ndarray  # int64[4]: the elements where results of a tile's pixels begin
    planes: np.ndarray  # uint64[8]: bits of 32 lanes in each plane


@inner
def target(finish, values, words):
    plain = codes_are_ranks(finish.thresholds, finish.toggles)
    masks, begins = np.empty(TILE, np.uint64), np.empty(TILE, np.int64)
    planes = np.empty(8, np.uint64)
    tables = finish.thresholds, finish.flip, finish.toggles, finish.lines
    return Target(values, words, *tables, plain, masks, begins, planes)


@inline
def finish_tile(dots, dot, i, lanes, places, added, ones, to):
    """Store the results of tile i: its sums dots[dot + p], and the constants of an `Added`."""
    sums, codes = View(dots, dot * LANES), View(ones, i * TILE)
    extra = View(added.fixed, places.kinds[i] * added.fixed.shape[1] + lanes.at)
    if to.thresholds.shape[0] == 1:
        limits = View(to.thresholds, lanes.at)
        mask_tile(sums, extra, added.along, codes, added.step, limits, to.masks)
        put_masks(i, np.uint64(0), lanes, places, to)
    else:
        shift_tile(sums, extra, added.along, codes, added.step, sums)
        store_tile(dots, dot, i, lanes, places.rows, places.sizes[i], to)


@inline
def put_masks(i, inverted, lanes, places, to):
    """Store the bits to.masks[p] ^ inverted of tile i."""
    flips, used = flips_and_lanes(to.flip, lanes)
    for p in range(places.sizes[i]):
        or_bits((to.masks[p] ^ inverted ^ flips) & used, lanes.channel, lanes.valid, to.words, 0, places.rows[i, p])


@inline
def place_values(i, lanes, places, to):
    """to.begins[p] = the element of to.values where results of pixel p of tile i begin; True.

    False where not all lanes are channels: then it is the element of a buffer [4 32] for `store_values`.
    """
    whole = lanes.valid == LANES
    for p in range(TILE):
        to.begins[p] = places.rows[i, p] * to.values.shape[1] + lanes.channel if whole else p * LANES
    return whole


@inline
def store_tile(dots, dot, i, lanes, rows, count, to):
    """Store dots[dot + p] as channels of row rows[i, p], where that is not negative, for the first `count` p.

    A loop for each form of results: where it was chosen in one loop, 1x28x28x64 by 128 x 1x1 took 9 to 14 % longer.
    """
    tile, end = np.uint64(i), np.uint64(count)
    if to.words.size == 0:
        for p in range(end):
            if rows[tile, p] >= 0:
                store_values(dots, dot + np.int64(p), 0, lanes, rows[tile, p], to.values)
    elif to.thresholds.shape[0] == 1:
        for p in range(end):
            if rows[tile, p] >= 0:
                _store_bits(dots, dot + np.int64(p), 0, lanes, rows[tile, p], to)
    elif to.plain:
        for p in range(end):
            if rows[tile, p] >= 0:
                _store_ranks(dots, dot + np.int64(p), 0, lanes, rows[tile, p], to)
    else:
        for p in range(end):
            if rows[tile, p] >= 0:
                _store_codes(dots, dot + np.int64(p), 0, lanes, rows[tile, p], to)


@inline
def store(dots, p, start, lanes, row, to):
    """Store 32 results dots[p, start ..] as channels of a row."""
    if to.words.size == 0:
        store_values(dots, p, start, lanes, row, to.values)
    elif to.thresholds.shape[0] == 1:
        _store_bits(dots, p, start, lanes, row, to)
    elif to.plain and lanes.stride == 1:
        _store_ranks(dots, p, start, lanes, row, to)
    else:
        _store_codes(dots, p, start, lanes, row, to)


@inline
def store_values(dots, p, start, lanes, row, out):
    """out[row, channel + l * stride] = dots[p, start + l].

    Indices are unsigned: for signed ones Numba checks for negative values, and LLVM then does not vectorise.
    """
    channel, valid, stride = lanes.channel, lanes.valid, lanes.stride
    i, j, first, at = np.uint64(p), np.uint64(row), np.uint64(start), np.uint64(channel)
    if stride == 1 and valid == LANES and out.size * out.itemsize >= STREAMED:
        if stream_lanes(dots, p * dots.shape[1] + start, out, row * out.shape[1] + channel):
            return
    if stride == 1:
        for lane in range(np.uint64(valid)):
            out[j, at + lane] = dots[i, first + lane]
    else:
        for lane in range(np.uint64(valid)):
            out[j, at + lane * np.uint64(stride)] = dots[i, first + lane]


@inline
def _store_bits(dots, p, start, lanes, row, to):
    """Store bits dots > threshold: one comparison gives the mask of 32 lanes."""
    mask = mask_above(dots, p * dots.shape[1] + start, to.thresholds, lanes.at)
    flips, used = flips_and_lanes(to.flip, lanes)
    _put((mask ^ flips) & used, lanes, to.words, 0, row)


@inline
def _store_ranks(dots, p, start, lanes, row, to):
    """Store codes that are the number of thresholds a result passes."""
    first, down = p * dots.shape[1] + start, np.uint64(to.flip[lanes.at // LANES])
    put_ranks(dots, first, to.thresholds, to.lines, lanes.at, down, lanes.valid, lanes.channel, to.words, row)


@inline
def _store_codes(dots, p, start, lanes, row, to):
    """Store codes of any order, plane by plane.

    The masks of ascending thresholds are nested, so a plane is the exclusive or of the masks at which its bit of the
    code changes (`toggles`, row t + 1; row 0 is code 0). Where a lane counts downwards the changes come in reverse.
    """
    thresholds, toggles, planes, words = to.thresholds, to.toggles, to.planes, to.words
    count, first = thresholds.shape[0], p * dots.shape[1] + start
    down, used = flips_and_lanes(to.flip, lanes)
    for plane in range(words.shape[0]):
        planes[plane] = toggles[0, plane] & used
    for t in range(count):
        mask = (mask_above(dots, first, thresholds, t * thresholds.shape[1] + lanes.at) ^ down) & used
        for plane in range(words.shape[0]):
            planes[plane] ^= mask & ((toggles[t + 1, plane] & ~down) | (toggles[count - t, plane] & down))
    for plane in range(words.shape[0]):
        _put(planes[plane], lanes, words, plane, row)


@inline
def flips_and_lanes(flip, lanes):
    """Return (flips of 32 lanes, mask of the lanes that are channels)."""
    flips = np.uint64(flip[lanes.at // LANES]) if flip.size else np.uint64(0)
    return flips, (np.uint64(1) << np.uint64(lanes.valid)) - np.uint64(1)


@inner
def codes_are_ranks(thresholds, toggles):
    """True where a code is the number of thresholds that a lane passes, and all 2^planes codes are in use."""
    count, planes = thresholds.shape[0], toggles.shape[1]
    if count != (1 << planes) - 1:
        return False
    for t in range(count + 1):
        changes = t ^ (t - 1) if t else 0
        for plane in range(planes):
            if (toggles[t, plane] != 0) != bool((changes >> plane) & 1):
                return False
    return True


@inline
def _put(mask, lanes, out, plane, row):
    if lanes.stride == 1:
        or_bits(mask, lanes.channel, lanes.valid, out, plane, row)
        return
    for lane in range(lanes.valid):
        or_bits((mask >> np.uint64(lane)) & np.uint64(1), lanes.channel + lane * lanes.stride, 1, out, plane, row)


@inline
def or_bits(mask, start, length, words, i, j):
    """words[i, j] |= mask << start, for `length` <= 64 bits of a mask at any bit of a row of words."""
    at, shift = np.uint64(start), np.uint64(start) & np.uint64(63)
    plane, row, word = np.uint64(i), np.uint64(j), at >> np.uint64(6)
    words[plane, row, word] |= mask << shift
    if shift + np.uint64(length) > np.uint64(64):
        words[plane, row, word + np.uint64(1)] |= mask >> (np.uint64(64) - shift)
