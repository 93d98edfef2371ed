"""Hamming distances of 32 rows whose words are counted in pairs, by the identity that `halves.md` uses within words."""

from itertools import chain

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F64, I64, LANES, WIDTH, const, own_function, place_of, pointer, slot_of
from ..popcount.majorities import add_majorities
from .distances import QUERIES, Ahead, limits_of, mask_lanes, popcounts

_ROW, _VECTORS = ir.VectorType(I64, WIDTH), range(0, LANES, WIDTH)


@intrinsic
def near_pairs(
    typingctx, lanes, at, length, queries, query, count, limits, limit, masks, words, row, transposed, to, ones, first,
    sizes
):  # fmt: skip
    """Compute the masks of `near_lanes` for an even `length`, where each odd word of the queries is the exclusive or of
    it and the one before, and limits are larger by the ones of these.

    Those who come `first` to rows make their odd words the same, inverted, and int64 ones[l], of 32, how many ones they
    had, for those who come later. They, and no others, transpose rows ahead.
    """
    i64, flag = types.int64, types.boolean
    signature = types.uint64(
        lanes, i64, i64, queries, i64, i64, limits, i64, masks, words, i64, i64, i64, ones, flag, sizes
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        here, ahead = (pointer(context, builder, signature, args, 0, args[i]) for i in (1, 12))
        queries, limits = (
            pointer(context, builder, signature, args, 3, args[4]),
            limits_of(context, builder, signature, args),
        )
        sizes = pointer(context, builder, signature, args, 15)
        masks, ones = (pointer(context, builder, signature, args, i) for i in (8, 13))
        words, near = pointer(context, builder, signature, args, 9, args[10]), slot_of(builder, const(0))
        operands = (here, args[2], queries, limits, masks, words, args[11], ahead, ones, sizes)
        for number in range(1, QUERIES + 1):
            with builder.if_then(builder.icmp_signed("==", args[5], const(number))):
                with builder.if_else(builder.trunc(args[14], ir.IntType(1))) as branches:
                    for branch, first in zip(branches, (True, False), strict=True):
                        with branch:
                            builder.store(
                                builder.call(
                                    _function(builder.module, number, first, limits.type, sizes.type), operands
                                ),
                                near,
                            )
        return builder.load(near)

    return signature, codegen


def _function(module, number, first, limit, size):
    """Build the loop for `number` queries as a function: inlined, it would run out of registers for addresses."""
    name = f"quantarray.near_pairs.{number}{'.first' * first}{'.sized' * (limit.pointee == F64)}"
    if name in module.globals:
        return module.globals[name]
    word = I64.as_pointer()
    function = own_function(module, name, [word, I64, word, limit, word, word, I64, word, word, size], I64)
    builder = ir.IRBuilder(function.append_basic_block())
    here, length, queries, limits, masks, words, transposed, next_lanes, ones, sizes = function.args
    ahead = Ahead(words, length, transposed, next_lanes) if first else None
    sums = _count_pairs(builder, here, length, queries, number, ones, ahead)
    more = [builder.load(place_of(builder, ones, v, _ROW), align=8) for v in _VECTORS]
    distances = [[builder.add(builder.add(*[one] * 2), b) for one, b in zip(row, more, strict=True)] for row in sums]
    builder.ret(mask_lanes(builder, distances, limits, masks, sizes))
    return function


def _count_pairs(builder, lanes, length, queries, number, ones, ahead):
    """Return [query][vector of 8 rows] of majorities; `ahead` transposes rows besides."""
    slots = [[slot_of(builder, ir.Constant(_ROW, None)) for _ in _VECTORS] for _ in range(number)]

    def count(step):
        at = builder.mul(step, const(LANES))
        low, places = (
            [place_of(builder, lanes, builder.add(at, const(n + v)), _ROW) for v in _VECTORS] for n in (0, LANES)
        )
        low, alike = ([builder.load(place, align=8) for place in side] for side in (low, places))
        if ahead:
            alike = _pair(builder, low, alike, places, ones)
        column = list(chain(*zip(low, alike, strict=True)))
        for q, row in enumerate(slots):
            query = builder.gep(queries, [builder.add(builder.mul(const(q), length), step)])
            added = add_majorities(builder, (query,), [builder.load(slot) for slot in row], column)
            for slot, value in zip(row, added, strict=True):
                builder.store(value, slot)
        for more in range(2 if ahead else 0):
            ahead.prefetch(builder, builder.add(step, const(more)))

    done = ahead.transposed if ahead else const(0)
    if ahead:
        for v in _VECTORS:
            builder.store(ir.Constant(_ROW, None), place_of(builder, ones, v, _ROW), align=8)
        with cgutils.for_range(builder, builder.lshr(done, const(1))) as pair:
            step = builder.shl(pair.index, const(1))
            count(step)
            for more in range(2):
                ahead.weave(builder, builder.add(step, const(more)))
    with cgutils.for_range(builder, builder.lshr(builder.sub(length, done), const(1))) as pair:
        count(builder.add(done, builder.shl(pair.index, const(1))))
    return [[builder.load(slot) for slot in row] for row in slots]


def _pair(builder, low, high, places, ones):
    """Store and return inverted exclusive ors of words of rows and the words after them; add their ones to `ones`."""
    pairs = []
    for v, *words, place in zip(_VECTORS, low, high, places, strict=True):
        differing, seen = builder.xor(*words), place_of(builder, ones, v, _ROW)
        builder.store(builder.add(builder.load(seen, align=8), popcounts(builder, differing)), seen, align=8)
        pairs.append(builder.not_(differing))
        builder.store(pairs[-1], place, align=8)
    return pairs
