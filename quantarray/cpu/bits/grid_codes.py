"""Compute codes of evenly spaced levels, 64 at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import MAX_BITS
from ..llvm.vectors import F32, F64, I8, I32, I64, const, joined, lanes_of, place_of, pointer, splat
from ..llvm.widening import load_64

_AT_ONCE = 16  # values whose arithmetic is written together: 64 would need more registers than there are
_DOUBLES, _FLOATS, _NUMBERS, _BYTES = (ir.VectorType(kind, _AT_ONCE) for kind in (F64, F32, I32, I8))
_NUMBERS_OF_GRID, _LIMITS = (types.float64,) * 3, (types.int64, types.int64, types.boolean)
_UNIT = 2.0**-32  # of shifts
_DOUBT = 2.0**-21  # error of a code in float32, beyond any, as a share of codes and 2
_STEPS = 2.0**-100, 2.0**100  # between which steps have inverses that are no subnormals


@intrinsic
def grid_codes(typingctx, values, at, start, factor, step, shifts, low, high, down, codes):
    """codes[i] = clip(round((values[at + i] - start) * factor / step + 2**-32 * shifts[i]), low, high) - low, for 64 of
    an array, flat.

    Values are those that `widen` takes, shifts uint32; codes are those of float64 arithmetic. `round` is to the even
    integer of two that are as near, with `down` to the next one below. NaN becomes any code.

    Codes are computed in float32, and in float64 where one of the 64 is so near a step that the error of float32 might
    decide: a division in float64 takes longer than all else.
    """
    signature = types.void(values, types.int64, *_NUMBERS_OF_GRID, shifts, *_LIMITS, codes)

    def codegen(context, builder, signature, args):
        to = pointer(context, builder, signature, args, 9, const(0))

        def put(lane, part):
            builder.store(part, place_of(builder, to, lane, _BYTES), align=1)

        _codes(context, builder, signature, args, put)

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
        slots = {lane: cgutils.alloca_once(builder, _BYTES) for lane in range(0, 64, _AT_ONCE)}
        _codes(context, builder, signature, args, lambda lane, part: builder.store(part, slots[lane]))
        codes = joined(builder, [builder.load(slot) for slot in slots.values()])
        for plane in range(MAX_BITS):
            with builder.if_then(builder.icmp_signed("<", const(plane), args[10])):
                bit = builder.and_(codes, splat(builder, I8(1 << plane), 64))
                mask = builder.bitcast(builder.icmp_unsigned("!=", bit, bit.type(None)), I64)
                builder.store(mask, builder.gep(to, [const(plane)]))

    return signature, codegen


def _codes(context, builder, signature, args, put):
    """Call put(lane, 16 codes) for each 16 of 64."""
    x = load_64(context, builder, signature, args)
    by = pointer(context, builder, signature, args, 5, const(0))
    shifts = [(lane, builder.load(place_of(builder, by, lane, _NUMBERS), align=4)) for lane in range(0, 64, _AT_ONCE)]
    if x.type.element == F64:
        _exact(builder, x, shifts, args, put)
        return
    sure = cgutils.alloca_once(builder, ir.IntType(1))
    builder.store(ir.IntType(1)(0), sure)
    with builder.if_then(_is_plain(builder, args)):
        builder.store(_quick(builder, x, shifts, args, put), sure)
    with builder.if_then(builder.not_(builder.load(sure)), likely=False):
        _exact(builder, x, shifts, args, put)


def _is_plain(builder, args):
    """Return if the grid's numbers are such that float32 has the error that `_DOUBT` bounds."""
    start, factor, step = args[2:5]
    ratio = builder.fdiv(step, factor)
    same = builder.fcmp_ordered("==", builder.fpext(builder.fptrunc(start, F32), F64), start)
    least, most = (builder.fcmp_ordered(how, ratio, F64(end)) for how, end in zip((">", "<"), _STEPS, strict=True))
    return builder.and_(same, builder.and_(least, most))


def _quick(builder, x, shifts, args, put):
    """Compute codes in float32; return if all are sure to be those of float64."""
    start, inverse = (builder.fptrunc(n, F32) for n in (args[2], builder.fdiv(args[3], args[4])))
    low, high = (builder.sitofp(n, F32) for n in args[6:8])
    half = F32(0.5)
    # What is below low + 1/2 has the code of low: nothing beyond the ends is in doubt
    first, last = builder.fadd(low, half), builder.fadd(high, half)
    above = builder.select(args[8], F32(0), half)
    most = _call(builder, "maxnum.f32", F32, *(_call(builder, "fabs.f32", F32, end) for end in (low, high)))
    narrow = builder.fsub(half, builder.fmul(builder.fadd(most, F32(2)), F32(_DOUBT)))
    start, inverse, first, last, above, narrow, halves = (
        splat(builder, n, _AT_ONCE) for n in (start, inverse, first, last, above, narrow, half)
    )
    doubts = []
    for lane, shift in shifts:
        part = lanes_of(builder, x, lane, _AT_ONCE)
        steps = builder.fmul(builder.fsub(part, start), inverse)
        by = builder.fadd(builder.fmul(builder.uitofp(shift, _FLOATS), _FLOATS([_UNIT] * _AT_ONCE)), above)
        steps = builder.fadd(steps, by)
        steps = builder.select(builder.fcmp_ordered(">", steps, first), steps, first)
        steps = builder.select(builder.fcmp_ordered("<", steps, last), steps, last)
        whole = _call(builder, f"floor.v{_AT_ONCE}f32", _FLOATS, steps)
        off = builder.fsub(builder.fsub(steps, whole), halves)
        doubts.append(builder.fcmp_ordered(">", _call(builder, f"fabs.v{_AT_ONCE}f32", _FLOATS, off), narrow))
        low = splat(builder, builder.trunc(args[6], I32), _AT_ONCE)
        put(lane, builder.trunc(builder.sub(builder.fptosi(whole, _NUMBERS), low), _BYTES))
    some = builder.or_(builder.or_(doubts[0], doubts[1]), builder.or_(doubts[2], doubts[3]))
    return builder.icmp_unsigned("==", builder.bitcast(some, ir.IntType(_AT_ONCE)), ir.IntType(_AT_ONCE)(0))


def _exact(builder, x, shifts, args, put):
    start, factor, step = (splat(builder, number, _AT_ONCE) for number in args[2:5])
    low, high = (splat(builder, builder.sitofp(number, F64), _AT_ONCE) for number in args[6:8])
    for lane, shift in shifts:
        part = lanes_of(builder, x, lane, _AT_ONCE)
        wide = part if part.type == _DOUBLES else builder.fpext(part, _DOUBLES)
        steps = builder.fdiv(builder.fmul(builder.fsub(wide, start), factor), step)
        by = builder.fmul(builder.uitofp(shift, _DOUBLES), _DOUBLES([_UNIT] * _AT_ONCE))
        steps = builder.fadd(steps, by)
        floor, rint = (_call(builder, f"{how}.v{_AT_ONCE}f64", _DOUBLES, steps) for how in ("floor", "rint"))
        whole = builder.select(args[8], floor, rint)
        # In this order a NaN becomes `low`, and an integer
        whole = builder.select(builder.fcmp_ordered(">", whole, low), whole, low)
        whole = builder.select(builder.fcmp_ordered("<", whole, high), whole, high)
        put(lane, builder.trunc(builder.fptosi(builder.fsub(whole, low), _NUMBERS), _BYTES))


def _call(builder, name, kind, *values):
    signature = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}"), values)
