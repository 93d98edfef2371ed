"""Counting by LLVM's ctpop on 64-bit lanes: one instruction with AVX512-VPOPCNTDQ, and right on every CPU."""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .count import by_pixels, tile_counter
from .lanes import by_step
from .vectors import I8, I32, I64, LANES, TILE, WIDTH, const, each_run, full, place_of, pointer, slot_of, splat

VECTORS = LANES // WIDTH


def lay_out(words):
    """Weight words[.. 32] as `count_tile` reads them: as they are."""
    return words


def count(builder, combine, pixels, words, origins, weights, runs, first, last):
    """[pixel][vector] of counts of the first `pixels` by one way to combine two words, of plain pointers."""
    vector = ir.VectorType(I64, WIDTH)
    kind = ir.FunctionType(vector, [vector])
    ctpop = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{WIDTH}i64")
    # Registers that live through both loops
    slots = [[slot_of(builder, ir.Constant(vector, None)) for _ in range(VECTORS)] for _ in range(pixels)]
    with each_run(builder, words, origins, runs, first, last) as (pixel, weight, length):
        with cgutils.for_range(builder, length) as step:
            lane = builder.mul(builder.add(weight, step.index), const(LANES))
            column = [
                builder.load(place_of(builder, weights, builder.add(lane, const(v * WIDTH)), vector), align=8)
                for v in range(VECTORS)
            ]
            for p in range(pixels):
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


def _either(builder, pixels, differ, *rest):
    """then(sums) of `count` by and, or where `differ` is not 0 by exclusive or, for all pixels of a tile."""
    # Two loops: choosing inside one, by a mask, costs a register or an instruction more than LLVM has to spare
    *operands, then = rest
    with builder.if_else(builder.icmp_signed("==", differ, const(0))) as branches:
        for branch, combine in zip(branches, (builder.and_, builder.xor), strict=True):
            with branch:
                then(count(builder, combine, pixels, *operands) * (TILE // pixels))


def _count_tile(builder, pixels, differ, *rest):
    *operands, counts = rest
    _either(builder, pixels, differ, *operands, lambda sums: store_counts(builder, sums, counts))


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

        rest = args[9], words, origins, weights, runs, args[7], args[8], compare
        by_pixels(builder, origins, lambda pixels: _either(builder, pixels, *rest))

    return signature, codegen


@intrinsic
def value_counts(
    typingctx, words, word, origins, origin, weights, weight, runs, first, last, differ, extra, extra_at, step, values,
    places,
):  # fmt: skip
    """values[places[p] + l] = extra[extra_at + l] + step * what `count_tile` counts for pixel p and lane l.

    The step is plus or minus a power of two, places int64[4]; extra and values are both int32 or both int64.
    """
    i64 = types.int64
    signature = types.void(words, i64, origins, i64, weights, i64, runs, i64, i64, i64, extra, i64, i64, values, places)

    def codegen(context, builder, signature, args):
        words, origins, weights, extras = (
            pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2, 4, 10)
        )
        runs, values, places = (pointer(context, builder, signature, args, i) for i in (6, 13, 14))
        vector = full(values.type.pointee)
        value = by_step(builder, args[12], vector)

        def store(sums):
            fixed = [
                builder.load(place_of(builder, extras, lane, vector), align=8) for lane in range(0, LANES, vector.count)
            ]
            for p in range(TILE):
                row = builder.gep(values, [builder.load(builder.gep(places, [const(p)]))])
                for i, counts in enumerate(_as_lanes(builder, sums[p], vector)):
                    found = value(fixed[i], counts)
                    builder.store(found, place_of(builder, row, i * vector.count, vector), align=4)

        rest = args[9], words, origins, weights, runs, args[7], args[8], store
        by_pixels(builder, origins, lambda pixels: _either(builder, pixels, *rest))

    return signature, codegen


def _as_lanes(builder, row, vector):
    """A pixel's sums of 64 bits as vectors of another width."""
    if vector.element == I64:
        return row
    halves = [builder.bitcast(part, vector) for part in row]
    low = ir.Constant(ir.VectorType(I32, vector.count), list(range(0, 2 * vector.count, 2)))
    return [builder.shuffle_vector(*halves[v : v + 2], low) for v in range(0, len(row), 2)]
