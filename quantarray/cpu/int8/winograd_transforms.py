"""Winograd's F(2x2, 3x3) on bytes: squares of 4 by 4 pixels and of 3 by 3 taps become 16 numbers each, whose products
give 2 by 2 results. `docs/kernels/winograd.md` has the algebra.

    pixels   B^T d B,      rows of B^T   1 0 -1 0    0 1 1 0    0 -1 1 0   0 1 0 -1
    taps     G' g G'^T,    rows of G'    2 0 0       1 1 1      1 -1 1     0 0 2        (twice the usual ones)
    results  A^T m A / 4,  rows of A^T   1 1 1 0     0 1 -1 -1
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I32, I64, LANES, TILE, const, own_function, place_of, pointer, splat
from ..llvm.views import flat
from .expand import bytes_of, steps_of

SIDE, TAPS, PLACES = 4, 9, 16
MOST_TAP_PLANES = 4
_BYTES = 64
_ROW, _SUMS = ir.VectorType(I8, _BYTES), ir.VectorType(I32, 16)


def _pixels(builder, a, b, c, d):
    return builder.sub(a, c), builder.add(b, c), builder.sub(c, b), builder.sub(b, d)


def _taps(builder, a, b, c):
    ends = builder.add(a, c)
    return builder.add(a, a), builder.add(ends, b), builder.sub(ends, b), builder.add(c, c)


def _results(builder, a, b, c, d):
    return builder.add(builder.add(a, b), c), builder.sub(builder.sub(b, c), d)


def _transform(builder, transform, square):
    """Apply a transform along the columns of rows of vectors, then along the rows."""
    rows = zip(*(transform(builder, *column) for column in zip(*square, strict=True)), strict=True)
    return [vector for row in rows for vector in transform(builder, *row)]


@intrinsic
def fold_pixels(typingctx, codes, sources, words, offset, out):
    """out[i, k] = offset + (B^T d B)_i, for k < 64 * words, d_i = codes[sources[i] + k], modulo 256.

    i = 5, a sum of four pixels, has no offset. codes are uint8, sources a `View` of int64, out `Rows` of uint8.
    """
    i64 = types.int64
    signature = types.void(codes, sources, i64, i64, out)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        codes, out = (
            pointer(context, builder, signature, args, 0),
            pointer(context, builder, signature, args, 5, args[6]),
        )
        places = pointer(context, builder, signature, args, 1, args[2])
        pixels = [builder.gep(codes, [builder.load(builder.gep(places, [const(i)]))]) for i in range(PLACES)]
        rows = [builder.gep(out, [builder.mul(args[7], const(i))]) for i in range(PLACES)]
        more = splat(builder, builder.trunc(args[4], I8), _BYTES)
        with cgutils.for_range(builder, args[3]) as word:
            k = builder.mul(word.index, const(_BYTES))
            read = [builder.load(place_of(builder, pixel, k, _ROW), align=1) for pixel in pixels]
            square = [read[i : i + SIDE] for i in range(0, PLACES, SIDE)]
            for i, folded in enumerate(_transform(builder, _pixels, square)):
                value = folded if i == SIDE + 1 else builder.add(folded, more)
                builder.store(value, place_of(builder, rows[i], k, _ROW), align=1)

    return signature, codegen


@intrinsic
def fold_taps(typingctx, words, between, count, base, unit, out):
    """out[i, 64 * k + b] = (G' g G'^T)_i, i < 16, modulo 256, of taps g_t = base + unit * sum_j 2^j * bit b of a word,

    which is words[t * between + k + j * apart], t < 9, k < count. words are `Planes` of at most 4 planes, out `Rows` of
    uint8. Taps do not leave registers: written as bytes before, they took half as long again.
    """
    i64 = types.int64
    signature = types.void(words, i64, i64, i64, i64, out)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        words, out = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 8))
        planes, *rest = args[2:8]
        builder.call(_fold_taps(builder.module), [words, planes, *rest, out, args[10]])

    return signature, codegen


def _fold_taps(module):
    """Build one function for all places of a kernel."""
    name = "quantarray.fold_taps"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [I64.as_pointer(), *[I64] * 6, I8.as_pointer(), I64])
    builder = ir.IRBuilder(function.append_basic_block())
    words, planes, apart, between, count, base, unit, out, out_apart = function.args
    first, low = (splat(builder, builder.trunc(value, I8), _BYTES) for value in (base, unit))
    taps = [builder.gep(words, [builder.mul(between, const(t))]) for t in range(TAPS)]
    rows = [builder.gep(out, [builder.mul(out_apart, const(i))]) for i in range(PLACES)]
    after = function.append_basic_block()
    choice = builder.switch(planes, after)
    for number in range(1, MOST_TAP_PLANES + 1):
        block = function.append_basic_block()
        choice.add_case(const(number), block)
        builder.position_at_end(block)
        offsets, steps = [builder.mul(apart, const(j)) for j in range(number)], steps_of(builder, low, number)
        with cgutils.for_range(builder, count) as k:
            words_of_taps = [builder.gep(tap, [k.index]) for tap in taps]
            read = [
                bytes_of(builder, [builder.gep(word, [offset]) for offset in offsets], steps, first)
                for word in words_of_taps
            ]
            at = builder.mul(k.index, const(_BYTES))
            folded = _transform(builder, _taps, [read[i : i + 3] for i in range(0, TAPS, 3)])
            for row, value in zip(rows, folded, strict=True):
                builder.store(value, place_of(builder, row, at, _ROW), align=1)
        builder.branch(after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


class PixelConstants(NamedTuple):
    """extra[fixed[pixel] ..] + along * ones[pixel]: the constants of pixels `first` to `first` + 3."""

    extra: np.ndarray
    fixed: np.ndarray
    along: int
    ones: np.ndarray
    first: int


@intrinsic
def unfold(typingctx, sums, excess, step, constants, out):
    """out[p, l] = extra[fixed[p] + lane + l] + along * ones[p] + step * r[p, l], 4 pixels by 32 lanes, with

        r[p, l] = ((A^T m A)_p - excess[p, lane + l]) / 4,      m_i = sums[i, l],

    which is a whole number. sums are `Rows`, excess a `View` [4 lanes] from `lane` on, constants `PixelConstants`;
    sums, excess, extra and out are int32, fixed and ones int64.
    """
    signature = types.void(sums, excess, types.int64, constants, out)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        sums, fixed, ones = (
            pointer(context, builder, signature, args, i, args[j]) for i, j in ((0, 1), (7, 10), (9, 10))
        )
        excess, extra = (pointer(context, builder, signature, args, i, args[4]) for i in (3, 6))
        out = pointer(context, builder, signature, args, 11)
        rows = [builder.gep(sums, [builder.mul(args[2], const(i))]) for i in range(PLACES)]
        lanes = cgutils.unpack_tuple(builder, context.make_array(signature.args[3])(context, builder, args[3]).shape)[1]
        step = splat(builder, builder.trunc(args[5], I32), _SUMS.count)
        extras = [builder.gep(extra, [builder.load(builder.gep(fixed, [const(p)]))]) for p in range(TILE)]
        shifts = [
            splat(builder, builder.trunc(builder.mul(args[8], builder.load(builder.gep(ones, [const(p)]))), I32), 16)
            for p in range(TILE)
        ]
        for begin in range(0, LANES, _SUMS.count):
            read = [builder.load(place_of(builder, row, begin, _SUMS), align=4) for row in rows]
            square = [read[i : i + SIDE] for i in range(0, PLACES, SIDE)]
            for p, results in enumerate(_transform(builder, _results, square)):
                at = builder.add(builder.mul(lanes, const(p)), const(begin))
                exact = builder.sub(results, builder.load(place_of(builder, excess, at, _SUMS), align=4))
                exact = builder.ashr(exact, ir.Constant(_SUMS, [2] * _SUMS.count))
                value = builder.add(builder.load(place_of(builder, extras[p], begin, _SUMS), align=4), shifts[p])
                value = builder.add(value, builder.mul(step, exact))
                builder.store(value, place_of(builder, out, p * LANES + begin, _SUMS), align=4)

    return signature, codegen
