"""Store 64 levels of a uniform law at once: chosen by bits where there are few, computed from codes otherwise."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import F32, F64, I8, const, place_of, pointer, splat

_FLAGS = ir.VectorType(ir.IntType(1), 64)
_PART = 8  # float64 lanes of 512 bits


@intrinsic
def put_chosen(typingctx, low, high, levels, out, start):
    """out[start + i] = levels[2 * bit i of high + bit i of low], for 64 float32; both arrays C-contiguous, flat."""
    signature = types.void(types.uint64, types.uint64, levels, out, types.int64)

    def codegen(context, builder, signature, args):
        data = pointer(context, builder, signature, args, 2, const(0))
        each = [splat(builder, builder.load(builder.gep(data, [const(i)])), 64) for i in range(4)]
        first, second = (builder.bitcast(word, _FLAGS) for word in args[:2])
        lower, upper = builder.select(first, each[1], each[0]), builder.select(first, each[3], each[2])
        chosen = builder.select(second, upper, lower)
        to = pointer(context, builder, signature, args, 3, args[4])
        builder.store(chosen, place_of(builder, to, 0, chosen.type), align=4)

    return signature, codegen


@intrinsic
def put_computed(typingctx, codes, low, step, out, start):
    """out[start + i] = low + step * codes[i], in float64, for 64 float32 and bytes; arrays C-contiguous, flat."""
    signature = types.void(codes, types.float64, types.float64, out, types.int64)

    def codegen(context, builder, signature, args):
        data = pointer(context, builder, signature, args, 0, const(0))
        to = pointer(context, builder, signature, args, 3, args[4])
        lower, each = (splat(builder, value, _PART) for value in args[1:3])
        for first in range(0, 64, _PART):
            code = builder.load(place_of(builder, data, first, ir.VectorType(I8, _PART)), align=1)
            value = builder.fadd(lower, builder.fmul(each, builder.uitofp(code, ir.VectorType(F64, _PART))))
            short = builder.fptrunc(value, ir.VectorType(F32, _PART))
            builder.store(short, place_of(builder, to, first, short.type), align=4)

    return signature, codegen
