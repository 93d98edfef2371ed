"""Encode with stochastic rounding in groups, in one pass: random numbers are counted, not drawn.

Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011) makes four random words of a
counter and a key, so that an element's number depends on its index alone: on no thread, no order, no backend.
"""

import numpy as np

from ..llvm.masks import low_bits, mask_of_plane
from ..runtime import threads
from ..runtime.jit import borrowing, entry, inline
from ..runtime.schedule import Kernel
from .encode_grid import put_grid
from .extremes import ORDINARY, ends_of, grid_of_group
from .grid_codes import grid_codes
from .random_64 import uniform_64

_LEAST = 1 << 14  # values that are worth a parallel region
HALF_STEP = np.uint32(1 << 31)  # in place of a random number: to the nearest
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def encode_grouped(values, low, step, start, stride, group, key, out):
    if not out.size:
        return
    arguments = values, low, step, start, stride, group, key, out
    threads.run(_encode_words, arguments, out.shape[1] * out.shape[2], threads.workers(values.size, _LEAST))


def encode_groups(x, run, digits, key, wrong, constants, out):
    arguments, kind = (x, run, digits, key, wrong, constants, out), (x.dtype.char, x.flags.num)
    threads.run(_fit_and_encode, arguments, constants.shape[1], threads.count() if x.size >= _LEAST else 1, None, kind)


@entry
def philox(counter, key):
    """Replace counter uint64[4 n] by its n Philox blocks under key uint32[2]; all numbers are of 32 bits.

    A round over all blocks is one loop, which compiles to vector multiplications.
    """
    k0, k1 = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(10):
        for i in range(counter.shape[1]):
            p0, p1 = np.uint64(0xD2511F53) * (counter[0, i] & _LOW), np.uint64(0xCD9E8D57) * (counter[2, i] & _LOW)
            counter[0, i], counter[2, i] = (p1 >> _HALF) ^ counter[1, i] ^ k0, (p0 >> _HALF) ^ counter[3, i] ^ k1
            counter[1, i], counter[3, i] = p1 & _LOW, p0 & _LOW
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW


@borrowing  # counting references to the key, which threads share, took as long as the numbers
def draw_uniform(first, stride, key, block, u):
    """u[i] = a number in [0, 2**32) for each of the 64 elements first + i * stride. block uint64[4 blocks] is scratch.

    17 blocks hold 64 neighbours, 16 if the first is a multiple of 4; elements further apart have a block each.
    """
    if stride == 1 and first & 3 == 0:
        uniform_64(first, np.uint64(key[0]), np.uint64(key[1]), np.uint64(key[2]), u)
        return
    for i in range(block.shape[1]):
        n = np.uint64((first >> 2) + i if stride == 1 else (first + i * stride) >> 2)
        block[0, i], block[1, i], block[2, i], block[3, i] = n & _LOW, n >> _HALF, np.uint64(key[2]), np.uint64(0)
    philox(block, key)
    for i in range(64):
        n = first + i * stride
        u[i] = block[n & 3, (n >> 2) - (first >> 2) if stride == 1 else i]


@Kernel
def _fit_and_encode(x, run, digits, key, wrong, constants, out, first, last):
    """Fit and encode groups of consecutive values, each read once: half the time of fit and `_encode_words`."""
    length, rest, top = x.shape[1], np.zeros((1, 64), x.dtype), (1 << out.shape[0]) - 1
    codes, masks = np.zeros(64, np.uint8), np.zeros(8, np.uint64)
    u, block = np.full(64, HALF_STEP), np.zeros((4, 20), np.uint64)
    ends, more = np.zeros(2), np.zeros(2)
    for task in range(first, last):
        at, end = task * run, min(task * run + run, x.size)
        nan = ends_of(x, at, end, rest, ends, more)
        if nan or not (-ORDINARY < ends[0] and ends[1] < ORDINARY):
            wrong[0] = True
            continue
        constants[0, task], constants[1, task] = grid_of_group(ends[0], ends[1], top, digits)
        step, low = np.float64(constants[0, task]), np.float64(constants[1, task])
        while at < end:
            r, column = at // length, at % length
            valid, word = min(64, length - column), column // 64
            if key.size:
                draw_uniform(at, 1, key, block, u)
            if at + 64 <= x.size:
                put_grid(x, at, low, 1.0, step, u, 0, top, True, masks, codes, low_bits(valid), out, r, word)
            else:
                for i in range(valid):
                    rest[0, i] = x[r, column + i]
                put_grid(rest, 0, low, 1.0, step, u, 0, top, True, masks, codes, low_bits(valid), out, r, word)
            at += valid


@Kernel
def _encode_words(values, low, step, start, stride, group, key, out, first, last):
    planes, _, words = out.shape
    length = values.shape[1]
    top = (1 << planes) - 1
    some = np.zeros(64, values.dtype)
    codes, u = np.zeros(64, np.uint8), np.full(64, HALF_STEP)
    block = np.zeros((4, 20 if stride == 1 else 64), np.uint64)
    for task in range(first, last):
        row, word = task // words, task % words
        at = word * 64
        valid = min(64, length - at)
        if key.size:
            draw_uniform(start[row] + at * stride, stride, key, block, u)
        if valid == 64 and at // group == (at + 63) // group:
            for i in range(64):
                some[i] = values[row, at + i]  # which need not be consecutive
            a, s = np.float64(low[row, at // group]), np.float64(step[row, at // group])
            # Rounded constants may leave x beyond the last level, to which it is clipped
            grid_codes(some, 0, a, 1.0, s, u, 0, top, True, codes)
        else:
            _codes_in_groups(values, low, step, group, row, at, valid, u, top, codes)
        for plane in range(planes):
            out[plane, row, word] = mask_of_plane(codes, 0, plane) & low_bits(valid)


@inline
def _codes_in_groups(values, low, step, group, row, at, valid, u, top, codes):
    """Compute 64 codes of a row: a word may span groups, and a group may span words."""
    i = 0
    while i < valid:
        part = (at + i) // group
        end = min(valid, (part + 1) * group - at)
        a, s = np.float64(low[row, part]), np.float64(step[row, part])
        for j in range(i, end):
            t = (values[row, at + j] - a) / s + 2.0**-32 * u[j]
            codes[j] = top if t >= top else np.uint8(t) if t > 0 else 0
        i = end
