"""Join rows of float32 or int32 values into one, in registers: their sum, or the largest of each place."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import F32, I32, const, place_of, pointer

_LANES = 64, 16, 1  # of vectors: the longest are four chains of compares, which wait for each other else


@intrinsic
def join_rows(typingctx, x, places, count, flip, out, at, channels, add):
    """out[at : at + channels] = the sum from 0 on, in order, of rows of x, or with `add` 0 the largest, or NaN.

    x is flat, float32, or int32, of which there are no sums. Row t < count of x begins at places[t], int64. Bits of
    flip uint32[channels] are turned over before and after: of the sign, or of all of an integer, for the smallest. The
    largest of no rows is -inf, or the least int32.
    """
    signature = types.void(x, places, types.int64, flip, out, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        rows, offsets = (pointer(context, builder, signature, args, i, const(0)) for i in (0, 1))
        flips, to = (pointer(context, builder, signature, args, i, at) for i, at in ((3, const(0)), (4, args[5])))
        channels = args[6]

        def join_all(join, kind, first):
            start = const(0)
            for lanes in _LANES:
                count = builder.sdiv(builder.sub(channels, start), const(lanes))
                with cgutils.for_range(builder, count) as part:
                    begin = builder.add(start, builder.mul(part.index, const(lanes)))
                    vector = ir.VectorType(kind, lanes)
                    first_of = ir.Constant(vector, [first] * lanes)
                    _join(builder, (rows, offsets, args[2]), flips, to, begin, first_of, join)
                start = builder.add(start, builder.mul(count, const(lanes)))

        if x.dtype == types.int32:
            join_all(_larger_integer, I32, -(2**31))
            return context.get_dummy_value()
        with builder.if_else(builder.icmp_signed("!=", args[7], const(0))) as branches:
            for branch, join, first in zip(branches, (_sum, _larger), (0.0, float("-inf")), strict=True):
                with branch:
                    join_all(join, F32, first)
        return context.get_dummy_value()

    return signature, codegen


def _join(builder, rows, flips, to, begin, first, join):
    """Join the elements of all (rows, offsets, count) from `begin` on, as many as the vector `first` has lanes."""
    rows, offsets, count = rows
    kind, best = first.type, cgutils.alloca_once_value(builder, first)
    bits = ir.VectorType(I32, kind.count)
    flip = builder.load(place_of(builder, flips, begin, bits), align=4)

    def turned(value):
        return builder.bitcast(builder.xor(builder.bitcast(value, bits), flip), kind)

    with cgutils.for_range(builder, count) as tap:
        offset = builder.load(builder.gep(offsets, [tap.index]))
        value = builder.load(place_of(builder, rows, builder.add(offset, begin), kind), align=4)
        builder.store(join(builder, builder.load(best), turned(value)), best)
    builder.store(turned(builder.load(best)), place_of(builder, to, begin, kind), align=4)


def _sum(builder, total, value):
    return builder.fadd(total, value)


def _larger_integer(builder, best, value):
    return builder.select(builder.icmp_signed(">", value, best), value, best)


def _larger(builder, best, value):
    """Return the larger of two vectors; a NaN stays once it is there."""
    above, nan = builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value)
    return builder.select(builder.or_(above, nan), value, best)
