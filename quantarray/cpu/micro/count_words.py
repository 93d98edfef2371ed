"""Counting by LLVM's ctpop on 64-bit lanes: one instruction with AVX512-VPOPCNTDQ, and right on every CPU."""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .count import tile_counter
from .vectors import I8, I64, LANES, TILE, WIDTH, const, each_run, place_of, pointer, splat

VECTORS = LANES // WIDTH


def lay_out(words):
    """Weight words[.. 32] as `count_tile` reads them: as they are."""
    return words


def count(builder, combine, words, origins, weights, runs, first, last):
    """[pixel][vector] of counts by one way to combine two words, of plain pointers."""
    vector = ir.VectorType(I64, WIDTH)
    kind = ir.FunctionType(vector, [vector])
    ctpop = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{WIDTH}i64")
    # One stack slot a vector: LLVM's mem2reg makes each a register that lives through both loops
    zero = ir.Constant(vector, None)
    slots = [[cgutils.alloca_once_value(builder, zero) for _ in range(VECTORS)] for _ in range(TILE)]
    for p in range(TILE):
        for v in range(VECTORS):
            builder.store(zero, slots[p][v])
    with each_run(builder, words, origins, runs, first, last) as (pixel, weight, length):
        with cgutils.for_range(builder, length) as step:
            lane = builder.mul(builder.add(weight, step.index), const(LANES))
            column = [
                builder.load(place_of(builder, weights, builder.add(lane, const(v * WIDTH)), vector), align=8)
                for v in range(VECTORS)
            ]
            for p in range(TILE):
                word = splat(builder, builder.load(builder.gep(pixel[p], [step.index])), WIDTH)
                for v in range(VECTORS):
                    ones = builder.call(ctpop, [combine(word, column[v])])
                    builder.store(builder.add(builder.load(slots[p][v]), ones), slots[p][v])
    return [[builder.load(slot) for slot in row] for row in slots]


def store_counts(builder, sums, counts):
    """What `count` found as int32 or int64 [4 32]."""
    for p in range(TILE):
        for v in range(VECTORS):
            kind = ir.VectorType(counts.type.pointee, WIDTH)
            found = sums[p][v] if kind == sums[p][v].type else builder.trunc(sums[p][v], kind)
            builder.store(found, place_of(builder, counts, p * LANES + v * WIDTH, kind), align=4)


def _either(builder, differ, *rest):
    """then(sums) of `count` by and, or where `differ` is not 0 by exclusive or."""
    # Two loops: choosing inside one, by a mask, costs a register or an instruction more than LLVM has to spare
    *operands, then = rest
    with builder.if_else(builder.icmp_signed("==", differ, const(0))) as (both, either):
        for branch, combine in ((both, builder.and_), (either, builder.xor)):
            with branch:
                then(count(builder, combine, *operands))


def _count_tile(builder, differ, *rest):
    *operands, counts = rest
    _either(builder, differ, *operands, lambda sums: store_counts(builder, sums, counts))


count_tile = tile_counter(_count_tile)


@intrinsic
def mask_counts(
    typingctx, words, word, origins, origin, weights, weight, runs, first, last, differ, limits, limits_at, masks
):
    """Bit l of masks[p], uint64[4], is limits[limits_at + l] < what `count_tile` counts for pixel p and lane l.

    The limits are int64: counts are compared in the registers in which they were added up, and stored nowhere.
    """
    i64 = types.int64
    signature = types.void(words, i64, origins, i64, weights, i64, runs, i64, i64, i64, limits, i64, masks)

    def codegen(context, builder, signature, args):
        words, origins, weights, limits = (
            pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2, 4, 10)
        )
        runs, masks = (pointer(context, builder, signature, args, i) for i in (6, 12))
        vector = ir.VectorType(I64, WIDTH)

        def compare(sums):
            bounds = [builder.load(place_of(builder, limits, v * WIDTH, vector), align=8) for v in range(VECTORS)]
            for p in range(TILE):
                parts = [
                    builder.zext(builder.bitcast(builder.icmp_signed(">", sums[p][v], bounds[v]), I8), I64)
                    for v in range(VECTORS)
                ]
                mask = reduce(builder.or_, (builder.shl(part, const(v * WIDTH)) for v, part in enumerate(parts)))
                builder.store(mask, builder.gep(masks, [const(p)]))

        _either(builder, args[9], words, origins, weights, runs, args[7], args[8], compare)

    return signature, codegen
