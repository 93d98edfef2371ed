"""Add scaled sums of all pairs of terms for 32 channels in registers: of loops LLVM stored each addition."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F64, I32, LANES, WIDTH, const, place_of, pointer
from .ranks import shape_of

_SUMS, _REAL = (ir.VectorType(kind, WIDTH) for kind in (I32, F64))


@intrinsic
def scaled_sums(typingctx, near, sums, factor, terms, planes, row, channel):
    """near[0, l] = sum_ts factor[t, s, channel + l] * sums[t, row, s * channels + channel + l], l < 32.

    Multiplied and added one by one in float64, t by t and s by s. near float64[1 32]; sums int32[t rows width] and
    factor float64[t s channels] are C-contiguous.
    """
    i64 = types.int64
    signature = types.void(near, sums, factor, i64, i64, i64, i64)

    def codegen(context, builder, signature, args):
        out, exact, factors = (pointer(context, builder, signature, args, i) for i in range(3))
        _, rows, width = shape_of(context, builder, signature, args, 1)
        channels = shape_of(context, builder, signature, args, 2)[2]
        terms, planes, row, channel = args[3:]
        firsts = range(0, LANES, WIDTH)
        slots = [cgutils.alloca_once_value(builder, ir.Constant(_REAL, [0.0] * WIDTH)) for _ in firsts]
        for slot in slots:
            builder.store(ir.Constant(_REAL, [0.0] * WIDTH), slot)
        with cgutils.for_range(builder, terms) as term, cgutils.for_range(builder, planes) as plane:
            line = builder.add(builder.mul(term.index, rows), row)
            at = builder.add(builder.mul(line, width), builder.add(builder.mul(plane.index, channels), channel))
            pair = builder.add(builder.mul(term.index, planes), plane.index)
            by = builder.add(builder.mul(pair, channels), channel)
            for first, slot in zip(firsts, slots, strict=True):
                whole = builder.load(place_of(builder, exact, builder.add(at, const(first)), _SUMS), align=4)
                times = builder.load(place_of(builder, factors, builder.add(by, const(first)), _REAL), align=8)
                product = builder.fmul(times, builder.sitofp(whole, _REAL))
                builder.store(builder.fadd(builder.load(slot), product), slot)
        for first, slot in zip(firsts, slots, strict=True):
            builder.store(builder.load(slot), place_of(builder, out, const(first), _REAL), align=8)

    return signature, codegen
