"""Compute codes of evenly spaced levels, 64 at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import MAX_BITS
from ..llvm.vectors import F64, I8, I32, I64, const, joined, lanes_of, place_of, pointer, splat
from ..llvm.widening import load_64

_AT_ONCE = 16  # values whose arithmetic is written together: 64 would need more registers than there are
_DOUBLES, _NUMBERS, _BYTES = (ir.VectorType(kind, _AT_ONCE) for kind in (F64, I32, I8))
_NUMBERS_OF_GRID, _LIMITS = (types.float64,) * 3, (types.int64, types.int64, types.boolean)


@intrinsic
def grid_codes(typingctx, values, at, start, factor, step, shifts, low, high, down, codes):
    """codes[i] = clip(round((values[at + i] - start) * factor / step + shifts[i]), low, high) - low, for 64 of an
    array, flat.

    Values are those that `widen` takes; the arithmetic is in float64. `round` is to the even integer of two that are
    as near, with `down` to the next one below. NaN becomes any code.
    """
    signature = types.void(values, types.int64, *_NUMBERS_OF_GRID, shifts, *_LIMITS, codes)

    def codegen(context, builder, signature, args):
        to = pointer(context, builder, signature, args, 9, const(0))
        for lane, codes in _codes(context, builder, signature, args):
            builder.store(codes, place_of(builder, to, lane, _BYTES), align=1)

    return signature, codegen


@intrinsic
def grid_masks(typingctx, values, at, start, factor, step, shifts, low, high, down, masks, planes):
    """masks[plane], uint64[8]: bit i is bit `plane` of code i, as `grid_codes` computes it, for `planes` planes.

    Codes stay in registers: a plane read from bytes in memory would wait until these are written. 8 planes are read
    together and wait once; for them, joining registers costs more.
    """
    signature = types.void(values, types.int64, *_NUMBERS_OF_GRID, shifts, *_LIMITS, masks, types.int64)

    def codegen(context, builder, signature, args):
        to = pointer(context, builder, signature, args, 9, const(0))
        codes = [part for _, part in _codes(context, builder, signature, args)]
        codes = joined(builder, codes)
        for plane in range(MAX_BITS):
            with builder.if_then(builder.icmp_signed("<", const(plane), args[10])):
                bit = builder.and_(codes, splat(builder, I8(1 << plane), 64))
                mask = builder.bitcast(builder.icmp_unsigned("!=", bit, bit.type(None)), I64)
                builder.store(mask, builder.gep(to, [const(plane)]))

    return signature, codegen


def _codes(context, builder, signature, args):
    """Yield (lane, 16 codes) of 64."""
    x = load_64(context, builder, signature, args)
    start, factor, step = (splat(builder, number, _AT_ONCE) for number in args[2:5])
    low, high = (splat(builder, builder.sitofp(number, F64), _AT_ONCE) for number in args[6:8])
    by = pointer(context, builder, signature, args, 5, const(0))
    for lane in range(0, 64, _AT_ONCE):
        part = lanes_of(builder, x, lane, _AT_ONCE)
        wide = part if part.type == _DOUBLES else builder.fpext(part, _DOUBLES)
        steps = builder.fdiv(builder.fmul(builder.fsub(wide, start), factor), step)
        steps = builder.fadd(steps, builder.load(place_of(builder, by, lane, _DOUBLES), align=8))
        whole = builder.select(args[8], _rounded(builder, "floor", steps), _rounded(builder, "rint", steps))
        # In this order a NaN becomes `low`, and an integer
        whole = builder.select(builder.fcmp_ordered(">", whole, low), whole, low)
        whole = builder.select(builder.fcmp_ordered("<", whole, high), whole, high)
        yield lane, builder.trunc(builder.fptosi(builder.fsub(whole, low), _NUMBERS), _BYTES)


def _rounded(builder, how, vector):
    kind = ir.FunctionType(_DOUBLES, [_DOUBLES])
    name = f"llvm.{how}.v{_AT_ONCE}f64"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])
