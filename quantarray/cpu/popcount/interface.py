"""The `count_tile` interface, which all counting micro-kernels share, and tiles that are one pixel."""

from numba import types
from numba.extending import intrinsic

from ..llvm.vectors import TILE, Windows, const, pointer
from ..llvm.views import flat


def by_pixels(builder, origins, emit):
    """Emit code by emit(1) for a tile of a single pixel, such as a row of a matrix, and by emit(TILE) for others."""
    first, last = (builder.load(builder.gep(origins, [const(p)])) for p in (0, TILE - 1))
    # Marked as rare, or the loop over tiles that have four takes 3 % longer
    with builder.if_else(builder.icmp_signed("==", first, last), likely=False) as branches:
        for branch, pixels in zip(branches, (1, TILE), strict=True):
            with branch:
                emit(pixels)


def tile_counter(emit):
    """Build a `count_tile` from emit(builder, pixels, differ, windows, weights, counts), which writes its LLVM code.

    The code counts the first `pixels` of a tile; the last of them is used for all that follow.
    """

    @intrinsic
    def count_tile(typingctx, words, origins, weights, runs, differ, counts):
        """counts[p, l] = sum over the runs of |a & b|, or of |a ^ b| where `differ` is -1 and not 0, with

            a = words[origins[p] + at + k],   b = weights[weight word + k][l]

        The last pixel fills a tile up: the first and the last of a tile begin at one place only where all do. A run
        is (at, weight word, length k); a weight word is 32 lanes, laid out by the `lay_out` beside the micro-kernel.
        words, origins and weights are `View`s of uint64, int64 and uint64, runs a `RunSpan`; counts, int32 or int64
        [4 32], is overwritten.
        """
        signature = types.void(words, origins, weights, runs, types.int64, counts)

        def codegen(context, builder, signature, args):
            signature, args = flat(context, builder, signature, args)
            words, origins, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2, 4))
            runs, counts = (pointer(context, builder, signature, args, i) for i in (6, 10))
            windows = Windows(words, origins, runs, args[7], args[8])
            by_pixels(builder, origins, lambda pixels: emit(builder, pixels, args[9], windows, weights, counts))

        return signature, codegen

    return count_tile
