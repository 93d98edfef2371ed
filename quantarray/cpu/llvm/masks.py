"""Count the ones of a word, and compare a row of lanes into one mask."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import F32, I8, I32, I64, LANES, const, full, place_of, pointer, splat
from .widening import float_of, load_64

AHEAD = 4096  # bytes


@intrinsic
def popcount(typingctx, word):
    """Count the ones of a uint64, as int64."""
    if word != types.uint64:
        return None

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def low_bits(typingctx, count):
    """Return a uint64 of `count` ones, 1 to 64, from bit 0 on."""

    def codegen(context, builder, signature, args):
        return builder.lshr(ir.Constant(I64, -1), builder.sub(const(64), args[0]))

    return types.uint64(types.int64), codegen


@intrinsic
def mask_above(typingctx, values, start, thresholds, at):
    """mask bit l = values[start + l] > thresholds[at + l], for 32 lanes; a threshold NaN is below all.

    Both arrays are C-contiguous, int32, int64 or float64 alike, and indexed flat: a slice would cost two atomic
    operations.
    """
    signature = types.uint64(values, types.int64, thresholds, types.int64)
    real = values.dtype == types.float64

    def codegen(context, builder, signature, args):
        left = pointer(context, builder, signature, args, 0, args[1])
        right = pointer(context, builder, signature, args, 2, args[3])
        above = builder.fcmp_unordered if real else builder.icmp_signed
        mask, vector = ir.Constant(I64, 0), full(left.type.pointee)
        for lane in range(0, LANES, vector.count):
            a, b = (builder.load(place_of(builder, side, lane, vector), align=4) for side in (left, right))
            bits = builder.bitcast(above(">", a, b), ir.IntType(vector.count))
            mask = builder.or_(mask, builder.shl(builder.zext(bits, I64), ir.Constant(I64, lane)))
        return mask

    return signature, codegen


@intrinsic
def mask_at_least(typingctx, values, start, threshold):
    """mask bit i = values[start + i] >= threshold, for 64 of a C-contiguous array, flat.

    NaN is not at least anything. Values are those that `widen` takes, the threshold a float as it makes them.
    """
    signature = types.uint64(values, types.int64, float_of(values))

    def codegen(context, builder, signature, args):
        x = load_64(context, builder, signature, args)
        return builder.bitcast(builder.fcmp_ordered(">=", x, splat(builder, args[2], 64)), I64)

    return signature, codegen


@intrinsic
def mask_over(typingctx, values, start, limits, at):
    """mask bit i = values[start + i] > limits[at + i], for 64 float32 of C-contiguous arrays, flat.

    A limit NaN is below all.
    """
    signature = types.uint64(values, types.int64, limits, types.int64)

    def codegen(context, builder, signature, args):
        kind = ir.VectorType(F32, 64)
        sides = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2))
        x, y = (builder.load(builder.bitcast(side, kind.as_pointer()), align=4) for side in sides)
        return builder.bitcast(builder.fcmp_unordered(">", x, y), I64)

    return signature, codegen


@intrinsic
def mask_of_plane(typingctx, codes, start, plane):
    """mask bit i = bit `plane` of codes[start + i], for 64 bytes of a C-contiguous array, flat."""
    signature = types.uint64(codes, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        x = builder.load(_bytes(context, builder, signature.args[0], args[0], args[1]), align=1)
        bit = builder.shl(ir.Constant(I8, 1), builder.trunc(args[2], I8))
        return builder.bitcast(builder.icmp_unsigned("!=", builder.and_(x, splat(builder, bit, 64)), x.type(None)), I64)

    return signature, codegen


@intrinsic
def add_bits(typingctx, codes, start, held):
    """held[i] |= codes[start + i], for 64 bytes of C-contiguous arrays, flat."""
    signature = types.void(codes, types.int64, held)

    def codegen(context, builder, signature, args):
        x = builder.load(_bytes(context, builder, signature.args[0], args[0], args[1]), align=1)
        place = _bytes(context, builder, signature.args[2], args[2], const(0))
        builder.store(builder.or_(builder.load(place, align=1), x), place, align=1)

    return signature, codegen


@intrinsic
def put_plane(typingctx, mask, plane, codes, start):
    """Set bit `plane` of codes[start + i] to bit i of a mask, for 64 bytes of a C-contiguous array, indexed flat.

    Plane 0 overwrites the bytes, the others add to them.
    """
    signature = types.void(types.uint64, types.int64, codes, types.int64)

    def codegen(context, builder, signature, args):
        place = _bytes(context, builder, signature.args[2], args[2], args[3])
        kind = place.type.pointee
        bits = builder.zext(builder.bitcast(args[0], ir.VectorType(ir.IntType(1), 64)), kind)
        bits = builder.shl(bits, splat(builder, builder.trunc(args[1], I8), 64))
        before = builder.select(builder.icmp_signed("==", args[1], const(0)), kind(None), builder.load(place, align=1))
        builder.store(builder.or_(before, bits), place, align=1)

    return signature, codegen


@intrinsic
def put_affine(typingctx, codes, base, step, out):
    """out[i] = base + step * codes[i] for 64 bytes, int32: written out, because LLVM multiplies as int64 else."""
    signature = types.void(codes, types.int64, types.int64, out)

    def codegen(context, builder, signature, args):
        vector = ir.VectorType(I32, 64)
        of_codes = _bytes(context, builder, signature.args[0], args[0], const(0))
        wide = builder.zext(builder.load(of_codes, align=1), vector)
        base, step = (splat(builder, builder.trunc(args[i], I32), 64) for i in (1, 2))
        data = context.make_array(signature.args[3])(context, builder, args[3]).data
        builder.store(builder.add(base, builder.mul(step, wide)), place_of(builder, data, const(0), vector), align=4)

    return signature, codegen


def _bytes(context, builder, kind, array, start):
    """Load 64 bytes of an array from an element on, as one vector."""
    data = context.make_array(kind)(context, builder, array).data
    return place_of(builder, data, start, ir.VectorType(I8, 64))


@intrinsic
def mask_nan(typingctx, values, start):
    """Return not 0 where one of 64 values[start + i] is NaN, of a type that `widen` takes: the halves of the 64 are
    compared with each other.
    """
    signature = types.uint64(values, types.int64)

    def codegen(context, builder, signature, args):
        x = load_64(context, builder, signature, args)
        half = [
            builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, 32), list(range(at, at + 32))))
            for at in (0, 32)
        ]
        unordered = builder.bitcast(builder.fcmp_unordered("uno", *half), I32)
        return builder.zext(unordered, I64)

    return signature, codegen


@intrinsic
def prefetch(typingctx, values, start):
    """Prefetch 256 bytes, AHEAD bytes after values[start] of a C-contiguous array, indexed flat.

    Without it, a thread that only compares waits for memory. Beyond the array's end it does no harm.
    """
    signature = types.void(values, types.int64)

    def codegen(context, builder, signature, args):
        ask_for(builder, pointer(context, builder, signature, args, 0, args[1]), ir.Constant(I64, AHEAD), 4, 3)

    return signature, codegen


def ask_for(builder, data, at, lines, level):
    """Prefetch `lines` cache lines, from `at` bytes after a pointer on, into L1 (level 3) or L2 (level 2)."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch")
    first = builder.gep(builder.bitcast(data, byte), [at])
    for line in range(lines):
        where = builder.gep(first, [ir.Constant(I64, 64 * line)])
        builder.call(ask, [where, *(ir.Constant(I32, n) for n in (0, level, 1))])
