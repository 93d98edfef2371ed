"""Convolution and matrix product by and-popcount. `docs/kernels/conv.md` explains the algebra and the tile.

The exact integer product of a term u of x and a term v of w, over the taps inside the image, is

    sum u*v = base_x * sum v + step_x * (base_w * |a| + step_w * sum_ij 2^(i+j) |a_j & b_i|)

where |a| sums the codes of x. sum v depends on the output channel and the border class only and comes in a table; for
integer results `finish.extra` holds it already, times base_x, with padding and bias.
"""

import numpy as np
from numba import njit, prange

from .finish import store_bits, store_codes, store_values
from .micro import LANES, TILE, lay_out, shift_tile
from .tiles import blocks, count, drive, scratch, sum_codes

_NO_VALUES = np.empty((0, 0), np.int32)


def conv_weights(words, groups, out):
    out[:] = 0
    planes, channels, length = words.shape
    lanes = channels // groups
    blocks = out.shape[1] // groups
    padded = np.zeros((planes, groups, blocks * LANES, length), np.uint64)
    padded[:, :, :lanes] = words.reshape(planes, groups, lanes, length)
    out[:] = lay_out(padded.reshape(planes, groups * blocks, LANES, length).transpose(0, 1, 3, 2))


def conv(x, w, plan, finish, out):
    drive(_conv_range, _conv_parallel, x, w, plan, finish, _NO_VALUES, out)


@njit(cache=True, nogil=True, error_model="numpy")
def _conv_range(x, w, plan, finish, chunks, begin, end, values, words):
    # Taken out of their tuples once: see `finish.py` for what passing tuples and slices costs
    left, right, runs, extra = x.words, w.words, plan.runs, finish.extra
    pixels, counts, classes, origin, first_run = plan.pixels, plan.counts, plan.classes, plan.origin, plan.first_run
    thresholds, flip, toggles = finish.thresholds, finish.flip, finish.toggles
    i0, planes_i, j0, planes_j = x.terms[0, 0], x.terms[0, 1], w.terms[0, 0], w.terms[0, 1]
    step, along = x.terms[0, 3] * w.terms[0, 3], x.terms[0, 3] * w.terms[0, 2]
    groups, group_lanes, group_words = w.groups, w.group_lanes, w.group_words
    group_blocks = right.shape[1] // groups
    origins, ones, dot, part, made = scratch()
    for task in range(begin, end):
        chunk, tile = task % chunks, task // chunks % counts.size
        image = task // (chunks * counts.size)
        kind, row0 = classes[tile], image * origin.size
        start, stop = first_run[kind], first_run[kind + 1]
        for group in range(groups):
            for p in range(TILE):
                origins[p] = image * plan.image_words + origin[pixels[tile, p]] + group * group_words
            if along:
                sum_codes(left, i0, planes_i, origins, runs, start, stop, ones, 0)
            first, last = blocks(group * group_blocks, group_blocks, chunk, chunks)
            for block in range(first, last):
                count(left, i0, planes_i, origins, right, j0, planes_j, block, runs, start, stop, part, dot)
                at, lane = block * LANES, (block - group * group_blocks) * LANES
                shift_tile(dot, extra, kind * extra.shape[1] + at, ones, along, step)
                channel, valid = group * group_lanes + lane, min(LANES, group_lanes - lane)
                for p in range(counts[tile]):
                    row = row0 + pixels[tile, p]
                    if not words.size:
                        store_values(dot, p, 0, channel, valid, 1, values, row)
                    elif thresholds.shape[0] == 1:
                        store_bits(dot, p, 0, thresholds, flip, at, channel, valid, 1, words, row)
                    else:
                        store_codes(dot, p, 0, thresholds, flip, toggles, at, channel, valid, 1, made, words, row)


@njit(cache=True, parallel=True, nogil=True)
def _conv_parallel(x, w, plan, finish, chunks, tasks, pieces, values, words):
    for piece in prange(pieces):
        first, last = tasks * piece // pieces, tasks * (piece + 1) // pieces
        _conv_range(x, w, plan, finish, chunks, first, last, values, words)
