"""Codes to words and back: a thread packs 32 codes into half a word of each plane; `unpacking` has the rest.

Codes are read by aligned loads of 4 or 16 bytes, of which at least one is a code. The others may be before or after the
array, but within its memory, whose ends are multiples of 256 bytes.
"""

from functools import cache

import numpy as np

from ...core.format import WORD_BITS
from ..runtime import launch
from ..runtime.launch import LANES, inline
from ..runtime.target import cuda, libdevice
from ..runtime.warp import low_bits
from ..tensor_cores import ptx
from . import unpacking

_LINE = 16  # bytes of the widest load
WORDS = LANES // 4  # words of 4 codes
_PIECES = WORDS + 1  # aligned words that hold so many codes, wherever they begin


def pack(codes, out):
    if not out.size:
        return
    (rows, length), first, halves = codes.shape, launch.address(codes), launch.halves(out)
    aligned = first % _LINE == 0 and (length % _LINE == 0 or rows == 1)
    grid, block = launch.rows_by_items(rows, halves.shape[2])
    kernel = _pack(halves.shape[0], _read_aligned if aligned else _read_shifted)
    launch.run(kernel, grid, block, codes, first % 4, halves)


def unpack(words, out):
    if not out.size:
        return
    if out.shape[1] % WORD_BITS == 0:
        words, out = unpacking.in_one_row(words, out)
    none = np.zeros(1, np.uint32)
    unpacking.run(words, out, none, none, 0, _nothing, _code)


@inline
def _nothing(a, b, row, part):
    return 0, 0


@inline
def _code(code, first, second, a, shown):
    return code


@cache
def _pack(planes, read):
    """Make the kernel for a number of planes, a constant so that the compiler unrolls its loop."""

    @cuda.jit
    def pack_codes(codes, skew, out):
        """Pack 32 codes a thread, which `read` puts into 8 words; codes[0, 0] is at an address of 4 i + skew."""
        words = cuda.local.array(_PIECES, np.uint32)
        half, row = cuda.grid(2)
        rows, length = codes.shape
        left = np.int32(min(length - half * LANES, LANES))
        while row < rows and half < out.shape[2]:
            read(codes, row * length + half * LANES, left, skew, words)
            for plane in range(planes):
                out[plane, row, half] = take_bits(words) & low_bits(left)
            row += cuda.gridDim.y * cuda.blockDim.y

    return pack_codes


@inline
def take_bits(words):
    """Shift 32 codes in 8 words down by a bit and join the bits that leave them.

    A product moves bits 0, 8, 16 and 24 of a word to bits 28 to 31, where no other sum of shifts has a carry.
    """
    bits = np.uint32(0)
    for k in range(WORDS - 1, -1, -1):
        moved = np.uint32(np.uint64(words[k] & np.uint32(0x01010101)) * np.uint64(0x10204080))
        bits = np.uint32(bits << np.uint32(4)) | (moved >> np.uint32(28))
        words[k] >>= np.uint32(1)
    return bits


@inline
def _read_aligned(codes, at, left, skew, words):
    """words[k] = codes `at` + 4 k on, aligned to 16 bytes; words without any of `left` codes stay as they are."""
    for k in range(0, WORDS, 4):
        if 4 * k < left:
            words[k], words[k + 1], words[k + 2], words[k + 3] = ptx.read_bytes16(codes, at + 4 * k)


@inline
def _read_shifted(codes, at, left, skew, words):
    """words[k] = codes `at` + 4 k on, at any address, joined from pairs of aligned words; 0 after `left` codes."""
    skip = (at + skew) & 3
    end = np.int32(left + skip)
    for k in range(_PIECES):
        words[k] = 0
        if np.int32(4 * k) < end:
            words[k] = ptx.read_bytes4(codes, at - skip + 4 * k)
    selector = np.int32(0x3210 + 0x1111 * skip)
    for k in range(WORDS):
        words[k] = np.uint32(libdevice.byte_perm(np.int32(words[k]), np.int32(words[k + 1]), selector))
