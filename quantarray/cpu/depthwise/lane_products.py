"""Multiply channel by channel: pairs of bytes of some pixels times the weights of two taps, 64 channels of a row."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..epilogue.codes_in_registers import checks_of, corrector, store_codes
from ..epilogue.ranks import BLENDED, are_bytes, bisect, limits_of
from ..epilogue.strips import bytes_on_lines
from ..llvm.vectors import F32, I8, I16, I32, I64, const, lanes_of, place_of, pointer, slot_of, splat
from ..llvm.views import flat
from .pairs import BITS, CHANNELS, add_pairs

PIXELS = 4 if BITS == 512 else 2  # for which a tap's numbers are read once
_HELD = 16 if BITS == 512 else 8  # registers of sums
_SIGNED = ir.IRBuilder.icmp_signed


@intrinsic
def row_sums(
    typingctx, pairs, step, pixels, seen, count, values, at, kinds, first, extra, lane, unit, out, to, pitch
):  # fmt: skip
    """out[to + p * pitch + l] = extra[kinds[first + p], lane + l] + unit * total[p, l], the sum of

        pairs[p * step + offset + 2 * l + i] * values[at + tap + 2 * l + i]

    over i = 0, 1 and the first `count` (offset, tap) of `seen`, for p < pixels and CHANNELS channels l, modulo 2**32.

    pairs are uint8; values int8, where no sum passes 2**15, or int16; seen is int64[.. 2], kinds int64, extra int32
    [classes lanes] and out int32. All are C-contiguous, and indexed flat but for `seen`, `kinds` and `extra`.
    """
    i64 = types.int64
    signature = types.void(
        pairs, i64, i64, seen, i64, values, i64, kinds, i64, extra, i64, i64, out, i64, i64
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        extra, out = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (9, 12))
        _, lanes = _shape(context, builder, signature, args, 9)
        unit = splat(builder, builder.trunc(args[11], I32), BITS // 32)

        def finish(members, channel, sums):
            for (pixel, kind), totals in zip(members, sums, strict=True):
                fixed, row = _row(builder, extra, kind, lanes), _row(builder, out, pixel, args[14])
                for i, total in enumerate(_widened(builder, totals)):
                    lane = channel + i * unit.type.count
                    base = builder.load(place_of(builder, fixed, lane, unit.type), align=4)
                    value = builder.add(base, builder.mul(unit, total))
                    builder.store(value, place_of(builder, row, lane, unit.type), align=4)

        _each_group(context, builder, signature, args, finish)

    return signature, codegen


@intrinsic
def row_bytes(
    typingctx, pairs, step, pixels, seen, count, values, at, kinds, first, extra, lane, lines, checks, words, row
):  # fmt: skip
    """Store the codes of what `row_sums` gives, with a unit of 1, as bytes lane + l of words[row + p].

    By `ByteLines` that are corrected by `Checks`.
    """
    i64 = types.int64
    signature = types.void(
        pairs, i64, i64, seen, i64, values, i64, kinds, i64, extra, i64, lines, checks, words, i64
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        lane, row = args[10], args[20]
        extra = pointer(context, builder, signature, args, 9, lane)
        lines, ends, words = (pointer(context, builder, signature, args, i) for i in (11, 12, 19))
        lanes, width, length = (_shape(context, builder, signature, args, i)[-1] for i in (9, 11, 19))
        lines = [builder.gep(lines, [builder.add(lane, builder.mul(width, const(k)))]) for k in (0, 1, 4)]
        ends = [builder.gep(ends, [builder.add(lane, builder.mul(width, const(k)))]) for k in range(4)]
        row_bytes = builder.shl(length, const(3))
        words = builder.gep(builder.bitcast(words, I8.as_pointer()), [builder.add(lane, builder.mul(row, row_bytes))])
        correct = corrector(builder, checks_of(context, builder, signature, args, 13), lines[0])

        def finish(members, channel, sums):
            rows, count = [], BITS // 32
            for (_, kind), totals in zip(members, sums, strict=True):
                fixed = _row(builder, extra, kind, lanes)
                rows.append([])
                for i, total in enumerate(_widened(builder, totals)):
                    base = builder.load(place_of(builder, fixed, channel + i * count, total.type), align=4)
                    rows[-1].append(builder.add(base, total))
            vectors = [channel + i * count for i in range(len(rows[0]))]
            to = [_row(builder, words, pixel, row_bytes) for pixel, _ in members]
            store_codes(builder, rows, vectors, lines, ends, to, correct)

        _each_group(context, builder, signature, args, finish)

    return signature, codegen


@intrinsic
def row_codes(
    typingctx, pairs, step, pixels, seen, count, values, at, kinds, first, cuts, lane, word, masks, out, row
):  # fmt: skip
    """out[.., row + p, word] = codes of 64 channels l, those of lanes[word, 1] of `Cuts`: the number of t with

        total[p, l] > limits[kinds[first + p], t, lane + l]

    and the total that `row_sums` has; the number of all others where bits of lanes[word, 0] are ones. limits are int16
    or int32, as wide as totals; those of one class are all classes'. Where there are lines, a number is their value
    instead. masks are uint8[2 64], lanes[word] as bytes of ones and zeros: from bits, LLVM makes them byte by byte for
    each pixel on AVX2. out uint64[planes rows words]; with one plane for several, byte 64 * word + l of a row is the
    code.
    """
    i64 = types.int64
    signature = types.void(pairs, i64, i64, seen, i64, values, i64, kinds, i64, cuts, i64, i64, masks, out, i64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        (classes, thresholds, width), (planes, out_rows, words) = (
            _shape(context, builder, signature, args, i) for i in (9, 16)
        )
        one_class = builder.icmp_signed("==", classes, const(1))
        limits, lines, ends = (pointer(context, builder, signature, args, i, args[13]) for i in (9, 11, 12))
        law = pointer(context, builder, signature, args, 10, builder.mul(args[14], const(2)))
        down, used = (builder.load(builder.gep(law, [const(i)])) for i in range(2))
        single, as_bytes = builder.icmp_signed("==", thresholds, const(1)), are_bytes(builder, planes, thresholds)
        has_lines = builder.icmp_signed("!=", _shape(context, builder, signature, args, 11)[0], const(0))
        nth = builder.select(as_bytes, builder.mul(args[14], const(CHANNELS // 8)), args[14])
        masks = pointer(context, builder, signature, args, 15)
        out = pointer(context, builder, signature, args, 16, builder.add(builder.mul(args[17], words), nth))
        apart = builder.mul(out_rows, words)
        of_kind = builder.select(one_class, const(0), builder.mul(thresholds, width))
        of_line = builder.mul(width, const(2))
        only = [slot_of(builder, const(0)) for _ in range(PIXELS)]
        ranks = builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(I8, PIXELS * CHANNELS)), I8.as_pointer())
        turned, inside = (
            builder.load(place_of(builder, masks, i * CHANNELS, ir.VectorType(I8, CHANNELS)), align=1) for i in range(2)
        )
        top = builder.trunc(builder.add(thresholds, const(1)), I8)
        top = builder.and_(turned, splat(builder, top, CHANNELS))  # T - rank = ~rank + T + 1

        def put(at, codes):
            builder.store(codes, place_of(builder, ranks, at, codes.type), align=1)

        def begin(members):
            for slot in only:
                builder.store(const(0), slot)

        def compare(members, channel, sums):
            tables = [_row(builder, limits, kind, of_kind) for _, kind in members]
            with builder.if_else(single) as (one, more):
                with one:
                    for slot, table, totals in zip(only, tables, sums, strict=True):
                        builder.store(builder.or_(builder.load(slot), _above(builder, totals, table, channel)), slot)
                with more, builder.if_else(has_lines) as (on_lines, searched):
                    with on_lines, builder.if_else(one_class) as (shared, of_class):
                        # With the same pointers for all pixels, LLVM reads lines once
                        for branch, classes_of in ((shared, [const(0)] * PIXELS), (of_class, [k for _, k in members])):
                            with branch:
                                for p, (kind, totals) in enumerate(zip(classes_of, sums, strict=True)):
                                    rows = (_row(builder, one, kind, of_line) for one in (lines, ends))
                                    rows = [builder.gep(row, [const(channel)]) for row in rows]
                                    put(p * CHANNELS + channel, _ranks_on_lines(builder, totals, *rows, width))
                    with searched:
                        columns = [
                            [
                                builder.gep(table, [const(channel + i * total.type.count)])
                                for i, total in enumerate(totals)
                            ]
                            for table, totals in zip(tables, sums, strict=True)
                        ]
                        for p, of_pixel in enumerate(_ranks(builder, sums, columns, thresholds, width)):
                            for i, rank in enumerate(of_pixel):
                                narrow = builder.trunc(rank, ir.VectorType(I8, rank.type.count))
                                put(p * CHANNELS + channel + i * rank.type.count, narrow)

        def end(members):
            with builder.if_else(single) as (one, more):
                with one:
                    for (pixel, _), slot in zip(members, only, strict=True):
                        bits = builder.and_(builder.xor(builder.load(slot), down), used)
                        builder.store(bits, builder.gep(out, [builder.mul(pixel, words)]))
                with more:
                    for p, (pixel, _) in enumerate(members):
                        place = place_of(builder, ranks, p * CHANNELS, turned.type)
                        code = builder.xor(builder.load(place, align=1), turned)
                        code = builder.and_(builder.add(code, top), inside)
                        row = builder.gep(out, [builder.mul(pixel, words)])
                        with builder.if_else(as_bytes) as (in_bytes, in_planes):
                            with in_bytes:
                                builder.store(code, builder.bitcast(row, code.type.as_pointer()), align=8)
                            with in_planes:
                                _store_planes(builder, code, planes, row, apart)

        _each_group(context, builder, signature, args, compare, begin, end)

    return signature, codegen


def _ranks_on_lines(builder, totals, lines, ends, width):
    """Return the ranks of totals as bytes; shifts are `width` after slopes, and greatest ranks after the least."""
    totals = _widened(builder, totals)
    floats = ir.VectorType(F32, totals[0].type.count)
    some = ir.VectorType(I8, len(totals) * floats.count)
    slopes, shifts = (
        [builder.load(place_of(builder, row, i * floats.count, floats), align=4) for i in range(len(totals))]
        for row in (lines, builder.gep(lines, [width]))
    )
    least, most = (builder.load(place_of(builder, row, 0, some), align=1) for row in (ends, builder.gep(ends, [width])))
    return bytes_on_lines(builder, totals, slopes, shifts, least, most)


def _store_planes(builder, code, planes, row, apart):
    """Store the planes of 64 codes, `apart` words from each other."""
    with cgutils.for_range(builder, planes) as plane:
        bit = builder.trunc(builder.shl(const(1), plane.index), I8)
        mask = builder.and_(code, splat(builder, bit, CHANNELS))
        mask = builder.icmp_unsigned("!=", mask, ir.Constant(mask.type, None))
        builder.store(builder.bitcast(mask, I64), builder.gep(row, [builder.mul(plane.index, apart)]))


def _ranks(builder, sums, columns, thresholds, width):
    """Return how many limits each total of each pixel is above: by bisection if all codes of 2 to 4 bits are used."""
    slots = [[slot_of(builder, ir.Constant(total.type, None)) for total in totals] for totals in sums]
    every = [one for row in zip(sums, columns, slots, strict=True) for one in zip(*row, strict=True)]
    after, counted = (builder.append_basic_block() for _ in range(2))
    choice = builder.switch(thresholds, counted)
    for number in range(2, BLENDED + 1):
        block = builder.append_basic_block()
        choice.add_case(const(2**number - 1), block)
        builder.position_at_end(block)
        for total, column, slot in every:
            masks = bisect(builder, total, limits_of(builder, column, width, number, total.type), _SIGNED)
            rank = ir.Constant(total.type, None)
            for mask in masks:
                rank = builder.sub(builder.add(rank, rank), builder.sext(mask, total.type))
            builder.store(rank, slot)
        builder.branch(after)
    builder.position_at_end(counted)
    with cgutils.for_range(builder, thresholds) as t:
        for total, column, slot in every:
            place = builder.gep(column, [builder.mul(t.index, width)])
            above = builder.icmp_signed(">", total, builder.load(place_of(builder, place, 0, total.type), align=1))
            builder.store(builder.sub(builder.load(slot), builder.sext(above, total.type)), slot)
    builder.branch(after)
    builder.position_at_end(after)
    return [[builder.load(slot) for slot in row] for row in slots]


def _above(builder, totals, limits, channel):
    """Return bits channel .. of a word: which of the totals, vectors side by side, are above their limits."""
    bits = const(0)
    for i, total in enumerate(totals):
        lanes = channel + i * total.type.count
        limit = builder.load(place_of(builder, limits, lanes, total.type), align=1)
        mask = builder.bitcast(builder.icmp_signed(">", total, limit), ir.IntType(total.type.count))
        bits = builder.or_(bits, builder.shl(builder.zext(mask, I64), const(lanes)))
    return bits


def _shape(context, builder, signature, args, i):
    return cgutils.unpack_tuple(builder, context.make_array(signature.args[i])(context, builder, args[i]).shape)


def _row(builder, data, index, size):
    return builder.gep(data, [builder.mul(index, size)])


def _each_group(context, builder, signature, args, use, begin=None, end=None):
    """Visit the pixels of a row PIXELS at a time, the last ones again where fewer are left. `begin`, `use` and `end`
    take (pixel, class) of each; `use` also a channel, and the sums of each pixel from it on, as registers.

    `args` begin as both functions' do.
    """
    pairs, seen, values, kinds = (
        pointer(context, builder, signature, args, i, offset)
        for i, offset in ((0, None), (3, None), (5, args[6]), (7, args[8]))
    )
    pixels, last = args[2], builder.sub(args[2], const(PIXELS))
    last = builder.select(builder.icmp_signed("<", last, const(0)), const(0), last)
    most = builder.sub(pixels, const(1))
    within = [builder.select(builder.icmp_signed("<", const(p), most), const(p), most) for p in range(PIXELS)]
    groups = builder.sdiv(builder.add(pixels, const(PIXELS - 1)), const(PIXELS))
    with cgutils.for_range(builder, groups) as group:
        first = builder.mul(group.index, const(PIXELS))
        first = builder.select(builder.icmp_signed("<", first, last), first, last)
        members, places = [], []
        for p in within:
            pixel = builder.add(first, p)
            members.append((pixel, builder.load(builder.gep(kinds, [pixel]))))
            places.append(_row(builder, pairs, pixel, args[1]))
        if begin:
            begin(members)
        kind = I16 if values.type.pointee == I8 else I32
        vector = ir.VectorType(kind, BITS // kind.width)
        held = min(CHANNELS // vector.count, _HELD // PIXELS)
        for channel in range(0, CHANNELS, held * vector.count):
            use(members, channel, _sums(builder, vector, held, places, seen, args[4], values, channel))
        if end:
            end(members)


def _sums(builder, vector, held, places, seen, count, values, channel):
    """Compute the sums of some registers of channels for the pixel at each place."""
    parts = [channel + i * vector.count for i in range(held)]
    sums = [[slot_of(builder, ir.Constant(vector, None)) for _ in parts] for _ in places]
    with cgutils.for_range(builder, count) as tap:
        row = builder.mul(tap.index, const(2))
        offset, number = (builder.load(builder.gep(seen, [builder.add(row, const(j))])) for j in range(2))
        columns = [_load(builder, values, number, 2 * part, vector) for part in parts]
        for place, slots in zip(places, sums, strict=True):
            for part, slot, column in zip(parts, slots, columns, strict=True):
                codes = _load(builder, place, offset, 2 * part, vector)
                builder.store(add_pairs(builder, builder.load(slot), codes, column), slot)
    return [[builder.load(slot) for slot in slots] for slots in sums]


def _load(builder, data, index, element, vector):
    """Load pairs for the lanes of a vector, bytes or numbers of 16 bits as it needs them."""
    kind = ir.VectorType(data.type.pointee, 2 * vector.count)
    numbers = builder.load(place_of(builder, data, builder.add(index, const(element)), kind), align=1)
    narrow = vector.element == I16
    return numbers if narrow or kind.element == I16 else builder.zext(numbers, ir.VectorType(I16, kind.count))


def _widened(builder, totals):
    """Widen totals to vectors of int32, in order."""
    if totals[0].type.element == I32:
        return totals
    half, parts = totals[0].type.count // 2, []
    for total in totals:
        for first in (0, half):
            parts.append(builder.sext(lanes_of(builder, total, first, half), ir.VectorType(I32, half)))
    return parts
