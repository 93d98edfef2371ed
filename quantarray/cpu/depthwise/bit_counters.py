"""Count differing bits in bit-sliced counters: 64 counts side by side, one word for each of their bits."""

from functools import partial

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.adders import adder
from ..llvm.vectors import I64, WIDTH, const, place_of, pointer, slot_of

_PLANES = (4, 6, 8)  # that a counter may have: for 14 taps, 62, or 254
_TOGETHER = (8, 1)  # taps that are added up at once, while there are so many


@intrinsic
def slice_run(typingctx, words, at, seen, first, last, taps, limits, kind, flip, period, out, to, count):
    """out[to + t] = below ^ flip[t % period] for t < count, where bit l of `below` is 1 if bit l of

        words[at + offset + t] ^ taps[tap + t % period]

    is 1 for fewer (offset, tap) of seen[first .. last] than limits[kind, .., t % period] has at l. limits uint64[kinds
    planes length] has numbers of 4, 6 or 8 bits, a plane a row; taps uint64[.. length] and flip uint64[length]
    continue cyclically after the period. seen int64[.. 2]; all are C-contiguous and indexed flat.
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
        operands = words, seen, builder.sub(args[4], args[3]), taps, length, limits, flip
        for number in _PLANES:
            with builder.if_then(builder.icmp_signed("==", planes, const(number))):
                words_of = partial(_words_of, builder, number, args[9], operands)
                _run(builder, words_of, out, args[12])

    return signature, codegen


def _run(builder, words_of, out, count):
    """Write 8 words at a time, the last ones again where fewer are left; runs of fewer words one by one."""
    vector = ir.VectorType(I64, WIDTH)
    with builder.if_else(builder.icmp_signed(">=", count, const(WIDTH))) as (long, short):
        with long:
            last = builder.sub(count, const(WIDTH))
            with cgutils.for_range(builder, builder.sdiv(builder.add(count, const(WIDTH - 1)), const(WIDTH))) as step:
                t = builder.mul(step.index, const(WIDTH))
                t = builder.select(builder.icmp_signed("<", t, last), t, last)
                builder.store(words_of(vector, t), place_of(builder, out, t, vector), align=8)
        with short, cgutils.for_range(builder, count) as step:
            builder.store(words_of(I64, step.index), builder.gep(out, [step.index]))


def _words_of(builder, planes, period, operands, kind, t):
    """Compute words t .. of the result, as many as `kind` has."""
    words, seen, taps_seen, taps, length, limits, flip = operands
    phase = builder.srem(t, period)
    none = ir.Constant(kind, None if isinstance(kind, ir.VectorType) else 0)
    ones = builder.not_(none)

    def load(data, index):
        return builder.load(place_of(builder, data, index, kind), align=8)

    def differing(i):
        row = builder.mul(i, const(2))
        offset, tap = (builder.load(builder.gep(seen, [builder.add(row, const(j))])) for j in range(2))
        return builder.xor(load(words, builder.add(offset, t)), load(taps, builder.add(tap, phase)))

    counter, done = [slot_of(builder, none) for _ in range(planes)], const(0)
    for number in _TOGETHER:
        rounds = builder.sdiv(builder.sub(taps_seen, done), const(number))
        with cgutils.for_range(builder, rounds) as step:
            first = builder.add(done, builder.mul(step.index, const(number)))
            _add(builder, [differing(builder.add(first, const(i))) for i in range(number)], counter)
        done = builder.add(done, builder.mul(rounds, const(number)))
    below = none
    for plane, slot in enumerate(counter):
        limit, bits = load(limits, builder.add(builder.mul(length, const(plane)), phase)), builder.load(slot)
        equal = builder.xor(builder.xor(bits, limit), ones)
        below = builder.or_(builder.and_(builder.xor(bits, ones), limit), builder.and_(equal, below))
    return builder.xor(below, load(flip, phase))


def _add(builder, bits, counter):
    """Add vectors of single bits to a counter: two at a time to a plane, their carries to the next."""
    full = adder(bits[0].type)
    for slot in counter:
        total, carries = builder.load(slot), []
        while len(bits) > 1:
            one, other, *bits = bits
            total, carry = full(builder, total, one, other)
            carries.append(carry)
        if bits:
            carries.append(builder.and_(total, bits[0]))
            total = builder.xor(total, bits[0])
        builder.store(total, slot)
        bits = carries
