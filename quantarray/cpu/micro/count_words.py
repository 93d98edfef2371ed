"""Counting by LLVM's ctpop on 64-bit lanes: one instruction with AVX512-VPOPCNTDQ, and right on every CPU."""

from functools import reduce
from itertools import chain

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


def count(builder, combine, pixels, words, planes, apart, origins, weights, runs, first, last, vectors=VECTORS):
    """[pixel][vector] of counts of the first `pixels` by one way to combine two words, of plain pointers.

    Of `planes` planes of words that lie `apart`, the highest first: what is there is doubled before the next one.
    """
    vector = ir.VectorType(I64, WIDTH)
    kind = ir.FunctionType(vector, [vector])
    ctpop = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{WIDTH}i64")
    # Registers that live through both loops
    slots = [[slot_of(builder, ir.Constant(vector, None)) for _ in range(vectors)] for _ in range(pixels)]
    with cgutils.for_range(builder, planes) as done:
        with builder.if_then(builder.icmp_signed("!=", done.index, const(0)), likely=False):
            for slot in chain(*slots):
                builder.store(builder.shl(builder.load(slot), splat(builder, const(1), WIDTH)), slot)
        plane = builder.sub(builder.sub(planes, const(1)), done.index)
        plane = builder.gep(words, [builder.mul(plane, apart)])
        with each_run(builder, plane, origins, runs, first, last) as (pixel, weight, length):
            with cgutils.for_range(builder, length) as step:
                lane = builder.mul(builder.add(weight, step.index), const(LANES))
                column = [
                    builder.load(place_of(builder, weights, builder.add(lane, const(v * WIDTH)), vector), align=8)
                    for v in range(vectors)
                ]
                for p in range(pixels):
                    word = splat(builder, builder.load(builder.gep(pixel[p], [step.index])), WIDTH)
                    for v in range(vectors):
                        ones = builder.call(ctpop, [combine(word, column[v])])
                        builder.store(builder.add(builder.load(slots[p][v]), ones), slots[p][v])
    return [[builder.load(slot) for slot in row] for row in slots]


def store_counts(builder, sums, counts):
    """What `count` found as int32 or int64 [4 32], or the first lanes of that."""
    for p in range(TILE):
        for v in range(len(sums[p])):
            kind = ir.VectorType(counts.type.pointee, WIDTH)
            found = sums[p][v] if kind == sums[p][v].type else builder.trunc(sums[p][v], kind)
            builder.store(found, place_of(builder, counts, p * LANES + v * WIDTH, kind), align=4)


def _either(builder, pixels, differ, *rest, vectors=VECTORS):
    """then(sums) of `count` by and, or where `differ` is not 0 by exclusive or, for all pixels of a tile."""
    # Two loops: choosing inside one, by a mask, costs a register or an instruction more than LLVM has to spare
    *operands, then = rest
    with builder.if_else(builder.icmp_signed("==", differ, const(0))) as branches:
        for branch, combine in zip(branches, (builder.and_, builder.xor), strict=True):
            with branch:
                then(count(builder, combine, pixels, *operands, vectors) * (TILE // pixels))


def _by_lanes(builder, origins, lanes, *rest):
    """`_either`, of half the vectors where the first lanes are no more than that; not for a row alone, as each way is a
    loop more to compile."""

    def emit(pixels):
        if pixels < TILE:
            _either(builder, pixels, *rest)
            return
        half = builder.icmp_signed("<=", lanes, const(LANES // 2))
        with builder.if_else(half, likely=False) as branches:
            for branch, vectors in zip(branches, (VECTORS // 2, VECTORS), strict=True):
                with branch:
                    _either(builder, pixels, *rest, vectors=vectors)

    by_pixels(builder, origins, emit)


def _count_tile(builder, pixels, differ, words, *rest):
    *operands, counts = rest
    one = const(1), const(0)
    _either(builder, pixels, differ, words, *one, *operands, lambda sums: store_counts(builder, sums, counts))


count_tile = tile_counter(_count_tile)


def _operands(context, builder, signature, args):
    """(origins, differ, what `count` takes) of the arguments that the functions below share."""
    words, origins, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 4, 6))
    runs = pointer(context, builder, signature, args, 8)
    return origins, args[11], (words, args[2], args[3], origins, weights, runs, args[9], args[10])


@intrinsic
def plane_counts(
    typingctx, words, word, planes, apart, origins, origin, weights, weight, runs, first, last, differ, counts, lanes
):
    """counts[p, l] = sum over i of 2^i * what `count_tile` counts for pixel p and lane l and plane i of the words.

    Planes lie `apart` words; the rest as in `count_tile`. Of the first `lanes`; others may stay as they are: where no
    more than half of them are asked for, it takes half the time.
    """
    i64 = types.int64
    signature = types.void(words, i64, i64, i64, origins, i64, weights, i64, runs, i64, i64, i64, counts, i64)

    def codegen(context, builder, signature, args):
        origins, differ, operands = _operands(context, builder, signature, args)
        counts = pointer(context, builder, signature, args, 12)
        rest = differ, *operands, lambda sums: store_counts(builder, sums, counts)
        _by_lanes(builder, origins, args[13], *rest)

    return signature, codegen


@intrinsic
def mask_counts(
    typingctx, words, word, planes, apart, origins, origin, weights, weight, runs, first, last, differ, limits,
    limits_at, masks, masks_at, lanes,
):  # fmt: skip
    """Bit l of uint64 masks[masks_at + p] is limits[limits_at + l] < what `plane_counts` counts for pixel p and lane l.

    The limits are int64: counts are compared in the registers in which they were added up, and stored nowhere. Of the
    first `lanes`, as there; bits of others may be 0.
    """
    i64 = types.int64
    signature = types.void(
        words, i64, i64, i64, origins, i64, weights, i64, runs, i64, i64, i64, limits, i64, masks, i64, i64
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        origins, differ, operands = _operands(context, builder, signature, args)
        limits = pointer(context, builder, signature, args, 12, args[13])
        masks = pointer(context, builder, signature, args, 14, args[15])
        vector = ir.VectorType(I64, WIDTH)

        def compare(sums):
            bounds = [builder.load(place_of(builder, limits, v * WIDTH, vector), align=8) for v in range(len(sums[0]))]
            for p in range(TILE):
                parts = [
                    builder.zext(builder.bitcast(builder.icmp_signed(">", *pair), I8), I64)
                    for pair in zip(sums[p], bounds, strict=True)
                ]
                mask = reduce(builder.or_, (builder.shl(part, const(v * WIDTH)) for v, part in enumerate(parts)))
                builder.store(mask, builder.gep(masks, [const(p)]))

        _by_lanes(builder, origins, args[16], differ, *operands, compare)

    return signature, codegen


@intrinsic
def value_counts(
    typingctx, words, word, planes, apart, origins, origin, weights, weight, runs, first, last, differ, extra, extra_at,
    step, values, places, lanes,
):  # fmt: skip
    """values[places[p] + l] = extra[extra_at + l] + step * what `plane_counts` counts for pixel p and lane l.

    The step is plus or minus a power of two, places int64[4]; extra and values are both int32 or both int64. Of the
    first `lanes`, as there.
    """
    i64 = types.int64
    signature = types.void(
        words, i64, i64, i64, origins, i64, weights, i64, runs, i64, i64, i64, extra, i64, i64, values, places, i64
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        origins, differ, operands = _operands(context, builder, signature, args)
        extras = pointer(context, builder, signature, args, 12, args[13])
        values, places = (pointer(context, builder, signature, args, i) for i in (15, 16))
        vector = full(values.type.pointee)
        value = by_step(builder, args[14], vector)

        def store(sums):
            fixed = [
                builder.load(place_of(builder, extras, lane, vector), align=8) for lane in range(0, LANES, vector.count)
            ]
            for p in range(TILE):
                row = builder.gep(values, [builder.load(builder.gep(places, [const(p)]))])
                for i, counts in enumerate(_as_lanes(builder, sums[p], vector)):
                    found = value(fixed[i], counts)
                    builder.store(found, place_of(builder, row, i * vector.count, vector), align=4)

        _by_lanes(builder, origins, args[17], differ, *operands, store)

    return signature, codegen


def _as_lanes(builder, row, vector):
    """A pixel's sums of 64 bits as vectors of another width."""
    if vector.element == I64:
        return row
    halves = [builder.bitcast(part, vector) for part in row]
    low = ir.Constant(ir.VectorType(I32, vector.count), list(range(0, 2 * vector.count, 2)))
    return [builder.shuffle_vector(*halves[v : v + 2], low) for v in range(0, len(row), 2)]
