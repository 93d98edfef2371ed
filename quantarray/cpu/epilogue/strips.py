"""Store sums of neighbouring pixels of one border class as codes, by 32 channels."""

from functools import reduce

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.narrowing import saturated_bytes
from ..llvm.vectors import F32, I8, I32, I64, LANES, const, full, joined, own_function, place_of, pointer, splat
from ..llvm.views import flat
from ..runtime.isa import FEATURES
from ..runtime.jit import inline, inner
from .ranks import BLENDED, NEAR, are_bytes, bisect, clear_rest, corrected, limits_of, shape_of

_TOGETHER = 2  # planes up to which the thresholds of all 32 lanes stay in registers
LEAST = 3  # planes of codes that have lines
_FLAT = np.float32(1 - 2.0**-4)  # ranks that a unit of a sum is less than


@intrinsic
def put_strip(typingctx, dots, pixels, extra, limits, step, channel, words):
    """Set bit channel + l of plane j of words[p] to bit l of used & (flips ^ m), for p < pixels and l < 32.

    Bit l of m is bit j of the number of thresholds[t, l] below

        extra[l] + step * dots[apart * p + l]

    There are 2^planes - 1 thresholds of ascending order for at most BLENDED planes; channel is a multiple of 32. dots
    are `Rows` of int32, int64, float32 or float64, for floats without extra and step; extra is a `View`, limits a
    `Limits`, words `Rows` of an array[planes rows words]; with one plane for several, byte channel + l of words[p] is
    set to the code, and those after the channels to 0.
    """
    i64 = types.int64
    signature = types.void(dots, i64, extra, limits, i64, i64, words)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        dots, extras, limits, words = (
            pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 4, 6, 12)
        )
        count, lanes = shape_of(context, builder, signature, args, 6)
        planes, rows, row_words = shape_of(context, builder, signature, args, 12)
        next_row, pixels, flips, used, step, channel, apart = (args[i] for i in (2, 3, 8, 9, 10, 11, 14))
        vector, plane = full(dots.type.pointee), builder.mul(rows, row_words)
        real = isinstance(signature.args[0].dtype, types.Float)
        compare = ir.IRBuilder.fcmp_unordered if real else ir.IRBuilder.icmp_signed
        as_bytes = are_bytes(builder, planes, count)
        with builder.if_then(as_bytes):
            clear_rest(builder, words, row_words, channel, pixels, apart)

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
            fixed = [None if real else load(extras, first) for first in firsts]
            least = [limits_of(builder, builder.gep(limits, [const(first)]), lanes, number, vector) for first in firsts]
            flip, use = (builder.trunc(builder.lshr(mask, const(firsts[0])), bits) for mask in (flips, used))
            nth = builder.udiv(builder.add(channel, const(firsts[0])), const(bits.width))
            turned, inside = (
                [byte_masks(builder, mask, first, vector.count) for first in firsts] for mask in (flips, used)
            )

            def put_planes(pixel, masks):
                for j, parts in enumerate(zip(*masks, strict=True), 1):
                    word = builder.add(builder.mul(pixel, apart), builder.mul(plane, const(number - j)))
                    word = builder.bitcast(builder.gep(words, [word]), bits.as_pointer())
                    mask = builder.and_(builder.xor(joined(parts, bits), flip), use)
                    builder.store(mask, builder.gep(word, [nth]))

            def put_bytes(pixel, masks):
                row = builder.bitcast(builder.gep(words, [builder.mul(pixel, apart)]), I8.as_pointer())
                for first, of_lanes, *ends in zip(firsts, masks, turned, inside, strict=True):
                    code = code_bytes(builder, of_lanes, *ends)
                    place = place_of(builder, row, builder.add(channel, const(first)), code.type)
                    builder.store(code, place, align=1)

            with cgutils.for_range(builder, pixels) as pixel:
                row = builder.gep(dots, [builder.mul(pixel.index, next_row)])
                sums = [load(row, first) for first in firsts]
                if not real:
                    sums = [builder.add(one, scale(dot)) for one, dot in zip(fixed, sums, strict=True)]
                masks = [bisect(builder, *pair, compare) for pair in zip(sums, least, strict=True)]
                with builder.if_else(as_bytes) as (in_bytes, in_planes):
                    with in_bytes:
                        put_bytes(pixel.index, masks)
                    with in_planes:
                        put_planes(pixel.index, masks)

        def put(scale):
            firsts = range(0, LANES, vector.count)
            for number in range(1, BLENDED + 1):
                with builder.if_then(builder.icmp_signed("==", count, const(2**number - 1))):
                    for some in [firsts] if number <= _TOGETHER else [[first] for first in firsts]:
                        put_lanes(scale, number, some)

        if real:
            put(None)
            return
        factor = builder.trunc(step, vector.element) if vector.element != I64 else step
        exponent = splat(builder, builder.cttz(factor, ir.Constant(ir.IntType(1), 1)), vector.count)
        with builder.if_else(builder.icmp_signed("==", builder.ctpop(factor), vector.element(1))) as (power, rest):
            with power:
                put(lambda sums: builder.shl(sums, exponent))
            with rest:
                times = splat(builder, factor, vector.count)
                put(lambda sums: builder.mul(sums, times))

    return signature, codegen


def byte_masks(builder, mask, first, count):
    """Return bytes of ones or zeros, by bits first .. first + count of a mask of 32 lanes."""
    bits = builder.trunc(builder.lshr(mask, const(first)), ir.IntType(count))
    return builder.sext(builder.bitcast(bits, ir.VectorType(ir.IntType(1), count)), ir.VectorType(I8, count))


def code_bytes(builder, masks, flips, used):
    """Return codes of lanes as bytes, from the masks of their planes, the highest first."""
    count = flips.type.count
    code = none = ir.Constant(flips.type, None)
    for j, mask in enumerate(masks):
        bit = ir.Constant(flips.type, [1 << (len(masks) - 1 - j)] * count)
        code = builder.or_(code, builder.select(mask, bit, none))
    every = ir.Constant(flips.type, [(1 << len(masks)) - 1] * count)
    return builder.and_(builder.xor(code, builder.and_(flips, every)), used)


@inline
def are_in_strips(to, singles):
    """Return True where codes of a `Target` are stored by `put_codes`; singles are `single_lines`."""
    return to.words.size > 0 and to.plain and (to.thresholds.shape[0] < 1 << BLENDED or singles.size > 0)


@inline
def put_codes(sums, pixels, extra, limits, singles, step, channel, words):
    """Store codes by `put_strip`, or by lines where there are some; sums are `Rows` of 32 int32 side by side."""
    if singles.size:
        put_strip_by_lines(sums, pixels, extra, limits, singles, step, channel, words)
    else:
        put_strip(sums, pixels, extra, limits, step, channel, words)


@inner
def single_lines(lines):
    """Return float32[5 lanes] for `put_strip_by_lines`, from lines of five rows (`rank_lines.py`); else none.

    Slopes, shifts, least and greatest value of a rank and a fraction, and how far a fraction may be from a half: this
    row is left out where all ranks are right, and the two before it are ranks alone.
    """
    first, sure = lines.shape[0] - NEAR, True  # after exact ones, where there are
    lanes, half = lines.shape[1] if first >= 0 else 0, np.float32(0.5)
    for lane in range(lanes):
        sure = sure and lines[first + 4, lane] > half
    singles = np.empty((NEAR - 1 if sure else NEAR, lanes), np.float32)
    for lane in range(lanes):
        singles[0, lane] = lines[first, lane]
        singles[1, lane] = np.float32(lines[first + 1, lane]) + half
        singles[2, lane] = np.float32(lines[first + 2, lane]) + half
        singles[3, lane] = np.float32(lines[first + 3, lane]) + np.float32(1.25)
        if not sure:
            singles[4, lane] = lines[first + 4, lane]
    return singles


@inner
def ends_of_lines(singles, flip, thresholds, channels, checked):
    """Return the ends of `ByteLines`, of channels, the first lanes; empty if codes on these lines are not right.

    They are right on lines of four rows, and where they are checked on others of which any sum's z is an int32.
    """
    lanes = singles.shape[1] if singles.shape[0] < NEAR or checked else 0
    for lane in range(lanes if singles.shape[0] == NEAR else 0):
        lanes = lanes if singles[0, lane] < _FLAT else 0
    ends = np.empty((4, lanes), np.uint8)
    for lane in range(lanes):
        ends[0, lane], ends[1, lane] = np.uint8(singles[2, lane]), np.uint8(singles[3, lane])
        down = flip.size > 0 and (np.int64(flip[lane // 32]) >> (lane % 32)) & 1
        ends[2, lane], ends[3, lane] = thresholds if down else 0, 255 if lane < channels else 0
    return ends


@intrinsic
def put_strip_by_lines(typingctx, dots, pixels, extra, limits, singles, step, channel, words):
    """Store codes as `put_strip` does, of 3 to 8 planes, whose thresholds have `single_lines`.

    Sums are dots[p * apart + l] of `Rows`, int32. A rank is trunc(z), z = clip(slope * sum + shift) in float32. Where
    the fraction of a z is far from a half, sums around it may have the rank before or after (`rank_lines.py`): only
    such vectors are compared with thresholds, which takes as long as all the rest. Lines of four rows have none, and
    their ranks are clipped as bytes.
    """
    i64 = types.int64
    signature = types.void(dots, i64, extra, limits, singles, i64, i64, words)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        if signature.args[0].dtype != types.int32:  # which have no lines
            return
        dots, extras, limits, singles, words = (
            pointer(context, builder, signature, args, i, args[j])
            for i, j in ((0, 1), (4, 5), (6, 7), (10, 7), (13, 14))
        )
        held, rows, row_words = shape_of(context, builder, signature, args, 13)
        count, apart = shape_of(context, builder, signature, args, 6)
        planes, as_bytes = builder.ctpop(count), are_bytes(builder, held, count)
        next_row, pixels, flips, used, step, channel, next_pixel = (args[i] for i in (2, 3, 8, 9, 11, 12, 15))
        offset = builder.select(as_bytes, channel, builder.udiv(channel, const(8)))
        first = builder.bitcast(builder.gep(builder.bitcast(words, I8.as_pointer()), [offset]), I32.as_pointer())
        plane = builder.mul(rows, row_words)
        operands = [dots, next_row, pixels, extras, limits, singles, apart, flips, used, step]
        operands += [first, plane, next_pixel, planes, as_bytes]
        with builder.if_then(as_bytes):
            clear_rest(builder, words, row_words, channel, pixels, next_pixel)
        sure = builder.icmp_signed("<", shape_of(context, builder, signature, args, 10)[0], const(NEAR))
        with builder.if_else(sure) as (by_four, by_five):
            with by_four:
                with builder.if_else(builder.icmp_signed("==", step, const(1))) as (one, more):
                    with one:
                        builder.call(by_lines(builder.module, "sure"), operands)
                    with more:
                        builder.call(by_lines(builder.module, "sure_times"), operands)
            with by_five:
                builder.call(by_lines(builder.module, "near"), operands)

    return signature, codegen


def by_lines(module, kind):
    """Build one function for all places of a kernel that store codes by lines.

    kind: "near" for lines that have to be corrected, "sure_times" for others, and "sure" where `step` is 1 as well.
    """
    name, sure = f"quantarray.put_strip_by_lines.{kind}", kind != "near"
    if name in module.globals:
        return module.globals[name]
    whole = I32.as_pointer()
    takes = [whole, I64, I64, whole, whole, F32.as_pointer(), *[I64] * 4, whole, *[I64] * 3, ir.IntType(1)]
    function = own_function(module, name, takes)
    builder = ir.IRBuilder(function.append_basic_block())
    dots, next_row, pixels, extras, limits, singles, apart, flips, used, step, words, plane, *rest = function.args
    next_pixel, planes, as_bytes = rest
    sums = full(I32)
    firsts, floats = range(0, LANES, sums.count), ir.VectorType(F32, sums.count)

    def load(data, lane, kind):
        return builder.load(place_of(builder, data, lane, kind), align=4)

    fixed = [load(extras, lane, sums) for lane in firsts]
    rows = [builder.gep(singles, [builder.mul(apart, const(k))]) for k in range(NEAR - sure)]
    lines = [[load(row, lane, floats) for row in rows] for lane in firsts]
    columns = [builder.gep(limits, [const(lane)]) for lane in firsts]
    turned, inside = (byte_masks(builder, mask, 0, LANES) for mask in (flips, used))
    least, most = (
        builder.trunc(joined(builder, [builder.fptosi(line[k], sums) for line in lines]), turned.type) for k in (2, 3)
    )
    every = builder.sub(builder.shl(const(1), planes), const(1))
    turned = builder.and_(turned, splat(builder, builder.trunc(every, I8), LANES))
    flips, used = (builder.trunc(mask, I32) for mask in (flips, used))
    times = splat(builder, builder.trunc(step, I32), sums.count)

    with cgutils.for_range(builder, pixels) as pixel:
        row = builder.gep(dots, [builder.mul(pixel.index, next_row)])
        values = [load(row, lane, sums) for lane in firsts]
        if kind != "sure":
            values = [builder.mul(value, times) for value in values]
        values = [builder.add(*pair) for pair in zip(fixed, values, strict=True)]
        if sure:
            codes = bytes_on_lines(builder, values, *[[line[k] for line in lines] for k in range(2)], least, most)
        else:
            zs = [_on_line(builder, value, *line[:2], False) for value, line in zip(values, lines, strict=True)]
            zs = [_clipped(builder, *pair) for pair in zip(zs, lines, strict=True)]
            ranks = _corrected(builder, zs, [line[-1] for line in lines], values, columns, apart)
            codes = builder.trunc(joined(builder, ranks), turned.type)
        word = builder.bitcast(words, I64.as_pointer())
        word = builder.gep(word, [builder.mul(pixel.index, next_pixel)])
        with builder.if_else(as_bytes) as (in_bytes, in_planes):
            with in_bytes:
                place = place_of(builder, builder.bitcast(word, I8.as_pointer()), 0, codes.type)
                builder.store(builder.and_(builder.xor(codes, turned), inside), place, align=1)
            with in_planes:
                _put_planes(builder, codes, flips, used, word, plane, planes)
    builder.ret_void()
    return function


def bytes_on_lines(builder, sums, slopes, shifts, least, most):
    """Return the ranks of vectors of sums, side by side as bytes: trunc(slope * sum + shift), clipped to least .. most.

    Lines are right for all sums, with one rounding or with two.
    """
    lines = zip(sums, slopes, shifts, strict=True)
    ranks = [builder.fptosi(_on_line(builder, *line, "fma" in FEATURES), sums[0].type) for line in lines]
    ranks = saturated_bytes(builder, ranks)
    return _extreme(builder, ">", _extreme(builder, "<", ranks, most), least)


def checked_on_lines(builder, sums, slopes, shifts, off, least, most):
    """Return (ranks as `bytes_on_lines` does, whether one may be too low): where the fraction of a z is too far from a
    half, farther than a number of `off`.
    """
    zs = [_on_line(builder, *line, "fma" in FEATURES) for line in zip(sums, slopes, shifts, strict=True)]
    floats, unsure = zs[0].type, []
    half = ir.Constant(floats, [0.5] * floats.count)
    for z, right in zip(zs, off, strict=True):
        apart = builder.fsub(z, _call(builder, "rint", z))  # from the nearest integer
        unsure.append(builder.fcmp_ordered("<", _call(builder, "fabs", apart), builder.fsub(half, right)))
    some = builder.bitcast(reduce(builder.or_, unsure), ir.IntType(floats.count))
    ranks = saturated_bytes(builder, [builder.fptosi(z, sums[0].type) for z in zs])
    ranks = _extreme(builder, ">", _extreme(builder, "<", ranks, most), least)
    return ranks, builder.icmp_unsigned("!=", some, some.type(0))


def _call(builder, name, value):
    kind = ir.FunctionType(value.type, [value.type])
    name = f"llvm.{name}.v{value.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value])


def _on_line(builder, value, slope, shift, fused):
    """Return slope * sum + shift of each lane."""
    value = builder.sitofp(value, slope.type)
    if not fused:
        return builder.fadd(builder.fmul(value, slope), shift)
    kind = ir.FunctionType(slope.type, [slope.type] * 3)
    name = f"llvm.fma.v{slope.type.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [value, slope, shift])


def _extreme(builder, sign, a, b):
    """Return the greater or the lesser number of each lane, unsigned."""
    return builder.select(builder.icmp_unsigned(sign, a, b), a, b)


def _clipped(builder, z, line):
    """Return z between the least and the greatest value that a line's ranks have."""
    least, most = line[2:4]
    z = builder.select(builder.fcmp_ordered("<", z, least), least, z)
    return builder.select(builder.fcmp_ordered(">", z, most), most, z)


def _corrected(builder, zs, most_off, values, columns, apart):
    """Return ranks, compared with thresholds where a fraction of some z is farther from a half than it may be."""
    sums, floats = values[0].type, zs[0].type
    half, zero = (ir.Constant(floats, [number] * floats.count) for number in (0.5, 0.0))
    ranks, lower, unsure = [builder.fptosi(z, sums) for z in zs], [builder.fsub(z, half) for z in zs], []
    for below, rank, right in zip(lower, ranks, most_off, strict=True):
        off = builder.fsub(below, builder.sitofp(rank, floats))
        off = builder.select(builder.fcmp_ordered("<", off, zero), builder.fsub(zero, off), off)
        unsure.append(builder.fcmp_ordered(">", off, right))
    some = builder.bitcast(reduce(builder.or_, unsure), ir.IntType(sums.count))
    sure, checked, then = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_unsigned("!=", some, some.type(0)), checked, then)
    builder.position_at_end(checked)
    exact = [
        corrected(builder, builder.fptosi(below, sums), *of, apart, ir.IRBuilder.icmp_signed)
        for below, *of in zip(lower, values, columns, strict=True)
    ]
    checked = builder.block
    builder.branch(then)
    builder.position_at_end(then)
    merged = []
    for rank, other in zip(ranks, exact, strict=True):
        merged.append(builder.phi(sums))
        merged[-1].add_incoming(rank, sure)
        merged[-1].add_incoming(other, checked)
    return merged


def _put_planes(builder, codes, flips, used, word, plane, planes):
    """Store the planes of codes of 32 lanes, each `plane` words after the one before: LEAST of them or more."""

    def put(j):
        bit = builder.and_(codes, splat(builder, I8(1 << j), LANES))
        mask = builder.bitcast(builder.icmp_unsigned("!=", bit, bit.type(None)), I32)
        place = builder.bitcast(builder.gep(word, [builder.mul(plane, const(j))]), I32.as_pointer())
        builder.store(builder.and_(builder.xor(mask, flips), used), place)

    for j in range(LEAST):
        put(j)
    for j in range(LEAST, 8):
        with builder.if_then(builder.icmp_signed(">", planes, const(j)), likely=True):
            put(j)
