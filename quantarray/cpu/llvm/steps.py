"""Apply functions of elements one after the other to a row of values, which stay in registers meanwhile."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...kernels.operands import ADD, ADD_OTHER, AFFINE, DIV, MAX, MIN, MUL, PRELU, RSUB, SUB
from .vectors import F32, F64, I64, const, place_of, pointer

# Lanes of vectors; of the longest, four registers, constants of a step are loaded for one choice of it. The last vector
# of a row begins earlier, so that it is whole: one by one, the last 8 of 24 channels took as long as 64
_LONG, _WHOLE, _SINGLE = _LANES = 64, 16, 1


@intrinsic
def apply_steps(typingctx, x, at, scale, other, other_at, other_scale, steps, constants, v, to, channels):
    """v[to + c] = the float32 value x[at + c] after all steps, c < channels; first times scale[c] in float64, if any.

    Arrays are C-contiguous and flat, but constants, which has a row for each step; x and other of any number type,
    `other` read where it and `other_scale` are no empty arrays. Return 1 if a result is NaN, else 0.
    """
    signature = types.int64(
        x, types.int64, scale, other, types.int64, other_scale, steps, constants, v, types.int64, types.int64
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        def array(i):
            return context.make_array(signature.args[i])(context, builder, args[i])

        def data(i, offset=None):
            return pointer(context, builder, signature, args, i, offset if offset is not None else const(0))

        def items(i):
            return array(i).nitems

        width = cgutils.unpack_tuple(builder, array(7).shape, 2)[1]
        sources = [
            (data(0, args[1]), signature.args[0].dtype, data(2), items(2)),
            (data(3, args[4]), signature.args[3].dtype, data(5), items(5)),
        ]
        wrong = cgutils.alloca_once_value(builder, const(0))
        start = const(0)
        short = builder.icmp_signed("<", args[10], const(_WHOLE))
        for lanes in _LANES:
            rest = builder.sub(args[10], start)
            rounded = builder.add(rest, const(_WHOLE - 1)) if lanes == _WHOLE else rest
            count = builder.sdiv(rounded, const(lanes))
            if lanes == _WHOLE:
                count = builder.select(short, const(0), count)
            with cgutils.for_range(builder, count) as part:
                begin = builder.add(start, builder.mul(part.index, const(lanes)))
                if lanes == _WHOLE:
                    last = builder.sub(args[10], const(_WHOLE))
                    begin = builder.select(builder.icmp_signed(">", begin, last), last, begin)
                value, second = (
                    _load(builder, source, begin, lanes, present)
                    for source, present in zip(sources, (None, items(3)), strict=True)
                )
                with cgutils.for_range(builder, items(6)) as step:
                    k = builder.gep(data(7), [builder.add(builder.mul(step.index, width), begin)])
                    constant = builder.load(place_of(builder, k, 0, value.type.pointee), align=4)
                    kind = builder.load(builder.gep(data(6), [step.index]))
                    _take_step(builder, kind, value, constant, builder.gep(k, [width]), second)
                result = builder.load(value)
                builder.store(result, place_of(builder, data(8, args[9]), begin, result.type), align=4)
                nan = builder.fcmp_unordered("uno", result, result)
                some = builder.icmp_unsigned("!=", builder.bitcast(nan, ir.IntType(lanes)), ir.IntType(lanes)(0))
                builder.store(builder.or_(builder.load(wrong), builder.zext(some, I64)), wrong)
            start = builder.add(start, builder.mul(count, const(lanes)))
        return builder.load(wrong)

    return signature, codegen


def _load(builder, source, begin, lanes, present):
    """Return a slot with values of a row as float32, those of an operand that is not there 0."""
    data, kind, scale, scales = source
    floats, wide = ir.VectorType(F32, lanes), ir.VectorType(F64, lanes)
    slot = cgutils.alloca_once_value(builder, ir.Constant(floats, [0.0] * lanes))
    has_values = builder.icmp_signed("!=", const(1) if present is None else present, const(0))
    with builder.if_then(has_values):
        vector = ir.VectorType(data.type.pointee, lanes)
        values = builder.load(place_of(builder, data, begin, vector), align=kind.bitwidth // 8)
        with builder.if_else(builder.icmp_signed("!=", scales, const(0))) as (scaled, plain):
            with scaled:
                factor = builder.load(place_of(builder, scale, begin, wide), align=8)
                product = builder.fmul(_converted(builder, values, kind, wide), factor)
                builder.store(builder.fptrunc(product, floats), slot)
            with plain:
                builder.store(_converted(builder, values, kind, floats), slot)
    return slot


def _converted(builder, values, kind, to):
    if kind == types.float32:
        return values if to.element == F32 else builder.fpext(values, to)
    return builder.sitofp(values, to) if kind.signed else builder.uitofp(values, to)


def _take_step(builder, kind, slot, k, following, second):
    """Replace the values of a slot by a step's results; comparisons leave NaN as it is.

    `following` is the place of the next step's constants. The step after an affine one leaves the values as they are.
    """
    v = builder.load(slot)
    zero = ir.Constant(v.type, [0.0] * v.type.count)
    results = {
        ADD: lambda: builder.fadd(v, k),
        SUB: lambda: builder.fsub(v, k),
        RSUB: lambda: builder.fsub(k, v),
        MUL: lambda: builder.fmul(v, k),
        DIV: lambda: builder.fdiv(v, k),
        MAX: lambda: builder.select(builder.fcmp_unordered(">", v, k), v, k),
        MIN: lambda: builder.select(builder.fcmp_unordered("<", v, k), v, k),
        PRELU: lambda: builder.select(builder.fcmp_ordered("<", v, zero), builder.fmul(v, k), v),
        ADD_OTHER: lambda: builder.fadd(v, builder.load(second)),
        AFFINE: lambda: _affine(builder, v, k, following),
    }
    end = builder.append_basic_block("taken")
    choice = builder.switch(kind, end)
    for number, result in results.items():
        block = builder.append_basic_block(f"step{number}")
        choice.add_case(ir.Constant(I64, number), block)
        with builder.goto_block(block):
            builder.store(result(), slot)
            builder.branch(end)
    builder.position_at_end(end)


def _affine(builder, v, k, offsets):
    """v * k + offset in float64, where the product is exact, rounded once."""
    wide = ir.VectorType(F64, v.type.count)
    offset = builder.load(place_of(builder, offsets, 0, v.type), align=4)
    product, added = builder.fmul(builder.fpext(v, wide), builder.fpext(k, wide)), builder.fpext(offset, wide)
    return builder.fptrunc(builder.fadd(product, added), v.type)
