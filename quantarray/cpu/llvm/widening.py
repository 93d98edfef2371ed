"""Load 64 values of any type as one vector of floats: bytes, and floats of 16 bits, are widened in registers."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vectors import F32, I32, const, place_of, pointer

_FLOATS, _INTS = ir.VectorType(F32, 64), ir.VectorType(I32, 64)


@intrinsic
def widen(typingctx, values, start, wide):
    """wide[:64] = values[start : start + 64] of a C-contiguous array, flat: floats, or as float32 uint8, int8, uint16
    and int16, which are the bits of bfloat16 and of float16."""
    signature = types.void(values, types.int64, wide)

    def codegen(context, builder, signature, args):
        x = load_64(context, builder, signature, args)
        to = pointer(context, builder, signature, args, 2, const(0))
        builder.store(x, place_of(builder, to, 0, x.type), align=4)

    return signature, codegen


def float_of(values):
    """Return the type that `widen` gives an array's elements."""
    return types.float64 if values.dtype == types.float64 else types.float32


def load_64(context, builder, signature, args):
    """Load 64 values of array argument 0 from element argument 1 on, widened: one vector, which LLVM splits for the
    CPU.
    """
    kind = signature.args[0].dtype
    data = pointer(context, builder, signature, args, 0, args[1])
    x = builder.load(place_of(builder, data, 0, ir.VectorType(data.type.pointee, 64)), align=kind.bitwidth // 8)
    return _WIDENED[kind](builder, x) if kind in _WIDENED else x


def _of_bfloat16(builder, bits):
    wide = builder.zext(bits, _INTS)
    return builder.bitcast(builder.shl(wide, _INTS([16] * 64)), _FLOATS)


def _of_float16(builder, bits):
    """Move the fields of float16 to their places in float32: exponents begin 112 lower, and those of infinities and
    NaN, 31, become 255. As exact as the instruction for it, which not every CPU has.
    """
    wide = builder.zext(bits, _INTS)
    size, sign = (builder.and_(wide, _INTS([n] * 64)) for n in (0x7FFF, 0x8000))
    places = builder.bitcast(builder.shl(size, _INTS([13] * 64)), _FLOATS)
    fields = builder.bitcast(builder.fmul(places, _FLOATS([2.0**112] * 64)), _INTS)
    special = builder.icmp_unsigned(">=", size, _INTS([0x7C00] * 64))
    fields = builder.or_(fields, builder.select(special, _INTS([0x7F800000] * 64), _INTS([0] * 64)))
    return builder.bitcast(builder.or_(fields, builder.shl(sign, _INTS([16] * 64))), _FLOATS)


_WIDENED = {
    types.uint8: lambda builder, x: builder.uitofp(x, _FLOATS),
    types.int8: lambda builder, x: builder.sitofp(x, _FLOATS),
    types.uint16: _of_bfloat16,
    types.int16: _of_float16,
}
