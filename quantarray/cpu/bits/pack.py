"""Pack codes to words, and unpack them."""

import numpy as np

from ..llvm.masks import add_bits, low_bits, mask_of_plane, put_plane
from ..runtime import threads
from ..runtime.schedule import Kernel

_LEAST = 1 << 17  # elements that are worth a parallel region
_NOT_ASKED = np.empty(0, np.uint8)


def pack(codes, out):
    if out.size:
        _pack(codes, _NOT_ASKED, out)


def pack_seen(codes, seen, out):
    if out.size:
        _pack(codes, seen, out)


def pack_signed(values, out):
    if out.size:
        _pack(values.view(np.uint8), _NOT_ASKED, out, 1 << (len(out) - 1))


def _pack(codes, seen, out, flipped=0):
    kind = codes.dtype.char, codes.flags.num, seen.flags.num, out.flags.num
    workers = threads.count() if codes.size >= _LEAST else 1
    threads.run(_pack_rows, (codes, seen, flipped, out), codes.shape[0], workers, None, kind)


def unpack(words, out):
    if not out.size:
        return
    threads.run(_unpack_rows, (words, out), len(out), threads.workers(out.size, _LEAST))


@Kernel
def _pack_rows(codes, seen, flipped, out, first, last):
    planes, _, words = out.shape
    length, asked, held = codes.shape[1], seen.size > 0, np.zeros(64, np.uint8)
    for row in range(first, last):
        for word in range(words):
            start, valid = row * length + word * 64, min(64, length - word * 64)
            # The last word of a row is 64 bytes too: those of the next row, which are codes as well, are masked out
            if start + 64 <= codes.size:
                if asked:
                    add_bits(codes, start, held)
                for plane in range(planes):
                    turned = -np.uint64((flipped >> plane) & 1)
                    out[plane, row, word] = (mask_of_plane(codes, start, plane) ^ turned) & low_bits(valid)
            else:
                for i in range(valid):
                    held[0] |= codes[row, word * 64 + i]
                for plane in range(planes):
                    mask = np.uint64(0)
                    for i in range(valid):
                        mask |= np.uint64(((codes[row, word * 64 + i] ^ flipped) >> plane) & 1) << np.uint64(i)
                    out[plane, row, word] = mask
    for i in range(held.size if asked else 0):
        seen[first] |= held[i]


@Kernel
def _unpack_rows(words, out, first, last):
    planes, _, count = words.shape
    length = out.shape[1]
    for row in range(first, last):
        for word in range(count):
            start, valid = row * length + word * 64, min(64, length - word * 64)
            if start + 64 <= last * length:  # what is written past a row is overwritten by the next
                for plane in range(planes):
                    put_plane(words[plane, row, word], plane, out, start)
            else:
                for i in range(valid):
                    code, shift = np.uint64(0), np.uint64(i)
                    for plane in range(planes):
                        code |= ((words[plane, row, word] >> shift) & np.uint64(1)) << np.uint64(plane)
                    out[row, word * 64 + i] = code
