"""Multiply channel by channel: pairs of bytes of some pixels times the weights of two taps, 64 channels of a row."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I16, I32, I64, const, lanes_of, place_of, pointer, slot_of, splat
from .pairs import BITS, CHANNELS, add_pairs

PIXELS = 4 if BITS == 512 else 2  # for which a tap's numbers are read once
_HELD = 16 if BITS == 512 else 8  # registers of sums
_PLANES = 8  # of a code


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
def row_codes(
    typingctx, pairs, step, pixels, seen, count, values, at, kinds, first, limits, lane, changes, word, out, row
):  # fmt: skip
    """out[j, row + p, word] bit l = bit l of changes[word, 0, j], ^ that of changes[word, 1 + t, j] for each t with

        total[p, l] > limits[kinds[first + p], t, lane + l]

    and the total that `row_sums` has. limits int16 or int32 [kinds T lanes], as wide as totals; changes uint64[.. T + 1
    planes], out uint64[planes rows words].
    """
    i64 = types.int64
    signature = types.void(
        pairs, i64, i64, seen, i64, values, i64, kinds, i64, limits, i64, changes, i64, out, i64
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        (_, thresholds, width), (_, rows, planes), (_, out_rows, words) = (
            _shape(context, builder, signature, args, i) for i in (9, 11, 13)
        )
        limits = pointer(context, builder, signature, args, 9, args[10])
        changes = pointer(context, builder, signature, args, 11, builder.mul(args[12], builder.mul(rows, planes)))
        at = builder.add(builder.mul(args[14], words), args[12])
        out, apart = pointer(context, builder, signature, args, 13, at), builder.mul(out_rows, words)
        of_kind = builder.mul(thresholds, width)
        codes = cgutils.alloca_once(builder, ir.ArrayType(I64, _PLANES * PIXELS))
        codes = builder.bitcast(codes, I64.as_pointer())
        single = builder.and_(*(builder.icmp_signed("==", n, const(1)) for n in (thresholds, planes)))
        only = [slot_of(builder, const(0)) for _ in range(PIXELS)]
        none, change = (builder.load(builder.gep(changes, [const(i)])) for i in range(2))

        def begin(members):
            for slot in only:
                builder.store(const(0), slot)
            with builder.if_then(builder.not_(single)), cgutils.for_range(builder, planes) as plane:
                lowest = builder.load(builder.gep(changes, [plane.index]))
                for p in range(PIXELS):
                    builder.store(lowest, _of(builder, codes, plane.index, p))

        def compare(members, channel, sums):
            tables = [_row(builder, limits, kind, of_kind) for _, kind in members]
            with builder.if_else(single) as (one, more):
                with one:
                    for slot, table, totals in zip(only, tables, sums, strict=True):
                        builder.store(builder.or_(builder.load(slot), _above(builder, totals, table, channel)), slot)
                with more, cgutils.for_range(builder, thresholds) as t:
                    columns = [builder.gep(table, [builder.mul(t.index, width)]) for table in tables]
                    above = [_above(builder, *pair, channel) for pair in zip(sums, columns, strict=True)]
                    row = builder.gep(changes, [builder.mul(builder.add(t.index, const(1)), planes)])
                    with cgutils.for_range(builder, planes) as plane:
                        changed = builder.load(builder.gep(row, [plane.index]))
                        for p, mask in enumerate(above):
                            place = _of(builder, codes, plane.index, p)
                            builder.store(builder.xor(builder.load(place), builder.and_(mask, changed)), place)

        def end(members):
            with builder.if_else(single) as (one, more):
                with one:
                    for (pixel, _), slot in zip(members, only, strict=True):
                        word_bits = builder.xor(builder.and_(builder.load(slot), change), none)
                        builder.store(word_bits, builder.gep(out, [builder.mul(pixel, words)]))
                with more, cgutils.for_range(builder, planes) as plane:
                    column = builder.gep(out, [builder.mul(plane.index, apart)])
                    for p, (pixel, _) in enumerate(members):
                        word_bits = builder.load(_of(builder, codes, plane.index, p))
                        builder.store(word_bits, builder.gep(column, [builder.mul(pixel, words)]))

        _each_group(context, builder, signature, args, compare, begin, end)

    return signature, codegen


def _above(builder, totals, limits, channel):
    """Return bits channel .. of a word: which of the totals, vectors side by side, are above their limits."""
    bits = const(0)
    for i, total in enumerate(totals):
        lanes = channel + i * total.type.count
        limit = builder.load(place_of(builder, limits, lanes, total.type), align=1)
        mask = builder.bitcast(builder.icmp_signed(">", total, limit), ir.IntType(total.type.count))
        bits = builder.or_(bits, builder.shl(builder.zext(mask, I64), const(lanes)))
    return bits


def _of(builder, codes, plane, p):
    return builder.gep(codes, [builder.add(builder.mul(plane, const(PIXELS)), const(p))])


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
