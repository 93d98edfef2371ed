"""Write words that are combined from shifted ones, a vector at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I64, WIDTH, const, full, place_of, pointer, slot_of, splat


@intrinsic
def put_shifted(typingctx, words, at, parts, first, last, out, to, count):
    """out[to + j] = or over all parts of words[at + offset + j] << left >> right, for j < count.

    Parts first .. last of int64 parts[n 4] are (offset, left, right, ..). Words are uint64, C-contiguous, indexed flat,
    and not the same array. From 8 words on, the last are stored by a vector that may overlap the one before.
    """
    i64 = types.int64
    signature = types.void(words, i64, parts, i64, i64, out, i64, i64)

    def codegen(context, builder, signature, args):
        words, out = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 5))
        parts = pointer(context, builder, signature, args, 2)
        first, last, count = args[3], args[4], args[7]

        def put(index, vector):
            total = slot_of(builder, ir.Constant(vector, None))
            with cgutils.for_range(builder, builder.sub(last, first)) as part:
                row = builder.mul(builder.add(first, part.index), const(4))
                offset, left, right = (builder.load(builder.gep(parts, [builder.add(row, const(i))])) for i in range(3))
                word = builder.load(place_of(builder, words, builder.add(offset, index), vector), align=8)
                moved = builder.shl(word, splat(builder, left, vector.count))
                moved = builder.lshr(moved, splat(builder, right, vector.count))
                builder.store(builder.or_(builder.load(total), moved), total)
            builder.store(builder.load(total), place_of(builder, out, index, vector), align=8)

        with builder.if_else(builder.icmp_signed(">=", count, const(WIDTH))) as (many, rest):
            with many:
                with cgutils.for_range(builder, builder.udiv(count, const(WIDTH))) as vector:
                    put(builder.mul(vector.index, const(WIDTH)), full(I64))
                with builder.if_then(builder.icmp_signed("!=", builder.urem(count, const(WIDTH)), const(0))):
                    put(builder.sub(count, const(WIDTH)), full(I64))
            with rest, cgutils.for_range(builder, count) as word:
                put(word.index, ir.VectorType(I64, 1))
        return context.get_dummy_value()

    return signature, codegen
