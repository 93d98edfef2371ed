"""Compute 64 neighbouring random numbers at once: 16 blocks of Philox4x32-10 in registers."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import I32, I64, const, place_of, pointer, splat

_BLOCKS, _ROUNDS = 16, 10
_COUNTERS = ir.VectorType(I64, _BLOCKS)
_FACTORS, _STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


@intrinsic
def uniform_64(typingctx, first, key0, key1, use, words):
    """words[i] = word i % 4 of the Philox block of counter ((first + i) // 4, use, 0), for 64 elements.

    `first` is a multiple of 4, so that 16 blocks hold all. words is uint32, C-contiguous.
    """
    signature = types.void(types.int64, types.uint64, types.uint64, types.uint64, words)

    def codegen(context, builder, signature, args):
        low = _COUNTERS([0xFFFFFFFF] * _BLOCKS)
        block = builder.add(splat(builder, builder.lshr(args[0], const(2)), _BLOCKS), _COUNTERS(list(range(_BLOCKS))))
        high = builder.lshr(block, _COUNTERS([32] * _BLOCKS))
        counter = [builder.and_(block, low), high, splat(builder, args[3], _BLOCKS), _COUNTERS(None)]
        keys = list(args[1:3])
        for _ in range(_ROUNDS):
            counter = _round(builder, counter, [splat(builder, key, _BLOCKS) for key in keys], low)
            keys = [
                builder.and_(builder.add(k, const(s)), const(0xFFFFFFFF)) for k, s in zip(keys, _STEPS, strict=True)
            ]
        to = pointer(context, builder, signature, args, 4, const(0))
        every = _in_order(builder, counter)
        builder.store(every, place_of(builder, to, 0, every.type), align=4)

    return signature, codegen


def _round(builder, counter, keys, low):
    """Compute one round of Philox; LLVM sees that the factors have 32 bits, and multiplies by `vpmuludq`."""
    half = _COUNTERS([32] * _BLOCKS)
    p0, p1 = (builder.mul(counter[2 * i], _COUNTERS([_FACTORS[i]] * _BLOCKS)) for i in (0, 1))
    upper = [builder.xor(builder.lshr(p, half), counter[i]) for p, i in ((p1, 1), (p0, 3))]
    first, third = (builder.xor(one, key) for one, key in zip(upper, keys, strict=True))
    return [first, builder.and_(p1, low), third, builder.and_(p0, low)]


def _in_order(builder, counter):
    """Return the words of 16 blocks in the order of their elements."""
    short = ir.VectorType(I32, _BLOCKS)
    a, b, c, d = (builder.trunc(words, short) for words in counter)
    pairs = [builder.shuffle_vector(*two, _indices(range(2 * _BLOCKS))) for two in ((a, b), (c, d))]
    return builder.shuffle_vector(*pairs, _indices(word * _BLOCKS + i for i in range(_BLOCKS) for word in range(4)))


def _indices(numbers):
    listed = list(numbers)
    return ir.Constant(ir.VectorType(I32, len(listed)), listed)
