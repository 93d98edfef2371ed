"""Change which axis is packed: a warp turns a square of 32 x 32 bits by 32 ballots."""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES
from ..runtime.target import cuda
from ..runtime.warp import ballot, place_of_lane


def repack(words, out):
    if not out.size:
        return
    read, result = launch.halves(words), launch.halves(out)
    squares = -(-out.shape[1] // LANES) * result.shape[3]
    rows = out.shape[0] * out.shape[2]
    launch.run(_repack, *launch.rows_by_halves(rows, squares), read, result)


@cuda.jit
def _repack(words, out):
    """Turn squares: lane l reads half-word `column` of line 32 * half + l; ballot p is half of line 32 * column + p."""
    lane, square, row, step = place_of_lane()
    outer, lines, between, _ = words.shape
    halves, length = out.shape[3], out.shape[1]
    column = square // halves
    half = square - column * halves
    line, out_line = half * LANES + lane, column * LANES + lane
    while row < outer * between:
        o, m = row // between, row % between
        bits, mine = np.uint32(0), np.uint32(0)
        if line < lines and column * LANES < length:
            bits = words[o, line, m, column]
        for p in range(LANES):
            turned = ballot((bits >> np.uint32(p)) & np.uint32(1))
            if lane == p:
                mine = turned
        if out_line < length:
            out[o, out_line, m, half] = mine
        row += step
