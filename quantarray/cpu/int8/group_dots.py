"""Dot products of bytes and of codes with a scale for each group: exact sums of 4 products, then 16 sums of float32.

Bits of planes become bytes in registers, 64 of an output at a time, for up to 4 rows; no weight is written to memory.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..float32.lane_dots import folded
from ..float32.product_tile import add_product
from ..llvm.vectors import F32, I8, I32, I64, const, own_function, place_of, pointer, slot_of, splat
from ..runtime.isa import FEATURES

ROWS = 4  # of a tile
_BYTES, _INTEGERS, _REALS = ir.VectorType(I8, 64), ir.VectorType(I32, 16), ir.VectorType(F32, 16)


@intrinsic
def dot_groups(typingctx, codes, shares, starts, sums, row, rows, words, at, between, planes, low, step, place, apart,
               group, length, out, to, next_row):  # fmt: skip
    """out[to + r next_row] = the sum that `group_product` has of `rows` rows, 1 or ROWS, from `row` on and an output.

    Its words begin at words[at], planes are `between` words apart, and there are `length`; constants from low[place]
    and step[place] on. Arrays are C-contiguous, and but for these indexed by rows.
    """
    i64 = types.int64
    signature = types.void(
        codes, shares, starts, sums, i64, i64, words, i64, i64, i64, low, step, i64, i64, i64, i64, out, i64, i64
    )

    def codegen(context, builder, signature, args):
        length, group = args[15], args[14]
        wide, narrow = builder.mul(length, const(64)), builder.mul(length, const(16))
        x = pointer(context, builder, signature, args, 0, builder.mul(args[4], wide))
        of_rows = [pointer(context, builder, signature, args, i, builder.mul(args[4], narrow)) for i in (1, 2, 3)]
        bits = pointer(context, builder, signature, args, 6, args[7])
        lows, steps = (pointer(context, builder, signature, args, i, args[12]) for i in (10, 11))
        target = pointer(context, builder, signature, args, 16, args[17])
        size = context.make_array(signature.args[10])(context, builder, args[10]).nitems
        kind = builder.select(builder.icmp_signed("==", group, const(16)), const(4), const(1))
        kind = builder.select(builder.icmp_signed("==", group, const(32)), const(2), kind)
        operands = [x, *of_rows, bits, args[8], args[9], lows, steps, args[13], group, length, target, args[18], size]
        for each in (4, 2, 1):
            for count in (ROWS, 1):
                same = builder.icmp_signed("==", kind, const(each)), builder.icmp_signed("==", args[5], const(count))
                with builder.if_then(builder.and_(*same)):
                    builder.call(_function(builder.module, count, each), operands)
        return context.get_dummy_value()

    return signature, codegen


def _function(module, rows, scales):
    """Build the loop over words for so many rows, and scales a word."""
    name = f"quantarray.dot_groups.{rows}.{scales}"
    if name in module.globals:
        return module.globals[name]
    byte, real, integer = (kind.as_pointer() for kind in (I8, F32, I32))
    kinds = [byte, real, integer, real, I64.as_pointer(), I64, I64, real, real, I64, I64, I64, real, I64, I64]
    function = own_function(module, name, kinds)
    builder = ir.IRBuilder(function.append_basic_block())
    x, shares, starts, sums, bits, between, planes, lows, steps, apart, group, length, to, next_row, size = (
        function.args
    )
    totals = [slot_of(builder, ir.Constant(_REALS, [0.0] * 16)) for _ in range(rows)]
    offset = builder.icmp_signed("!=", size, const(0))
    with cgutils.for_range(builder, length) as step:
        word = step.index
        weights = _bytes(builder, bits, word, between, planes, apart)
        scale = _spread(builder, steps, word, group, scales)
        for r, total in enumerate(totals):
            at = builder.add(builder.mul(length, const(r)), word)
            wide, narrow = builder.mul(at, const(64)), builder.mul(at, const(16))
            codes = builder.load(place_of(builder, x, wide, _BYTES), align=1)
            start = builder.load(place_of(builder, starts, narrow, _INTEGERS), align=4)
            whole = builder.sitofp(_dots(builder, start, weights, codes), _REALS)
            share = builder.load(place_of(builder, shares, narrow, _REALS), align=4)
            builder.store(add_product(builder, whole, builder.fmul(scale, share), builder.load(total)), total)
        with builder.if_then(offset):
            low = _spread(builder, lows, word, group, scales)
            for r, total in enumerate(totals):
                at = builder.mul(builder.add(builder.mul(length, const(r)), word), const(16))
                several = builder.load(place_of(builder, sums, at, _REALS), align=4)
                builder.store(add_product(builder, low, several, builder.load(total)), total)
    for r, total in enumerate(totals):
        place = builder.gep(to, [builder.mul(next_row, const(r))])
        builder.store(folded(builder, builder.load(total)), place)
    builder.ret_void()
    return function


def _bytes(builder, bits, word, between, planes, apart):
    """Return apart * code of 64 elements."""
    total = slot_of(builder, _BYTES(None))
    with cgutils.for_range(builder, planes) as plane:
        at = builder.add(word, builder.mul(plane.index, between))
        flags = builder.bitcast(builder.load(builder.gep(bits, [at])), ir.VectorType(ir.IntType(1), 64))
        value = splat(builder, builder.trunc(builder.shl(apart, plane.index), I8), 64)
        builder.store(builder.add(builder.load(total), builder.select(flags, value, _BYTES(None))), total)
    return builder.load(total)


def _spread(builder, constants, word, group, count):
    """Return 16 lanes with the constants of their groups, `count` of a word."""
    if count == 1:
        part = builder.udiv(builder.shl(word, const(6)), group)
        return splat(builder, builder.load(builder.gep(constants, [part])), 16)
    kind = ir.VectorType(F32, count)
    some = builder.load(place_of(builder, constants, builder.mul(word, const(count)), kind), align=4)
    lanes = ir.Constant(_INTEGERS, [lane * count // 16 for lane in range(16)])
    return builder.shuffle_vector(some, some, lanes)


def _dots(builder, start, weights, codes):
    """Return start + sums of 4 products of neighbours, of unsigned and signed bytes."""
    if "avx512vnni" in FEATURES:
        kind = ir.FunctionType(_INTEGERS, [_INTEGERS] * 3)
        dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        return builder.call(dot, [start, *(builder.bitcast(side, _INTEGERS) for side in (weights, codes))])
    wide = ir.VectorType(I32, 64)
    products = builder.mul(builder.zext(weights, wide), builder.sext(codes, wide))
    for first in range(4):
        every = ir.Constant(_INTEGERS, list(range(first, 64, 4)))
        start = builder.add(start, builder.shuffle_vector(products, products, every))
    return start
