"""Bit-sliced counters: 64 counts of differing bits a word, one word for each of their bits."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I64, WIDTH, const, place_of, pointer

PLANES = 6  # of a counter, at most: 62 taps
_FEW = 4  # planes that 14 taps need


@intrinsic
def slice_run(typingctx, words, at, seen, first, last, taps, limits, kind, flip, period, out, to, count):
    """out[to + t] = below ^ flip[t % period] for t < count, where bit l of `below` says of how

        many (offset, tap) of seen[first .. last] bit l of words[at + offset + t] ^ taps[tap, t % period] is one:

    whether of fewer than limits[kind, .., t % period] has at l.
    limits uint64[kinds planes length] has numbers of 4 or 6 bits, a plane a row; taps uint64[.. length] and flip
    uint64[length] go on for 8 words behind the period. seen int64[.. 2]; all are C-contiguous and indexed flat.
    """
    i64 = types.int64
    signature = types.void(words, i64, seen, i64, i64, taps, limits, i64, flip, i64, out, i64, i64)

    def codegen(context, builder, signature, args):
        def shape(i):
            return cgutils.unpack_tuple(builder, context.make_array(signature.args[i])(context, builder, args[i]).shape)

        words, out = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 10))
        seen = pointer(context, builder, signature, args, 2, builder.mul(args[3], const(2)))
        taps, flip = (pointer(context, builder, signature, args, i) for i in (5, 8))
        _, planes, length = shape(6)
        limits = pointer(context, builder, signature, args, 6, builder.mul(args[7], builder.mul(planes, length)))
        given = words, seen, builder.sub(args[4], args[3]), taps, length, limits, flip, args[9], out, args[12]
        few = builder.icmp_signed("==", planes, const(_FEW))
        with builder.if_else(few) as (then, otherwise):
            for branch, number in ((then, _FEW), (otherwise, PLANES)):
                with branch:
                    _run(builder, number, *given)

    return signature, codegen


def _run(builder, planes, words, seen, taps_seen, taps, length, limits, flip, period, out, count):
    """8 words at a time, then one by one."""
    wide = builder.sdiv(count, const(WIDTH))
    with cgutils.for_range(builder, wide) as step:
        t = builder.mul(step.index, const(WIDTH))
        given = words, seen, taps_seen, taps, length, limits, flip, builder.srem(t, period), out, t
        _words(builder, ir.VectorType(I64, WIDTH), planes, *given)
    done = builder.mul(wide, const(WIDTH))
    with cgutils.for_range(builder, builder.sub(count, done)) as step:
        t = builder.add(done, step.index)
        given = words, seen, taps_seen, taps, length, limits, flip, builder.srem(t, period), out, t
        _words(builder, I64, planes, *given)


def _words(builder, kind, planes, words, seen, taps_seen, taps, length, limits, flip, phase, out, t):
    none = ir.Constant(kind, None if isinstance(kind, ir.VectorType) else 0)
    ones = builder.not_(none)

    def load(data, index):
        return builder.load(place_of(builder, data, index, kind), align=8)

    counter = [cgutils.alloca_once_value(builder, none) for _ in range(planes)]
    for slot in counter:
        builder.store(none, slot)
    with cgutils.for_range(builder, taps_seen) as tap:
        row = builder.mul(tap.index, const(2))
        offset, number = (builder.load(builder.gep(seen, [builder.add(row, const(i))])) for i in range(2))
        weight = load(taps, builder.add(builder.mul(number, length), phase))
        carry = builder.xor(load(words, builder.add(offset, t)), weight)
        for slot in counter:
            before = builder.load(slot)
            builder.store(builder.xor(before, carry), slot)
            carry = builder.and_(before, carry)
    below = none
    for plane, slot in enumerate(counter):
        limit, bits = load(limits, builder.add(builder.mul(length, const(plane)), phase)), builder.load(slot)
        equal = builder.xor(builder.xor(bits, limit), ones)
        below = builder.or_(builder.and_(builder.xor(bits, ones), limit), builder.and_(equal, below))
    builder.store(builder.xor(below, load(flip, phase)), place_of(builder, out, t, kind), align=8)
