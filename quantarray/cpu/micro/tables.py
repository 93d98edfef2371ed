"""Counting by tables in memory, for CPUs without AVX-512: the method of four Russians, for a band of pixels.

For 4 bits of the contraction and 64 output channels a table has a row for each of the 16 values that these bits of a
pixel can take: the counts of that value with the weights of each channel. A pixel's counts are then a sum of rows, a
load and an addition for 256 products. Counts of 4 bits take half a byte, so that a row is 32 bytes; three rows are
added as they are, and then moved to bytes.

The tables of WORDS words take 24 KiB, which stay in L1 while all pixels of a band meet them.
"""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I8, I16, I64, LANES, TILE, const, full, lanes_of, place_of, pointer

WORDS = 3  # words whose counts, 64 at most each, fit into a byte
PAIR = 2 * LANES  # output channels of a row: two blocks
_HALVES, _VALUES, _ROW = 16, 16, PAIR // 2  # half-bytes of a word, rows of each, bytes of a row
TABLES = _HALVES * _VALUES * _ROW  # bytes of a word's tables
_GROUPS = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11), (12, 13), (14, 15))  # half-bytes whose counts fit into one
_BYTES, _SHORTS = ir.VectorType(I8, _ROW), ir.VectorType(I16, _ROW // 2)
_SIXTEEN = ir.VectorType(I8, 16)


def _pattern(byte):
    return ir.Constant(_SHORTS, [byte * 0x101] * (_ROW // 2))


def _join(builder, low, high):
    order = ir.Constant(ir.VectorType(ir.IntType(32), _ROW), list(range(_ROW)))
    return builder.bitcast(builder.shuffle_vector(low, high, order), _SHORTS)


def _shifted(builder, vector, bits, byte):
    """Each byte shifted right, or left where `bits` is negative, and masked: shifts of bytes there are none."""
    if bits:
        shift = builder.lshr if bits > 0 else builder.shl
        vector = shift(vector, ir.Constant(_SHORTS, [abs(bits)] * (_ROW // 2)))
    return builder.and_(vector, _pattern(byte))


@intrinsic
def fill_tables(typingctx, weights, first, second, words, differ, tables):
    """The tables of `words` words of two blocks, the words from weights[first] and from weights[second] on.

    The words are laid out by the `lay_out` of `count_bytes`. Counts are of |a & b|, or of |a ^ b| where `differ` is -1
    and not 0. tables uint8[WORDS * TABLES]: byte i of a row has the counts of channels i % 16 and 16 + i % 16 of block i // 16 in
    its low and its high half.
    """
    i64 = types.int64
    signature = types.void(weights, i64, i64, i64, i64, tables)

    def codegen(context, builder, signature, args):
        blocks = [
            builder.bitcast(pointer(context, builder, signature, args, 0, args[i]), I8.as_pointer()) for i in (1, 2)
        ]
        same = builder.icmp_signed("==", args[4], const(0))
        tables = pointer(context, builder, signature, args, 5)
        with cgutils.for_range(builder, builder.mul(args[3], const(8))) as byte:  # two half-bytes of all channels
            at = builder.mul(byte.index, const(LANES))
            low, high = (
                _join(
                    builder,
                    *(
                        builder.load(place_of(builder, block, builder.add(at, const(i)), _SIXTEEN), align=8)
                        for block in blocks
                    ),
                )
                for i in (0, 16)
            )
            four = (
                builder.or_(_shifted(builder, low, 0, 0x0F), _shifted(builder, high, -4, 0xF0)),
                builder.or_(_shifted(builder, low, 4, 0x0F), _shifted(builder, high, 0, 0xF0)),
            )
            for i, weight in enumerate(four):
                start = builder.add(builder.mul(byte.index, const(2 * _VALUES * _ROW)), const(i * _VALUES * _ROW))
                with builder.if_else(same) as (both, either):
                    for branch, bits_of in ((both, _both), (either, _either)):
                        with branch:
                            _fill(builder, bits_of, weight, builder.gep(tables, [start]))

    return signature, codegen


def _fill(builder, bits_of, weight, table):
    """The 16 rows of a half-byte: row v is row v & (v - 1) and what a one for a zero in its lowest bit changes."""
    nothing, change = bits_of(builder, weight)
    rows = [nothing]
    for v in range(_VALUES):
        if v:
            rows.append(builder.add(rows[v & (v - 1)], change[(v & -v).bit_length() - 1]))
        builder.store(builder.bitcast(rows[v], _BYTES), place_of(builder, table, v * _ROW, _BYTES), align=_ROW)


def _both(builder, weight):
    """|v & w| for v = 0, and what each bit of v adds: that of w."""
    return ir.Constant(_SHORTS, None), [_shifted(builder, weight, bit, 0x11) for bit in range(4)]


def _either(builder, weight):
    """|v ^ w| for v = 0, and what each bit of v adds: 1 - 2 * that of w."""
    twice = [_shifted(builder, weight, bit - 1, 0x22) for bit in range(4)]
    ones = builder.lshr(reduce(builder.add, twice), ir.Constant(_SHORTS, [1] * (_ROW // 2)))
    return ones, [builder.sub(_pattern(0x11), bit) for bit in twice]


@intrinsic
def add_rows(typingctx, words, origin, steps, count, tables, sums, at):
    """sums[at + l] += the counts of a pixel's words, for two blocks.

    Words words[origin + steps[i, 0]] meet the tables from byte steps[i, 1] on, i < count <= WORDS. sums is uint16.
    """
    i64 = types.int64
    signature = types.void(words, i64, steps, i64, tables, sums, i64)

    def codegen(context, builder, signature, args):
        words = pointer(context, builder, signature, args, 0, args[1])
        steps, tables = (pointer(context, builder, signature, args, i) for i in (2, 4))
        sums = pointer(context, builder, signature, args, 5, args[6])
        zero = ir.Constant(_SHORTS, None)
        both, upper = (cgutils.alloca_once_value(builder, zero) for _ in range(2))
        for slot in (both, upper):
            builder.store(zero, slot)
        with cgutils.for_range(builder, args[3]) as step:
            at, table = (
                builder.load(builder.gep(steps, [builder.add(builder.mul(step.index, const(2)), const(i))]))
                for i in (0, 1)
            )
            word, table = builder.load(builder.gep(words, [at])), builder.gep(tables, [table])
            _add_word(builder, word, table, both, upper)
        high = builder.load(upper)
        low = builder.sub(
            builder.bitcast(builder.load(both), _BYTES),
            builder.bitcast(_shifted(builder, high, -4, 0xF0), _BYTES),
        )
        _widen(builder, low, builder.bitcast(high, _BYTES), sums)

    return signature, codegen


def _add_word(builder, word, table, both, upper):
    """Add a word's rows: `both` sums rows as bytes, low + 16 * high modulo 256, and `upper` the high halves."""
    for group in _GROUPS:
        total = None
        for half in group:
            shift, top = 4 * half - 5, const(15 << 5)
            at = builder.shl(word, const(-shift)) if shift < 0 else builder.lshr(word, const(shift))
            place = builder.gep(table, [builder.add(builder.and_(at, top), const(half * _VALUES * _ROW))])
            row = builder.load(builder.bitcast(place, _BYTES.as_pointer()), align=_ROW)
            total = row if total is None else builder.add(total, row)
        builder.store(_add_bytes(builder, builder.load(both), total), both)
        high = _shifted(builder, builder.bitcast(total, _SHORTS), 4, 0x0F)
        builder.store(_add_bytes(builder, builder.load(upper), high), upper)


def _add_bytes(builder, a, b):
    return builder.bitcast(builder.add(builder.bitcast(a, _BYTES), builder.bitcast(b, _BYTES)), _SHORTS)


def _widen(builder, low, high, sums):
    wide = ir.VectorType(I16, 16)
    for block in range(2):
        for i, half in enumerate((low, high)):
            place = place_of(builder, sums, block * LANES + i * 16, wide)
            part = builder.zext(lanes_of(builder, half, block * 16, 16), wide)
            builder.store(builder.add(builder.load(place, align=16), part), place, align=16)


@intrinsic
def read_tile(typingctx, sums, at, counts):
    """counts[p, l] = sums[at + 64 * p + l]: one block of 4 neighbouring pixels, as int32 or int64."""
    signature = types.void(sums, types.int64, counts)

    def codegen(context, builder, signature, args):
        sums = pointer(context, builder, signature, args, 0, args[1])
        counts = pointer(context, builder, signature, args, 2)
        vector = full(counts.type.pointee)
        narrow = ir.VectorType(I16, vector.count)
        for at in range(0, TILE * LANES, vector.count):
            p, lane = divmod(at, LANES)
            found = builder.load(place_of(builder, sums, p * PAIR + lane, narrow), align=16)
            builder.store(builder.zext(found, vector), place_of(builder, counts, at, vector), align=4)

    return signature, codegen
