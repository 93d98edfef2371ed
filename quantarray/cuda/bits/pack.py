"""Codes to words and back: a ballot of 32 lanes is half a word."""

from functools import cache

import numpy as np
from numba import cuda

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.warp import ballot, lanes_left, place_of_batch, place_of_lane
from ..tensor_cores import ptx

BATCH = 16  # half-words that a warp packs at a time, whose codes it reads before it looks at the first
ROWS = 8  # that a warp strides over


def pack(codes, out):
    if not out.size:
        return
    halves = launch.halves(out)
    planes, rows, length = halves.shape
    grid, block = launch.rows_by_halves(rows, -(-length // BATCH), ROWS)
    launch.run(_pack(planes), grid, block, codes, halves)


def unpack(words, out):
    if not out.size:
        return
    halves = launch.halves(words)
    launch.run(_unpack, *launch.rows_by_halves(out.shape[0], -(-out.shape[1] // LANES)), halves, out)


@cache
def _pack(planes):
    """A kernel for each number of planes, so that what a lane keeps of them stays in registers."""

    @cuda.jit
    def pack_batch(codes, out):
        """A warp reads 16 half-words of codes, then lane k keeps the ballots of the k-th."""
        batch, mine = cuda.local.array(BATCH, np.uint32), cuda.local.array(planes, np.uint32)
        lane, first, row, step = place_of_batch(BATCH)
        rows, length = codes.shape
        left = lanes_left(length, first)
        while row < rows:
            at = row * length + first * LANES + lane
            for k in range(BATCH):
                batch[k] = 0
                if k * LANES < left:
                    batch[k] = ptx.read(codes, at + k * LANES)
            for plane in range(planes):
                mine[plane] = 0
            for k in range(BATCH):
                for plane in range(planes):
                    bits = ballot((batch[k] >> np.uint32(plane)) & np.uint32(1))
                    if lane == k:
                        mine[plane] = bits
            if lane < BATCH and first + lane < out.shape[2]:
                for plane in range(planes):
                    out[plane, row, first + lane] = mine[plane]
            row += step

    return pack_batch


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
