"""Apply functions of elements one after the other to a row of values, which stay in registers meanwhile."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...kernels.operands import ADD, ADD_OTHER, AFFINE, DIV, MAX, MIN, MUL, PRELU, RSUB, SUB
from .vectors import F32, F64, I32, I64, const, joined, lanes_of, place_of, pointer, slot_of, splat

# Lanes of vectors; of the longest, four registers, constants of a step are loaded for one choice of it. Shorter ones
# are of four rows together. The last vector of a row begins earlier, so that it is whole: one by one, the last 8 of 24
# channels took as long as 64
_LONG, _WHOLE, _SINGLE = 64, 16, 1
_ROWS = 4


@intrinsic
def apply_steps(
    typingctx, x, first, scale, other, levels, other_scale, steps, constants, v, to, channels, rows, apart
):  # fmt: skip
    """v[to + r * apart + c] = the float32 value x[first + r, c] after all steps, c < channels, r < rows.

    First it is taken times scale[c] in float64, if there is a scale. Arrays are C-contiguous; x and other of any number
    type, `other` read where x is if it is not empty; constants have a row for each step. An `other` of three dimensions
    has the words of codes, uint64[planes rows words], of levels[0] + code * levels[1]. Return 1 if a result is NaN,
    else 0. There is at least one row.
    """
    number = types.int64
    signature = types.int64(
        x, number, scale, other, levels, other_scale, steps, constants, v, number, number, number, number
    )  # fmt: skip
    is_packed = other.ndim == 3

    def codegen(context, builder, signature, args):
        def array(i):
            return context.make_array(signature.args[i])(context, builder, args[i])

        def data(i, offset=None):
            return pointer(context, builder, signature, args, i, offset if offset is not None else const(0))

        def items(i):
            return array(i).nitems

        first, to, channels, rows, apart = args[1], *args[9:]
        at, width = builder.mul(first, channels), cgutils.unpack_tuple(builder, array(7).shape, 2)[1]
        x, other = (signature.args[i].dtype for i in (0, 3))
        wrong = cgutils.alloca_once_value(builder, const(0))

        def dense(source, kind):
            def values(of_rows, begin, lanes):
                places = [builder.add(builder.mul(row, channels), begin) for row in of_rows]
                vector = ir.VectorType(source.type.pointee, lanes)
                parts = [builder.load(place_of(builder, source, at, vector), align=kind.bitwidth // 8) for at in places]
                return joined(builder, parts)

            return values

        def packed(of_rows, begin, lanes):
            planes, number, words = cgutils.unpack_tuple(builder, array(3).shape, 3)
            low, unit = (builder.load(builder.gep(data(4), [const(i)])) for i in range(2))
            places = [builder.mul(builder.add(first, row), words) for row in of_rows]
            parts = [
                _levels(builder, (data(3, place), builder.mul(number, words), planes, words), begin, lanes, low, unit)
                for place in places
            ]
            return joined(builder, parts)

        sources = [
            (dense(data(0, at), x), x, data(2), items(2), None),
            (packed if is_packed else dense(data(3, at), other), types.int32 if is_packed else other, data(5), items(5),
             items(3)),
        ]  # fmt: skip

        def take(of_rows, begin, lanes):
            """Apply all steps to `lanes` channels of some rows."""
            value, second = (_load(builder, source, of_rows, begin, lanes) for source in sources)
            with cgutils.for_range(builder, items(6)) as step:
                k = builder.gep(data(7), [builder.add(builder.mul(step.index, width), begin)])
                kind = builder.load(builder.gep(data(6), [step.index]))
                _take_step(builder, kind, value, k, width, lanes, second)
            result = builder.load(value)
            for i, row in enumerate(of_rows):
                part = lanes_of(builder, result, i * lanes, lanes)
                place = builder.add(builder.mul(row, apart), begin)
                builder.store(part, place_of(builder, data(8, to), place, part.type), align=4)
            nan = builder.fcmp_unordered("uno", result, result)
            every = ir.IntType(result.type.count)
            some = builder.icmp_unsigned("!=", builder.bitcast(nan, every), every(0))
            builder.store(builder.or_(builder.load(wrong), builder.zext(some, I64)), wrong)

        long, most = builder.sdiv(channels, const(_LONG)), builder.sub(rows, const(1))
        done = builder.mul(long, const(_LONG))
        with cgutils.for_range(builder, rows) as row, cgutils.for_range(builder, long) as part:
            take([row.index], builder.mul(part.index, const(_LONG)), _LONG)
        rest, short = builder.sub(channels, done), builder.icmp_signed("<", channels, const(_WHOLE))
        groups = builder.sdiv(builder.add(rows, const(_ROWS - 1)), const(_ROWS))
        with cgutils.for_range(builder, groups) as group:
            lowest = builder.mul(group.index, const(_ROWS))
            near = [builder.add(lowest, const(i)) for i in range(_ROWS)]
            near = [builder.select(builder.icmp_signed("<", row, most), row, most) for row in near]
            with builder.if_else(short) as (few, many):
                with few, cgutils.for_range(builder, rest) as part:
                    take(near, part.index, _SINGLE)
                with many:
                    count = builder.sdiv(builder.add(rest, const(_WHOLE - 1)), const(_WHOLE))
                    with cgutils.for_range(builder, count) as part:
                        begin = builder.add(done, builder.mul(part.index, const(_WHOLE)))
                        last = builder.sub(channels, const(_WHOLE))
                        take(near, builder.select(builder.icmp_signed(">", begin, last), last, begin), _WHOLE)
        return builder.load(wrong)

    return signature, codegen


def _load(builder, source, rows, begin, lanes):
    """Return a slot with values of some rows as float32, those of an operand that is not there 0."""
    read, kind, scale, scales, present = source
    count = lanes * len(rows)
    floats, wide = ir.VectorType(F32, count), ir.VectorType(F64, count)
    slot = slot_of(builder, ir.Constant(floats, [0.0] * count))
    has_values = builder.icmp_signed("!=", const(1) if present is None else present, const(0))
    with builder.if_then(has_values):
        values = read(rows, begin, lanes)
        with builder.if_else(builder.icmp_signed("!=", scales, const(0))) as (scaled, plain):
            with scaled:
                factor = builder.load(place_of(builder, scale, begin, ir.VectorType(F64, lanes)), align=8)
                factor = joined(builder, [factor] * len(rows))
                product = builder.fmul(_converted(builder, values, kind, wide), factor)
                builder.store(builder.fptrunc(product, floats), slot)
            with plain:
                builder.store(_converted(builder, values, kind, floats), slot)
    return slot


def _levels(builder, words, begin, lanes, low, unit):
    """Return int32 levels of codes begin .. begin + lanes of a row: low + code * unit.

    words are (the row's words of plane 0, distance of planes, planes, words of a row).
    """
    row, apart, planes, length = words
    part = min(lanes, _WHOLE)
    vector, bits = ir.VectorType(I32, part), ir.IntType(part)
    totals = [slot_of(builder, splat(builder, low, part)) for _ in range(0, lanes, part)]
    nth, offset = builder.lshr(begin, const(6)), builder.and_(begin, const(63))
    # The last 16 channels of a row may be in two words
    after = builder.add(nth, const(1))
    after = builder.select(builder.icmp_signed("<", after, length), after, nth)
    turn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I64, [I64] * 3), "llvm.fshr.i64")
    with cgutils.for_range(builder, planes) as plane:
        here = builder.gep(row, [builder.mul(plane.index, apart)])
        word = builder.load(builder.gep(here, [nth]))
        if lanes < _LONG:
            word = builder.call(turn, [builder.load(builder.gep(here, [after])), word, offset])
        step = splat(builder, builder.shl(unit, builder.trunc(plane.index, I32)), part)
        for i, total in enumerate(totals):
            some = builder.trunc(builder.lshr(word, const(i * part)), bits)
            some = builder.bitcast(some, ir.VectorType(ir.IntType(1), part))
            more = builder.select(some, step, ir.Constant(vector, None))
            builder.store(builder.add(builder.load(total), more), total)
    return joined(builder, [builder.load(total) for total in totals])


def _converted(builder, values, kind, to):
    if kind == types.float32:
        return values if to.element == F32 else builder.fpext(values, to)
    return builder.sitofp(values, to) if kind.signed else builder.uitofp(values, to)


def _take_step(builder, kind, slot, at, width, lanes, second):
    """Replace the values of a slot by a step's results; comparisons leave NaN as it is.

    Its constants for `lanes` channels are from `at` on, those of the next step `width` after them. The step after an
    affine one leaves the values as they are.
    """
    v = builder.load(slot)

    def constants(at):
        of_row = ir.VectorType(F32, lanes)
        row = builder.load(place_of(builder, at, 0, of_row), align=4)
        return joined(builder, [row] * (v.type.count // lanes))

    k = constants(at)
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
        AFFINE: lambda: _affine(builder, v, k, constants(builder.gep(at, [width]))),
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


def _affine(builder, v, k, offset):
    """v * k + offset in float64, where the product is exact, rounded once."""
    wide = ir.VectorType(F64, v.type.count)
    product, added = builder.fmul(builder.fpext(v, wide), builder.fpext(k, wide)), builder.fpext(offset, wide)
    return builder.fptrunc(builder.fadd(product, added), v.type)
