"""Counting with 32 output channels as the 32 bytes of a vector: the loop that the AVX2 and the NEON kernel share.

Bytes are summed for 3 words, then in 16 bits. A 64-bit lane for each channel would be four times as many vectors, more
than the 16 or 32 registers of these CPUs, and one more instruction for each to add bytes up.
"""

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import I8, I16, LANES, TILE, WIDTH, const, each_run, lanes_of, place_of
from . import count_row
from .interface import tile_counter

PIECE = 3  # words whose counts, 64 at most each, fit into a byte
PIECES = 341  # pieces whose counts fit into 16 bits
_HALF = LANES // 2


def lay_out(words):
    """Lay out weight words[.. 32] as `count_tile` reads them: byte 0 of all 32 channels, then byte 1, ..."""
    lanes = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return np.ascontiguousarray(lanes.swapaxes(-1, -2)).view(np.uint64).reshape(words.shape)


def kernel(ones_of, adder=None):
    """Build a `count_tile`: ones_of(builder, differ) has `weights`, which prepares 32 bytes, and `of`, which counts.

    With a full adder of `llvm/adders.py`, tiles of a single pixel are counted by `count_row.py`.
    """

    def emit(builder, pixels, differ, *rest):
        if pixels == 1 and adder is not None:
            count_row.count(builder, adder, differ, *rest)
        else:
            count(builder, ones_of(builder, differ), pixels, *rest)

    return tile_counter(emit)


def count(builder, ones, pixels, windows, weights, counts):
    """Write the LLVM code of `count_tile`, whose operands are plain pointers."""
    row, narrow = ir.VectorType(I8, LANES), ir.VectorType(I16, _HALF)
    byte = [cgutils.alloca_once_value(builder, ir.Constant(row, None)) for _ in range(pixels)]
    sums = [[cgutils.alloca_once_value(builder, ir.Constant(narrow, None)) for _ in range(2)] for _ in range(pixels)]
    left, moved = (cgutils.alloca_once_value(builder, const(0)) for _ in range(2))
    builder.store(const(PIECES), left)  # pieces that the sums have room for
    builder.store(const(0), moved)  # whether the counts hold sums already
    _clear(builder, sums)
    with each_run(builder, windows) as (pixel, weight, length):
        pixel = [builder.bitcast(p, I8.as_pointer()) for p in pixel]
        column = builder.bitcast(builder.gep(weights, [builder.mul(weight, const(LANES))]), I8.as_pointer())
        with cgutils.for_range(builder, pieces(builder, length)) as piece:
            start = builder.mul(piece.index, const(PIECE))
            _count_piece(builder, ones, pixel, column, start, least(builder, builder.sub(length, start)), byte)
            _widen(builder, byte, sums)
            builder.store(builder.sub(builder.load(left), const(1)), left)
            with builder.if_then(builder.icmp_signed("==", builder.load(left), const(0)), likely=False):
                _flush(builder, sums, counts, moved)
                _clear(builder, sums)
                builder.store(const(PIECES), left)
    _flush(builder, sums, counts, moved)


def pieces(builder, length):
    """Return the number of pieces of a run: ceil(length / PIECE)."""
    return builder.sdiv(builder.add(length, const(PIECE - 1)), const(PIECE))


def least(builder, left):
    """Return the number of words of a piece: min(left, PIECE)."""
    return builder.select(builder.icmp_signed("<", left, const(PIECE)), left, const(PIECE))


def _clear(builder, sums):
    for halves in sums:
        for slot in halves:
            builder.store(ir.Constant(slot.type.pointee, None), slot)


def _count_piece(builder, ones, pixel, column, start, words, byte):
    """byte[p] = counts of `words` words of each pixel, from word `start` of a run on."""
    row = byte[0].type.pointee
    for slot in byte:
        builder.store(ir.Constant(row, None), slot)
    with cgutils.for_range(builder, builder.mul(words, const(8))) as step:
        k = builder.add(builder.mul(start, const(8)), step.index)
        weights = ones.weights(
            builder, builder.load(place_of(builder, column, builder.mul(k, const(LANES)), row), align=8)
        )
        for p, slot in enumerate(byte):
            counts = ones.of(builder, builder.load(builder.gep(pixel[p], [k])), weights)
            builder.store(builder.add(builder.load(slot), counts), slot)


def _widen(builder, byte, sums):
    """Add the bytes to the sums of 16 bits."""
    for slot, halves in zip(byte, sums, strict=True):
        total = builder.load(slot)
        for i, half in enumerate(halves):
            part = builder.zext(lanes_of(builder, total, i * _HALF, _HALF), half.type.pointee)
            builder.store(builder.add(builder.load(half), part), half)


def _flush(builder, sums, counts, moved):
    """Move the sums of 16 bits to the counts, or add them where there are some already."""
    with builder.if_else(builder.icmp_signed("==", builder.load(moved), const(0)), likely=True) as (first, later):
        with first:
            _move(builder, sums, counts, lambda part, place: part)
        with later:
            _move(builder, sums, counts, lambda part, place: builder.add(builder.load(place, align=4), part))
    builder.store(const(1), moved)


def _move(builder, sums, counts, value):
    whole = ir.VectorType(counts.type.pointee, WIDTH)
    for at in range(0, TILE * LANES, WIDTH):
        p, lane = divmod(at, LANES)
        total = builder.load(sums[min(p, len(sums) - 1)][lane // _HALF])
        part = builder.zext(lanes_of(builder, total, lane % _HALF, WIDTH), whole)
        place = place_of(builder, counts, at, whole)
        builder.store(value(part, place), place, align=4)
