"""Counting by LLVM's ctpop on 64-bit lanes: one instruction with AVX512-VPOPCNTDQ, and right on every CPU."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I64, LANES, TILE, WIDTH, const, each_run, place_of, pointer, splat

VECTORS = LANES // WIDTH


def lay_out(words):
    """Weight words[.. 32] as `count_tile` reads them: as they are."""
    return words


@intrinsic
def count_tile(typingctx, words, word, origins, weights, weight, runs, first, last, counts):
    """counts[p, l] = sum over the runs of popcount(words[word + origins[p] + at + k] & weights[weight + ..][l]).

    Runs first .. last of int64 runs[n 3] are (at, weight word, length k); a weight word is 32 lanes. words and weights
    are uint64 of any shape, origins int64[4]; counts int64[4 32] is overwritten. All arrays are C-contiguous and
    indexed flat from `word` and `weight`: a slice would cost two atomic operations.
    """
    signature = types.void(words, types.int64, origins, weights, types.int64, runs, types.int64, types.int64, counts)

    def codegen(context, builder, signature, args):
        vector = ir.VectorType(I64, WIDTH)
        ctpop = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.ctpop.v{WIDTH}i64"
        )
        words = pointer(context, builder, signature, args, 0, args[1])
        weights = pointer(context, builder, signature, args, 3, args[4])
        origins, runs, counts = (pointer(context, builder, signature, args, i) for i in (2, 5, 8))
        zero = ir.Constant(vector, None)
        # One stack slot a vector: LLVM's mem2reg makes each a register that lives through both loops
        slots = [[cgutils.alloca_once_value(builder, zero) for _ in range(VECTORS)] for _ in range(TILE)]
        for p in range(TILE):
            for v in range(VECTORS):
                builder.store(zero, slots[p][v])
        with each_run(builder, words, origins, runs, args[6], args[7]) as (pixel, weight, length):
            with cgutils.for_range(builder, length) as step:
                lane = builder.mul(builder.add(weight, step.index), const(LANES))
                column = [
                    builder.load(place_of(builder, weights, builder.add(lane, const(v * WIDTH)), vector), align=8)
                    for v in range(VECTORS)
                ]
                for p in range(TILE):
                    word = splat(builder, builder.load(builder.gep(pixel[p], [step.index])), WIDTH)
                    for v in range(VECTORS):
                        ones = builder.call(ctpop, [builder.and_(word, column[v])])
                        builder.store(builder.add(builder.load(slots[p][v]), ones), slots[p][v])
        for p in range(TILE):
            for v in range(VECTORS):
                place = place_of(builder, counts, p * LANES + v * WIDTH, vector)
                builder.store(builder.load(slots[p][v]), place, align=8)

    return signature, codegen
