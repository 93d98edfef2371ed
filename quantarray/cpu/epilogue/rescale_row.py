"""Rescale exact sums of a row to real results: as loops over arrays that may alias, LLVM used four lanes."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, F64, I32, WIDTH, const, place_of, pointer, splat

_SUMS, _REAL, _SINGLE = (ir.VectorType(kind, WIDTH) for kind in (I32, F64, F32))


@intrinsic
def rescale_row(typingctx, sums, factor, shift, pad, kind, bias, n, plain, out, at, channels):
    """out[at + c] = float32(((((0.0 + factor[c] * sums[at + c]) + shift[kind + c]) + pad[kind + c]) + bias[c]) / n)

    for c below the largest multiple of 8 in `channels`. sums int32 and out float32 may be one array; the others are
    float64. All are C-contiguous and indexed flat. Multiplied and added one by one, as everywhere.

    `plain` says that shift and pad are zeros, and no bias is -0.0. Then one addition gives what four do: x + 0.0 is x,
    but for -0.0, which the first addition of them has turned into 0.0, as one of a 0.0 of the bias does.
    """
    i64 = types.int64
    signature = types.void(sums, factor, shift, pad, i64, bias, types.float64, types.boolean, out, i64, i64)

    def codegen(context, builder, signature, args):
        exact, results = (pointer(context, builder, signature, args, i, args[9]) for i in (0, 8))
        shifts, pads = (pointer(context, builder, signature, args, i, args[4]) for i in (2, 3))
        factors, biases = (pointer(context, builder, signature, args, i) for i in (1, 5))

        def rescale(divided, plain):
            with cgutils.for_range(builder, builder.udiv(args[10], const(WIDTH))) as step:
                lane = builder.mul(step.index, const(WIDTH))

                def read(data, kind=_REAL):
                    return builder.load(place_of(builder, data, lane, kind), align=4)

                value = builder.fmul(read(factors), builder.sitofp(read(exact, _SUMS), _REAL))
                if not plain:
                    value = builder.fadd(ir.Constant(_REAL, [0.0] * WIDTH), value)
                for more in (biases,) if plain else (shifts, pads, biases):
                    value = builder.fadd(value, read(more))
                value = divided(value)
                builder.store(builder.fptrunc(value, _SINGLE), place_of(builder, results, lane, _SINGLE), align=4)

        def either(divided):
            with builder.if_else(args[7]) as (plain, full):
                with plain:
                    rescale(divided, True)
                with full:
                    rescale(divided, False)

        # A division by 1 would take as long as all else
        with builder.if_else(builder.fcmp_ordered("==", args[6], ir.Constant(F64, 1.0))) as (whole, mean):
            with whole:
                either(lambda value: value)
            with mean:
                either(lambda value: builder.fdiv(value, splat(builder, args[6], WIDTH)))

    return signature, codegen
