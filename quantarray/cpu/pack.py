"""Codes to words and back."""

import numpy as np
from numba import njit, prange

from . import threads
from .deal import next_piece, none_dealt, share
from .micro import mask_of_plane, put_plane

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
        for word in range(length // 64):
            for plane in range(planes):
                out[plane, row, word] = mask_of_plane(codes, row * length + word * 64, plane)
        rest = length // 64 * 64
        for word in range(length // 64, words):
            for plane in range(planes):
                mask = np.uint64(0)
                for i in range(length - rest):
                    mask |= np.uint64((codes[row, rest + i] >> plane) & 1) << np.uint64(i)
                out[plane, row, word] = mask


@njit(cache=True, nogil=True)
def _unpack_rows(words, out, first, last):
    planes, _, count = words.shape
    length = out.shape[1]
    for row in range(first, last):
        for word in range(length // 64):
            for plane in range(planes):
                put_plane(words[plane, row, word], plane, out, row * length + word * 64)
        for i in range(length // 64 * 64, length):
            code, shift = np.uint64(0), np.uint64(i & 63)
            for plane in range(planes):
                code |= ((words[plane, row, count - 1] >> shift) & np.uint64(1)) << np.uint64(plane)
            out[row, i] = code


@njit(cache=True, parallel=True, nogil=True)
def _pack_parallel(codes, out, workers):
    rows = codes.shape[0]
    pieces = min(rows, 64)
    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, rows)
            _pack_rows(codes, out, first, last)
            piece = next_piece(dealt)


@njit(cache=True, parallel=True, nogil=True)
def _unpack_parallel(words, out, workers):
    rows = out.shape[0]
    pieces = min(rows, 64)
    dealt = none_dealt()
    for _ in prange(workers):
        piece = next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, rows)
            _unpack_rows(words, out, first, last)
            piece = next_piece(dealt)
