"""Count by byte shuffles of 512 bits, two pixels at once, on CPUs with AVX-512 but without VPOPCNTDQ.

Half a byte of a pixel and the same half of another pick one of 256 rows of 16 bytes: for each half-byte of weights its
count with the first pixel and, 16 times, that with the second. Half a byte of each channel's weights is an index into
the row. One shuffle so counts 4 bits of 64 channels for two pixels; three are added before counts go to bytes, and 3
words before bytes go to 16 bits.
"""

from functools import partial, reduce
from itertools import chain, product
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.transpose import woven, zipped
from ..llvm.vectors import (
    I8,
    I16,
    I32,
    I64,
    LANES,
    PAIR,
    TILE,
    WIDTH,
    Windows,
    const,
    each_run,
    place_of,
    pointer,
    slot_of,
)
from ..llvm.views import flat
from .count_bytes import PIECE, least, pieces
from .interface import by_pixels

SPLIT = 16 * PAIR  # bytes of a word of two blocks, half a byte in each
SHUFFLED = 2 * PAIR  # channels that a pixel has sums for
_COUPLE = 2  # pixels that share shuffles
_PARTS = 4  # of 16 bytes, within which a vector is shuffled by one instruction
_NUMBERS, _HALVES = np.arange(256)[:, None], np.arange(16)
_COUNTS = [
    np.bitwise_count(op(_NUMBERS & 15, _HALVES)) + 16 * np.bitwise_count(op(_NUMBERS >> 4, _HALVES))
    for op in (np.bitwise_and, np.bitwise_xor)
]
_ROWS = np.array(_COUNTS, np.uint8)  # of |a & b|, then of |a ^ b|; 4 KiB each
_ROW = _ROWS.shape[2]
_GROUPS = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11), (12, 13), (14, 15))  # shuffles whose sum fits half a byte
_BYTES, _SHORTS = ir.VectorType(I8, PAIR), ir.VectorType(I16, LANES)
_PICKS = ir.VectorType(I16, 16)
_LOW = 0x0F0F0F0F0F0F0F0F


def _constant(short):
    return ir.Constant(_SHORTS, [short] * LANES)


@intrinsic
def split_weights(typingctx, weights, first, second, words, split, at):
    """Split `words` words of two blocks, from weights[first] and weights[second] on, into half a byte in each byte.

    The words are laid out by the `lay_out` of `count_bytes`. uint8 split[at + ..], from a cache line on, is [word,
    byte, half, channel, block]: the low halves of a byte of all channels of both blocks, then the high ones.
    """
    i64 = types.int64
    signature = types.void(weights, i64, i64, i64, split, i64)

    def codegen(context, builder, signature, args):
        blocks = [
            builder.bitcast(pointer(context, builder, signature, args, 0, args[i]), I8.as_pointer()) for i in (1, 2)
        ]
        split, part = pointer(context, builder, signature, args, 4, args[5]), ir.VectorType(I8, LANES)
        with cgutils.for_range(builder, builder.mul(args[3], const(8))) as byte:
            at = builder.mul(byte.index, const(LANES))
            one, other = (
                builder.zext(builder.load(place_of(builder, block, at, part), align=8), _SHORTS) for block in blocks
            )
            both = builder.or_(one, builder.shl(other, _constant(8)))
            _store_halves(builder, both, split, builder.mul(byte.index, const(2 * PAIR)))

    return signature, codegen


@intrinsic
def split_lanes(typingctx, lanes, first, second, words, split, at):
    """Split words as `split_weights` does, but of blocks of 32 plain words: lane 8 * j + i is channel j + 4 * i."""
    i64 = types.int64
    signature = types.void(lanes, i64, i64, i64, split, i64)

    def codegen(context, builder, signature, args):
        blocks = [pointer(context, builder, signature, args, 0, args[i]) for i in (1, 2)]
        split, vector = pointer(context, builder, signature, args, 4, args[5]), ir.VectorType(I64, WIDTH)
        with cgutils.for_range(builder, args[3]) as word:
            at = builder.mul(word.index, const(LANES))
            one, other = (
                [
                    builder.bitcast(builder.load(place_of(builder, block, builder.add(at, const(j)), vector)), _BYTES)
                    for j in range(0, LANES, WIDTH)
                ]
                for block in blocks
            )
            pairs = [zipped(builder, *both, half, _PARTS) for half in range(2) for both in zip(one, other, strict=True)]
            to = builder.mul(word.index, const(SPLIT))
            for byte, both in enumerate(woven(builder, [builder.bitcast(pair, _SHORTS) for pair in pairs], _PARTS)):
                _store_halves(builder, both, split, builder.add(to, const(2 * PAIR * byte)))

    return signature, codegen


def _store_halves(builder, both, split, at):
    """Store the low halves of bytes from split[at] on, and the high ones after them."""
    for half in range(2):
        part = builder.and_(builder.lshr(both, _constant(4 * half)), _constant(0x0F0F))
        builder.store(part, place_of(builder, split, builder.add(at, const(PAIR * half)), _SHORTS), align=PAIR)


class SplitWeights(NamedTuple):
    """A view of one or two pairs of blocks of weights in the layout of `split_weights`; the second is `apart` on."""

    data: np.ndarray  # uint8
    apart: int
    pairs: int


@intrinsic
def shuffle_tile(typingctx, words, origins, split, runs, differ, sums):
    """sums[128 * p + l] = sum over the runs of |a & b|, or of |a ^ b| where `differ` is -1 and not 0

    for the 4 pixels p of a tile and the channels l of a `SplitWeights`, with a = words[origins[p] + ..]. words,
    origins and sums are `View`s, sums of uint16 from a cache line on; runs, a `RunSpan`, have 1023 words at most.
    """
    signature = types.void(words, origins, split, runs, types.int64, sums)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        words, origins, sums = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2, 11))
        split, runs = (pointer(context, builder, signature, args, i) for i in (4, 7))
        rows = _rows(builder, args[10])
        columns, windows = (split, builder.gep(split, [args[5]])), Windows(words, origins, runs, args[8], args[9])

        def emit(pairs, pixels):
            couples = max(1, pixels // _COUPLE)
            totals = _count(builder, rows, couples, windows, columns[:pairs])
            for p in range(TILE):
                pixel = totals[min(p // _COUPLE, couples - 1)][p % _COUPLE]
                for block, total in enumerate(pixel):
                    place = place_of(builder, sums, p * SHUFFLED + block * LANES, _SHORTS)
                    builder.store(total, place, align=PAIR)

        with builder.if_else(builder.icmp_signed("==", args[6], const(1))) as branches:
            for branch, pairs in zip(branches, (1, 2), strict=True):
                with branch:
                    by_pixels(builder, origins, partial(emit, pairs))

    return signature, codegen


def _rows(builder, differ):
    """Return a pointer to the table of counts of a & b, or of a ^ b where `differ` is -1."""
    rows = ir.Constant(ir.ArrayType(I8, _ROWS.size), bytearray(_ROWS.tobytes()))
    table = cgutils.global_constant(builder, "counts_of_two", rows)
    table.align = PAIR
    at = builder.add(builder.ptrtoint(table, I64), builder.and_(differ, const(_ROWS[0].size)))
    # A register from here on: LLVM would add the table's offset to each row's again
    register = builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [at], side_effect=False)
    return builder.inttoptr(register, I8.as_pointer())


def _count(builder, rows, couples, windows, columns):
    """Return counts [couple][pixel][block] of 16 bits, two blocks for each column of weights."""
    pairs = range(len(columns))
    shorts, none = ir.Constant(_SHORTS, None), ir.Constant(_BYTES, None)
    slots = [[[slot_of(builder, shorts) for _ in (*pairs, *pairs)] for _ in range(_COUPLE)] for _ in range(couples)]
    both, high = ([[slot_of(builder, none) for _ in pairs] for _ in range(couples)] for _ in range(2))
    picks = [cgutils.alloca_once(builder, _PICKS, size=PIECE) for _ in range(couples)]
    with each_run(builder, windows) as (pixels, weight, length):
        with cgutils.for_range(builder, pieces(builder, length)) as piece:
            start = builder.mul(piece.index, const(PIECE))
            size = least(builder, builder.sub(length, start))
            with cgutils.for_range(builder, size) as step:
                k = builder.add(start, step.index)
                for c, pick in enumerate(picks):
                    one, other = (builder.load(builder.gep(pixel, [k])) for pixel in pixels[_COUPLE * c :][:_COUPLE])
                    builder.store(_picks(builder, one, other), builder.gep(pick, [step.index]))
            for slot in chain(*both, *high):
                builder.store(none, slot)
            with cgutils.for_range(builder, size) as step:
                word = builder.mul(builder.add(builder.add(weight, start), step.index), const(SPLIT))
                weights = [builder.gep(column, [word]) for column in columns]
                at = [builder.bitcast(builder.gep(pick, [step.index]), I16.as_pointer()) for pick in picks]
                _add_word(builder, rows, at, weights, both, high)
            for c, pair in product(range(couples), pairs):
                blocks = [pixel[2 * pair :][:2] for pixel in slots[c]]
                _widen(builder, builder.load(both[c][pair]), builder.load(high[c][pair]), blocks)
    return [[[builder.load(slot) for slot in pixel] for pixel in couple] for couple in slots]


def _picks(builder, one, other):
    """Return the offsets of the 16 rows that two words pick: for low halves of all bytes, then for the high ones."""
    low, high, four = const(_LOW), ir.Constant(I64, _LOW << 4), const(4)
    lows = builder.or_(builder.and_(one, low), builder.shl(builder.and_(other, low), four))
    highs = builder.or_(builder.and_(builder.lshr(one, four), low), builder.and_(other, high))
    pair = ir.Constant(ir.VectorType(I64, 2), None)
    for i, half in enumerate((lows, highs)):
        pair = builder.insert_element(pair, half, ir.Constant(I32, i))
    numbers = builder.zext(builder.bitcast(pair, ir.VectorType(I8, 16)), _PICKS)
    return builder.shl(numbers, ir.Constant(_PICKS, [_ROW.bit_length() - 1] * 16))


def _add_word(builder, rows, picks, weights, both, high):
    """Add a word's counts for each couple of pixels and pair of blocks: `both` is their sum as bytes, first + 16 *
    second modulo 256, and `high` that of the second.

    A couple's rows serve all pairs of blocks, a pair's weights all couples.
    """
    kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
    shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.pshuf.b.512")
    for group in _GROUPS:
        for c, pick in enumerate(picks):
            tables = [_row(builder, rows, pick, h) for h in group]
            for pair, column in enumerate(weights):
                indices = [builder.load(place_of(builder, column, PAIR * _place(h), _BYTES), align=PAIR) for h in group]
                looked = [builder.call(shuffle, [row, index]) for row, index in zip(tables, indices, strict=True)]
                total = reduce(builder.add, looked)
                builder.store(builder.add(builder.load(both[c][pair]), total), both[c][pair])
                upper = builder.lshr(builder.bitcast(total, _SHORTS), _constant(4))
                upper = builder.bitcast(builder.and_(upper, _constant(0x0F0F)), _BYTES)
                builder.store(builder.add(builder.load(high[c][pair]), upper), high[c][pair])


def _place(half):
    """Return the place of a half-byte's indices: those of a byte are adjacent."""
    return 2 * (half % 8) + half // 8


def _row(builder, rows, pick, half):
    """Load the row of a half-byte, four times over."""
    at = builder.load(builder.gep(pick, [const(half)]))
    row = builder.load(place_of(builder, rows, builder.zext(at, I64), ir.VectorType(I8, _ROW)), align=_ROW)
    order = [*range(_ROW)] * (PAIR // _ROW)
    return builder.shuffle_vector(row, row, ir.Constant(ir.VectorType(I32, len(order)), order))


def _widen(builder, both, high, blocks):
    """Add bytes to the sums of 16 bits: even bytes are channels of the first block, odd ones of the second."""
    again = builder.and_(builder.shl(builder.bitcast(high, _SHORTS), _constant(4)), _constant(0xF0F0))
    low = builder.sub(both, builder.bitcast(again, _BYTES))
    for part, pixel in zip((low, high), blocks, strict=True):
        part = builder.bitcast(part, _SHORTS)
        for more, slot in zip(
            (builder.and_(part, _constant(255)), builder.lshr(part, _constant(8))), pixel, strict=True
        ):
            builder.store(builder.add(builder.load(slot), more), slot)
