"""Count by tables in memory, for a band of pixels at once: the method of four Russians.

For 4 bits of the contraction and 64 output channels there are 16 rows, one for each value that these bits of a pixel
can have: its counts with the weights of each channel. A pixel's counts are a sum of rows, one load and addition for 256
products of bits. A count of 4 bits takes half a byte, so that a row has 32 bytes; three rows are added as they are, and
then moved to bytes.
"""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I16, I32, LANES, PAIR, const, lanes_of, place_of, pointer

WORDS = 3  # words whose counts, 64 at most each, fit into a byte; their tables take 24 KiB, and so stay in L1
_HALVES, _VALUES, _ROW = 16, 16, PAIR // 2  # half-bytes of a word, rows of each, bytes of a row: of two blocks
_HALF = _VALUES * _ROW  # bytes of the rows of a half-byte
TABLES = _HALVES * _HALF  # bytes of the rows of a word
_GROUPS = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11), (12, 13), (14, 15))  # half-bytes whose sum fits into one
_BYTES, _SHORTS, _BLOCK = ir.VectorType(I8, _ROW), ir.VectorType(I16, _ROW // 2), ir.VectorType(I8, _ROW // 2)


def _constant(short):
    return ir.Constant(_SHORTS, [short] * (_ROW // 2))


def _shifted(builder, vector, bits, byte):
    """Shift each byte right, or left where `bits` is negative, and mask it. There are no shifts of single bytes."""
    shift = builder.lshr if bits > 0 else builder.shl
    moved = shift(vector, _constant(abs(bits))) if bits else vector
    return builder.and_(moved, _constant(byte * 0x101))


@intrinsic
def fill_tables(typingctx, weights, first, second, words, differ, tables):
    """Fill the tables of `words` words of two blocks, those from weights[first] and from weights[second] on.

    The words are laid out by the `lay_out` of `count_bytes`. Counts are of |a & b|, or of |a ^ b| where `differ` is -1
    and not 0. uint8 tables[word, half-byte, value, 32], aligned to 32 bytes: byte i of a row has the counts of channels
    i % 16 and 16 + i % 16 of block i // 16 in its low and its high half.
    """
    i64 = types.int64
    signature = types.void(weights, i64, i64, i64, i64, tables)

    def codegen(context, builder, signature, args):
        blocks = [
            builder.bitcast(pointer(context, builder, signature, args, 0, args[i]), I8.as_pointer()) for i in (1, 2)
        ]
        tables = pointer(context, builder, signature, args, 5)
        # Chosen outside the loop: one loop for both & and ^ took 1.4 times as long
        with builder.if_else(builder.icmp_signed("==", args[4], const(0))) as branches:
            for branch, change in zip(branches, (_both, _either), strict=True):
                with branch, cgutils.for_range(builder, builder.mul(args[3], const(8))) as byte:
                    at = builder.gep(tables, [builder.mul(byte.index, const(2 * _HALF))])
                    for i, four in enumerate(_halves(builder, blocks, builder.mul(byte.index, const(LANES)))):
                        _fill(builder, *change(builder, four), builder.gep(at, [const(i * _HALF)]))

    return signature, codegen


def _halves(builder, blocks, at):
    """Yield the low and the high halves of a byte of all channels of two blocks, as halves of the bytes of a row."""
    low, high = (_join(builder, [builder.gep(block, [at]) for block in blocks], i) for i in (0, _ROW // 2))
    yield builder.or_(_shifted(builder, low, 0, 0x0F), _shifted(builder, high, -4, 0xF0))
    yield builder.or_(_shifted(builder, low, 4, 0x0F), _shifted(builder, high, 0, 0xF0))


def _join(builder, blocks, at):
    parts = [builder.load(place_of(builder, block, at, _BLOCK), align=8) for block in blocks]
    order = ir.Constant(ir.VectorType(I32, _ROW), list(range(_ROW)))
    return builder.bitcast(builder.shuffle_vector(*parts, order), _SHORTS)


def _both(builder, four):
    """Return |v & w| for v = 0, and what each bit of v adds: that of w."""
    return _constant(0), [_shifted(builder, four, bit, 0x11) for bit in range(4)]


def _either(builder, four):
    """Return |v ^ w| for v = 0, and what each bit of v adds: 1 - 2 * that of w."""
    twice = [_shifted(builder, four, bit - 1, 0x22) for bit in range(4)]
    ones = builder.lshr(reduce(builder.add, twice), _constant(1))
    return ones, [builder.sub(_constant(0x1111), bit) for bit in twice]


def _fill(builder, nothing, change, table):
    """Store the 16 rows of a half-byte: row v is row v & (v - 1) and what its lowest bit changes."""
    rows = [nothing]
    for v in range(1, _VALUES):
        rows.append(builder.add(rows[v & (v - 1)], change[(v & -v).bit_length() - 1]))
    for v, row in enumerate(rows):
        builder.store(row, place_of(builder, table, v * _ROW, _SHORTS), align=_ROW)


@intrinsic
def add_rows(typingctx, words, origin, steps, count, tables, sums, at):
    """sums[at + l] += the counts of a pixel's words with channel l of two blocks.

    Words words[origin + steps[i, 0]] meet the tables from byte steps[i, 1] on, i < count <= WORDS. sums is uint16,
    aligned to 32 bytes.
    """
    i64 = types.int64
    signature = types.void(words, i64, steps, i64, tables, sums, i64)

    def codegen(context, builder, signature, args):
        words, sums = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 5))
        steps, tables = (pointer(context, builder, signature, args, i) for i in (2, 4))
        both, high = (cgutils.alloca_once(builder, _BYTES) for _ in range(2))
        for slot in (both, high):
            builder.store(ir.Constant(_BYTES, None), slot)
        with cgutils.for_range(builder, args[3]) as step:
            row = builder.mul(step.index, const(2))
            word, table = (builder.load(builder.gep(steps, [builder.add(row, const(i))])) for i in (0, 1))
            word, table = builder.load(builder.gep(words, [word])), builder.gep(tables, [table])
            _add_word(builder, word, table, both, high)
        both, high = builder.load(both), builder.load(high)
        again = builder.bitcast(_shifted(builder, builder.bitcast(high, _SHORTS), -4, 0xF0), _BYTES)
        _widen(builder, builder.sub(both, again), high, sums)

    return signature, codegen


def _add_word(builder, word, table, both, high):
    """Add a word's rows: `both` is their sum as bytes, low + 16 * high modulo 256, and `high` that of high halves.

    Half-bytes are taken out of the word by shifts: laid out as bytes in memory, where each is one load, they took
    longer, because two loads a clock are the limit on some CPUs.
    """
    for group in _GROUPS:
        total = reduce(builder.add, [_row(builder, word, table, half) for half in group])
        builder.store(builder.add(builder.load(both), total), both)
        upper = builder.bitcast(_shifted(builder, builder.bitcast(total, _SHORTS), 4, 0x0F), _BYTES)
        builder.store(builder.add(builder.load(high), upper), high)


def _row(builder, word, table, half):
    """Load the row that a half-byte of a word picks."""
    shift = 4 * half - _ROW.bit_length() + 1  # its value times the bytes of a row
    moved = builder.lshr(word, const(shift)) if shift > 0 else builder.shl(word, const(-shift))
    at = builder.add(builder.and_(moved, const((_VALUES - 1) * _ROW)), const(half * _HALF))
    return builder.load(place_of(builder, table, at, _BYTES), align=_ROW)


def _widen(builder, low, high, sums):
    """Add low and high halves to the sums of their channels."""
    for block in range(2):
        for i, half in enumerate((low, high)):
            place = place_of(builder, sums, block * LANES + i * (LANES // 2), _SHORTS)
            part = builder.zext(lanes_of(builder, half, block * (LANES // 2), LANES // 2), _SHORTS)
            builder.store(builder.add(builder.load(place, align=_ROW), part), place, align=_ROW)
