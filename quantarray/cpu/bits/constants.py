"""Constants of groups, as float32 or as integers times a float16 of each super-block, and rows of them as float32.

Super-blocks are multiplied where a product needs them, a row or a part of one at a time: of 4096 x 4096 weights in
groups of 16, an array of float32 would take 4 MiB, and as long to write and read as the product itself of one row.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import locked
from ...core.super_blocks import NIBBLE, SuperBlocks
from ..llvm.vectors import F32, I8, I16, I32, I64, const, place_of, pointer
from ..runtime.jit import inline

LANES, HALVES = 16, 8  # numbers that are repeated, and that are widened, together
_VECTOR = ir.VectorType(I32, LANES)
_FLOATS, _UNSIGNED, _SIGNED, _PAIRS = range(4)  # how they are stored
_NO_FLOATS = locked(np.empty(0, np.float32))
_NO_BYTES, _NO_HALVES = locked(np.empty(0, np.uint8)), locked(np.empty(0, np.int16))


class Numbers(NamedTuple):
    """A view of constants [outputs groups], all flat: of float32 `values`, or of integers and float16 as their bits."""

    values: np.ndarray
    integers: np.ndarray
    halves: np.ndarray
    form: int
    groups: int
    length: int  # bytes of integers of an output
    blocks: int  # float16 of an output
    run: int  # groups of a float16


def numbers_of(constants):
    """View float32 [outputs groups] or `SuperBlocks` of that shape."""
    if not isinstance(constants, SuperBlocks):
        return Numbers(constants.reshape(-1), _NO_BYTES, _NO_HALVES, _FLOATS, constants.shape[1], 0, 0, 0)
    integers, halves = constants.stored, constants.halves
    form = _PAIRS if constants.bits == NIBBLE else _SIGNED if integers.dtype == np.int8 else _UNSIGNED
    flat = (integers.view(np.uint8).reshape(-1), halves.view(np.int16).reshape(-1))
    groups, blocks = constants.shape[1], halves.shape[1]
    return Numbers(_NO_FLOATS, *flat, form, groups, integers.shape[1], blocks, groups // max(1, blocks))


@inline
def is_none(numbers):
    """True for constants of no output."""
    return numbers.groups == 0


@inline
def are_floats(numbers):
    """True for constants that are stored as float32."""
    return numbers.form == _FLOATS


@inline
def address_of(numbers):
    """Return where the constants of the first output are, or their integers."""
    return np.int64(numbers.values.ctypes.data if numbers.form == _FLOATS else numbers.integers.ctypes.data)


@inline
def size_of(numbers):
    """Return the bytes of an output's constants, or of their integers, from one output to the next."""
    return 4 * numbers.groups if numbers.form == _FLOATS else numbers.length


@inline
def scratch_of(numbers):
    """Count the float32 that `put_numbers` needs as scratch."""
    return numbers.blocks + numbers.groups + 2 * LANES


@inline
def put_numbers(numbers, o, first, last, each, scratch, to, place):
    """to[place + n - first] = constant n // each of output o, for n from first to last; first a multiple of 16.

    scratch float32[scratch_of(numbers)]; all are flat.
    """
    if numbers.form == _FLOATS:
        _repeat(numbers.values, o * numbers.groups, numbers.groups, first, last, each, to, place)
        return
    if each == 1:
        _put_stored(numbers, o, first, last, scratch, to, place)
        return
    # each is computed once, by vectors, and repeated: unit by unit took 10 times as long as a product of one row
    begin, end, at = first // each // LANES * LANES, (last - 1) // each + 1, numbers.blocks + LANES
    _put_stored(numbers, o, begin, end, scratch, scratch, at)
    _repeat(scratch, at - begin, end, first, last, each, to, place)


@inline
def _put_stored(numbers, o, first, last, scratch, to, place):
    """to[place + n - first] = stored constant n of output o, for n from first to last; first a multiple of 16."""
    run = numbers.run
    begin = first // run if first else 0
    halves, row = numbers.blocks - begin, o * numbers.blocks + begin
    widen_halves(numbers.halves, row, halves // HALVES, scratch)
    for b in range(halves // HALVES * HALVES, halves):
        scratch[b] = half_value(numbers.halves[row + b])
    vectors = 0
    if run in (8, LANES):
        vectors = (last - first) // LANES
        at = o * numbers.length + (first // 2 if numbers.form == _PAIRS else first)
        put_products(numbers.integers, at, numbers.form, scratch, run, vectors, to, place)
    for n in range(first + vectors * LANES, last):
        value = scratch[n // run - begin] * _integer(numbers, o, n)
        to[place + n - first] = value + np.float32(0)  # -0 becomes 0


@inline
def _integer(numbers, o, g):
    """Return one integer as float32."""
    if numbers.form == _PAIRS:
        return np.float32(numbers.integers[o * numbers.length + g // 2] >> g % 2 * 4 & 15)
    one = numbers.integers[o * numbers.length + g]
    return np.float32(np.int8(one)) if numbers.form == _SIGNED else np.float32(one)


@inline
def _repeat(values, at, count, first, last, each, to, place):
    """to[place + n - first] = values[at + min(n // each, count - 1)] for n from first to last."""
    vectors = (last - first) // LANES if each in (1, 2, 4, 8) or each % LANES == 0 else 0
    repeat_floats(values, at, first, each, vectors, to, place)
    for n in range(first + vectors * LANES, last):
        to[place + n - first] = values[at + min(n // each, count - 1)]


@intrinsic
def half_value(typingctx, bits):
    """Return the float32 of a finite float16, as its bits in int16."""
    signature = types.float32(types.int16)

    def codegen(context, builder, signature, args):
        one = builder.bitcast(args[0], ir.VectorType(I16, 1))
        return builder.extract_element(_widened(builder, one), ir.Constant(I32, 0))

    return signature, codegen


@intrinsic
def widen_halves(typingctx, halves, at, vectors, to):
    """to[i] = `half_value` of halves[at + i], i < 8 * vectors."""
    signature = types.void(halves, types.int64, types.int64, to)

    def codegen(context, builder, signature, args):
        data, target = (pointer(context, builder, signature, args, i, of) for i, of in ((0, args[1]), (3, None)))
        with cgutils.for_range(builder, args[2]) as step:
            lane = builder.mul(step.index, const(HALVES))
            bits = builder.load(place_of(builder, data, lane, ir.VectorType(I16, HALVES)), align=2)
            builder.store(_widened(builder, bits), place_of(builder, target, lane, ir.VectorType(F32, HALVES)), align=4)
        return context.get_dummy_value()

    return signature, codegen


def _widened(builder, bits):
    """Return the float32 of a vector of finite float16, as bits: exponents begin 112 lower than float32's.

    Those below 2^-14 are added to it and it is taken away, as numbers below 2^-126 would take 100 times as long.
    """
    ints, floats = (ir.VectorType(kind, bits.type.count) for kind in (I32, F32))
    all_of = partial(_all, bits.type.count)
    wide = builder.zext(bits, ints)
    size, sign = (builder.and_(wide, all_of(ints, n)) for n in (0x7FFF, 0x8000))
    place, small = builder.shl(size, all_of(ints, 13)), all_of(ints, 113 << 23)
    normal = builder.add(place, all_of(ints, 112 << 23))
    low = builder.fsub(*(builder.bitcast(of, floats) for of in (builder.add(place, small), small)))
    is_low = builder.icmp_unsigned("<", size, all_of(ints, 0x400))
    value = builder.select(is_low, builder.bitcast(low, ints), normal)
    return builder.bitcast(builder.or_(value, builder.shl(sign, all_of(ints, 16))), floats)


def _all(count, kind, value):
    return ir.Constant(kind, [value] * count)


@intrinsic
def put_products(typingctx, integers, at, form, factors, wide, vectors, to, place):
    """to[place + i] = factors[i // wide] * (integer i from integers[at] on) + 0, float32, i < 16 * vectors.

    wide is 8 or 16. integers uint8, of a `form`: two integers are in a byte, the first in its low bits, or one with or
    without a sign.
    """
    i64 = types.int64
    signature = types.void(integers, i64, i64, factors, i64, i64, to, i64)

    def codegen(context, builder, signature, args):
        places = (0, args[1]), (3, None), (6, args[7])
        data, of, target = (pointer(context, builder, signature, args, i, offset) for i, offset in places)
        floats = ir.VectorType(F32, LANES)
        for form in (_UNSIGNED, _SIGNED, _PAIRS):
            for wide in (8, LANES):
                is_form, is_wide = (builder.icmp_signed("==", args[i], const(n)) for i, n in ((2, form), (4, wide)))
                with builder.if_then(builder.and_(is_form, is_wide)), cgutils.for_range(builder, args[5]) as step:
                    lane, count = builder.mul(step.index, const(LANES)), LANES // wide
                    first = builder.mul(step.index, const(count))
                    some = builder.load(place_of(builder, of, first, ir.VectorType(F32, count)), align=4)
                    lanes = ir.Constant(ir.VectorType(I32, LANES), [i // wide for i in range(LANES)])
                    factor, whole = builder.shuffle_vector(some, some, lanes), _loaded(builder, data, step.index, form)
                    value = builder.fadd(builder.fmul(factor, whole), _all(LANES, floats, 0.0))
                    builder.store(value, place_of(builder, target, lane, floats), align=4)
        return context.get_dummy_value()

    return signature, codegen


def _loaded(builder, data, vector, form):
    """Load 16 integers as float32."""
    count = LANES // 2 if form == _PAIRS else LANES
    at = builder.mul(vector, const(count))
    whole = builder.load(place_of(builder, data, at, ir.VectorType(I8, count)), align=1)
    if form == _PAIRS:
        low, high = builder.and_(whole, _all(count, whole.type, 15)), builder.lshr(whole, _all(count, whole.type, 4))
        order = ir.Constant(ir.VectorType(I32, LANES), [n // 2 + n % 2 * count for n in range(LANES)])
        whole = builder.shuffle_vector(low, high, order)
    return (builder.sitofp if form == _SIGNED else builder.uitofp)(whole, ir.VectorType(F32, LANES))


@intrinsic
def repeat_floats(typingctx, values, at, first, each, vectors, to, place):
    """to[place + i] = values[at + (first + i) // each], float32, i < 16 * vectors; first a multiple of 16.

    each is 1, 2, 4, 8 or a multiple of 16. Both are indexed flat.
    """
    i64 = types.int64
    signature = types.void(values, i64, i64, i64, i64, to, i64)

    def codegen(context, builder, signature, args):
        data, target = (pointer(context, builder, signature, args, i, args[j]) for i, j in ((0, 1), (5, 6)))
        whole = ir.VectorType(F32, LANES)
        for count in (1, 2, 4, 8, LANES):
            test = builder.icmp_unsigned("==" if count < LANES else ">=", args[3], const(count))
            with builder.if_then(test), cgutils.for_range(builder, args[4]) as step:
                lane = builder.mul(step.index, const(LANES))
                several = ir.VectorType(F32, LANES // count)
                unit, each = builder.add(args[2], lane), args[3] if count == LANES else const(count)
                at = builder.zext(builder.udiv(*(builder.trunc(n, I32) for n in (unit, each))), I64)  # of 64 bits: slow
                some = builder.load(place_of(builder, data, at, several), align=4)
                lanes = ir.Constant(_VECTOR, [lane // count for lane in range(LANES)])
                value = builder.shuffle_vector(some, some, lanes)
                builder.store(value, place_of(builder, target, lane, whole), align=4)
        return context.get_dummy_value()

    return signature, codegen
