"""Dot products of one to four rows and packed weights: codes go from bits to sums in registers.

A panel of bytes is worth its writes and reads where more rows meet it. With constants of groups, the sums are those of
`group_dots`; without, they are integers.
"""

from functools import partial, reduce
from itertools import product
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..float32.product_tile import add_product
from ..llvm.vectors import F32, I8, I32, I64, const, joined, lanes_of, own_function, place_of, pointer, slot_of
from ..llvm.views import flat
from .byte_sums import AT_ONCE, VNNI, Quads, Shorts, adder_of
from .group_bytes import BYTES, LANES, ask_ahead, codes_of_lanes, lanes_of_groups, raised_codes_of_lanes
from .group_dots import IN_HALVES, INTEGERS, PLANES, REALS, add_groups, call_one, factor, sums_of

MOST_ROWS = 4
REPEATED = 1, 2, 4, 8, 16  # units of a constant that are in one block
_CHAINS = 2  # sums of one row: eight products that wait for each other took 8 to 15 % longer (Emerald Rapids)
SHORT = 1, 2, 4  # words of rows of which a block of `dot_byte_rows` has several


class RowsOfWords(NamedTuple):
    """A view of packed weights, flat: each output has `length` words of a plane, planes are `between` words apart."""

    words: np.ndarray
    at: int
    length: int
    between: int
    planes: int


class RowsOfConstants(NamedTuple):
    """A view of float32 constants at an address, those of outputs `apart` from each other; or none, at 0.

    A block has `count` of them, 16 or a part of 16. They were computed from, or are, `size` bytes of each output from
    the address `stored` on.
    """

    place: int
    apart: int
    stored: int
    size: int
    count: int


@intrinsic
def dot_group_rows(typingctx, x, rows, begin, w, blocks, unit, scales, lows, apart, outputs, totals):
    """totals[16 (rows o + r) + i] += the products of row r of `ByteRows` and output o of packed weights, r < rows.

    Of `RowsOfWords`, in `blocks` blocks of a row, from block `begin` of x and of `RowsOfConstants` on, of which lows
    may be none: sum i has groups i, i + 16, .. as `group_product` adds them. rows is 1 to MOST_ROWS.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, w, i64, i64, scales, lows, i64, i64, totals)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        x_blocks, rows, begin, _, at, length, between, planes, blocks, unit = args[4:14]
        scales, lows = args[14:19], args[19:24]
        apart, outputs = args[24:26]
        wide, narrow = builder.mul(builder.lshr(unit, const(2)), const(BYTES)), const(LANES)
        x = pointer(context, builder, signature, args, 0, builder.mul(begin, wide))
        of_rows = [pointer(context, builder, signature, args, i, builder.mul(begin, narrow)) for i in (1, 2, 3)]
        words, target = (pointer(context, builder, signature, args, i, first) for i, first in ((7, at), (26, None)))
        operands = [
            x, *of_rows, x_blocks, words, length, between, begin, *scales, *lows, blocks, apart, outputs, target
        ]  # fmt: skip
        _call(builder, _function, (16, 32), (rows, unit, planes), operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fold_rows(typingctx, totals, at, apart, out, to):
    """out[to + n] = sum of totals[at + n apart ..], 16 lanes each, n < 16, in the order of `row_product`."""
    i64 = types.int64
    signature = types.void(totals, i64, i64, out, i64)

    def codegen(context, builder, signature, args):
        data, target = (pointer(context, builder, signature, args, i, args[j]) for i, j in ((0, 1), (3, 4)))
        builder.call(_folding(builder.module), [data, args[2], target])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def dot_byte_rows(typingctx, x, rows, blocks, words, between, length, apart, planes, first, last, out):
    """out[r apart + 16 (o - first) + i] = parts, i < 16, of the sum of products of row r of x and the packed weights of
    output o, first <= o < last.

    Planes are `between` words apart, the first from words[0] on, and have a row of `length` words for each output.
    Block b of x int8[rows blocks 8 64] has the bytes for the 8 words from 8 b on, the last block for the last 8 words,
    in the order of `spread`; the words after a shorter row are read too, and meet zeros. out int32; rows is 1 to
    MOST_ROWS.

    Where a row has 1, 2 or 4 words, a block has 8, 4 or 2 outputs, with the row's bytes for each, and
    out[r apart + lanes (o - first) + i] are `lanes` parts of an output's sum, 16 of a block.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, words, i64, i64, i64, i64, i64, i64, out)

    def codegen(context, builder, signature, args):
        _, rows, blocks, _, between, length, apart, planes, first, last, _ = args
        x, w, target = (pointer(context, builder, signature, args, i) for i in (0, 3, 10))
        operands = [x, blocks, w, between, length, apart, first, last, target]
        _call(builder, _counting, (32,), (rows, const(32), planes), operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_lanes(typingctx, lanes, at, vectors, width):
    """Put the sums of each `width` lanes of so many vectors from lanes[at] on one after another, from there on.

    int32, width 2, 4, 8 or 16; so many vectors are read at once, which the array must have room for.
    """
    signature = types.void(lanes, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        data, count = pointer(context, builder, signature, args, 0, args[1]), args[2]
        for width in (2, 4, 8, 16):
            steps = builder.udiv(builder.add(count, const(width - 1)), const(width))
            with builder.if_then(builder.icmp_signed("==", args[3], const(width))):
                with cgutils.for_range(builder, steps) as step:
                    begin = builder.mul(step.index, const(width * LANES))
                    places = [builder.add(begin, const(i * LANES)) for i in range(width)]
                    parts = [builder.load(place_of(builder, data, place, INTEGERS), align=4) for place in places]
                    while len(parts) > 1:
                        parts = [_pairs(builder, *two) for two in zip(parts[::2], parts[1::2], strict=True)]
                    to = place_of(builder, data, builder.mul(step.index, const(LANES)), INTEGERS)
                    builder.store(parts[0], to, align=4)
        return context.get_dummy_value()

    return signature, codegen


def _pairs(builder, first, second):
    """Return the sums of neighbouring lanes of two vectors."""
    orders = [ir.Constant(INTEGERS, list(range(side, 2 * LANES, 2))) for side in (0, 1)]
    return builder.add(*[builder.shuffle_vector(first, second, order) for order in orders])


def _call(builder, function_of, units, form, operands):
    """Call function_of(rows, unit, planes, module) for the form of rows, unit, planes that is passed."""
    rows, unit, planes = form
    number = builder.add(builder.shl(unit, const(4)), builder.add(planes, builder.shl(rows, const(10))))
    forms = product(range(1, MOST_ROWS + 1), units, range(1, PLANES + 1))
    cases = {
        (height << 10) + (width << 4) + count: partial(function_of, height, width, count)
        for height, width, count in forms
    }
    call_one(builder, number, cases, operands)


def _products(builder, x, of_rows, block, places, unit):
    """Return each row's sums of products of its bytes in a block and the codes of the planes at `places`.

    They begin with 0 in each block, as instructions that add to the sums of the last one would wait for it. One row has
    `_CHAINS` of them.
    """
    vectors, adder, of_parts = unit // 4, adder_of(len(places)), []
    chains = _CHAINS if VNNI and len(of_rows) == 1 else 1
    for place in places:
        ask_ahead(builder, place)
    lanes = [lanes_of_groups(builder, place, unit) for place in places]
    firsts = [builder.mul(builder.add(before, block), const(vectors * BYTES)) for before in of_rows]
    for first in range(0, LANES, AT_ONCE):
        some = [lanes_of(builder, lane, first, AT_ONCE) for lane in lanes]
        sums, last = [[adder.KIND(None)] * chains for _ in of_rows], 0
        for v, codes, place in _codes(builder, some, vectors, len(of_rows)):
            down = ir.Constant(adder.KIND, [max(0, last - place)] * adder.KIND.count)
            for parts, at in zip(sums, firsts, strict=True):
                if place < last:
                    parts[:] = [builder.ashr(part, down) for part in parts]
                at = builder.add(at, const(v * BYTES + 4 * first))
                row = builder.load(place_of(builder, x, at, Quads.KIND), align=4)
                parts[v % chains] = adder.add(builder, parts[v % chains], codes, row)
            last = place
        of_parts.append([adder.whole(builder, reduce(builder.add, parts)) for parts in sums])
    return [joined(builder, list(parts)) for parts in zip(*of_parts, strict=True)]


def _codes(builder, lanes, vectors, rows):
    """Yield (v, codes times 2**place, place): of one row codes are taken where they are in a byte, or in half of it.

    Its sums are moved then, which takes more of many rows than to move the codes that all meet.
    """
    adder = adder_of(len(lanes))
    if rows == 1 and (VNNI or adder is Shorts):
        yield from raised_codes_of_lanes(builder, lanes, vectors, 4 if adder is Shorts else 8)
    else:
        yield from ((v, codes, 0) for v, codes in enumerate(codes_of_lanes(builder, lanes, vectors)))


def planes_of(builder, words, between, planes):
    return [builder.gep(words, [builder.mul(between, const(plane))]) for plane in range(planes)]


def _counting(rows, unit, planes, module):
    """Build the loops over outputs and blocks of `dot_byte_rows`."""
    name = f"quantarray.dot_byte_rows.{rows}.{planes}"
    if name in module.globals:
        return module.globals[name]
    word, lane = I64.as_pointer(), I32.as_pointer()
    function = own_function(module, name, [I8.as_pointer(), I64, word, I64, I64, I64, I64, I64, lane])
    builder = ir.IRBuilder(function.append_basic_block())
    x, blocks, words, between, length, apart, first, last, out = function.args
    of_planes = planes_of(builder, words, between, planes)
    of_rows = [builder.mul(blocks, const(r)) for r in range(rows)]
    end = builder.sub(length, const(unit // 4))  # where the last block begins
    end = builder.select(builder.icmp_signed("<", end, const(0)), const(0), end)
    at_once = const(1)
    for words_of_row in SHORT:
        short = builder.icmp_signed("==", length, const(words_of_row))
        at_once = builder.select(short, const(unit // 4 // words_of_row), at_once)
    with cgutils.for_range_slice(builder, first, last, at_once, I64) as (o, number):
        row = builder.mul(o, length)
        slots = [slot_of(builder, INTEGERS(None)) for _ in of_rows]
        with cgutils.for_range(builder, blocks) as block:
            before = builder.mul(block.index, const(unit // 4))
            at = builder.add(row, builder.select(builder.icmp_signed("<", before, end), before, end))
            places = [builder.gep(plane, [at]) for plane in of_planes]
            sums = _products(builder, x, of_rows, block.index, places, unit)
            for slot, total in zip(slots, sums, strict=True):
                builder.store(builder.add(builder.load(slot), total), slot)
        at = builder.mul(number, const(LANES))
        for r, slot in enumerate(slots):
            to = builder.gep(out, [builder.mul(apart, const(r))])
            builder.store(builder.load(slot), place_of(builder, to, at, INTEGERS), align=4)
    builder.ret_void()
    return function


def _function(rows, unit, planes, module):
    """Build the loops over outputs and blocks for so many rows and planes, of groups of `unit` elements."""
    name = f"quantarray.dot_group_rows.{rows}.{unit}.{planes}"
    if name in module.globals:
        return module.globals[name]
    byte, real, word = I8.as_pointer(), F32.as_pointer(), I64.as_pointer()
    kinds = [byte, real, real, real, I64, word, *[I64] * 16, real]
    function = own_function(module, name, kinds)
    builder = ir.IRBuilder(function.append_basic_block())
    x, shares, starts, sums, row_blocks, words, length, between, begin, *rest = function.args
    of_scales, of_lows = (RowsOfConstants(*rest[i : i + 5]) for i in (0, 5))
    blocks, apart, outputs, totals = rest[10:]
    sizes = [builder.udiv(of.size, row_blocks) for of in (of_scales, of_lows)]  # bytes of a block
    times, of_planes = factor(builder, apart), planes_of(builder, words, between, planes)
    of_rows = [builder.mul(row_blocks, const(r)) for r in range(rows)]
    offset = builder.icmp_signed("!=", of_lows.place, const(0))
    with cgutils.for_range(builder, outputs) as output:
        o = output.index
        row = builder.mul(o, length)
        first = builder.mul(o, const(rows * LANES))
        results = [place_of(builder, totals, builder.add(first, const(r * LANES)), REALS) for r in range(rows)]
        slots = [slot_of(builder, builder.load(place, align=4)) for place in results]
        stored = [
            (builder.inttoptr(builder.add(of.stored, builder.mul(o, of.size)), byte), of_blocks)
            for of, of_blocks in zip((of_scales, of_lows), sizes, strict=True)
        ]
        with cgutils.for_range(builder, blocks) as block:

            def of_row(data, before, block=block):
                place = builder.mul(builder.add(before, block.index), const(LANES))
                return builder.load(place_of(builder, data, place, REALS), align=4)

            nth = builder.add(begin, block.index)
            at = builder.add(row, builder.mul(block.index, const(unit // 4)))
            places = [builder.gep(plane, [at]) for plane in of_planes]
            dots = _products(builder, x, of_rows, block.index, places, unit)
            for first, size in stored:
                ask_ahead(builder, builder.gep(first, [builder.mul(block.index, size)]))
            step = constants_of_block(builder, of_scales, o, nth)
            for slot, dot, before in zip(slots, dots, of_rows, strict=True):
                start, share = of_row(starts, before), of_row(shares, before)
                builder.store(add_groups(builder, builder.load(slot), dot, times, start, step, share), slot)
            with builder.if_then(offset):
                low = constants_of_block(builder, of_lows, o, nth)
                for slot, before in zip(slots, of_rows, strict=True):
                    builder.store(add_product(builder, low, of_row(sums, before), builder.load(slot)), slot)
        for slot, place in zip(slots, results, strict=True):
            builder.store(builder.load(slot), place, align=4)
    builder.ret_void()
    return function


def constants_of_block(builder, of, output, block):
    """Return the constants of the 16 units of a block of an output, from `RowsOfConstants`.

    They are repeated in a register: copies in memory took a seventh of a row of 1 bit. The count is compared, 16 first:
    a `switch` in each block took 8 % more of 8 rows of 4 bits.
    """
    data, after, parts = builder.inttoptr(of.place, F32.as_pointer()), builder.append_basic_block(), []
    at = builder.add(builder.mul(output, of.apart), builder.mul(block, of.count))
    for each in REPEATED:
        here, other = builder.append_basic_block(), builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("==", of.count, const(LANES // each)), here, other)
        builder.position_at_end(here)
        some = builder.load(place_of(builder, data, at, ir.VectorType(F32, LANES // each)), align=4)
        order = ir.Constant(INTEGERS, [lane // each for lane in range(LANES)])
        parts.append((builder.shuffle_vector(some, some, order), here))
        builder.branch(after)
        builder.position_at_end(other)
    builder.unreachable()
    builder.position_at_end(after)
    every = builder.phi(REALS)
    for value, block in parts:
        every.add_incoming(value, block)
    return every


def _folding(module):
    """Build `fold_rows`."""
    name = "quantarray.fold_rows"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [F32.as_pointer(), I64, F32.as_pointer()])
    builder = ir.IRBuilder(function.append_basic_block())
    data, apart, out = function.args
    places = [place_of(builder, data, builder.mul(apart, const(n)), REALS) for n in range(LANES)]
    sums = sums_of(builder, [builder.load(place, align=4) for place in places], IN_HALVES, builder.fadd)
    builder.store(sums, place_of(builder, out, 0, REALS), align=4)
    builder.ret_void()
    return function
