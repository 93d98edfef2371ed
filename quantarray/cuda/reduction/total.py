"""Sums of whole rows in one launch: a warp counts the codes of a stretch, the last of a row adds up their values.

Tails are zero, so they count as code 0, of which there are as many as no other code has. Codes of up to 4 bits are
counted by masks of 32 elements, others one by one in shared memory.
"""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import ballot, place_of_lane, warp_sum
from ..tensor_cores import ptx

STRETCH = 2048  # half-words of a warp
_MASKS = 4  # planes whose codes are counted by masks


def total(words, length, levels, row, over, out):
    if not out.size:
        return
    halves = launch.halves(words)
    rows, stretches = out.shape[0], max(1, -(-halves.shape[2] * halves.shape[3] // STRETCH))
    alone = stretches == 1  # a warp adds up what it has counted
    counts = launch.scratch((1, 1, 1) if alone else (rows, stretches, 1 << halves.shape[0]), np.int64)
    kernel = _total(halves.shape[0], levels.dtype.type, alone, launch.WARPS)
    tables = launch.resident(levels), launch.resident(row)
    grid, block = launch.rows_by_halves(rows, stretches)
    launch.run(kernel, grid, block, halves, length, *tables, over, counts, launch.arrivals(1 if alone else rows), out)


@inline
def _plus_integer(value, count, level):
    return value + count * level


@inline
def _plus_real(value, count, level):
    """Round the product and the sum, where a fused instruction would round once."""
    return libdevice.dadd_rn(value, libdevice.dmul_rn(count, level))


@cache
def _total(planes, kind, alone, warps):
    codes, plus = 1 << planes, _plus_real if kind is np.float64 else _plus_integer
    room = (warps, codes)

    @cuda.jit
    def total_of_rows(words, length, levels, row, over, counts, arrived, out):
        shown, ones = cuda.shared.array(room, np.int64), cuda.local.array(codes if planes <= _MASKS else 1, np.uint32)
        lane, stretch, r, step = place_of_lane()
        warp = (cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x) // LANES
        _, rows, folds, halves = words.shape
        stretches = counts.shape[1]
        while r < rows and stretch < stretches:
            first, end = stretch * STRETCH + lane, min((stretch + 1) * STRETCH, folds * halves)
            if planes <= _MASKS:
                for code in range(1, codes):
                    ones[code] = 0
                while first < end:
                    for code in range(1, codes):
                        mask = np.uint32(0xFFFFFFFF)
                        for plane in range(planes):
                            bits = ptx.read(words, (plane * rows + r) * folds * halves + first)
                            mask &= bits if code >> plane & 1 else ~bits
                        ones[code] += np.uint32(cuda.popc(np.uint32(mask)))
                    first += LANES
                for code in range(1, codes):
                    count = warp_sum(np.int64(ones[code]))
                    if lane == 0:
                        if alone:
                            shown[warp, code] = count
                        else:
                            counts[r, stretch, code] = count
            else:
                code = lane
                while code < codes:
                    shown[warp, code] = 0
                    code += LANES
                cuda.syncwarp()
                while first < end:
                    for i in range(LANES):
                        code = np.uint32(0)
                        for plane in range(planes):
                            bits = ptx.read(words, (plane * rows + r) * folds * halves + first)
                            code |= np.uint32(((bits >> np.uint32(i)) & np.uint32(1)) << np.uint32(plane))
                        cuda.atomic.add(shown, (warp, np.int64(code)), np.int64(1))
                    first += LANES
                cuda.syncwarp()
                code = lane
                while code < codes and not alone:
                    counts[r, stretch, code] = shown[warp, code]
                    code += LANES
            last = alone
            if not alone:
                cuda.threadfence()
                cuda.syncwarp()
                if lane == 0:
                    last = cuda.atomic.inc(arrived, r, np.uint32(stretches - 1)) == stretches - 1
            if ballot(last):
                if not alone:
                    cuda.threadfence()
                    code = lane
                    while code < codes:
                        shown[warp, code] = 0
                        for k in range(stretches):
                            shown[warp, code] += counts[r, k, code]
                        code += LANES
                cuda.syncwarp()
                if lane == 0:
                    others = np.int64(0)
                    for c in range(1, codes):
                        others += shown[warp, c]
                    shown[warp, 0] = folds * length - others
                    table, value = row[min(r, row.shape[0] - 1)], kind(0)
                    for c in range(codes):
                        if shown[warp, c] > 0:  # a value that does not occur may be infinite
                            value = plus(value, kind(shown[warp, c]), levels[table, c])
                    if over > 0:
                        out[r] = np.float64(value) / np.float64(over)
                    else:
                        out[r] = value
                cuda.syncwarp()
            r += step

    return total_of_rows
