"""Find a plane of the largest of some codes, of 64 channels a word and 32 words side by side."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I64, WIDTH, const, place_of, pointer, slot_of

SIDE = 32  # words

_VECTOR = ir.VectorType(I64, WIDTH)


@intrinsic
def keep_largest(typingctx, seen, asked, taps, largest):
    """largest[k] = or of seen[t, k] & asked[t, k] over t < taps: a plane of the codes that may still be the largest.

    Codes whose bit is 0 where the largest has 1 are asked[t, k] no more. uint64[.. 32], C-contiguous.
    """
    signature = types.void(seen, asked, types.int64, largest)

    def codegen(context, builder, signature, args):
        seen, asked, largest = (pointer(context, builder, signature, args, i) for i in (0, 1, 3))

        def places(t, at):
            row = builder.add(builder.mul(t, const(SIDE)), const(at))
            return [place_of(builder, table, row, _VECTOR) for table in (seen, asked)]

        for at in range(0, SIDE, WIDTH):
            ones = slot_of(builder, ir.Constant(_VECTOR, None))
            with cgutils.for_range(builder, args[2]) as tap:
                bits, mask = (builder.load(place, align=8) for place in places(tap.index, at))
                builder.store(builder.or_(builder.load(ones), builder.and_(bits, mask)), ones)
            plane = builder.load(ones)
            builder.store(plane, place_of(builder, largest, at, _VECTOR), align=8)
            with cgutils.for_range(builder, args[2]) as tap:
                where = places(tap.index, at)
                bits, mask = (builder.load(place, align=8) for place in where)
                left = builder.and_(mask, builder.or_(bits, builder.not_(plane)))
                builder.store(left, where[1], align=8)
        return context.get_dummy_value()

    return signature, codegen
