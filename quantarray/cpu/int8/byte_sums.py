"""Sums of products of bytes in registers, by VNNI, by pairs of bytes where 16 bits hold these, or by words."""

from llvmlite import ir

from ..llvm.vectors import I16, I32
from ..runtime.isa import COUNTING, FEATURES
from . import dot_avx2, dot_avx512bw
from .dot_avx512vnni import Vnni

WIDE = COUNTING == "avx512bw" or "avx512bw" in FEATURES  # an instruction set that is asked for has no features
VNNI = "avx512vnni" in FEATURES
_PAIRS = not VNNI and (WIDE or COUNTING == "avx2" or "avx2" in FEATURES)
_DOTS = dot_avx512bw if WIDE else dot_avx2
AT_ONCE = _DOTS.SHORT.lanes if _PAIRS else 16  # lanes of 32 bits that are multiplied at once


class Quads:
    """Add 4 products of neighbours, of uint8 and int8, to a lane of 32 bits."""

    KIND = ir.VectorType(I32, AT_ONCE)

    @staticmethod
    def add(builder, total, weights, codes):
        if VNNI:
            return Vnni.add(builder, total, weights, codes)
        # Products of even and of odd bytes, as words
        halves = ir.VectorType(I16, 2 * AT_ONCE)
        eight = ir.Constant(halves, [8] * halves.count)
        w, a = (builder.bitcast(side, halves) for side in (weights, codes))
        even = builder.and_(w, ir.Constant(halves, [255] * halves.count)), builder.ashr(builder.shl(a, eight), eight)
        odd = builder.lshr(w, eight), builder.ashr(a, eight)
        kind = ir.VectorType(I32, 2 * AT_ONCE)
        for pair in (even, odd):
            products = builder.mul(*(builder.sext(side, kind) for side in pair))
            for first in (0, 1):
                every = ir.Constant(Quads.KIND, list(range(first, 2 * AT_ONCE, 2)))
                total = builder.add(total, builder.shuffle_vector(products, products, every))
        return total

    @staticmethod
    def whole(builder, total):
        """Return the sums in 32 bits."""
        return total


class Words(Quads):
    """Add products of words."""

    @staticmethod
    def add(builder, total, weights, codes):
        wide = _DOTS.WIDE
        return wide.add(builder, total, wide.parts(builder, weights, False), wide.parts(builder, codes, True))


class Pairs(Quads):
    """Add pairs of products, of codes up to 127, which have 16 bits."""

    @staticmethod
    def add(builder, total, weights, codes):
        short = _DOTS.SHORT
        return builder.add(total, short.whole(builder, short.add(builder, short.sums(None), weights, codes)))


class Shorts(Quads):
    """Add products of codes up to 15 in 16 bits, which hold a unit's: 8 times 2 products of 15 and -128."""

    KIND = ir.VectorType(I16, 2 * AT_ONCE)

    @staticmethod
    def add(builder, total, weights, codes):
        return _DOTS.SHORT.add(builder, total, weights, codes)

    @staticmethod
    def whole(builder, total):
        return _DOTS.SHORT.whole(builder, total)


# Planes of codes up to which an adder takes them
ADDERS = {4: Shorts, 7: Pairs, 8: Words} if _PAIRS else {8: Quads}


def adder_of(planes):
    """Return what adds products of codes of so many planes."""
    return next(adder for most, adder in ADDERS.items() if planes <= most)
