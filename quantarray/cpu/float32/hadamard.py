"""Blocks of float32 rows times a Hadamard matrix: sums and differences 1, 2, 4, .. elements apart, in the cache."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, I32, const, place_of, pointer, slot_of
from ..runtime import threads
from ..runtime.schedule import Kernel

LANES = 16
_LEAST = 1 << 15  # elements that are worth a parallel region
_VECTOR = ir.VectorType(F32, LANES)


def hadamard(x, factors, block, out):
    if out.size:
        arguments = x.reshape(-1), factors, block, out.reshape(-1)
        threads.run(_rotate, arguments, out.size // block, threads.workers(out.size, _LEAST))


@Kernel
def _rotate(x, factors, block, out, first, last):
    for at in range(first * block, last * block, block):
        rotate_block(x, at, factors, at % len(factors), block, out)


@intrinsic
def rotate_block(typingctx, x, at, factors, first, block, out):
    """out[at ..] = H @ (x[at ..] * factors[first ..]) of `block` elements, with H in Sylvester's order.

    All flat, contiguous float32; block a power of 2, at least 32. The first four steps are in registers.
    """
    i64 = types.int64
    signature = types.void(x, i64, factors, i64, i64, out)

    def codegen(context, builder, signature, args):
        source, by, to = (pointer(context, builder, signature, args, i, args[j]) for i, j in ((0, 1), (2, 3), (5, 1)))
        vectors = builder.udiv(args[4], const(LANES))
        with cgutils.for_range(builder, vectors) as step:
            at = builder.mul(step.index, const(LANES))
            value, factor = (builder.load(place_of(builder, side, at, _VECTOR), align=4) for side in (source, by))
            value = builder.fmul(value, factor)
            for apart in (1, 2, 4, 8):
                value = _step(builder, value, apart)
            builder.store(value, place_of(builder, to, at, _VECTOR), align=4)
        _far_steps(builder, to, vectors, slot_of(builder, const(1)))
        return context.get_dummy_value()

    return signature, codegen


def _step(builder, value, apart):
    """Return sums of lanes `apart`, where the first of two is, and their differences where the second is."""
    others = ir.Constant(ir.VectorType(I32, LANES), [lane ^ apart for lane in range(LANES)])
    second = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [bool(lane & apart) for lane in range(LANES)])
    signed = builder.select(second, builder.fneg(value), value)
    return builder.fadd(builder.shuffle_vector(value, value, others), signed)


def _far_steps(builder, to, vectors, apart):
    """Add and subtract vectors 1, 2, 4, .. apart, a number in a slot."""
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    distance = builder.load(apart)
    builder.cbranch(builder.icmp_signed("<", distance, vectors), body, after)
    builder.position_at_end(body)
    inside = builder.sub(distance, const(1))
    with cgutils.for_range(builder, builder.lshr(vectors, const(1))) as pair:
        near = builder.and_(pair.index, inside)
        vector = builder.add(builder.shl(builder.sub(pair.index, near), const(1)), near)
        places = (builder.mul(v, const(LANES)) for v in (vector, builder.add(vector, distance)))
        first, second = (place_of(builder, to, place, _VECTOR) for place in places)
        a, b = builder.load(first, align=4), builder.load(second, align=4)
        builder.store(builder.fadd(a, b), first, align=4)
        builder.store(builder.fsub(a, b), second, align=4)
    builder.store(builder.shl(distance, const(1)), apart)
    builder.branch(test)
    builder.position_at_end(after)
