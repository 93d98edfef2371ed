"""Codes out of words, for kernels that store what becomes of them: a lane reads and stores 16 bytes at a time.

A lane reads 4 half-words of each plane, which its neighbours read too, and stores 16 bytes of values of each of them.
Four codes are made at once: a product moves 4 bits of a plane to 4 bytes.
"""

from functools import cache

import numpy as np

from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..runtime.warp import place_of_lane
from ..tensor_cores import ptx

_LINE = 16  # bytes of the widest load and store
_HALVES = _LINE // 4  # half-words that a lane reads of a plane
_FAR = 1 << 20  # elements, more than a lane looks at
_MOST_CODES = 256
_OF_STORES, _OF_VALUES = 1, 2  # what never is of two parts: all values of a store, or one value


def in_one_row(words, out):
    """Return words and out[rows length] as those of one row, where each row is some whole words."""
    return words.reshape(words.shape[0], 1, -1), out.reshape(1, -1)


def run(words, out, a, b, group, begin, value, table=0):
    """Set out[r, i] to value(code, *begin(a, b, r, i // group), table), bits of which out keeps the lowest.

    Values of 8 bits are the codes. With `table`, so many numbers of a[0, 0] are in shared memory, and begin is called
    once a row, as with group 0.
    """
    (rows, length), size, halves = out.shape, out.dtype.itemsize, launch.halves(words)
    lines_in = halves.shape[2] % _HALVES == 0 and launch.address(halves) % _LINE == 0
    lines_out = (rows == 1 or length * size % _LINE == 0) and launch.address(out) % _LINE == 0
    parts = 0 if group == 0 else _OF_STORES if group * size % _LINE == 0 else _OF_VALUES
    kernel = _kernel(halves.shape[0], size, lines_in, lines_out, parts, table, begin, value)
    grid, block = launch.rows_by_halves(rows, -(-halves.shape[2] // (_HALVES * _LINE // size)), 8)
    bits = launch.array(out).view(f"u{size}")
    launch.run(kernel, grid, block, halves, launch.resident(a), launch.resident(b), max(group, 1), bits)


@inline
def _read_line(words, at, inside, lines):
    """Read 4 half-words that begin at an even one, of which the last two may be outside."""
    if lines:
        return ptx.read_bytes16(words, at)
    w0, w1 = ptx.read_bytes8(words, at)
    w2, w3 = np.uint32(0), np.uint32(0)
    if inside > 2:
        w2, w3 = ptx.read_bytes8(words, at + 2)
    return w0, w1, w2, w3


@cache
def _kernel(planes, size, lines_in, lines_out, parts, table, begin, value):
    """Make a kernel for each number of planes, whose half-words are registers, and size of values."""
    each = _LINE // size  # values of a store
    lanes = LANES // each  # that share a half-word
    batch = _HALVES * each  # half-words of a warp
    per_word = 4 // size

    @inline
    def store(out, at, left, line, lines):
        """Store 16 bytes of values, or the first `left` values one by one."""
        if lines and left == each:
            ptx.write_bytes16(out, at, line[0], line[1], line[2], line[3])
        else:
            for n in range(each):
                if n < left:
                    ptx.write(out, at + n, line[n // per_word] >> np.uint32(n % per_word * 8 * size))

    @cuda.jit
    def unpack_codes(words, a, b, group, out):
        bits, line = cuda.local.array((planes, _HALVES), np.uint32), cuda.local.array(_HALVES, np.uint32)
        shown = cuda.shared.array(_MOST_CODES, np.uint32)
        if table:
            i = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
            while i < table:
                shown[i] = a[0, 0, i]
                i += cuda.blockDim.x * cuda.blockDim.y
            cuda.syncthreads()
        lane, number, row, step = place_of_lane()
        rows, length = out.shape
        halves = words.shape[2]
        first = number * batch + lane // lanes * _HALVES
        shift = np.uint32(lane % lanes * each)
        while row < rows and first < halves:
            for plane in range(planes):
                at = (plane * rows + row) * halves + first
                bits[plane, 0], bits[plane, 1], bits[plane, 2], bits[plane, 3] = _read_line(
                    words, at, halves - first, lines_in
                )
            element, part, rest = first * LANES + np.int64(shift), np.int64(0), np.int32(0)
            if parts:
                part = element // group
                rest = np.int32(min((part + 1) * group - element, _FAR))
            for _ in range(_HALVES):
                left = np.int32(min(length - element, each))
                if left > 0:
                    held = begin(a, b, row, part)
                    for w in range(_HALVES):
                        line[w] = 0
                    for four in range(each // 4):
                        codes = np.uint32(0)
                        for plane in range(planes):
                            field = (bits[plane, 0] >> (shift + np.uint32(4 * four))) & np.uint32(15)
                            spread = np.uint32(field * np.uint32(0x00204081)) & np.uint32(0x01010101)
                            codes |= np.uint32(spread << np.uint32(plane))
                        if size == 1:
                            line[four] = codes
                            continue
                        for k in range(4):
                            if parts == _OF_VALUES:
                                if rest == 0:
                                    part, rest = part + 1, np.int32(min(group, _FAR))
                                    if np.int32(4 * four + k) < left:
                                        held = begin(a, b, row, part)
                                rest -= np.int32(1)
                            code = np.uint32(codes >> np.uint32(8 * k)) & np.uint32(255)
                            v = value(code, held[0], held[1], a, shown)
                            n = 4 * four + k
                            line[n // per_word] |= np.uint32(v << np.uint32(n % per_word * 8 * size))
                    store(out, row * length + element, left, line, lines_out)
                for plane in range(planes):  # no index of registers that a loop has: it may stay a loop
                    bits[plane, 0], bits[plane, 1], bits[plane, 2] = bits[plane, 1], bits[plane, 2], bits[plane, 3]
                element += LANES
                if parts:
                    rest -= np.int32(LANES - (each if parts == _OF_VALUES else 0))
                    while rest <= 0:
                        part, rest = part + 1, np.int32(rest + min(group, _FAR))
            row += step

    return unpack_codes
