"""Copies of pixels' words to shared memory: where a thread reads, and its copies of one stage after the other.

A thread copies the same words of the same few pixels in every stage, so it keeps where it reads and adds to that:
multiplying 64-bit places out for each copy took more instructions than the products of a stage.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from ..runtime.launch import LANES, inline
from ..runtime.target import cuda
from ..tensor_cores import ptx
from .tiles import OUTSIDE


class Source(NamedTuple):
    """A tuple of what a tile reads; `begins` and `kinds`, of the tile's pixels, are in shared memory."""

    words: object  # uint64[planes words]
    offsets: object  # int32[classes words], see `tiles.Taps`
    begins: object  # int64[pixels]: word at which a window begins
    kinds: object  # int32[pixels]: border class


class Cursor(NamedTuple):
    """A thread's registers for its copies of pixels in a stage, an element for each of them.

    For dense windows, `at` is the word that the next copy reads. For others it is where the window begins, `offset` is
    the next offset, which was read a stage ahead, and `look` is the place of the offset after it.
    """

    at: object  # int64[copies]
    look: object  # int64[copies]
    offset: object  # int32[copies]


def copies(tile, depth, words):
    """Count the copies of pixels' words a thread begins in a stage of `depth` words, so many words at a time."""
    return -(-tile.pixels * depth // words // (tile.warps * LANES))


@cache
def seeker(tile, depth, words, dense):
    size, runs, threads, turns = tile.pixels, depth // words, tile.warps * LANES, copies(tile, depth, words)

    @inline
    def seek(source, cursor, plane, shift, stage):
        """Move the cursor to a stage of a plane; `shift` is the group's first word in a pixel."""
        pixel, k = place(runs, words)
        k = np.int32(k + stage * depth)
        length, start = source.offsets.shape[1], plane * source.words.shape[1] + shift
        for turn in range(turns):
            p = min(pixel + turn * (threads // runs), size - 1)
            cursor.at[turn] = start + ptx.read(source.begins, p)
            if dense:
                cursor.at[turn] += k
            else:
                first = ptx.read(source.kinds, p) * length + k
                cursor.offset[turn] = ptx.read(source.offsets, first) if k < length else OUTSIDE
                cursor.look[turn] = first + depth

    return seek


@cache
def copier(tile, depth, words, dense, swizzled):
    """Make copies of rows of `depth` words; `swizzled(pixel, k)`, equal for every 8th pixel, is the place of word k."""
    size, runs, threads, turns = tile.pixels, depth // words, tile.warps * LANES, copies(tile, depth, words)
    begin_copy, whole = ptx.copy_pair if words == 2 else ptx.copy_word, size * runs % threads == 0

    @inline
    def copy(source, cursor, left, held, to):
        """Start to copy the next stage to held[to] on; words from `left` on and outside the image become 0."""
        pixel, k = place(runs, words)
        to += pixel * depth + swizzled(pixel, k)
        for turn in range(turns):
            at, inside = cursor.at[turn], k < left
            if dense:
                cursor.at[turn] += depth
            else:
                inside = cursor.offset[turn] != OUTSIDE
                at += cursor.offset[turn] if inside else 0
            if whole or pixel + turn * (threads // runs) < size:
                begin_copy(held, to + turn * (threads // runs) * depth, source.words, at, inside)
        if not dense:  # after the copies: reads may not be reordered with them
            for turn in range(turns):
                more = k + depth < left
                cursor.offset[turn] = ptx.read(source.offsets, cursor.look[turn]) if more else OUTSIDE
                cursor.look[turn] += depth

    return copy


@inline
def place(runs, words):
    """Return (pixel, word of its row) of this thread's first copy."""
    thread = cuda.threadIdx.y * LANES + cuda.threadIdx.x
    return thread // runs, np.int32(thread % runs * words)
