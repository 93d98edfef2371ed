"""Bits that indices name, a lane a bit, packed by ballot."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import ballot, place_of_lane


def gather(words, length, indices, out):
    if not out.size:
        return
    result = launch.halves(out)
    grid, block = launch.rows_by_halves(*result.shape)
    launch.run(_gather, grid, block, launch.halves(words), length, launch.resident(indices), result)


def gather_rows(words, indices, out):
    if not out.size:
        return
    read, result = launch.halves(words), launch.halves(out)
    grid, block = launch.rows_by_halves(result.size // result.shape[4], result.shape[4])
    launch.run(_gather_rows, grid, block, read, launch.resident(indices), result)


@inline
def _from_start(index, length):
    return np.int64(index) + length if index < 0 else np.int64(index)


@cuda.jit
def _gather(words, length, indices, out):
    lane, half, row, step = place_of_lane()
    index_rows, n = indices.shape
    i = half * LANES + lane
    while row < out.shape[0]:
        bit = np.uint32(0)
        if i < n:
            source = _from_start(indices[row % index_rows, i], length)
            bit = (words[row, source >> 5] >> np.uint32(source & 31)) & np.uint32(1)
        bits = ballot(bit)
        if lane == 0 and half < out.shape[1]:
            out[row, half] = bits
        row += step


@cuda.jit
def _gather_rows(words, indices, out):
    """Take the shapes of the stub, words and out as uint32."""
    lane, half, row, step = place_of_lane()
    planes, before, new_length, between, halves = out.shape
    i = half * LANES + lane
    while row < planes * before * new_length * between:
        line, b = row // between, row % between
        outer, j = line // new_length, line % new_length
        plane, a = outer // before, outer % before
        bit = np.uint32(0)
        if i < indices.shape[3]:
            source = _from_start(indices[a, j, b, i], words.shape[2])
            bit = (words[plane, a, source, b, half] >> np.uint32(lane)) & np.uint32(1)
        bits = ballot(bit)
        if lane == 0 and half < halves:
            out[plane, a, j, b, half] = bits
        row += step
