"""Products channel by channel: bytes of some pixels times the numbers of a tap, 64 channels at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..isa import COUNTING
from .vectors import I16, I32, const, lanes_of, place_of, pointer, slot_of, splat

PIXELS = 2 if COUNTING in ("portable", "neon", "avx2") else 4  # for which a tap's numbers are read once
CHANNELS = 64
_BITS = 512


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
        values, extra = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (6, 9))
        places, out, rows = (pointer(context, builder, signature, args, i) for i in (1, 12, 13))
        codes = pointer(context, builder, signature, args, 0, args[2])
        seen = pointer(context, builder, signature, args, 3, builder.mul(args[4], const(2)))
        pixels = [builder.gep(codes, [builder.load(builder.gep(places, [const(p)]))]) for p in range(PIXELS)]
        rows = [builder.gep(out, [builder.load(builder.gep(rows, [const(p)]))]) for p in range(PIXELS)]
        given = pixels, seen, builder.sub(args[5], args[4]), values
        vector = ir.VectorType(I32, _BITS // 32)
        step = splat(builder, builder.trunc(args[11], I32), vector.count)

        def store(p, channel, part):
            fixed = builder.load(place_of(builder, extra, channel, vector), align=4)
            found = builder.add(fixed, builder.mul(step, builder.sext(part, vector)))
            builder.store(found, place_of(builder, rows[p], channel, vector), align=4)

        with builder.if_else(args[8]) as branches:
            for branch, kind in zip(branches, (I16, I32), strict=True):
                with branch:
                    _sum(builder, kind, store, *given)

    return signature, codegen


def _sum(builder, kind, store, pixels, seen, count, values):
    """Two vectors of a kind of integer for each pixel at a time."""
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
                for first in range(0, vector.count, _BITS // 32):
                    store(p, channel + first, lanes_of(builder, total, first, _BITS // 32))


def _load(builder, data, index, channel, vector, widen):
    """Elements from index + channel on, as a vector of wider ones."""
    kind = ir.VectorType(data.type.pointee, vector.count)
    found = builder.load(place_of(builder, data, builder.add(index, const(channel)), kind), align=1)
    return found if kind == vector else widen(found, vector)
