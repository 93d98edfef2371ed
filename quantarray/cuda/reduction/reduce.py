"""Codes counted without being unpacked: a warp sums its ones of a set of planes, and adds them by an atomic.

Planes are combined again for each set, while the CPU keeps the masks of all sets: 255 masks do not fit in registers,
and words that are read again come from L1.
"""

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import line_sum, place_of_lane

STRETCH = 16  # words of a thread
FOLDS = 256  # of a thread


def count(words, start, stop, group, sets, out):
    if not words.size or not out.size or stop <= start:
        return
    span = (min(group, stop - start) + 62) // 64 + 1
    items = -(-words.shape[2] * span // STRETCH)
    (across, down), block = launch.rows_by_items(words.shape[1] * out.shape[2], items)
    launch.run(
        _count, (across, down, len(sets)), block, words, start, stop, group, span, launch.resident(sets), out
    )  # fmt: skip


def count_lanes(words, sets, out):
    if not words.size or not out.size:
        return
    read, stretches = launch.halves(words), -(-words.shape[2] // FOLDS)
    (across, down), block = launch.rows_by_halves(words.shape[1] * stretches, read.shape[3])
    launch.run(_count_lanes, (across, down, len(sets)), block, read, stretches, launch.resident(sets), out)


@inline
def _planes_of(sets, s):
    """Return the planes of a set, a bit a plane."""
    planes = 0
    while s >= 0:
        planes |= 1 << sets[s, 1]
        s = sets[s, 0]
    return planes


@cuda.jit
def _count(words, start, stop, group, span, sets, out):
    """Count ones: threads along x share a line, a segment of a row in all folds; `span` words hold any segment."""
    planes, rows, folds, _ = words.shape
    segments, s = out.shape[2], cuda.blockIdx.z
    members = _planes_of(sets, s)
    item, step = cuda.grid(1), cuda.gridDim.x * cuda.blockDim.x
    step_folds = step // span
    step_words = step - step_folds * span
    first = cuda.blockIdx.y * cuda.blockDim.y
    while first < rows * segments:  # lines share a warp: all threads stay for the sum
        line = min(first + cuda.threadIdx.y, rows * segments - 1)
        row = line // segments
        segment = line - row * segments
        low = start + segment * group
        high = min(low + group, stop)
        fold = item // span
        place = item - fold * span
        total = np.int64(0)
        while fold < folds:
            word = (low >> 6) + place
            below, above = max(low - word * 64, 0), min(high - word * 64, 64)  # of this word's bits, those that count
            if above > below:
                mask = (~np.uint64(0) >> np.uint64(64 - above)) & (~np.uint64(0) << np.uint64(below))
                for plane in range(planes):
                    if (members >> plane) & 1:
                        mask &= words[plane, row, fold, word]
                total += cuda.popc(mask)
            fold, place = fold + step_folds, place + step_words
            if place >= span:
                fold, place = fold + 1, place - span
        total = line_sum(total, cuda.blockDim.x)
        if cuda.threadIdx.x % LANES == 0 and first + cuda.threadIdx.y < rows * segments:
            cuda.atomic.add(out, (s, row, segment), total)
        first += cuda.gridDim.y * cuda.blockDim.y


@cuda.jit
def _count_lanes(words, stretches, sets, out):
    """Count ones by lane: a lane is an element, and takes a stretch of the folds."""
    lane, half, item, step = place_of_lane()
    planes, rows, folds, _ = words.shape
    s, element = cuda.blockIdx.z, half * LANES + lane
    members = _planes_of(sets, s)
    while item < rows * stretches and element < out.shape[2]:
        row = item // stretches
        fold = (item - row * stretches) * FOLDS
        end = min(fold + FOLDS, folds)
        total = np.int64(0)
        while fold < end:
            mask = np.uint32(0xFFFFFFFF)
            for plane in range(planes):
                if (members >> plane) & 1:
                    mask &= words[plane, row, fold, half]
            total += (mask >> np.uint32(lane)) & np.uint32(1)
            fold += 1
        cuda.atomic.add(out, (s, row, element), total)
        item += step
