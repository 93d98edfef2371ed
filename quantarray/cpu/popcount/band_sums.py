"""Turn the sums of a band, 16 bits each for pixels by blocks, into numbers or bits."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import I16, I64, LANES, TILE, const, full, place_of, pointer
from ..llvm.views import flat
from .lanes import by_step


@intrinsic
def read_tile(typingctx, sums, at, apart, counts):
    """counts[p, l] = sums[at + apart * p + l] for one block of 4 neighbouring pixels, as int32 or int64."""
    signature = types.void(sums, types.int64, types.int64, counts)

    def codegen(context, builder, signature, args):
        sums = pointer(context, builder, signature, args, 0, args[1])
        counts = pointer(context, builder, signature, args, 3)
        vector = full(counts.type.pointee)
        for at in range(0, TILE * LANES, vector.count):
            part = _load(builder, sums, args[2], *divmod(at, LANES), vector)
            builder.store(part, place_of(builder, counts, at, vector), align=4)

    return signature, codegen


@intrinsic
def mask_sums(typingctx, sums, at, apart, least, least_at, masks):
    """masks[p] bit l = least[least_at + l] <= sums[at + apart * p + l]; masks uint64[4], sums and least uint16."""
    i64 = types.int64
    signature = types.void(sums, i64, i64, least, i64, masks)

    def codegen(context, builder, signature, args):
        sums, least = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 3))
        masks, vector = pointer(context, builder, signature, args, 5), ir.VectorType(I16, LANES)
        bounds = builder.load(place_of(builder, least, 0, vector), align=2)
        for p in range(TILE):
            row = builder.load(place_of(builder, sums, _pixel(builder, args[2], p), vector), align=16)
            mask = builder.bitcast(builder.icmp_unsigned(">=", row, bounds), ir.IntType(LANES))
            builder.store(builder.zext(mask, I64), builder.gep(masks, [const(p)]))

    return signature, codegen


@intrinsic
def mask_words(typingctx, sums, least, words, places, pixels):
    """words[places[p]] = used & (flips ^ m), where bit l of m is least[l] <= sums[p, l], for some pixels and 64 lanes.

    sums is a `Rows` and least a `Limits` of uint16, words uint64 of any shape, places int64[4].
    """
    signature = types.void(sums, least, words, places, types.int64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        sums, least = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 3))
        words, places = (pointer(context, builder, signature, args, i) for i in (7, 8))
        vector = ir.VectorType(I16, 2 * LANES)
        bounds = builder.load(place_of(builder, least, 0, vector), align=2)
        for p in range(TILE):
            with builder.if_then(builder.icmp_signed("<", const(p), args[9]), likely=True):
                row = builder.load(place_of(builder, sums, _pixel(builder, args[2], p), vector), align=16)
                mask = builder.bitcast(builder.icmp_unsigned(">=", row, bounds), I64)
                place = builder.gep(words, [builder.load(builder.gep(places, [const(p)]))])
                builder.store(builder.and_(builder.xor(mask, args[5]), args[6]), place)

    return signature, codegen


@intrinsic
def value_sums(typingctx, sums, extra, step, values, places, pixels):
    """values[places[p] + l] = extra[l] + step * sums[p, l] for some pixels and 32 lanes.

    The step is plus or minus a power of two, places int64[4]; sums is a `Rows` of uint16, extra a `View`; extra and
    values are both int32 or both int64.
    """
    signature = types.void(sums, extra, types.int64, values, places, types.int64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        sums, extras = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 3))
        values, places = (pointer(context, builder, signature, args, i) for i in (6, 7))
        vector = full(values.type.pointee)
        value = by_step(builder, args[5], vector)
        for p in range(TILE):
            with builder.if_then(builder.icmp_signed("<", const(p), args[8]), likely=True):
                row = builder.gep(values, [builder.load(builder.gep(places, [const(p)]))])
                for lane in range(0, LANES, vector.count):
                    fixed = builder.load(place_of(builder, extras, lane, vector), align=4)
                    total = value(fixed, _load(builder, sums, args[2], p, lane, vector))
                    builder.store(total, place_of(builder, row, lane, vector), align=4)

    return signature, codegen


def _load(builder, sums, apart, p, lane, vector):
    """Load sums of a pixel from a lane on, widened to the elements of a vector."""
    narrow = ir.VectorType(I16, vector.count)
    at = builder.add(_pixel(builder, apart, p), const(lane))
    return builder.zext(builder.load(place_of(builder, sums, at, narrow), align=16), vector)


def _pixel(builder, apart, p):
    """Return the offset at which the sums of pixel p begin: apart * p."""
    return builder.mul(apart, const(p))
