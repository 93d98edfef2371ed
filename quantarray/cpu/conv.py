"""Convolution and matrix product by and-popcount. `docs/kernels/conv.md` explains the algebra and the tile.

The exact integer product of a term u of x and a term v of w, over the taps inside the image, is

    sum u*v = base_x * sum v + step_x * (base_w * |a| + step_w * sum_ij 2^(i+j) |a_j & b_i|)

where |a| sums the codes of x. sum v depends on the output channel and the border class only and comes in a table.
"""

import numpy as np
from numba import get_num_threads, njit, prange

from . import threads
from .finish import store_codes, store_values
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
    chunks = max(1, min(split, 4 * get_num_threads() // max(1, tiles)))
    tasks = tiles * chunks
    if not tasks or not blocks:
        return
    work = tasks * TILE * w.words.shape[0] * x.words.shape[0] * w.words.shape[1] * w.words.shape[2] * LANES
    if threads.serial(work // chunks, _LEAST):
        one(x, w, plan, finish, chunks, 0, tasks, values, words)
    else:
        threads.run(many, x, w, plan, finish, chunks, tasks, values, words)


@njit(cache=True, nogil=True)
def _origins(x, w, plan, image, tile, group, origins):
    for p in range(TILE):
        pixel = plan.origin[plan.pixels[tile, p]]
        origins[p] = image * plan.image_words + pixel + group * w.group_words


@njit(cache=True, nogil=True)
def _sum_codes(x, plan, part, origins, ones):
    """ones[t, p] = sum of the codes of term t of x over the runs of a part."""
    for t in range(x.terms.shape[0]):
        for p in range(TILE):
            total = 0
            for j in range(x.terms[t, 1]):
                plane = x.words[x.terms[t, 0] + j]
                count = 0
                for r in range(plan.first_run[part], plan.first_run[part + 1]):
                    at = origins[p] + plan.runs[r, 0]
                    for k in range(plan.runs[r, 2]):
                        count += popcount(plane[at + k])
                total += count << j
            ones[t, p] = total


@njit(cache=True, nogil=True)
def _dot(x, w, plan, part, t, s, block, origins, ones, counts, dot):
    """dot[p, lane] = the exact sum of term t of x times term s of w over the runs of a part."""
    first, last = plan.first_run[part], plan.first_run[part + 1]
    for j in range(x.terms[t, 1]):
        for i in range(w.terms[s, 1]):
            left, right = x.words[x.terms[t, 0] + j], w.words[w.terms[s, 0] + i, block]
            if i + j == 0:
                count_tile(left, origins, right, plan.runs, first, last, dot)
            else:
                count_tile(left, origins, right, plan.runs, first, last, counts)
                for p in range(TILE):
                    for lane in range(LANES):
                        dot[p, lane] += counts[p, lane] << (i + j)
    base_x, step_x, base_w, step_w = x.terms[t, 2], x.terms[t, 3], w.terms[s, 2], w.terms[s, 3]
    sums = w.sums[part, s, block * LANES : (block + 1) * LANES]
    for p in range(TILE):
        along = step_x * base_w * ones[t, p]
        for lane in range(LANES):
            dot[p, lane] = base_x * sums[lane] + along + step_x * step_w * dot[p, lane]


@njit(cache=True, nogil=True)
def _conv_range(x, w, plan, finish, chunks, first, last, values, words):
    tiles, blocks = plan.counts.size, w.words.shape[1]
    group_blocks = blocks // w.groups
    origins, ones = np.empty(TILE, np.int64), np.zeros((1, TILE), np.int64)
    dot, counts = np.empty((TILE, LANES), np.int64), np.empty((TILE, LANES), np.int64)
    code = np.empty(LANES, np.int64)
    need_ones = w.terms[0, 2] != 0
    for task in range(first, last):
        chunk, tile = task % chunks, (task // chunks) % tiles
        image = task // (chunks * tiles)
        part = plan.classes[tile]
        old_group = -1
        for block in range(2 * ((blocks + 1) // 2 * chunk // chunks), _chunk_end(blocks, chunk, chunks)):
            group = block // group_blocks
            if group != old_group:
                _origins(x, w, plan, image, tile, group, origins)
                if need_ones:
                    _sum_codes(x, plan, part, origins, ones)
                old_group = group
            _dot(x, w, plan, part, 0, 0, block, origins, ones, counts, dot)
            extra = finish.extra[part, block * LANES : (block + 1) * LANES]
            for p in range(TILE):
                for lane in range(LANES):
                    dot[p, lane] += extra[lane]
            channel = group * w.group_lanes + (block - group * group_blocks) * LANES
            valid = min(LANES, (group + 1) * w.group_lanes - channel)
            for p in range(plan.counts[tile]):
                row = image * plan.origin.size + plan.pixels[tile, p]
                if words.size:
                    store_codes(dot[p], finish, block * LANES, channel, valid, code, words, row)
                else:
                    store_values(dot[p], channel, valid, values, row)


@njit(cache=True, nogil=True)
def _chunk_end(blocks, chunk, chunks):
    return min(blocks, 2 * ((blocks + 1) // 2 * (chunk + 1) // chunks))


@njit(cache=True, nogil=True)
def _real_value(x, w, plan, image, tile, block, origins, ones, counts, dot, value):
    """value[p, lane] in float64, in the documented order: products, then A, B and n terms, part by part each."""
    parts, at = plan.parts, block * LANES
    base = plan.classes[tile] * parts
    value[:] = 0.0
    for part in range(parts):
        for t in range(x.terms.shape[0]):
            for s in range(w.terms.shape[0]):
                _dot(x, w, plan, base + part, t, s, block, origins, ones[part], counts, dot)
                for p in range(TILE):
                    scale_x = x.scale[part, t, _row(x, image, plan.pixels[tile, p], x.scale.shape[2]), 0]
                    for lane in range(LANES):
                        value[p, lane] += (scale_x * w.scale[part, s, at + lane]) * dot[p, lane]
    for part in range(parts):
        inside = w.inside[base + part]
        for t in range(x.terms.shape[0]):
            for p in range(TILE):
                scale_x = x.scale[part, t, _row(x, image, plan.pixels[tile, p], x.scale.shape[2]), 0]
                total = x.terms[t, 2] * inside + x.terms[t, 3] * ones[part, t, p]
                for lane in range(LANES):
                    value[p, lane] += (scale_x * w.offset[part, at + lane]) * total
    for part in range(parts):
        for s in range(w.terms.shape[0]):
            for p in range(TILE):
                offset_x = x.offset[part, _row(x, image, plan.pixels[tile, p], x.offset.shape[1]), 0]
                for lane in range(LANES):
                    value[p, lane] += (offset_x * w.scale[part, s, at + lane]) * w.sums[base + part, s, at + lane]
    for part in range(parts):
        for p in range(TILE):
            offset_x = x.offset[part, _row(x, image, plan.pixels[tile, p], x.offset.shape[1]), 0]
            for lane in range(LANES):
                value[p, lane] += (offset_x * w.offset[part, at + lane]) * w.inside[base + part]


@njit(cache=True, nogil=True)
def _row(x, image, pixel, rows):
    return 0 if rows == 1 else pixel if x.row_is_pixel else image


@njit(cache=True, nogil=True)
def _real_range(x, w, plan, finish, chunks, first, last, values, words):
    tiles, blocks = plan.counts.size, w.words.shape[1]
    group_blocks = blocks // w.groups
    origins, ones = np.empty(TILE, np.int64), np.zeros((plan.parts, x.terms.shape[0], TILE), np.int64)
    dot, counts = np.empty((TILE, LANES), np.int64), np.empty((TILE, LANES), np.int64)
    value, code = np.empty((TILE, LANES), np.float64), np.empty(LANES, np.int64)
    for task in range(first, last):
        chunk, tile = task % chunks, (task // chunks) % tiles
        image = task // (chunks * tiles)
        kind = plan.classes[tile]
        old_group = -1
        for block in range(2 * ((blocks + 1) // 2 * chunk // chunks), _chunk_end(blocks, chunk, chunks)):
            group = block // group_blocks
            if group != old_group:
                _origins(x, w, plan, image, tile, group, origins)
                for part in range(plan.parts):
                    _sum_codes(x, plan, kind * plan.parts + part, origins, ones[part])
                old_group = group
            _real_value(x, w, plan, image, tile, block, origins, ones, counts, dot, value)
            channel = group * w.group_lanes + (block - group * group_blocks) * LANES
            valid = min(LANES, (group + 1) * w.group_lanes - channel)
            for p in range(plan.counts[tile]):
                for lane in range(LANES):
                    total = (value[p, lane] + finish.pad[kind, block * LANES + lane]) + finish.bias[block * LANES + lane]
                    value[p, lane] = np.float32(total)
                row = image * plan.origin.size + plan.pixels[tile, p]
                if words.size:
                    store_codes(value[p], finish, block * LANES, channel, valid, code, words, row)
                else:
                    store_values(value[p], channel, valid, values, row)


def _parallel(one):
    @njit(cache=True, parallel=True, nogil=True)
    def many(x, w, plan, finish, chunks, tasks, values, words):
        pieces = min(tasks, 4 * get_num_threads())
        for piece in prange(pieces):
            one(x, w, plan, finish, chunks, tasks * piece // pieces, tasks * (piece + 1) // pieces, values, words)

    return many


_conv_parallel = _parallel(_conv_range)
_real_parallel = _parallel(_real_range)
