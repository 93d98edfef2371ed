"""Codes to words and back."""

import numpy as np
from numba import njit, prange

from . import threads

_LEAST = 1 << 17  # elements that are worth a parallel region


def pack(codes, out):
    if not out.size:
        return
    if threads.serial(codes.size, _LEAST):
        _pack_rows(codes, out, 0, codes.shape[0])
    else:
        threads.run(_pack_parallel, codes, out)


def unpack(words, out):
    if not out.size:
        return
    if threads.serial(out.size, _LEAST):
        _unpack_rows(words, out, 0, out.shape[0])
    else:
        threads.run(_unpack_parallel, words, out)


@njit(cache=True, nogil=True)
def _pack_rows(codes, out, first, last):
    planes, _, words = out.shape
    length = codes.shape[1]
    for row in range(first, last):
        for word in range(words):
            at = word * 64
            valid = min(64, length - at)
            for plane in range(planes):
                mask = np.uint64(0)
                for i in range(valid):
                    mask |= np.uint64((codes[row, at + i] >> plane) & 1) << np.uint64(i)
                out[plane, row, word] = mask


@njit(cache=True, nogil=True)
def _unpack_rows(words, out, first, last):
    planes, _, count = words.shape
    length = out.shape[1]
    for row in range(first, last):
        for word in range(count):
            at = word * 64
            valid = min(64, length - at)
            for i in range(valid):
                out[row, at + i] = (words[0, row, word] >> np.uint64(i)) & np.uint64(1)
            for plane in range(1, planes):
                mask = words[plane, row, word]
                for i in range(valid):
                    out[row, at + i] |= ((mask >> np.uint64(i)) & np.uint64(1)) << np.uint64(plane)


@njit(cache=True, parallel=True, nogil=True)
def _pack_parallel(codes, out):
    rows = codes.shape[0]
    pieces = min(rows, 64)
    for piece in prange(pieces):
        _pack_rows(codes, out, rows * piece // pieces, rows * (piece + 1) // pieces)


@njit(cache=True, parallel=True, nogil=True)
def _unpack_parallel(words, out):
    rows = out.shape[0]
    pieces = min(rows, 64)
    for piece in prange(pieces):
        _unpack_rows(words, out, rows * piece // pieces, rows * (piece + 1) // pieces)
