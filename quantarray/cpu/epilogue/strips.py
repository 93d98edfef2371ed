"""Store sums of neighbouring pixels of one border class as codes, by 32 channels."""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, F64, I8, I32, LANES, const, full, joined, place_of, pointer, splat
from ..llvm.views import flat
from .ranks import BLENDED, bisect, corrected, limits_of, shape_of

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


@intrinsic
def put_strip_by_lines(typingctx, dots, pixels, extra, limits, lines, step, channel, words):
    """Store codes as `put_strip` does, of 5 to 8 planes, whose thresholds have lines of five rows (`rank_lines.py`).

    Sums are dots[p * apart + l] of `Rows`. Such lines are right in float32, too, in which they are a few 2**-8 of a
    rank off: the ranks that they give are right up to 1 / 16 of one.
    """
    i64 = types.int64
    signature = types.void(dots, i64, extra, limits, lines, i64, i64, words)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        dots, extras, limits, lines, words = (
            pointer(context, builder, signature, args, i, args[j])
            for i, j in ((0, 1), (4, 5), (6, 7), (10, 7), (13, 14))
        )
        apart = shape_of(context, builder, signature, args, 6)[1]
        planes, rows, row_words = shape_of(context, builder, signature, args, 13)
        next_row, pixels, flips, used, step, channel, next_pixel = (args[i] for i in (2, 3, 8, 9, 11, 12, 15))
        sums, floats = full(dots.type.pointee), ir.VectorType(F32, full(dots.type.pointee).count)
        firsts = range(0, LANES, sums.count)
        bits = ir.IntType(LANES)
        flips, used = builder.trunc(flips, bits), builder.trunc(used, bits)
        plane, nth = builder.mul(rows, row_words), builder.udiv(channel, const(LANES))
        times = splat(builder, builder.trunc(step, sums.element), sums.count)

        def load(data, lane):
            return builder.load(place_of(builder, data, lane, sums), align=4)

        def numbers(k, lane):
            row = builder.gep(lines, [builder.mul(apart, const(k))])
            wide = builder.load(place_of(builder, row, lane, ir.VectorType(F64, sums.count)), align=8)
            return builder.fptrunc(wide, floats)

        fixed = [load(extras, first) for first in firsts]
        constants = [[numbers(k, first) for k in range(4)] for first in firsts]
        columns = [builder.gep(limits, [const(first)]) for first in firsts]

        def rank(value, column, line):
            slope, shift, least, most = line
            near = builder.fadd(builder.fmul(builder.sitofp(value, floats), slope), shift)
            near = builder.select(builder.fcmp_ordered("<", near, least), least, near)
            near = builder.select(builder.fcmp_ordered(">", near, most), most, near)
            whole = builder.fptosi(near, ir.VectorType(I32, sums.count))
            return corrected(builder, whole, value, column, apart, ir.IRBuilder.icmp_signed)

        def put(number):
            with cgutils.for_range(builder, pixels) as pixel:
                row = builder.gep(dots, [builder.mul(pixel.index, next_row)])
                values = [
                    builder.add(one, builder.mul(load(row, at), times)) for one, at in zip(fixed, firsts, strict=True)
                ]
                ranks = [rank(*of) for of in zip(values, columns, constants, strict=True)]
                codes = builder.trunc(joined(builder, ranks), ir.VectorType(I8, LANES))
                word = builder.gep(words, [builder.mul(pixel.index, next_pixel)])
                for j in range(number):
                    bit = builder.and_(codes, splat(builder, I8(1 << j), LANES))
                    mask = builder.bitcast(builder.icmp_unsigned("!=", bit, bit.type(None)), bits)
                    place = builder.gep(word, [builder.mul(plane, const(j))])
                    place = builder.gep(builder.bitcast(place, bits.as_pointer()), [nth])
                    builder.store(builder.and_(builder.xor(mask, flips), used), place)

        for number in range(BLENDED + 1, 9):
            with builder.if_then(builder.icmp_signed("==", planes, const(number))):
                put(number)

    return signature, codegen
