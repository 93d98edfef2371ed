"""Products channel by channel: bytes of some pixels times the numbers of a tap, 64 channels at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..isa import COUNTING
from .vectors import I16, I32, I64, const, lanes_of, place_of, pointer, slot_of, splat

PIXELS = 2 if COUNTING in ("portable", "neon", "avx2") else 4  # for which a tap's numbers are read once
CHANNELS = 64
_BITS = 512
_LANES = ir.VectorType(I32, _BITS // 32)


@intrinsic
def lane_products(
    typingctx, codes, places, shift, seen, first, last, values, at, narrow, extra, extra_at, step, out, rows
):  # fmt: skip
    """out[rows[p] + l] = extra[extra_at + l] + step * total[p, l], the sum of

        codes[places[p] + shift + offset + l] * values[at + tap + l]

    over the (offset, tap) of seen[first .. last], for PIXELS pixels p and CHANNELS channels l, modulo 2**32. `narrow`
    says that no sum passes 2**15. codes are uint8, values int16, extra and out int32, places and rows int64, seen
    int64[.. 2]; all are C-contiguous and indexed flat.
    """
    i64 = types.int64
    signature = types.void(
        codes, places, i64, seen, i64, i64, values, i64, types.boolean, extra, i64, i64, out, rows
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        out, rows = (pointer(context, builder, signature, args, i) for i in (12, 13))
        rows = [builder.gep(out, [builder.load(builder.gep(rows, [const(p)]))]) for p in range(PIXELS)]

        def store(p, channel, found):
            builder.store(found, place_of(builder, rows[p], channel, _LANES), align=4)

        _lanes(context, builder, signature, args, store)

    return signature, codegen


@intrinsic
def lane_masks(
    typingctx, codes, places, shift, seen, first, last, values, at, narrow, extra, extra_at, step, thresholds, lane,
    masks,
):  # fmt: skip
    """Bit l of uint64 masks[p]: whether what `lane_products` finds for pixel p and channel l is above int32
    thresholds[lane + l]. Compared in registers: stored and loaded again first, all took some 8 % longer.
    """
    i64 = types.int64
    signature = types.void(
        codes, places, i64, seen, i64, i64, values, i64, types.boolean, extra, i64, i64, thresholds, i64, masks
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        thresholds, masks = (
            pointer(context, builder, signature, args, 12, args[13]),
            pointer(context, builder, signature, args, 14),
        )
        found = [slot_of(builder, const(0)) for _ in range(PIXELS)]

        def compare(p, channel, lanes):
            limit = builder.load(place_of(builder, thresholds, channel, _LANES), align=4)
            bits = builder.bitcast(builder.icmp_signed(">", lanes, limit), ir.IntType(_LANES.count))
            bits = builder.shl(builder.zext(bits, I64), const(channel))
            builder.store(builder.or_(builder.load(found[p]), bits), found[p])

        _lanes(context, builder, signature, args, compare)
        for p, slot in enumerate(found):
            builder.store(builder.load(slot), builder.gep(masks, [const(p)]))

    return signature, codegen


def _lanes(context, builder, signature, args, use):
    """use(pixel, channel, _LANES results from that channel on), of the arguments that both functions share."""
    values, extra = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (6, 9))
    codes, places = (
        pointer(context, builder, signature, args, 0, args[2]),
        pointer(context, builder, signature, args, 1),
    )
    seen = pointer(context, builder, signature, args, 3, builder.mul(args[4], const(2)))
    pixels = [builder.gep(codes, [builder.load(builder.gep(places, [const(p)]))]) for p in range(PIXELS)]
    step = splat(builder, builder.trunc(args[11], I32), _LANES.count)

    def finish(p, channel, total):
        fixed = builder.load(place_of(builder, extra, channel, _LANES), align=4)
        use(p, channel, builder.add(fixed, builder.mul(step, builder.sext(total, _LANES))))

    with builder.if_else(args[8]) as branches:
        for branch, kind in zip(branches, (I16, I32), strict=True):
            with branch:
                _sum(builder, kind, finish, pixels, seen, builder.sub(args[5], args[4]), values)


def _sum(builder, kind, finish, pixels, seen, count, values):
    """finish(pixel, channel, sums of _LANES channels), two vectors of a kind of integer for each pixel at a time."""
    vector = ir.VectorType(kind, _BITS // kind.width)
    for start in range(0, CHANNELS, 2 * vector.count):
        parts = [start, start + vector.count]
        sums = [[slot_of(builder, ir.Constant(vector, None)) for _ in parts] for _ in pixels]
        with cgutils.for_range(builder, count) as tap:
            row = builder.mul(tap.index, const(2))
            offset, number = (builder.load(builder.gep(seen, [builder.add(row, const(j))])) for j in range(2))
            column = [_load(builder, values, number, channel, vector, builder.sext) for channel in parts]
            for pixel, slots in zip(pixels, sums, strict=True):
                for channel, slot, value in zip(parts, slots, column, strict=True):
                    code = _load(builder, pixel, offset, channel, vector, builder.zext)
                    builder.store(builder.add(builder.load(slot), builder.mul(code, value)), slot)
        for p, slots in enumerate(sums):
            for channel, slot in zip(parts, slots, strict=True):
                total = builder.load(slot)
                for first in range(0, vector.count, _LANES.count):
                    finish(p, channel + first, lanes_of(builder, total, first, _LANES.count))


def _load(builder, data, index, channel, vector, widen):
    """Elements from index + channel on, as a vector of wider ones."""
    kind = ir.VectorType(data.type.pointee, vector.count)
    found = builder.load(place_of(builder, data, builder.add(index, const(channel)), kind), align=1)
    return found if kind == vector else widen(found, vector)
