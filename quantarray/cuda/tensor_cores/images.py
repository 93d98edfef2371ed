"""Weights in a second layout, stage by stage as `wgmma` has them in shared memory, so that one copy brings a stage.

An image of a stage has, for each channel, 16 words of 64 bits in a row of 128 bytes, swizzled; channels of all blocks
follow each other, so a tile's are one piece of memory. Words after the contraction's last one are zeros.
"""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from .descriptors import DEPTH, swizzled


def image(weights):
    """uint64[planes stages channels 16] of words uint64[planes blocks words lanes], made once for the array."""
    return launch.cached(_image, (weights,))


def _image(weights):
    out = lay_stages(weights)
    launch.wait()
    return out


def lay_stages(weights):
    """Make the image of weights that no later call has, and for which nothing waits."""
    planes, blocks, length, _ = weights.shape
    out = launch.scratch((planes, max(1, -(-length // DEPTH)), blocks * LANES, DEPTH), np.uint64)
    grid, block = launch.rows_by_items(out.shape[0] * out.shape[1], out.shape[2] * DEPTH)
    launch.run(_lay_stages, grid, block, weights, out)
    return out


@cuda.jit
def _lay_stages(weights, out):
    """Lay out a word a thread; neighbours write neighbouring words of a row."""
    item, row = cuda.grid(2)
    planes, stages, channels, _ = out.shape
    channel, k = item // DEPTH, item % DEPTH
    while row < planes * stages and channel < channels:
        plane = row // stages
        stage = row - plane * stages
        word, bits = stage * DEPTH + k, np.uint64(0)
        if word < weights.shape[2]:
            bits = weights[plane, channel // LANES, word, channel % LANES]
        out[plane, stage, channel, swizzled(channel, k)] = bits
        row += cuda.gridDim.y * cuda.blockDim.y
