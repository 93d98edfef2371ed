"""Convolution and matrix product by and-popcount. `docs/kernels/conv.md` explains the algebra and the tile.

The exact integer product of a term u of x and a term v of w, over the taps inside the image, is

    sum u*v = base_x * sum v + step_x * (base_w * |a| + step_w * sum_ij 2^(i+j) |a_j & b_i|)

where |a| sums the codes of x. sum v depends on the output channel and the border class only and comes in a table; for
integer results `finish.extra` holds it already, times base_x, with padding and bias.
"""

import numba
import numpy as np
from numba import njit, prange

from . import threads
from .finish import shift_lanes, store_bits, store_codes, store_values
from .micro import LANES, TILE, count_tile, popcount

_NO_VALUES = {t: np.empty((0, 0), t) for t in (np.int32, np.int64, np.float32)}
_NO_WORDS = np.empty((0, 0, 0), np.uint64)
_LEAST = 1 << 18  # and-popcounts of a word that are worth a parallel region


def conv_weights(words, groups, out):
    out[:] = 0
    planes, channels, length = words.shape
    lanes = channels // groups
    blocks = out.shape[1] // groups
    padded = np.zeros((planes, groups, blocks * LANES, length), np.uint64)
    padded[:, :, :lanes] = words.reshape(planes, groups, lanes, length)
    out[:] = padded.reshape(planes, groups * blocks, LANES, length).transpose(0, 1, 3, 2)


def conv(x, w, plan, finish, out):
    _drive(_conv_range, _conv_parallel, x, w, plan, finish, out)


def conv_real(x, w, plan, finish, out):
    _drive(_real_range, _real_parallel, x, w, plan, finish, out)


def _drive(one, many, x, w, plan, finish, out):
    words = out if out.dtype == np.uint64 else _NO_WORDS
    default = np.float32 if one is _real_range else np.int32
    values = _NO_VALUES[default] if out.dtype == np.uint64 else out
    tiles = x.images * len(plan.counts)
    blocks = w.words.shape[1]
    # Output words belong to one task: channels are split at whole words, and not at all where groups share a word
    split = blocks // 2 if w.groups == 1 else 1
    chunks = max(1, min(split, threads.PIECES * numba.get_num_threads() // max(1, tiles)))
    tasks = tiles * chunks
    if not tasks or not blocks:
        return
    work = tasks * TILE * w.words.shape[0] * x.words.shape[0] * w.words.shape[1] * w.words.shape[2] * LANES
    if threads.serial(work // chunks, _LEAST):
        one(x, w, plan, finish, chunks, 0, tasks, values, words)
    else:
        threads.run(many, x, w, plan, finish, chunks, tasks, threads.pieces(tasks), values, words)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _sum_codes(words, first, planes, origins, runs, start, stop, ones, t):
    """ones[t, p] = sum of the codes of a term's planes over runs start .. stop."""
    for p in range(TILE):
        total = 0
        for j in range(planes):
            count = 0
            for r in range(start, stop):
                at = origins[p] + runs[r, 0]
                for k in range(runs[r, 2]):
                    count += popcount(words[first + j, at + k])
            total += count << j
        ones[t, p] = total


@njit(cache=True, nogil=True, forceinline=True)
def _count(left, i0, planes_i, origins, right, j0, planes_j, block, runs, start, stop, counts, total):
    """total[p, lane] = sum_ij 2^(i+j) |left_i & right_j| over the planes of two terms and runs start .. stop."""
    plane = left.shape[1]
    block_size = right.shape[2] * LANES
    for i in range(planes_i):
        for j in range(planes_j):
            word, weight = (i0 + i) * plane, ((j0 + j) * right.shape[1] + block) * block_size
            if i + j == 0:
                count_tile(left, word, origins, right, weight, runs, start, stop, total)
            else:
                count_tile(left, word, origins, right, weight, runs, start, stop, counts)
                for p in range(TILE):
                    for lane in range(LANES):
                        total[p, lane] += counts[p, lane] << (i + j)


@njit(cache=True, nogil=True, error_model="numpy")
def _conv_range(x, w, plan, finish, chunks, begin, end, values, words):
    # Taken out of their tuples once: see `finish.py` for what passing tuples and slices costs
    left, right, runs, extra = x.words, w.words, plan.runs, finish.extra
    pixels, counts, classes, origin, first_run = plan.pixels, plan.counts, plan.classes, plan.origin, plan.first_run
    thresholds, flip, toggles = finish.thresholds, finish.flip, finish.toggles
    i0, planes_i, j0, planes_j = x.terms[0, 0], x.terms[0, 1], w.terms[0, 0], w.terms[0, 1]
    step, along = x.terms[0, 3] * w.terms[0, 3], x.terms[0, 3] * w.terms[0, 2]
    blocks, groups, group_lanes, group_words = right.shape[1], w.groups, w.group_lanes, w.group_words
    group_blocks = blocks // groups
    origins, ones, dot, part, made = _scratch()
    for task in range(begin, end):
        chunk, tile = task % chunks, task // chunks % counts.size
        image = task // (chunks * counts.size)
        kind, row0 = classes[tile], image * origin.size
        start, stop = first_run[kind], first_run[kind + 1]
        for group in range(groups):
            for p in range(TILE):
                origins[p] = image * plan.image_words + origin[pixels[tile, p]] + group * group_words
            if along:
                _sum_codes(left, i0, planes_i, origins, runs, start, stop, ones, 0)
            first, last = _blocks(group * group_blocks, group_blocks, chunk, chunks)
            for block in range(first, last):
                _count(left, i0, planes_i, origins, right, j0, planes_j, block, runs, start, stop, part, dot)
                at, lane = block * LANES, (block - group * group_blocks) * LANES
                for p in range(TILE):
                    shift_lanes(dot, p, extra, kind, at, along * ones[0, p], step)
                channel, valid = group * group_lanes + lane, min(LANES, group_lanes - lane)
                for p in range(counts[tile]):
                    row = row0 + pixels[tile, p]
                    if not words.size:
                        store_values(dot, p, 0, channel, valid, 1, values, row)
                    elif thresholds.shape[0] == 1:
                        store_bits(dot, p, 0, thresholds, flip, at, channel, valid, 1, words, row)
                    else:
                        store_codes(dot, p, 0, thresholds, flip, toggles, at, channel, valid, 1, made, words, row)


@njit(cache=True, nogil=True, error_model="numpy", forceinline=True)
def _blocks(first, blocks, chunk, chunks):
    """The blocks of a chunk: whole words, that is pairs of blocks, are shared out."""
    words = (blocks + 1) // 2
    return first + 2 * (words * chunk // chunks), first + min(blocks, 2 * (words * (chunk + 1) // chunks))


@njit(cache=True, nogil=True, error_model="numpy")
def _scratch():
    origins, ones = np.empty(TILE, np.int64), np.zeros((1, TILE), np.int64)
    dot, part, made = np.empty((TILE, LANES), np.int64), np.empty((TILE, LANES), np.int64), np.empty(8, np.uint64)
    return origins, ones, dot, part, made


@njit(cache=True, nogil=True, error_model="numpy")
def _products(x, w, plan, image, tile, block, origins, ones, counts, dot, value):
    """value[p, lane] = the sum over parts, terms of x and terms of w of scales times exact integer products."""
    value[:] = 0.0
    for part in range(plan.parts):
        run = plan.classes[tile] * plan.parts + part
        start, stop = plan.first_run[run], plan.first_run[run + 1]
        for t in range(x.terms.shape[0]):
            i0, planes_i, base_x, step_x = x.terms[t, 0], x.terms[t, 1], x.terms[t, 2], x.terms[t, 3]
            for s in range(w.terms.shape[0]):
                j0, planes_j, base_w, step_w = w.terms[s, 0], w.terms[s, 1], w.terms[s, 2], w.terms[s, 3]
                _count(
                    x.words, i0, planes_i, origins, w.words, j0, planes_j, block, plan.runs, start, stop, counts, dot
                )
                for p in range(TILE):
                    scale = x.scale[part, t, _row(x, image, plan.pixels[tile, p], x.scale.shape[2]), 0]
                    along = step_x * base_w * ones[part, t, p]
                    for lane in range(LANES):
                        at = block * LANES + lane
                        exact = base_x * w.sums[run, s, at] + along + step_x * step_w * dot[p, lane]
                        value[p, lane] += (scale * w.scale[part, s, at]) * exact


@njit(cache=True, nogil=True, error_model="numpy")
def _offsets(x, w, plan, image, tile, block, ones, value):
    """value += what the operands' offsets add: terms of x times w's offset, of w times x's, then both."""
    first, at = plan.classes[tile] * plan.parts, block * LANES
    for part in range(plan.parts):
        for t in range(x.terms.shape[0]):
            for p in range(TILE):
                scale = x.scale[part, t, _row(x, image, plan.pixels[tile, p], x.scale.shape[2]), 0]
                total = x.terms[t, 2] * w.inside[first + part] + x.terms[t, 3] * ones[part, t, p]
                for lane in range(LANES):
                    value[p, lane] += (scale * w.offset[part, at + lane]) * total
    for part in range(plan.parts):
        for s in range(w.terms.shape[0]):
            for p in range(TILE):
                offset = x.offset[part, _row(x, image, plan.pixels[tile, p], x.offset.shape[1]), 0]
                for lane in range(LANES):
                    value[p, lane] += (offset * w.scale[part, s, at + lane]) * w.sums[first + part, s, at + lane]
    for part in range(plan.parts):
        for p in range(TILE):
            offset = x.offset[part, _row(x, image, plan.pixels[tile, p], x.offset.shape[1]), 0]
            for lane in range(LANES):
                value[p, lane] += (offset * w.offset[part, at + lane]) * w.inside[first + part]


@njit(cache=True, nogil=True, error_model="numpy")
def _row(x, image, pixel, rows):
    return 0 if rows == 1 else pixel if x.row_is_pixel else image


@njit(cache=True, nogil=True, error_model="numpy")
def _real_range(x, w, plan, finish, chunks, begin, end, values, words):
    pixels, counts, origin, first_run = plan.pixels, plan.counts, plan.origin, plan.first_run
    thresholds, flip, toggles = finish.thresholds, finish.flip, finish.toggles
    groups, group_lanes, group_blocks = w.groups, w.group_lanes, w.words.shape[1] // w.groups
    origins, _, dot, scratch, made = _scratch()
    ones = np.zeros((plan.parts, x.terms.shape[0], TILE), np.int64)
    value = np.empty((TILE, LANES), np.float64)
    for task in range(begin, end):
        chunk, tile = task % chunks, task // chunks % counts.size
        image = task // (chunks * counts.size)
        kind, row0 = plan.classes[tile], image * origin.size
        for group in range(groups):
            for p in range(TILE):
                origins[p] = image * plan.image_words + origin[pixels[tile, p]] + group * w.group_words
            for part in range(plan.parts):
                run = kind * plan.parts + part
                for t in range(x.terms.shape[0]):
                    first, planes = x.terms[t, 0], x.terms[t, 1]
                    start, stop = first_run[run], first_run[run + 1]
                    _sum_codes(x.words, first, planes, origins, plan.runs, start, stop, ones[part], t)
            first, last = _blocks(group * group_blocks, group_blocks, chunk, chunks)
            for block in range(first, last):
                _products(x, w, plan, image, tile, block, origins, ones, scratch, dot, value)
                _offsets(x, w, plan, image, tile, block, ones, value)
                at, lane = block * LANES, (block - group * group_blocks) * LANES
                for p in range(TILE):
                    for i in range(LANES):
                        value[p, i] = np.float32((value[p, i] + finish.pad[kind, at + i]) + finish.bias[at + i])
                channel, valid = group * group_lanes + lane, min(LANES, group_lanes - lane)
                for p in range(counts[tile]):
                    row = row0 + pixels[tile, p]
                    if not words.size:
                        store_values(value, p, 0, channel, valid, 1, values, row)
                    elif thresholds.shape[0] == 1:
                        store_bits(value, p, 0, thresholds, flip, at, channel, valid, 1, words, row)
                    else:
                        store_codes(value, p, 0, thresholds, flip, toggles, at, channel, valid, 1, made, words, row)


@njit(cache=True, parallel=True, nogil=True)
def _conv_parallel(x, w, plan, finish, chunks, tasks, pieces, values, words):
    for piece in prange(pieces):
        first, last = tasks * piece // pieces, tasks * (piece + 1) // pieces
        _conv_range(x, w, plan, finish, chunks, first, last, values, words)


@njit(cache=True, parallel=True, nogil=True)
def _real_parallel(x, w, plan, finish, chunks, tasks, pieces, values, words):
    for piece in prange(pieces):
        first, last = tasks * piece // pieces, tasks * (piece + 1) // pieces
        _real_range(x, w, plan, finish, chunks, first, last, values, words)
