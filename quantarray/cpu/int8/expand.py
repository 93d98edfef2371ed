"""Expand bit-planes to bytes, 64 at a time: a word of a plane is the mask of one addition with AVX-512.

Between two kernels that multiply bytes a plan stores codes as bytes (`nn/plan/stored_bytes.py`): words uint64[1 8 *
words], 64 codes for each word of the planes that they replace. A kernel sees it by the one plane for several bits.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I64, LANES, const, own_function, place_of, pointer, splat
from ..llvm.views import Planes, View, flat
from ..runtime.jit import inline

MOST_PLANES = 8
_BITS = 64
_CODES = 8  # words of codes as bytes for a word of planes
_ROW = ir.VectorType(I8, _BITS)


@intrinsic
def expand(typingctx, words, step, count, base, unit, codes):
    """codes[64 * k + i] = base + unit * sum_j 2^j * (bit i of words[k * step + j * apart]), k < count, modulo 256.

    words are `Planes` of uint64, codes a `View` of uint8, which may be read as int8.
    """
    i64 = types.int64
    signature = types.void(words, i64, i64, i64, i64, codes)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        words, codes = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 8))
        planes, apart, step, *rest = args[2:8]
        builder.call(_function(builder.module), [words, step, apart, planes, *rest, codes])

    return signature, codegen


def _function(module):
    """Build one function for all places of a kernel: with the code inlined, a first product took 21 s instead of 12."""
    name = "quantarray.expand"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [I64.as_pointer(), *[I64] * 6, I8.as_pointer()])
    builder = ir.IRBuilder(function.append_basic_block())
    words, step, apart, planes, count, base, unit, codes = function.args
    first, low = (splat(builder, builder.trunc(value, I8), _BITS) for value in (base, unit))
    after = function.append_basic_block()
    choice = builder.switch(planes, after)
    for number in range(1, MOST_PLANES + 1):
        block = function.append_basic_block()
        choice.add_case(const(number), block)
        builder.position_at_end(block)
        rows = [builder.gep(words, [builder.mul(apart, const(j))]) for j in range(number)]
        _expand(builder, rows, step, count, first, low, codes)
        builder.branch(after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


def _expand(builder, rows, stride, count, base, unit, codes):
    """Write the loop for some planes, each a row of words: an inner loop over planes took twice as long."""
    steps = steps_of(builder, unit, len(rows))
    with cgutils.for_range(builder, count) as k:
        at = builder.mul(k.index, stride)
        total = bytes_of(builder, [builder.gep(row, [at]) for row in rows], steps, base)
        builder.store(total, place_of(builder, codes, builder.mul(k.index, const(_BITS)), _ROW), align=1)


def steps_of(builder, unit, planes):
    """Return what a bit of each plane adds to a byte: `unit`, and twice as much as the one before."""
    steps = [unit]
    for _ in range(1, planes):
        steps.append(builder.add(steps[-1], steps[-1]))
    return steps


def bytes_of(builder, words, steps, base):
    """Return 64 bytes, `base` and the steps of planes whose bits are set, from a pointer to a word of each plane."""
    total = base
    for word, step in zip(words, steps, strict=True):
        bits = builder.bitcast(builder.load(word), ir.VectorType(ir.IntType(1), _BITS))
        total = builder.add(total, builder.select(bits, step, ir.Constant(_ROW, None)))
    return total


@inline
def are_bytes(x):
    """Return True where a left operand has codes as bytes."""
    return x.words.shape[0] == 1 and x.terms[0, 1] > 1


@inline
def bring_codes(x, word, step, count, codes):
    """codes[64 * k ..] = the codes of word `word` + k * step of a left operand, for k < count."""
    if are_bytes(x):
        copy_lines(View(x.words, word * _CODES), step, count, codes)
    else:
        plane = x.words.shape[1]
        expand(Planes(x.words, x.terms[0, 0] * plane + word, x.terms[0, 1], plane), step, count, 0, 1, codes)


@intrinsic
def copy_lines(typingctx, words, step, count, codes):
    """Copy 64 bytes `count` times, from each `step` lines of 64 bytes; words are a `View` of uint64, codes of uint8."""
    i64 = types.int64
    signature = types.void(words, i64, i64, codes)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        words, codes = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 4))
        words, line = builder.bitcast(words, I8.as_pointer()), const(_BITS)
        with cgutils.for_range(builder, args[3]) as k:
            at = builder.mul(builder.mul(k.index, args[2]), line)
            row = builder.load(place_of(builder, words, at, _ROW), align=8)
            builder.store(row, place_of(builder, codes, builder.mul(k.index, line), _ROW), align=1)

    return signature, codegen


@intrinsic
def copy_bytes(typingctx, words, at, size, length, base, codes, start):
    """codes[start + i] = words[at + i] - base, modulo 256, for i < length; then zeros up to a multiple of 64 bytes.

    Both are uint8, C-contiguous and indexed flat; `size` bytes of words may be read.
    """
    i64 = types.int64
    signature = types.void(words, i64, i64, i64, i64, codes, i64)

    def codegen(context, builder, signature, args):
        words, codes = (pointer(context, builder, signature, args, i, args[j]) for i, j in ((0, 1), (5, 6)))
        low = builder.trunc(args[4], I8)
        lanes = ir.Constant(_ROW, list(range(_BITS)))
        left = builder.sub(args[2], args[1])  # bytes from `at` to the end
        pieces = builder.sdiv(builder.add(args[3], const(_BITS - 1)), const(_BITS))
        with cgutils.for_range(builder, pieces) as piece:
            k = builder.mul(piece.index, const(_BITS))
            readable = builder.icmp_signed("<=", builder.add(k, const(_BITS)), left)
            rest = builder.sub(args[3], k)
            with builder.if_else(readable, likely=True) as (whole, ragged):
                with whole:
                    read = builder.load(place_of(builder, words, k, _ROW), align=1)
                    differences = builder.sub(read, splat(builder, low, _BITS))
                    full = builder.icmp_signed(">=", rest, const(_BITS))
                    count = builder.select(full, const(_BITS), rest)
                    inside = builder.icmp_unsigned("<", lanes, splat(builder, builder.trunc(count, I8), _BITS))
                    value = builder.select(inside, differences, ir.Constant(_ROW, None))
                    builder.store(value, place_of(builder, codes, k, _ROW), align=1)
                with ragged:
                    with cgutils.for_range(builder, const(_BITS)) as step:
                        i = builder.add(k, step.index)
                        place = builder.gep(codes, [i])
                        builder.store(ir.Constant(I8, 0), place)
                        with builder.if_then(builder.icmp_signed("<", i, args[3])):
                            builder.store(builder.sub(builder.load(builder.gep(words, [i])), low), place)

    return signature, codegen


@intrinsic
def clear_bytes(typingctx, codes, start, length):
    """codes[start + i] = 0 for i < length."""

    def codegen(context, builder, signature, args):
        cgutils.memset(builder, pointer(context, builder, signature, args, 0, args[1]), args[2], 0)

    return types.void(codes, types.int64, types.int64), codegen


def lay_out_quads(words):
    """Lay out weight words[.. 32] so that 64 bits are 16 channels by 4 neighbours, a row of bytes for `dot_tile`."""
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    by_quad = bits.reshape(*words.shape[:-1], LANES, _BITS // 4, 4).swapaxes(-2, -3)
    return np.packbits(by_quad.reshape(*words.shape[:-1], -1), axis=-1, bitorder="little").view(np.uint64)
