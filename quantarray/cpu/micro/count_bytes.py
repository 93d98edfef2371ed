"""Counting with 32 output channels as the 32 bytes of a vector: the loop that the AVX2 and the NEON kernel share.

Bytes are summed for 3 words, then in 16 bits. A 64-bit lane for each channel would be four times as many vectors, more
than the 16 or 32 registers of these CPUs, and one more instruction for each to add bytes up.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I8, I16, I64, LANES, TILE, WIDTH, const, each_run, lanes_of, place_of, pointer

PIECE = 3  # words whose counts, 64 at most each, fit into a byte
PIECES = 341  # pieces whose counts fit into 16 bits
_HALF = LANES // 2


def lay_out(words):
    """Weight words[.. 32] as `count_tile` reads them: byte 0 of all 32 channels, then byte 1, ..."""
    lanes = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return np.ascontiguousarray(lanes.swapaxes(-1, -2)).view(np.uint64).reshape(words.shape)


def kernel(ones_of):
    """The `count_tile` of a way to count: ones_of(builder, differ) has `weights` of 32 bytes and `of` a byte."""

    @intrinsic
    def count_tile(typingctx, words, word, origins, origin, weights, weight, runs, first, last, differ, counts):
        """As `count_words.count_tile`, for weights laid out by bytes."""
        i64 = types.int64
        signature = types.void(words, i64, origins, i64, weights, i64, runs, i64, i64, i64, counts)

        def codegen(context, builder, signature, args):
            words = pointer(context, builder, signature, args, 0, args[1])
            weights = pointer(context, builder, signature, args, 4, args[5])
            origins = pointer(context, builder, signature, args, 2, args[3])
            runs, counts = (pointer(context, builder, signature, args, i) for i in (6, 10))
            ones = ones_of(builder, args[9])
            count(builder, ones, words, origins, weights, runs, args[7], args[8], counts)

        return signature, codegen

    return count_tile


def count(builder, ones, words, origins, weights, runs, first, last, counts):
    """The LLVM code of `count_tile`, of plain pointers."""
    row, narrow = ir.VectorType(I8, LANES), ir.VectorType(I16, _HALF)
    byte = [cgutils.alloca_once_value(builder, ir.Constant(row, None)) for _ in range(TILE)]
    sums = [[cgutils.alloca_once_value(builder, ir.Constant(narrow, None)) for _ in range(2)] for _ in range(TILE)]
    pieces_left = cgutils.alloca_once_value(builder, const(PIECES))
    builder.store(const(PIECES), pieces_left)
    _clear(builder, sums, counts)
    with each_run(builder, words, origins, runs, first, last) as (pixel, weight, length):
        pixel = [builder.bitcast(p, I8.as_pointer()) for p in pixel]
        column = builder.bitcast(builder.gep(weights, [builder.mul(weight, const(LANES))]), I8.as_pointer())
        with cgutils.for_range(builder, _pieces(builder, length)) as piece:
            start = builder.mul(piece.index, const(PIECE))
            _count_piece(builder, ones, pixel, column, start, _least(builder, builder.sub(length, start)), byte)
            _widen(builder, byte, sums)
            left = builder.sub(builder.load(pieces_left), const(1))
            builder.store(left, pieces_left)
            with builder.if_then(builder.icmp_signed("==", left, const(0)), likely=False):
                _flush(builder, sums, counts)
                builder.store(const(PIECES), pieces_left)
    _flush(builder, sums, counts)


def _pieces(builder, length):
    return builder.sdiv(builder.add(length, const(PIECE - 1)), const(PIECE))


def _least(builder, left):
    return builder.select(builder.icmp_signed("<", left, const(PIECE)), left, const(PIECE))


def _clear(builder, sums, counts):
    """Set all counts to 0."""
    for p in range(TILE):
        for slot in sums[p]:
            builder.store(ir.Constant(slot.type.pointee, None), slot)
    whole = ir.VectorType(I64, WIDTH)
    for at in range(0, TILE * LANES, WIDTH):
        builder.store(ir.Constant(whole, None), place_of(builder, counts, at, whole), align=8)


def _count_piece(builder, ones, pixel, column, start, words, byte):
    """byte[p] = the counts of some words of each pixel from word `start` of a run on."""
    row = byte[0].type.pointee
    for slot in byte:
        builder.store(ir.Constant(row, None), slot)
    with cgutils.for_range(builder, builder.mul(words, const(8))) as step:
        k = builder.add(builder.mul(start, const(8)), step.index)
        weights = ones.weights(
            builder, builder.load(place_of(builder, column, builder.mul(k, const(LANES)), row), align=8)
        )
        for p, slot in enumerate(byte):
            found = ones.of(builder, builder.load(builder.gep(pixel[p], [k])), weights)
            builder.store(builder.add(builder.load(slot), found), slot)


def _widen(builder, byte, sums):
    """Add the bytes to the sums of 16 bits."""
    for slot, halves in zip(byte, sums, strict=True):
        total = builder.load(slot)
        for i, half in enumerate(halves):
            part = builder.zext(lanes_of(builder, total, i * _HALF, _HALF), half.type.pointee)
            builder.store(builder.add(builder.load(half), part), half)


def _flush(builder, sums, counts):
    """Add the sums of 16 bits to the counts, and clear them."""
    whole = ir.VectorType(I64, WIDTH)
    for p, halves in enumerate(sums):
        for i, half in enumerate(halves):
            total = builder.load(half)
            for lane in range(0, _HALF, WIDTH):
                place = place_of(builder, counts, p * LANES + i * _HALF + lane, whole)
                part = builder.zext(lanes_of(builder, total, lane, WIDTH), whole)
                builder.store(builder.add(builder.load(place, align=8), part), place, align=8)
            builder.store(ir.Constant(half.type.pointee, None), half)
