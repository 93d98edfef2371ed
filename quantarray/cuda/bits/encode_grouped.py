"""Stochastic rounding in groups, in float32 wherever that tells the code that float64 gives.

`encode_groups`, of elements in order of memory, has a warp for each run: a lane takes four neighbours, whose random
numbers are the words of one Philox block. `encode_grouped` has elements in any order: a lane computes a block for each.
"""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import ALL, low_bits, place_of_lane, put_code
from ..tensor_cores import ptx
from .encode import fours
from .pack import WORDS, take_bits

_LINE = 16  # bytes of the widest load
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # by which Philox's keys grow
_TINY, _HUGE = np.float32(2.0**-120), np.float32(2.0**120)  # between which 1 / step has all its digits
_ROUND = np.float32(1.5 * 2**23)  # plus a small float32: the nearest integer, in the lowest bits of the sum
_ROUND_BITS = np.int32(0x4B400000)
_ORDINARY = 1e30  # magnitudes up to which no constant and no level is beyond float32


def encode_grouped(values, low, step, start, stride, group, key, out):
    if not out.size:
        return
    halves = launch.halves(out)
    tables = (launch.resident(a) for a in (low, step, start))
    grid, block = launch.rows_by_halves(*halves.shape[1:])
    launch.run(_encode_grouped, grid, block, values, *tables, stride, group, int(key.size > 0), *_seeds(key), halves)


def encode_groups(x, run, digits, key, wrong, constants, out):
    if not out.size:
        return
    rows, length = x.shape
    whole = rows == 1 or length % 4 == 0  # no four neighbours are of two rows or two runs
    whole &= run % 4 == 0 or run >= x.size
    lines = whole and launch.address(x) % _LINE == 0
    kernel = _groups(out.shape[0], lines, whole, key.size > 0, fours[x.dtype], x.dtype.type, launch.WARPS)
    grid, block = -(-constants.shape[1] // launch.WARPS), launch.WARPS * LANES
    launch.run(
        kernel, grid, block, x.reshape(-1), length, run, digits, *_seeds(key), wrong, constants, launch.halves(out)
    )


def _seeds(key):
    return [np.uint32(k) for k in key] or [np.uint32(0)] * 3


@inline
def _philox(block, k0, k1, use):
    """Compute the Philox4x32-10 block at counter (block, use, 0): four words of 32 bits."""
    c0, c1, c2, c3 = np.uint32(block), np.uint32(block >> _HALF), np.uint32(use), np.uint32(0)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * np.uint64(c0), np.uint64(0xCD9E8D57) * np.uint64(c2)
        c0, c2 = np.uint32(np.uint32(p1 >> _HALF) ^ c1 ^ k0), np.uint32(np.uint32(p0 >> _HALF) ^ c3 ^ k1)
        c1, c3 = np.uint32(p1 & _LOW), np.uint32(p0 & _LOW)
        k0, k1 = np.uint32(np.uint64(k0) + _STEPS[0] & _LOW), np.uint32(np.uint64(k1) + _STEPS[1] & _LOW)
    return c0, c1, c2, c3


@inline
def _word(number, k0, k1, use):
    """Compute word number % 4 of block number // 4."""
    c0, c1, c2, c3 = _philox(np.uint64(number) >> np.uint64(2), k0, k1, use)
    pair = (c0, c1) if number & 2 == 0 else (c2, c3)
    return pair[0] if number & 1 == 0 else pair[1]


@inline
def _inverse(step):
    """Return 1 / step, within a unit of its last place; NaN where float32 has no such number."""
    return np.float32(1.0) / step if _TINY < step < _HUGE else np.float32(np.nan)


@inline
def _code(value, low, step, inverse, word, top, random):
    """Return floor((value - low) / step + u) of float64, clipped: rounded constants may leave a value beyond the end.

    u is word * 2**-32. In float32 the sum t is off by at most (top + 3) * 2**-22: two roundings and those of the
    inverse and of u. So its floor is right unless t is that near to an integer, about once in 2**20 / (top + 3) values;
    then, and where t is far out or NaN, float64 has to tell.
    """
    u = libdevice.fmul_rn(np.float32(word), np.float32(2.0**-32)) if random else np.float32(0.5)
    t = np.float32(libdevice.fadd_rn(libdevice.fmul_rn(np.float32(value - low), inverse), u))
    shifted = np.float32(t + _ROUND)
    apart = np.float32(t - np.float32(shifted - _ROUND))
    code = np.int32(shifted.view(np.int32) - _ROUND_BITS) - np.int32(apart < 0)
    near = np.float32(np.float32(top + 3) * np.float32(2.0**-21))
    if not (abs(apart) > near and t > np.float32(-1.0) and t < np.float32(top + 2)):
        code = _exact_code(value, low, step, word, top, random)
    return np.uint32(min(max(code, np.int32(0)), np.int32(top)))


@inline
def _exact_code(value, low, step, word, top, random):
    u = libdevice.dmul_rn(2.0**-32, np.float64(word)) if random else 0.5
    t = libdevice.dadd_rn((np.float64(value) - np.float64(low)) / np.float64(step), u)
    code = np.int32(0)
    if t >= top:
        code = np.int32(top)
    elif t > 0:
        code = np.int32(t)
    return code


@cuda.jit
def _encode_grouped(values, low, step, start, stride, group, random, k0, k1, use, out):
    lane, half, row, rows_on = place_of_lane()
    rows, length = values.shape
    i = half * LANES + lane
    at = min(i, length - 1)
    part, top = at // group, (1 << out.shape[0]) - 1
    while row < rows:
        word = np.uint32(0)
        if random:
            word = _word(start[row] + at * stride, k0, k1, use)
        size = step[row, part]
        code = _code(values[row, at], low[row, part], size, _inverse(size), word, top, random)
        put_code(code if i < length else np.uint32(0), lane, out, row, half)
        row += rows_on


@inline
def _power(exponent):
    """Return 2**exponent of an ordinary float64."""
    return (np.uint64(exponent + 1023) << np.uint64(52)).view(np.float64)


@inline
def _last_digit(x, digits):
    """Return the exponent of the last of `digits` binary digits of x, as float32 has them at least."""
    exponent = np.int64(np.float64(x).view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)) - 1022
    return max(exponent, -125) - digits


@inline
def _ends(x, at, end, lane, lines, read_four, values, wrong):
    """Return the least and the largest of x[at:end], in every lane of the warp."""
    low = high = x[min(at + 4 * lane, end - 1)]
    beyond, i = False, at + 4 * lane
    while i < end:
        _read(x, i, np.int32(min(end - i, 4)), lines, read_four, values, 0)
        for k in range(4):
            if i + k < end:
                beyond |= not abs(values[k]) < _ORDINARY  # NaN too
                low, high = min(low, values[k]), max(high, values[k])
        i += 4 * LANES
    if beyond:
        wrong[0] = True
    offset = LANES // 2
    while offset > 0:
        low = min(low, cuda.shfl_xor_sync(ALL, low, offset))
        high = max(high, cuda.shfl_xor_sync(ALL, high, offset))
        offset >>= 1
    return np.float64(low), np.float64(high)


@inline
def _read(x, at, left, lines, read_four, values, first):
    """Read x[at : at + 4], of which there are at least `left`; 0 for the others."""
    if lines and left == 4:
        read_four(x, at, values, first)
    else:
        for k in range(4):
            values[first + k] = 0
            if k < left:
                values[first + k] = x[at + k]


@cache
def _groups(planes, lines, blocks, random, read_four, kind, warps):
    """Make a kernel that fits and encodes a run a warp, whose values the second reading finds in L1.

    `lines`: four neighbours are 16 bytes at a multiple of them, or 32; `blocks`: they are numbered from a multiple of
    4, so that they share a block of random words.
    """
    top, room = (1 << planes) - 1, (warps, WORDS * LANES)

    @inline
    def codes_of(values, number, low, step, inverse, k0, k1, use):
        """Find the codes of four values that are numbered one after the other, as bytes of a word."""
        codes = np.uint32(0)
        four = np.uint32(0), np.uint32(0), np.uint32(0), np.uint32(0)
        if random and blocks:
            four = _philox(np.uint64(number) >> np.uint64(2), k0, k1, use)
        for k in range(4):
            word = four[k]
            if random and not blocks:
                word = _word(number + k, k0, k1, use)
            code = _code(values[k], low, step, inverse, word, top, random)
            codes |= np.uint32(code << np.uint32(8 * k))
        return codes

    @inline
    def put_tile(tiles, warp, lane, first, halves, length, row, out):
        """Pack the codes of `halves` half-words: a lane one plane of a half-word at a time."""
        words, item = cuda.local.array(WORDS, np.uint32), np.int32(lane)
        while item < halves * planes:
            plane = item // halves
            half = item - plane * halves
            for k in range(0, WORDS, 4):
                words[k], words[k + 1], words[k + 2], words[k + 3] = ptx.read_bytes16(
                    tiles, (warp * LANES + half) * WORDS + k
                )
            for k in range(WORDS):
                words[k] >>= np.uint32(plane)
            out[plane, row, first + half] = take_bits(words) & low_bits(length - (first + half) * LANES)
            item += np.int32(LANES)

    @cuda.jit
    def encode_groups_of(x, length, run, digits, k0, k1, use, wrong, constants, out):
        tiles, values = cuda.shared.array(room, np.uint32, alignment=_LINE), cuda.local.array(4, kind)
        lane, warp = cuda.threadIdx.x % LANES, cuda.threadIdx.x // LANES
        task = cuda.blockIdx.x * (cuda.blockDim.x // LANES) + warp
        if task >= constants.shape[1]:
            return  # all lanes of the warp
        at, end = task * run, min(task * run + run, x.size)
        low, high = _ends(x, at, end, lane, lines, read_four, values, wrong)
        digit = _last_digit(low, digits)
        start = libdevice.dmul_rn(libdevice.floor(low * _power(-digit)), _power(digit))
        start = np.float32(libdevice.dadd_rn(start, 0.0))  # not -0
        step = (high - np.float64(start)) / top
        digit = _last_digit(step, digits)
        step = libdevice.ceil(step * _power(-digit)) * _power(digit)
        size = np.float32(step if step != 0 else 1.0)
        inverse = _inverse(size)
        if lane == 0:
            constants[0, task], constants[1, task] = size, start
        row = at // length
        while at < end:
            origin = row * length
            stop = min(length, end - origin)
            last = out.shape[2] if stop == length else stop // LANES
            first = (at - origin) // LANES
            while first < last:
                i = first * LANES + 4 * lane
                limit, k = np.int32(min(stop - i, 4 * LANES * WORDS)), np.int32(0)
                while 4 * LANES * k < limit:
                    here = i + 4 * LANES * k
                    _read(x, origin + here, np.int32(min(stop - here, 4)), lines, read_four, values, 0)
                    tiles[warp, k * LANES + lane] = codes_of(values, origin + here, start, size, inverse, k0, k1, use)
                    k += np.int32(1)
                cuda.syncwarp()
                put_tile(tiles, warp, lane, first, np.int32(min(last - first, LANES)), stop, row, out)
                cuda.syncwarp()
                first += LANES
            row, at = row + 1, origin + stop

    return encode_groups_of
