"""Counting by LLVM's ctpop on 64-bit lanes: one instruction with AVX512-VPOPCNTDQ, and right on every CPU."""

from llvmlite import ir
from numba.core import cgutils

from .count import tile_counter
from .vectors import I64, LANES, TILE, WIDTH, const, each_run, place_of, splat

VECTORS = LANES // WIDTH


def lay_out(words):
    """Weight words[.. 32] as `count_tile` reads them: as they are."""
    return words


def count(builder, combine, words, origins, weights, runs, first, last, counts):
    """The LLVM code of `count_tile` for one way to combine two words, of plain pointers."""
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
    for p in range(TILE):
        for v in range(VECTORS):
            kind = ir.VectorType(counts.type.pointee, WIDTH)
            found = builder.load(slots[p][v])
            found = found if kind == vector else builder.trunc(found, kind)
            builder.store(found, place_of(builder, counts, p * LANES + v * WIDTH, kind), align=4)


def _either(builder, differ, *rest):
    # Two loops: choosing inside one, by a mask, costs a register or an instruction more than LLVM has to spare
    with builder.if_else(builder.icmp_signed("==", differ, const(0))) as (both, either):
        for branch, combine in ((both, builder.and_), (either, builder.xor)):
            with branch:
                count(builder, combine, *rest)


count_tile = tile_counter(_either)
