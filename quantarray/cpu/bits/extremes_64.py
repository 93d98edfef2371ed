"""Compute the least and the largest of a run of floats."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F64, I32, I64, const, lanes_of, pointer, slot_of
from ..llvm.widening import load_64


@intrinsic
def extremes_64(typingctx, values, at, blocks, ends):
    """ends[:2] = the least and the largest of values[at : at + 64 * blocks], flat; not 0 where one is NaN.

    Values are those that `widen` takes, ends float64, `blocks` at least 1. Numba's own loop is not turned into vector
    code, and takes ten times as long.
    """
    signature = types.uint64(values, types.int64, types.int64, ends)

    def codegen(context, builder, signature, args):
        x = load_64(context, builder, signature, args)
        low, high, unordered = slot_of(builder, x), slot_of(builder, x), slot_of(builder, ir.Constant(I32, 0))
        with cgutils.for_range(builder, args[2]) as block:
            where = builder.add(args[1], builder.mul(block.index, const(64)))
            x = load_64(context, builder, signature, (args[0], where))
            builder.store(_chosen(builder, "<", x, builder.load(low)), low)
            builder.store(_chosen(builder, ">", x, builder.load(high)), high)
            wrong = builder.fcmp_unordered("uno", *(lanes_of(builder, x, half, 32) for half in (0, 32)))
            builder.store(builder.or_(builder.load(unordered), builder.bitcast(wrong, I32)), unordered)
        to = pointer(context, builder, signature, args, 3)
        for i, (how, slot) in enumerate((("<", low), (">", high))):
            value = _of_all(builder, how, builder.load(slot))
            builder.store(value if value.type == F64 else builder.fpext(value, F64), builder.gep(to, [const(i)]))
        return builder.zext(builder.load(unordered), I64)

    return signature, codegen


def _chosen(builder, how, a, b):
    """Select the extreme by one instruction, for which a NaN in `a` changes nothing."""
    return builder.select(builder.fcmp_ordered(how, a, b), a, b)


def _of_all(builder, how, vector):
    count = vector.type.count
    while count > 1:
        count //= 2
        vector = _chosen(builder, how, *(lanes_of(builder, vector, half, count) for half in (0, count)))
    return builder.extract_element(vector, ir.Constant(I32, 0))
