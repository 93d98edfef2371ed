"""Counting by byte shuffles, for CPUs of AVX2 without AVX-512: 32 output channels are the 32 bytes of a vector.

Half a byte of a pixel picks a row of 16 counts, |half & n| for every n; half a byte of each channel's weights is an
index into the row. One shuffle so counts 4 bits of 32 channels, where LLVM's ctpop takes 4.5 instructions.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I8, I16, I32, I64, LANES, TILE, WIDTH, const, each_run, lanes_of, place_of, pointer

PIECE = 3  # words whose counts, 64 at most each, fit into a byte
PIECES = 341  # pieces whose counts fit into 16 bits
_HALF = LANES // 2
_HALVES = (np.arange(256)[:, None] >> np.array([0, 4]) & 15)[:, :, None]
# For each byte of a pixel the row of its low half, then of its high half; all of |a & b|, then all of |a ^ b|. 8 KiB
# each: one table of 16 rows instead costs three more scalar instructions a byte.
_ROWS = np.bitwise_count([_HALVES & np.arange(16), _HALVES ^ np.arange(16)]).astype(np.uint8)
_TABLE = _ROWS[0].size


def lay_out(words):
    """Weight words[.. 32] as `count_tile` reads them: byte 0 of all 32 channels, then byte 1, ..."""
    lanes = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, 8)
    return np.ascontiguousarray(lanes.swapaxes(-1, -2)).view(np.uint64).reshape(words.shape)


@intrinsic
def count_tile(typingctx, words, word, origins, origin, weights, weight, runs, first, last, differ, counts):
    """As `count_words.count_tile`, for weights laid out by bytes."""
    i64 = types.int64
    signature = types.void(words, i64, origins, i64, weights, i64, runs, i64, i64, i64, counts)

    def codegen(context, builder, signature, args):
        row, narrow = ir.VectorType(I8, LANES), ir.VectorType(I16, _HALF)
        words = pointer(context, builder, signature, args, 0, args[1])
        weights = pointer(context, builder, signature, args, 4, args[5])
        origins = pointer(context, builder, signature, args, 2, args[3])
        runs, counts = (pointer(context, builder, signature, args, i) for i in (6, 10))
        rows = ir.Constant(ir.ArrayType(I8, _ROWS.size), bytearray(_ROWS.tobytes()))
        table = builder.bitcast(cgutils.global_constant(builder, "counts_of_halves", rows), I8.as_pointer())
        table = builder.gep(table, [builder.and_(args[9], const(_TABLE))])
        byte = [cgutils.alloca_once_value(builder, ir.Constant(row, None)) for _ in range(TILE)]
        sums = [[cgutils.alloca_once_value(builder, ir.Constant(narrow, None)) for _ in range(2)] for _ in range(TILE)]
        pieces_left = cgutils.alloca_once_value(builder, const(PIECES))
        builder.store(const(PIECES), pieces_left)
        _clear(builder, sums, counts)
        with each_run(builder, words, origins, runs, args[7], args[8]) as (pixel, weight, length):
            pixel = [builder.bitcast(p, I8.as_pointer()) for p in pixel]
            column = builder.bitcast(builder.gep(weights, [builder.mul(weight, const(LANES))]), I8.as_pointer())
            with cgutils.for_range(builder, _pieces(builder, length)) as piece:
                start = builder.mul(piece.index, const(PIECE))
                _count_piece(builder, pixel, column, start, _least(builder, builder.sub(length, start)), table, byte)
                _widen(builder, byte, sums)
                left = builder.sub(builder.load(pieces_left), const(1))
                builder.store(left, pieces_left)
                with builder.if_then(builder.icmp_signed("==", left, const(0)), likely=False):
                    _flush(builder, sums, counts)
                    builder.store(const(PIECES), pieces_left)
        _flush(builder, sums, counts)

    return signature, codegen


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


def _count_piece(builder, pixel, column, start, words, table, byte):
    """byte[p] = the counts of some words of each pixel from word `start` of a run on."""
    row = byte[0].type.pointee
    low, four = ir.Constant(row, [15] * LANES), ir.Constant(row, [4] * LANES)
    for slot in byte:
        builder.store(ir.Constant(row, None), slot)
    with cgutils.for_range(builder, builder.mul(words, const(8))) as step:
        k = builder.add(builder.mul(start, const(8)), step.index)
        index = builder.load(place_of(builder, column, builder.mul(k, const(LANES)), row), align=8)
        halves = builder.and_(index, low), builder.and_(builder.lshr(index, four), low)
        for p, slot in enumerate(byte):
            at = builder.shl(builder.zext(builder.load(builder.gep(pixel[p], [k])), I64), const(5))
            ones = [_look_up(builder, table, builder.add(at, const(16 * i)), half) for i, half in enumerate(halves)]
            builder.store(builder.add(builder.load(slot), builder.add(*ones)), slot)


def _look_up(builder, table, at, index):
    """The entries of 32 indices in the row of 16 counts at an offset."""
    row, half = index.type, ir.VectorType(I8, 16)
    sixteen = builder.load(place_of(builder, table, at, half), align=1)
    twice = builder.shuffle_vector(sixteen, sixteen, ir.Constant(ir.VectorType(I32, LANES), [*range(16)] * 2))
    shuffle = cgutils.get_or_insert_function(builder.module, ir.FunctionType(row, [row, row]), "llvm.x86.avx2.pshuf.b")
    return builder.call(shuffle, [twice, index])


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
