"""Pair the bytes of two pixels, and sum two neighbouring products: two taps at once cost what one does."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I32, const, place_of, pointer
from ..runtime.isa import COUNTING

CHANNELS = 64
PAIRS = 2 * CHANNELS  # bytes of two pixels
BITS = {"avx2": 256, "portable": 128, "neon": 128}.get(COUNTING, 512)  # of a register
_BYTES_BY = {256: "llvm.x86.avx2.pmadd.ub.sw", 512: "llvm.x86.avx512.pmaddubs.w.512"}
_WORDS_BY = {256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"}


@intrinsic
def pair_pixels(typingctx, codes, at, step, near, count, pairs, to):
    """pairs[to + 128 * c + 2 * i + s] = codes[at + c * step + s * near + i] for c < count, i < 64, s < 2: uint8."""
    i64 = types.int64
    signature = types.void(codes, i64, i64, i64, i64, pairs, i64)
    row = ir.VectorType(I8, CHANNELS)
    order = [i + s * CHANNELS for i in range(CHANNELS) for s in range(2)]

    def codegen(context, builder, signature, args):
        codes, pairs = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 5))
        with cgutils.for_range(builder, args[4]) as pixel:
            first = builder.mul(pixel.index, args[2])
            both = [
                builder.load(place_of(builder, codes, at, row), align=1) for at in (first, builder.add(first, args[3]))
            ]
            for half in (0, CHANNELS):
                lanes = ir.Constant(ir.VectorType(I32, CHANNELS), order[half : half + CHANNELS])
                place = place_of(builder, pairs, builder.add(builder.mul(pixel.index, const(PAIRS)), const(half)), row)
                builder.store(builder.shuffle_vector(*both, lanes), place, align=1)

    return signature, codegen


def add_pairs(builder, total, codes, values):
    """Return total[l] + codes[2 * l] * values[2 * l] + codes[2 * l + 1] * values[2 * l + 1] for a register's lanes.

    Bytes are uint8 by int8, for a total of 16 bits, which the sum of each pair fits; numbers of 16 bits are int16.
    """
    by_bytes = codes.type.element == I8
    name = (_BYTES_BY if by_bytes else _WORDS_BY).get(BITS)
    if name:
        kind = ir.FunctionType(total.type, [codes.type] * 2)
        return builder.add(
            total, builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [codes, values])
        )
    half = ir.Constant(total.type, [codes.type.element.width] * total.type.count)
    codes, values = (builder.bitcast(v, total.type) for v in (codes, values))
    low = builder.lshr(builder.shl(codes, half), half), builder.ashr(builder.shl(values, half), half)
    high = builder.lshr(codes, half), builder.ashr(values, half)
    return builder.add(total, builder.add(builder.mul(*low), builder.mul(*high)))
