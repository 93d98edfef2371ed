"""Codes to words and back: a ballot of 32 lanes is half a word."""

import numpy as np
from numba import cuda

from . import launch
from .launch import LANES
from .warp import place_of_lane, put_code


def pack(codes, out):
    if not out.size:
        return
    halves = launch.halves(out)
    launch.run(_pack, *launch.rows_by_halves(*halves.shape[1:]), codes, halves)


def unpack(words, out):
    if not out.size:
        return
    halves = launch.halves(words)
    launch.run(_unpack, *launch.rows_by_halves(out.shape[0], -(-out.shape[1] // LANES)), halves, out)


@cuda.jit
def _pack(codes, out):
    lane, half, row, step = place_of_lane()
    rows, length = codes.shape
    element = half * LANES + lane
    while row < rows:
        code = codes[row, element] if element < length else np.uint8(0)
        put_code(code, lane, out, row, half)
        row += step


@cuda.jit
def _unpack(words, out):
    lane, half, row, step = place_of_lane()
    rows, length = out.shape
    element = half * LANES + lane
    while row < rows:
        if element < length:
            code = np.uint32(0)
            for plane in range(words.shape[0]):
                code |= ((words[plane, row, half] >> np.uint32(lane)) & np.uint32(1)) << np.uint32(plane)
            out[row, element] = code
        row += step
