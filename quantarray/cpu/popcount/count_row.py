"""Counting for one pixel, as a row of a matrix is: eight vectors of bits are added up before any bit is counted.

A full adder takes three vectors to their sum and their carry, bit by bit. Seven of them take the 8 bytes of a word of
32 channels, with what is left of the words before, to one vector of eights, which is all that has its bits counted
(Harley and Seal). With four pixels the registers for what is left would not be there.
"""

from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import I8, LANES, TILE, const, each_run, place_of, slot_of, splat

_ROW = ir.VectorType(I8, LANES)
_PIECE = 31  # words whose eights, 8 at most each, fit into a byte


def count(builder, adder, differ, windows, weights, counts):
    """Write the LLVM code of `count_tile` for a tile of a single pixel, whose operands are plain pointers."""
    ones, twos, fours, eights = left = [slot_of(builder, ir.Constant(_ROW, None)) for _ in range(4)]
    total = slot_of(builder, ir.Constant(ir.VectorType(counts.type.pointee, LANES), None))
    room = slot_of(builder, const(_PIECE))  # words that the bytes of `eights` have room for
    with builder.if_else(builder.icmp_signed("!=", differ, const(0))) as branches:
        for branch, combine in zip(branches, (builder.xor, builder.and_), strict=True):
            with branch, each_run(builder, windows) as (pixels, weight, length):
                pixel = builder.bitcast(pixels[0], I8.as_pointer())
                column = builder.bitcast(builder.gep(weights, [builder.mul(weight, const(LANES))]), I8.as_pointer())
                pieces = builder.sdiv(builder.add(length, const(_PIECE - 1)), const(_PIECE))
                with cgutils.for_range(builder, pieces) as piece:
                    start = builder.mul(piece.index, const(_PIECE))
                    size = _less(builder, builder.sub(length, start), const(_PIECE))
                    with builder.if_then(builder.icmp_signed("<", builder.load(room), size), likely=False):
                        _add(builder, builder.load(eights), 3, total)
                        builder.store(ir.Constant(_ROW, None), eights)
                        builder.store(const(_PIECE), room)
                    builder.store(builder.sub(builder.load(room), size), room)
                    with cgutils.for_range(builder, size) as step:
                        k = builder.mul(builder.add(start, step.index), const(8))
                        _add_word(builder, adder, combine, pixel, column, k, left)
    _add(builder, builder.load(eights), 3, total)
    for shift, rest in enumerate((ones, twos, fours)):
        _add(builder, _bits(builder, builder.load(rest)), shift, total)
    sums = builder.load(total)
    for p in range(TILE):
        builder.store(sums, place_of(builder, counts, p * LANES, sums.type), align=4)


def _less(builder, a, b):
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _add_word(builder, adder, combine, pixel, column, k, left):
    """Add common or differing bits of 8 bytes of a pixel, from byte `k` on, and of 32 channels."""
    slots = dict(zip((1, 2, 4), left, strict=False))
    waiting = {1: [], 2: [], 4: []}

    def take(worth, bits):
        """Take a vector of bits that are worth 1, 2 or 4 each: two of them and the slot's are added at once."""
        if worth == 8:
            builder.store(builder.add(builder.load(left[3]), _bits(builder, bits)), left[3])
            return
        waiting[worth].append(bits)
        if len(waiting[worth]) == 2:
            rest, carry = adder(builder, builder.load(slots[worth]), *waiting[worth])
            builder.store(rest, slots[worth])
            waiting[worth].clear()
            take(2 * worth, carry)

    for byte in range(8):
        at = builder.add(k, const(byte))
        weights = builder.load(place_of(builder, column, builder.mul(at, const(LANES)), _ROW), align=8)
        take(1, combine(splat(builder, builder.load(builder.gep(pixel, [at])), LANES), weights))


def _bits(builder, vector):
    """Count the ones of each byte."""
    ctpop = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_ROW, [_ROW]), f"llvm.ctpop.v{LANES}i8")
    return builder.call(ctpop, [vector])


def _add(builder, numbers, shift, total):
    """total += numbers << shift, where numbers are bytes."""
    wide = builder.zext(numbers, total.type.pointee)
    wide = builder.shl(wide, splat(builder, total.type.pointee.element(shift), LANES))
    builder.store(builder.add(builder.load(total), wide), total)
