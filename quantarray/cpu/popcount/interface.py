"""What every way to count is called as: the arguments of `count_tile`; and the tiles that are one pixel."""

from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import TILE, const, pointer


def by_pixels(builder, origins, emit):
    """emit(1) for a tile that one pixel fills, as a row of a matrix does, and emit(TILE) for others."""
    first, last = (builder.load(builder.gep(origins, [const(p)])) for p in (0, TILE - 1))
    # Said to be rare, or the loop over tiles that have four takes 3 % longer
    with builder.if_else(builder.icmp_signed("==", first, last), likely=False) as branches:
        for branch, pixels in zip(branches, (1, TILE), strict=True):
            with branch:
                emit(pixels)


def tile_counter(emit):
    """The `count_tile` whose LLVM code for the first `pixels` of a tile, of which the last is those that follow too, is
    emit(builder, pixels, differ, words, origins, weights, runs, first, last, counts)."""

    @intrinsic
    def count_tile(typingctx, words, word, origins, origin, weights, weight, runs, first, last, differ, counts):
        """counts[p, l] = sum over the runs of |a & b|, or of |a ^ b| where `differ` is -1 and not 0, with

            a = words[word + origins[origin + p] + at + k],   b = weights[weight + ..][l]

        The last pixel fills a tile up: the first and the last of a tile begin at one place only where all do. Runs
        first .. last of int64 runs[n 3] are (at, weight word, length k); a weight word is 32 lanes, laid out by the
        `lay_out` beside it. words and weights are uint64 of any shape, origins int64; counts, int32 or int64 [4 32], is
        overwritten. All arrays are C-contiguous and indexed flat from `word`, `origin` and `weight`: a slice would cost
        two atomic operations.
        """
        i64 = types.int64
        signature = types.void(words, i64, origins, i64, weights, i64, runs, i64, i64, i64, counts)

        def codegen(context, builder, signature, args):
            words, origins, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2, 4))
            runs, counts = (pointer(context, builder, signature, args, i) for i in (6, 10))
            rest = args[9], words, origins, weights, runs, args[7], args[8], counts
            by_pixels(builder, origins, lambda pixels: emit(builder, pixels, *rest))

        return signature, codegen

    return count_tile
