"""Add the taps of a depthwise convolution: the bits of a word choose among 64 integers, one for each channel."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I64, WIDTH, const, lanes_of, place_of, pointer, slot_of, splat

_LANES = 64


@intrinsic
def add_chosen(typingctx, words, word, runs, first, last, size, values, at, stride, shift, lanes):
    """lanes[l] += (sum over taps of bit l of words[word + ..] ? values[at + tap * stride + l] : 0) << shift, l < 64.

    Runs first .. last of int64 runs[n 3] are (words from `word`, first word of the taps, words); a pixel has `size`
    words, so that tap is (first word + k) / size. All arrays are C-contiguous and indexed flat: a slice would cost two
    atomic operations, and a loop over lanes instead of vectors would take twenty times as long.
    """
    i64 = types.int64
    signature = types.void(words, i64, runs, i64, i64, i64, values, i64, i64, i64, lanes)

    def codegen(context, builder, signature, args):
        first, last, size, stride, shift = args[3], args[4], args[5], args[8], args[9]
        words = pointer(context, builder, signature, args, 0, args[1])
        values = pointer(context, builder, signature, args, 6, args[7])
        runs, lanes = (pointer(context, builder, signature, args, i) for i in (2, 10))
        vector = ir.VectorType(I64, WIDTH)
        sums = [slot_of(builder, ir.Constant(vector, None)) for _ in range(_LANES // WIDTH)]
        with cgutils.for_range(builder, builder.sub(last, first)) as run:
            row = builder.mul(builder.add(first, run.index), const(3))
            begin, weight, length = (builder.load(builder.gep(runs, [builder.add(row, const(i))])) for i in range(3))
            tap = builder.sdiv(weight, size)
            with cgutils.for_range(builder, builder.sdiv(length, size)) as step:
                place = builder.add(begin, builder.mul(step.index, size))
                bits = builder.bitcast(builder.load(builder.gep(words, [place])), ir.VectorType(ir.IntType(1), _LANES))
                column = builder.mul(builder.add(tap, step.index), stride)
                for i, slot in enumerate(sums):
                    lane = builder.add(column, const(i * WIDTH))
                    value = builder.load(place_of(builder, values, lane, vector), align=8)
                    chosen = builder.select(lanes_of(builder, bits, i * WIDTH, WIDTH), value, ir.Constant(vector, None))
                    builder.store(builder.add(builder.load(slot), chosen), slot)
        for i, slot in enumerate(sums):
            place = place_of(builder, lanes, i * WIDTH, vector)
            scaled = builder.shl(builder.load(slot), splat(builder, shift, WIDTH))
            builder.store(builder.add(builder.load(place, align=8), scaled), place, align=8)

    return signature, codegen


@intrinsic
def fix_lanes(typingctx, lanes, fixed, at, step):
    """lanes[l] = fixed[at + l] + step * lanes[l] for 64 int64 lanes."""
    signature = types.void(lanes, fixed, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        vector = ir.VectorType(I64, WIDTH)
        lanes, fixed = (
            pointer(context, builder, signature, args, 0),
            pointer(context, builder, signature, args, 1, args[2]),
        )
        step = splat(builder, args[3], WIDTH)
        for lane in range(0, _LANES, WIDTH):
            place = place_of(builder, lanes, lane, vector)
            scaled = builder.mul(step, builder.load(place, align=8))
            extra = builder.load(place_of(builder, fixed, lane, vector), align=8)
            builder.store(builder.add(extra, scaled), place, align=8)

    return signature, codegen
