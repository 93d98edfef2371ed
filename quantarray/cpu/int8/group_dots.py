"""Dot products of bytes with a scale for each group: exact sums of groups, then 16 sums of float32, one a lane.

The bytes of weights were spread by `group_bytes`, and those of rows are in the same order, so that a vector has 4
elements of each of 16 groups.
"""

from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..float32.lane_dots import folded
from ..float32.product_tile import add_product
from ..llvm.vectors import (
    F32,
    I8,
    I32,
    I64,
    const,
    own_function,
    place_of,
    pointer,
    slot_of,
    splat,
)
from ..llvm.views import flat
from .byte_sums import AT_ONCE, WIDE, Quads, adder_of
from .group_bytes import BYTES, LANES

ROWS, COLUMNS = (4, 2, 1), 4 if WIDE else 2  # of tiles, whose sums are in registers
INTEGERS, REALS = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES)
_REALS = ir.VectorType(F32, AT_ONCE)
PLANES = 8
IN_HALVES = 8, 4, 2, 1  # lanes that `row_product` adds to others, in turn
_UNROLLED = 4


class ByteRows(NamedTuple):
    """A view of rows: codes int8[rows blocks vectors 64], and what `group_product` has for each unit, [rows units]."""

    codes: np.ndarray
    shares: np.ndarray
    starts: np.ndarray
    sums: np.ndarray
    blocks: int  # of a row


class Panel(NamedTuple):
    """A panel of blocks of outputs: codes uint8[outputs blocks vectors 64], scales and lows float32[outputs units]."""

    codes: np.ndarray
    at: int
    scales: np.ndarray
    lows: np.ndarray  # none without an offset
    blocks: int
    vectors: int  # of a block


@intrinsic
def dot_blocks(typingctx, x, row, rows, begin, panel, column, apart, planes, totals, to, next_row):
    """totals[to + r next_row + 16 c + i] += the products of `rows` rows and COLUMNS outputs, r < rows, c < COLUMNS.

    In the blocks of a `Panel`, from block `begin` of `ByteRows` on: sum i has groups i, i + 16, .. as `group_product`
    adds them. rows is one of ROWS; codes have so many planes.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, i64, panel, i64, i64, i64, totals, i64, i64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        (row, rows, begin), (blocks, vectors) = args[5:8], args[12:14]
        column, apart, planes = args[14:17]
        wide, narrow = builder.mul(vectors, const(BYTES)), const(LANES)
        place = builder.add(builder.mul(row, args[4]), begin)  # of the first row's first block
        x = pointer(context, builder, signature, args, 0, builder.mul(place, wide))
        of_rows = [pointer(context, builder, signature, args, i, builder.mul(place, narrow)) for i in (1, 2, 3)]
        first = builder.mul(column, blocks)
        w = pointer(context, builder, signature, args, 8, builder.add(args[9], builder.mul(first, wide)))
        constants = [pointer(context, builder, signature, args, i, builder.mul(first, narrow)) for i in (10, 11)]
        size = context.make_array(signature.args[11])(context, builder, args[11]).nitems
        target = pointer(context, builder, signature, args, 17, args[18])
        operands = [x, *of_rows, args[4], w, *constants, size, blocks, vectors, apart, target, args[19]]
        number = builder.add(builder.shl(planes, const(4)), rows)
        forms = product(range(1, PLANES + 1), ROWS)
        cases = {(count << 4) + several: partial(_function, several, adder_of(count)) for count, several in forms}
        call_one(builder, number, cases, operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def sum_of_lanes(typingctx, totals, at):
    """Return the sum of totals[at .. at + 16], float32, in the order of `row_product`."""

    def codegen(context, builder, signature, args):
        return folded(builder, builder.load(place_of(builder, pointer(context, builder, signature, args, 0), args[1],
                                                     REALS), align=4))  # fmt: skip

    return types.float32(totals, types.int64), codegen


def call_one(builder, number, cases, operands):
    """Call cases[number](module), of functions, with the operands: the number is known when the kernel runs."""
    after = builder.append_basic_block()
    choice = builder.switch(number, after)
    for case, function_of in cases.items():
        block = builder.append_basic_block()
        choice.add_case(const(case), block)
        builder.position_at_end(block)
        builder.call(function_of(builder.module), operands)
        builder.branch(after)
    builder.position_at_end(after)


def _function(rows, adder, module):
    """Build the loop over blocks for so many rows, whose products an adder adds.

    Lanes that are multiplied at once come first, then others: sums of whole blocks would leave the registers of AVX2.
    """
    name = f"quantarray.dot_blocks.{rows}.{adder.__name__}"
    if name in module.globals:
        return module.globals[name]
    byte, real = I8.as_pointer(), F32.as_pointer()
    kinds = [byte, real, real, real, I64, byte, real, real, I64, I64, I64, I64, real, I64]
    function = own_function(module, name, kinds)
    builder = ir.IRBuilder(function.append_basic_block())
    x, shares, starts, sums, row_blocks, w, scales, lows, size, blocks, vectors, apart, totals, next_row = function.args
    tile = [(r, c) for r in range(rows) for c in range(COLUMNS)]
    slots = {place: slot_of(builder, adder.KIND(None)) for place in tile}
    times, offset = factor(builder, apart, AT_ONCE), builder.icmp_signed("!=", size, const(0))
    of_rows = [builder.mul(row_blocks, const(r)) for r in range(rows)]
    of_outputs = [builder.mul(blocks, const(c)) for c in range(COLUMNS)]
    with cgutils.for_range(builder, blocks) as step:

        def load_bytes(data, before, at, block=step.index):
            place = builder.mul(builder.add(before, block), builder.mul(vectors, const(BYTES)))
            return builder.load(place_of(builder, data, builder.add(place, at), Quads.KIND), align=4)

        for first in range(0, LANES, AT_ONCE):

            def load(data, before, block=step.index, first=first):
                place = builder.add(builder.mul(builder.add(before, block), const(LANES)), const(first))
                return builder.load(place_of(builder, data, place, _REALS), align=4)

            for slot in slots.values():
                builder.store(adder.KIND(None), slot)
            with cgutils.for_range(builder, builder.udiv(vectors, const(_UNROLLED))) as part:
                for u in range(_UNROLLED):
                    at = builder.add(builder.mul(part.index, const(_UNROLLED * BYTES)), const(u * BYTES + 4 * first))
                    weights = [load_bytes(w, before, at) for before in of_outputs]
                    for r, before in enumerate(of_rows):
                        codes = load_bytes(x, before, at)
                        for c, weight in enumerate(weights):
                            slot = slots[r, c]
                            builder.store(adder.add(builder, builder.load(slot), weight, codes), slot)
            places = {}
            for r, c in tile:
                place = builder.add(builder.mul(next_row, const(r)), const(c * LANES + first))
                places[r, c] = place_of(builder, totals, place, _REALS)
            steps = [load(scales, before) for before in of_outputs]
            for r, before in enumerate(of_rows):
                share, start = load(shares, before), load(starts, before)
                for c in range(COLUMNS):
                    total, dots = builder.load(places[r, c], align=4), adder.whole(builder, builder.load(slots[r, c]))
                    total = add_groups(builder, total, dots, times, start, steps[c], share)
                    builder.store(total, places[r, c], align=4)
            with builder.if_then(offset):
                low = [load(lows, before) for before in of_outputs]
                for r, before in enumerate(of_rows):
                    several = load(sums, before)
                    for c in range(COLUMNS):
                        total = add_product(builder, low[c], several, builder.load(places[r, c], align=4))
                        builder.store(total, places[r, c], align=4)
    builder.ret_void()
    return function


def factor(builder, apart, lanes=LANES):
    """Return a vector of the integer by which the levels of weights are apart."""
    return splat(builder, builder.sitofp(apart, F32), lanes)


def add_groups(builder, total, sums, times, start, step, share):
    """Return total + (sums * times + start) * (step * share), a group a lane, rounded twice."""
    whole = add_product(builder, builder.sitofp(sums, total.type), times, start)  # of integers below 2**24: exact
    return add_product(builder, whole, builder.fmul(step, share), total)


def sums_of(builder, vectors, sizes, add):
    """Return a vector of the sums of the lanes of 16: pieces of so many lanes are added to their neighbours, in turn.

    Shuffles in quarters of a register take half as long as others: see the order of pieces.
    """
    owners = [[i] * LANES for i in range(len(vectors))]
    for size in sizes:
        pieces = range(LANES // (2 * size))
        turns = [(vector, piece) for first in pieces[::2] for vector in (0, 1) for piece in pieces[first : first + 2]]
        places = [vector * LANES + 2 * size * piece for vector, piece in turns]
        sides = [[place + side + lane for place in places for lane in range(size)] for side in (0, size)]
        orders = [ir.Constant(INTEGERS, side) for side in sides]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [add(*[builder.shuffle_vector(*pair, order) for order in orders]) for pair in pairs]
        both = [first + second for first, second in zip(owners[::2], owners[1::2], strict=True)]
        owners = [[lanes[i] for i in sides[0]] for lanes in both]
    order = ir.Constant(INTEGERS, [owners[0].index(i) for i in range(LANES)])
    return builder.shuffle_vector(vectors[0], vectors[0], order)
