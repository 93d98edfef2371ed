"""Values to packed codes in one pass, by how many ascending thresholds each value is at least.

Codes of one and two bits are packed 8 half-words at a time, by a ballot a threshold. Of more bits, each lane finds its
value's place by bisection in which every lane takes the same steps, so nothing diverges before a ballot: 8 bits are 8
compares, where one for each threshold would be 255. Values of 8 and 16 bits are widened in a register, where the
compare is exact.
"""

from functools import cache

import numpy as np
from numba import cuda

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.warp import ballot, everywhere, lanes_left, low_bits, place_of_batch, place_of_lane, put_code
from ..tensor_cores import ptx

BATCH = 8  # half-words that a warp packs at a time, whose values it reads before it looks at the first: a sector out
ROWS = 8  # that a warp strides over


def encode(x, thresholds, codes, row, group, nan, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = tuple(launch.resident(a) for a in (thresholds, codes, row))
    before, _, after = x.shape
    if _is_short(x, thresholds, out.shape[0]):
        x, halves = _joined(x, halves, row)
        grid, block = launch.rows_by_halves(halves.shape[1], -(-halves.shape[2] // BATCH), ROWS)
        launch.run(_short(out.shape[0], thresholds.shape[2], _reader(x)), grid, block, x, *tables, nan, halves)
        return
    if after == 1:
        kernel, (grid, block) = _along(_reader(x)), launch.rows_by_halves(*halves.shape[1:])
    else:
        kernel = _across(out.shape[0], _reader(x))
        grid, block = launch.rows_by_items(before * halves.shape[2], after)
    launch.run(kernel, grid, block, x, *tables, group, nan, halves)


def _is_short(x, thresholds, planes):
    """True if the codes are of one bit or two, of thresholds that a whole row shares, along an axis without gaps."""
    parts, count = thresholds.shape[1:]
    return x.shape[2] == 1 == parts and planes <= 2 and 0 < count < 1 << planes and launch.is_contiguous(x)


def _joined(x, halves, row):
    """Join rows of whole words, which all have the same table, by twos until they are as long as a batch."""
    (rows, length, _), planes = x.shape, halves.shape[0]
    while row.size == 1 and length % (2 * LANES) == 0 and length < BATCH * LANES and rows % 2 == 0:
        rows, length = rows // 2, 2 * length
    if length != x.shape[1]:
        x, halves = x.reshape(rows, length, 1), halves.reshape(planes, rows, length // LANES)
    return x, halves


def _reader(x):
    if x.dtype == np.uint16:
        return _of_bfloat16
    return _as_float64 if x.dtype == np.float64 else _as_float32


@inline
def _as_float32(value):
    return np.float32(value)


@inline
def _as_float64(value):
    return np.float64(value)


@inline
def _of_bfloat16(value):
    """bfloat16 is the upper half of float32."""
    return np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)


@inline
def _count_at_least(value, thresholds, table, part):
    """Count how many of the ascending thresholds[table, part] a value is at least; NaN is at least none."""
    count = thresholds.shape[2]
    passed, step = 0, 128
    while step > count:
        step >>= 1
    while step > 0:
        at = passed + step
        if at <= count and value >= thresholds[table, part, min(at, count) - 1]:
            passed = at
        step >>= 1
    return passed


@cache
def _short(planes, count, read):
    """Make a kernel for each number of planes and thresholds, so that what a lane keeps of them stays in registers."""
    kind = np.float64 if read is _as_float64 else np.float32

    @cuda.jit
    def encode_short(x, thresholds, codes, row, nan, out):
        """x[rows length 1]: a warp reads 8 half-words of values, then lane k keeps the ballots of the k-th.

        Bit p of a code changes at each threshold that a value is at least, where bit p of the codes on both sides does.
        """
        values, cuts = cuda.local.array(BATCH, kind), cuda.local.array(count, kind)
        above = cuda.local.array(count, np.uint32)
        lane, first, r, step = place_of_batch(BATCH)
        rows, length, _ = x.shape
        left, half, unordered = lanes_left(length, first), first + lane, False
        while r < rows:
            table, at = row[min(r, row.shape[0] - 1)], r * length + first * LANES + lane
            for k in range(BATCH):
                values[k] = 0
                if k * LANES < left:
                    values[k] = read(ptx.read(x, at + k * LANES))
            for t in range(count):
                cuts[t], above[t] = thresholds[table, 0, t], 0
            for k in range(BATCH):
                unordered |= values[k] != values[k]
                for t in range(count):
                    bits = ballot(values[k] >= cuts[t])
                    if lane == k:
                        above[t] = bits
            if lane < BATCH and half < out.shape[2]:
                for plane in range(planes):
                    bits = everywhere(codes[table, 0, 0], plane)
                    for t in range(count):
                        changed = everywhere(codes[table, 0, t] ^ codes[table, 0, t + 1], plane)
                        bits = np.uint32(bits ^ (above[t] & changed))
                    out[plane, r, half] = bits & low_bits(length - half * LANES)
            r += step
        if unordered:
            nan[0] = True

    return encode_short


@cache
def _along(read):
    @cuda.jit
    def encode_along(x, thresholds, codes, row, group, nan, out):
        """x[rows length 1]: a lane is an element, and ballots pack the codes."""
        lane, half, r, step = place_of_lane()
        rows, length, _ = x.shape
        element = half * LANES + lane
        inside = element < length
        at = element if inside else 0
        part = at // group if thresholds.shape[1] > 1 else 0
        while r < rows:
            value = read(x[r, at, 0])
            if value != value and inside:
                nan[0] = True
            table = row[min(r, row.shape[0] - 1)]
            code = codes[table, part, _count_at_least(value, thresholds, table, part)]
            put_code(code if inside else 0, lane, out, r, half)
            r += step

    return encode_along


@cache
def _across(planes, read):
    """Make a kernel for each number of planes, so that what a thread makes stays in registers."""

    @cuda.jit
    def encode_across(x, thresholds, codes, row, group, nan, out):
        """x[before length after]: a thread takes 32 elements of a row, its neighbour those of the next row.

        So a warp reads 32 neighbours each time, and a thread has its own half a word of each plane: packing along an
        earlier axis transposes without a ballot or shared memory.
        """
        bits = cuda.local.array(planes, np.uint32)
        a, item = cuda.grid(2)
        before, length, after = x.shape
        halves = out.shape[2]
        while item < before * halves and a < after:
            b = item // halves
            half = item - b * halves
            first, r = half * LANES, b * after + a
            end = min(first + LANES, length)
            part = min(first, length - 1) // group if thresholds.shape[1] > 1 else 0
            table = row[min(r, row.shape[0] - 1)]
            for plane in range(planes):
                bits[plane] = 0
            for i in range(first, end):
                value = read(x[b, i, a])
                if value != value:
                    nan[0] = True
                code = np.uint32(codes[table, part, _count_at_least(value, thresholds, table, part)])
                for plane in range(planes):
                    bits[plane] |= np.uint32(((code >> np.uint32(plane)) & np.uint32(1)) << np.uint32(i - first))
            for plane in range(planes):
                out[plane, r, half] = bits[plane]
            item += cuda.gridDim.y * cuda.blockDim.y

    return encode_across
