"""Transpose squares of fields of bits: field l of word q and field q of word l change places."""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .vectors import I64, LANES, WIDTH, const, place_of, pointer

_ROW = ir.VectorType(I64, WIDTH)


def _transposer(bits):
    """Transpose fields of so many bits in each of the 8 columns of 32 words: squares of 64 / bits rows.

    Halves of a square first, then halves of these. Auto-vectorisation would store every step, or none at all: 4.4 MB
    took 45 ms.
    """
    size = 64 // bits
    distances = [size >> step for step in range(1, size.bit_length())]

    @intrinsic
    def turn(typingctx, square):
        def codegen(context, builder, signature, args):
            data = pointer(context, builder, signature, args, 0, const(0))
            for first in range(0, LANES, size):
                places = [place_of(builder, data, const((first + i) * WIDTH), _ROW) for i in range(size)]
                rows = [builder.load(place, align=8) for place in places]
                for distance in distances:
                    _exchange(builder, rows, distance, bits)
                for place, row in zip(places, rows, strict=True):
                    builder.store(row, place, align=8)

        return types.void(square), codegen

    return turn


def _exchange(builder, rows, distance, bits):
    """Swap the upper of each two runs of `distance` fields with the lower one of the word `distance` rows below."""
    run = distance * bits
    shift, mask = (ir.Constant(_ROW, [n] * WIDTH) for n in (run, (2**64 - 1) // (2**run + 1)))
    for i in (i for i in range(len(rows)) if not i & distance):
        upper, lower = rows[i], rows[i + distance]
        changed = builder.and_(builder.xor(builder.lshr(upper, shift), lower), mask)
        rows[i], rows[i + distance] = builder.xor(upper, builder.shl(changed, shift)), builder.xor(lower, changed)


transpose_quads, transpose_bytes = _transposer(4), _transposer(8)
