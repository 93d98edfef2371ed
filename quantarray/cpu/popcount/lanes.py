"""Arithmetic on tiles of 4 pixels by 32 lanes after counting: shift, compare, add, scale, round.

As loops these took longer than the counting: LLVM checks first that none of their arrays overlap.
"""

from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import F32, F64, I64, LANES, TILE, WIDTH, const, full, place_of, pointer, splat
from ..llvm.views import flat


@intrinsic
def shift_tile(typingctx, dot, extra, along, ones, step, out):
    """out[p, l] = extra[l] + along * ones[p] + step * dot[p, l] for 4 by 32 lanes; out and dot may be the same.

    All arrays are `View`s: dot, out and extra all int32 or all int64, ones int64.
    """
    signature = types.void(dot, extra, types.int64, ones, types.int64, out)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        out = pointer(context, builder, signature, args, 8, args[9])

        def store(p, lane, exact):
            builder.store(exact, place_of(builder, out, p * LANES + lane, exact.type), align=8)

        _each_exact(context, builder, signature, args, store)

    return signature, codegen


@intrinsic
def mask_tile(typingctx, dot, extra, along, ones, step, thresholds, masks):
    """masks[p] bit l = thresholds[l] < extra[l] + along * ones[p] + step * dot[p, l], which is stored nowhere.

    As `shift_tile`, with a view of thresholds of dot's dtype; masks uint64[4].
    """
    signature = types.void(dot, extra, types.int64, ones, types.int64, thresholds, masks)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        limits, parts = pointer(context, builder, signature, args, 8, args[9]), [[] for _ in range(TILE)]
        out = pointer(context, builder, signature, args, 10)

        def compare(p, lane, exact):
            limit = builder.load(place_of(builder, limits, lane, exact.type), align=8)
            width = exact.type.count
            bits = builder.bitcast(builder.icmp_signed(">", exact, limit), ir.IntType(width))
            parts[p].append(builder.shl(builder.zext(bits, I64), const(lane)))
            if lane + width == LANES:
                builder.store(reduce(builder.or_, parts[p]), builder.gep(out, [const(p)]))
                parts[p].clear()

        _each_exact(context, builder, signature, args, compare)

    return signature, codegen


def _each_exact(context, builder, signature, args, then):
    """Call then(p, lane, vector) for each vector of extra[l] + along * ones[p] + step * dot[p, l]."""
    dots, extras = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2))
    ones, kind = pointer(context, builder, signature, args, 5, args[6]), dots.type.pointee
    vector = full(kind)

    along, step = (_as(builder, args[i], kind) for i in (4, 7))
    shifts = [
        splat(
            builder, builder.mul(along, _as(builder, builder.load(builder.gep(ones, [const(p)])), kind)), vector.count
        )
        for p in range(TILE)
    ]

    def each(scale):
        for lane in range(0, LANES, vector.count):
            fixed = builder.load(place_of(builder, extras, lane, vector), align=4)
            for p in range(TILE):
                count = builder.load(place_of(builder, dots, p * LANES + lane, vector), align=4)
                then(p, lane, scale(builder.add(fixed, shifts[p]), count))

    # Steps are plus or minus a power of 2 as a rule, and 64-bit lanes without AVX-512 multiply in eight instructions.
    # A step that leaves nothing in 32 bits is none
    size = builder.select(builder.icmp_signed("<", step, kind(0)), builder.neg(step), step)
    exponent = splat(builder, builder.cttz(size, ir.Constant(ir.IntType(1), 1)), vector.count)
    with builder.if_else(builder.icmp_signed("==", builder.ctpop(size), kind(1))) as (power, other):
        with power, builder.if_else(builder.icmp_signed("==", step, size)) as (plus, minus):
            with plus:
                each(lambda fixed, count: builder.add(fixed, builder.shl(count, exponent)))
            with minus:
                each(lambda fixed, count: builder.sub(fixed, builder.shl(count, exponent)))
        with other:
            factor = splat(builder, step, vector.count)
            each(lambda fixed, count: builder.add(fixed, builder.mul(factor, count)))


def by_step(builder, step, vector):
    """Return value(fixed, counts) = fixed + step * counts for vectors of a type; the step is +-a power of two."""
    # step * c = (c << shift ^ minus) - minus, where minus is -1 or 0
    minus = builder.ashr(step, const(63))
    shift, minus, once = (
        splat(builder, _as(builder, number, vector.element), vector.count)
        for number in (builder.cttz(step, ir.Constant(ir.IntType(1), 1)), minus, builder.neg(minus))
    )
    return lambda fixed, counts: builder.add(builder.add(fixed, once), builder.xor(builder.shl(counts, shift), minus))


def _as(builder, value, kind):
    """Convert an int64 to an integer of 32 or 64 bits."""
    return value if kind == I64 else builder.trunc(value, kind)


@intrinsic
def add_counts(typingctx, counts, shift, total):
    """total[p, l] += counts[p, l] << shift, of 4 pixels and 32 lanes, both int32 or both int64.

    Shifts reach 62, of two grids of 32 planes; one by all bits of a lane or more adds nothing.
    """

    def codegen(context, builder, signature, args):
        counts, total = (pointer(context, builder, signature, args, i) for i in (0, 2))
        vector = full(total.type.pointee)
        fits = builder.icmp_signed("<", args[1], const(vector.element.width))
        shift = splat(builder, _as(builder, args[1], vector.element), vector.count)
        with builder.if_then(fits, likely=True):
            for at in range(0, TILE * LANES, vector.count):
                more = builder.shl(builder.load(place_of(builder, counts, at, vector), align=4), shift)
                place = place_of(builder, total, at, vector)
                builder.store(builder.add(builder.load(place, align=4), more), place, align=4)

    return types.void(counts, types.int64, total), codegen


def _pixel_shift(builder, ones, p, along):
    """Fill a vector with along * ones[p]."""
    return splat(builder, builder.mul(along, builder.load(builder.gep(ones, [ir.Constant(I64, p)]))), WIDTH)


class Exact(NamedTuple):
    """exact[p, l] = base * sums[sums_at + l] + along * ones[ones_at + p] + step * dot[p, l]

    is the exact integer product of two terms, int64. sums may be None, which means ones; if ones or dot is None, its
    part is left out.
    """

    base: int
    sums: Any
    sums_at: int
    along: int
    ones: Any
    ones_at: int
    step: int
    dot: Any


@intrinsic
def add_tile(typingctx, value, scales, w_scale, exact):
    """value[p, l] += (scales[p] * w_scale[l]) * exact[p, l], for 4 pixels and 32 lanes of an `Exact`.

    All but `exact` is float64, w_scale a `View`. Multiplied and added one by one: no fused multiply-add, so that every
    backend agrees.
    """
    signature = types.void(value, scales, w_scale, exact)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        whole, real = ir.VectorType(I64, WIDTH), ir.VectorType(F64, WIDTH)
        values, scales = (pointer(context, builder, signature, args, i) for i in (0, 1))
        weights = pointer(context, builder, signature, args, 2, args[3])
        base, step = (splat(builder, args[i], WIDTH) for i in (4, 10))
        absent = [signature.args[i] == types.none for i in (5, 8, 11)]
        no_sums, no_ones, no_dot = absent
        sums = None if no_sums else pointer(context, builder, signature, args, 5, args[6])
        dots = None if no_dot else pointer(context, builder, signature, args, 11)
        if not no_ones:
            ones = pointer(context, builder, signature, args, 8, args[9])
            shifts = [_pixel_shift(builder, ones, p, args[7]) for p in range(TILE)]
        pixel = [splat(builder, builder.load(builder.gep(scales, [ir.Constant(I64, p)])), WIDTH) for p in range(TILE)]
        for lane in range(0, LANES, WIDTH):
            weight = builder.load(place_of(builder, weights, lane, real), align=8)
            fixed = base
            if not no_sums:
                fixed = builder.mul(base, builder.load(place_of(builder, sums, lane, whole), align=8))
            for p in range(TILE):
                exact = fixed if no_ones else builder.add(fixed, shifts[p])
                if not no_dot:
                    count = builder.load(place_of(builder, dots, p * LANES + lane, whole), align=8)
                    exact = builder.add(exact, builder.mul(step, count))
                product = builder.fmul(builder.fmul(pixel[p], weight), builder.sitofp(exact, real))
                place = place_of(builder, values, p * LANES + lane, real)
                builder.store(builder.fadd(builder.load(place, align=8), product), place, align=8)

    return signature, codegen


@intrinsic
def clear_tile(typingctx, value):
    """value[p, l] = 0.0; as a loop it takes as long as three `add_tile`s."""

    def codegen(context, builder, signature, args):
        real = ir.VectorType(F64, WIDTH)
        values = pointer(context, builder, signature, args, 0)
        for at in range(0, TILE * LANES, WIDTH):
            builder.store(ir.Constant(real, None), place_of(builder, values, at, real), align=8)

    return types.void(value), codegen


@intrinsic
def round_tile(typingctx, value, pad, pad_at, bias, bias_at):
    """value[p, l] = float32((value[p, l] + pad[pad_at + l]) + bias[bias_at + l]), kept as float64."""
    signature = types.void(value, pad, types.int64, bias, types.int64)

    def codegen(context, builder, signature, args):
        real, single = ir.VectorType(F64, WIDTH), ir.VectorType(F32, WIDTH)
        values = pointer(context, builder, signature, args, 0)
        pads, biases = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 3))
        for lane in range(0, LANES, WIDTH):
            pad, bias = (builder.load(place_of(builder, side, lane, real), align=8) for side in (pads, biases))
            for p in range(TILE):
                place = place_of(builder, values, p * LANES + lane, real)
                total = builder.fadd(builder.fadd(builder.load(place, align=8), pad), bias)
                builder.store(builder.fpext(builder.fptrunc(total, single), real), place, align=8)

    return signature, codegen
