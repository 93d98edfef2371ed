"""Join rows of float32 values into one, in registers: their sum, or the largest of each place."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import F32, const, place_of, pointer

_LANES = 64, 16, 1  # of vectors: the longest are four chains of compares, which wait for each other else


@intrinsic
def join_rows(typingctx, x, places, count, out, at, channels, add):
    """out[at : at + channels] = the sum from 0 on, in order, of rows of x, or with `add` 0 the largest, or NaN.

    Row t < count of x, flat, begins at places[t], int64. The largest of no rows is -inf.
    """
    signature = types.void(x, places, types.int64, out, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        rows, offsets = (pointer(context, builder, signature, args, i, const(0)) for i in (0, 1))
        to, channels = pointer(context, builder, signature, args, 3, args[4]), args[5]
        with builder.if_else(builder.icmp_signed("!=", args[6], const(0))) as branches:
            for branch, join, first in zip(branches, (_sum, _larger), (0.0, float("-inf")), strict=True):
                with branch:
                    start = const(0)
                    for lanes in _LANES:
                        count = builder.sdiv(builder.sub(channels, start), const(lanes))
                        with cgutils.for_range(builder, count) as part:
                            begin = builder.add(start, builder.mul(part.index, const(lanes)))
                            _join(builder, rows, offsets, args[2], to, begin, lanes, join, first)
                        start = builder.add(start, builder.mul(count, const(lanes)))
        return context.get_dummy_value()

    return signature, codegen


def _join(builder, rows, offsets, count, to, begin, lanes, join, first):
    """Join the elements of all rows from `begin` on, as many as a vector has lanes."""
    kind = ir.VectorType(F32, lanes)
    best = cgutils.alloca_once_value(builder, ir.Constant(kind, [first] * lanes))
    with cgutils.for_range(builder, count) as tap:
        offset = builder.load(builder.gep(offsets, [tap.index]))
        value = builder.load(place_of(builder, rows, builder.add(offset, begin), kind), align=4)
        builder.store(join(builder, builder.load(best), value), best)
    builder.store(builder.load(best), place_of(builder, to, begin, kind), align=4)


def _sum(builder, total, value):
    return builder.fadd(total, value)


def _larger(builder, best, value):
    """Return the larger of two vectors; a NaN stays once it is there."""
    above, nan = builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value)
    return builder.select(builder.or_(above, nan), value, best)
