"""Store sums of neighbouring pixels of one border class as codes, by 32 channels."""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import LANES, const, full, place_of, pointer, splat
from ..llvm.views import flat
from .ranks import BLENDED, bisect, limits_of, shape_of

_TOGETHER = 2  # planes up to which the thresholds of all 32 lanes stay in registers


@intrinsic
def put_strip(typingctx, dots, pixels, extra, limits, step, channel, words):
    """Set bit channel + l of plane j of words[p] to bit l of used & (flips ^ m), for p < pixels and l < 32.

    Bit l of m is bit j of the number of thresholds[t, l] below

        extra[l] + step * dots[32 * p + l]

    There are 2^planes - 1 thresholds of ascending order for at most BLENDED planes. Sums are int32; channel is a
    multiple of 32. dots and extra are `View`s, limits a `Limits`, words `Rows` of an array[planes rows words].
    """
    i64 = types.int64
    signature = types.void(dots, i64, extra, limits, i64, i64, words)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        dots, extras, limits, words = (
            pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 3, 5, 11)
        )
        count, lanes = shape_of(context, builder, signature, args, 5)
        _, rows, row_words = shape_of(context, builder, signature, args, 11)
        pixels, flips, used, step, channel, apart = (args[i] for i in (2, 7, 8, 9, 10, 13))
        vector, plane = full(dots.type.pointee), builder.mul(rows, row_words)

        def load(data, lane):
            return builder.load(place_of(builder, data, lane, vector), align=4)

        def joined(masks, bits):
            """Join the masks of neighbouring vectors into a number."""
            parts = [builder.bitcast(mask, ir.IntType(vector.count)) for mask in masks]
            parts = [builder.shl(builder.zext(p, bits), bits(i * vector.count)) for i, p in enumerate(parts)]
            return reduce(builder.or_, parts)

        def put_lanes(scale, number, firsts):
            """Store some vectors of lanes for all pixels: constants of the class stay in registers."""
            bits = ir.IntType(vector.count * len(firsts))
            fixed = [load(extras, first) for first in firsts]
            least = [limits_of(builder, builder.gep(limits, [const(first)]), lanes, number, vector) for first in firsts]
            flip, use = (builder.trunc(builder.lshr(mask, const(firsts[0])), bits) for mask in (flips, used))
            nth = builder.udiv(builder.add(channel, const(firsts[0])), const(bits.width))
            with cgutils.for_range(builder, pixels) as pixel:
                row = builder.gep(dots, [builder.mul(pixel.index, const(LANES))])
                sums = [builder.add(one, scale(load(row, first))) for one, first in zip(fixed, firsts, strict=True)]
                masks = [bisect(builder, *pair, ir.IRBuilder.icmp_signed) for pair in zip(sums, least, strict=True)]
                for j, parts in enumerate(zip(*masks, strict=True), 1):
                    word = builder.add(builder.mul(pixel.index, apart), builder.mul(plane, const(number - j)))
                    word = builder.bitcast(builder.gep(words, [word]), bits.as_pointer())
                    mask = builder.and_(builder.xor(joined(parts, bits), flip), use)
                    builder.store(mask, builder.gep(word, [nth]))

        def put(scale):
            firsts = range(0, LANES, vector.count)
            for number in range(1, BLENDED + 1):
                with builder.if_then(builder.icmp_signed("==", count, const(2**number - 1))):
                    for some in [firsts] if number <= _TOGETHER else [[first] for first in firsts]:
                        put_lanes(scale, number, some)

        factor = builder.trunc(step, vector.element)
        exponent = splat(builder, builder.cttz(factor, ir.Constant(ir.IntType(1), 1)), vector.count)
        with builder.if_else(builder.icmp_signed("==", builder.ctpop(factor), vector.element(1))) as (power, rest):
            with power:
                put(lambda sums: builder.shl(sums, exponent))
            with rest:
                times = splat(builder, factor, vector.count)
                put(lambda sums: builder.mul(sums, times))

    return signature, codegen
