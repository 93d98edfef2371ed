"""Dot products of one to four rows and packed weights: codes go from bits to sums in registers.

A panel of bytes is worth its writes and reads where more rows meet it. With constants of groups, the sums are those of
`group_dots`; without, they are integers.
"""

from itertools import product

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..float32.product_tile import add_product
from ..llvm.masks import ask_for
from ..llvm.vectors import F32, I8, I32, I64, const, lanes_of, own_function, place_of, pointer, slot_of
from ..llvm.views import flat
from .group_bytes import AHEAD, BYTES, LANES, codes_of_lanes, lanes_of_groups, raised_codes_of_lanes
from .group_dots import INTEGERS, REALS, VNNI, add_dots, add_groups, factor

MOST_ROWS = 4
SHORT = 1, 2, 4  # words of rows of which a block of `dot_byte_rows` has several
_PLANES = 8


@intrinsic
def dot_group_rows(
    typingctx, x, rows, begin, words, at, between, planes, blocks, unit, scales, lows, apart, deep, totals
):
    """totals[16 r + i] += the products of row r of `ByteRows` and the packed weights of an output, r < rows.

    In `blocks` blocks of a row, from block `begin` on: sum i has groups i, i + 16, .. as `group_product` adds them. The
    planes of the weights are `between` words apart, the first from words[at] on; scales and lows float32 have one for
    each unit of the row. rows is 1 to MOST_ROWS; deep says that codes may be more than 127.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, words, i64, i64, i64, i64, i64, scales, lows, i64, types.boolean, totals)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        rows, begin = args[5:7]
        at, between, planes, blocks, unit = args[8:13]
        apart, deep = args[15:17]
        wide, narrow = builder.mul(builder.lshr(unit, const(2)), const(BYTES)), const(LANES)
        x = pointer(context, builder, signature, args, 0, builder.mul(begin, wide))
        of_rows = [pointer(context, builder, signature, args, i, builder.mul(begin, narrow)) for i in (1, 2, 3)]
        w = pointer(context, builder, signature, args, 7, at)
        constants = [pointer(context, builder, signature, args, i, builder.mul(begin, narrow)) for i in (13, 14)]
        size = context.make_array(signature.args[14])(context, builder, args[14]).nitems
        target = pointer(context, builder, signature, args, 17)
        operands = [x, *of_rows, args[4], w, between, *constants, size, blocks, apart, target]
        _call(builder, _function, (16, 32), (rows, unit, planes, deep), operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def dot_byte_rows(typingctx, x, rows, blocks, words, between, length, apart, planes, first, last, deep, out):
    """out[r apart + o - first] = sum of products of row r of x and the packed weights of output o, first <= o < last.

    Planes are `between` words apart, the first from words[0] on, and have a row of `length` words for each output.
    Block b of x int8[rows blocks 8 64] has the bytes for the 8 words from 8 b on, the last block for the last 8 words,
    in the order of `spread`; the words after a shorter row are read too, and meet zeros. out int32; rows is 1 to
    MOST_ROWS; deep says that codes may be more than 127.

    Where a row has 1, 2 or 4 words, a block has 8, 4 or 2 outputs, with the row's bytes for each, and
    out[r apart + lanes (o - first) + i] are `lanes` parts of an output's sum, 16 of a block.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, words, i64, i64, i64, i64, i64, i64, types.boolean, out)

    def codegen(context, builder, signature, args):
        _, rows, blocks, _, between, length, apart, planes, first, last, deep, _ = args
        x, w, target = (pointer(context, builder, signature, args, i) for i in (0, 3, 11))
        operands = [x, blocks, w, between, length, apart, first, last, target]
        _call(builder, _counting, (32,), (rows, const(32), planes, deep), operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_lanes(typingctx, lanes, at, vectors, width):
    """Put the sums of each `width` lanes of so many vectors from lanes[at] on one after another, from there on.

    int32, width 2, 4 or 8; so many vectors are read at once, which the array must have room for.
    """
    signature = types.void(lanes, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        data, count = pointer(context, builder, signature, args, 0, args[1]), args[2]
        for width in (2, 4, 8):
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
    """Call function_of(module, rows, unit, planes, deep) for the form of rows, unit, planes, deep that is passed."""
    rows, unit, planes, deep = form
    number = builder.add(builder.shl(unit, const(4)), builder.add(planes, builder.shl(rows, const(10))))
    if not VNNI:
        number = builder.add(number, builder.shl(builder.zext(deep, I64), const(12)))
    after = builder.append_basic_block()
    choice = builder.switch(number, after)
    for many, height, width in product((False, True) if not VNNI else (False,), range(1, MOST_ROWS + 1), units):
        for count in range(1, _PLANES + 1):
            block = builder.append_basic_block()
            choice.add_case(const((many << 12) + (height << 10) + (width << 4) + count), block)
            builder.position_at_end(block)
            builder.call(function_of(builder.module, height, width, count, many), operands)
            builder.branch(after)
    builder.position_at_end(after)


def _products(builder, x, of_rows, block, places, unit, deep):
    """Return each row's sums of products of its bytes in a block and the codes of the planes at `places`.

    They begin with 0 in each block, as instructions that add to the sums of the last one would wait for it.
    """
    vectors, sums, last = unit // 4, [INTEGERS(None) for _ in of_rows], 0
    for place in places:
        ask_for(builder, place, const(AHEAD), 1, 3)
    lanes = [lanes_of_groups(builder, place, unit) for place in places]
    for v, codes, place in _codes(builder, lanes, vectors, len(of_rows)):
        for r, before in enumerate(of_rows):
            if place < last:
                sums[r] = builder.ashr(sums[r], ir.Constant(INTEGERS, [last - place] * LANES))
            at = builder.mul(builder.add(before, block), const(vectors * BYTES))
            row = builder.load(place_of(builder, x, builder.add(at, const(v * BYTES)), INTEGERS), align=4)
            sums[r] = add_dots(builder, sums[r], codes, row, deep)
        last = place
    return sums


def _codes(builder, lanes, vectors, rows):
    """Yield (v, codes times 2**place, place): of one row VNNI takes codes where they are in a byte.

    Its sums are moved then, which takes more of many rows than to move the codes that all meet.
    """
    if VNNI and rows == 1:
        yield from raised_codes_of_lanes(builder, lanes, vectors)
    else:
        yield from ((v, codes, 0) for v, codes in enumerate(codes_of_lanes(builder, lanes, vectors)))


def _planes_of(builder, words, between, planes):
    return [builder.gep(words, [builder.mul(between, const(plane))]) for plane in range(planes)]


def _counting(module, rows, unit, planes, deep):
    """Build the loops over outputs and blocks of `dot_byte_rows`."""
    name = f"quantarray.dot_byte_rows.{rows}.{planes}.{int(deep)}"
    if name in module.globals:
        return module.globals[name]
    word, lane = I64.as_pointer(), I32.as_pointer()
    function = own_function(module, name, [I8.as_pointer(), I64, word, I64, I64, I64, I64, I64, lane])
    builder = ir.IRBuilder(function.append_basic_block())
    x, blocks, words, between, length, apart, first, last, out = function.args
    of_planes = _planes_of(builder, words, between, planes)
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
            sums = _products(builder, x, of_rows, block.index, places, unit, deep)
            for slot, total in zip(slots, sums, strict=True):
                builder.store(builder.add(builder.load(slot), total), slot)
        for r, slot in enumerate(slots):
            vector, to = builder.load(slot), builder.gep(out, [builder.mul(apart, const(r))])
            with builder.if_else(builder.icmp_signed("==", at_once, const(1))) as (one, several):
                with one:
                    builder.store(_sum_of(builder, vector), builder.gep(to, [number]))
                with several:
                    at = builder.mul(number, const(LANES))
                    builder.store(vector, place_of(builder, to, at, INTEGERS), align=4)
    builder.ret_void()
    return function


def _sum_of(builder, vector):
    count = LANES // 2
    while count:
        vector = builder.add(lanes_of(builder, vector, 0, count), lanes_of(builder, vector, count, count))
        count //= 2
    return builder.extract_element(vector, ir.Constant(I32, 0))


def _function(module, rows, unit, planes, deep):
    """Build the loop over blocks for so many rows and planes, of groups of `unit` elements."""
    name = f"quantarray.dot_group_rows.{rows}.{unit}.{planes}.{int(deep)}"
    if name in module.globals:
        return module.globals[name]
    byte, real, word = I8.as_pointer(), F32.as_pointer(), I64.as_pointer()
    function = own_function(module, name, [byte, real, real, real, I64, word, I64, real, real, I64, I64, I64, real])
    builder = ir.IRBuilder(function.append_basic_block())
    x, shares, starts, sums, row_blocks, words, between, scales, lows, size, blocks, apart, totals = function.args
    times, of_planes = factor(builder, apart), _planes_of(builder, words, between, planes)
    of_rows = [builder.mul(row_blocks, const(r)) for r in range(rows)]
    results = [place_of(builder, totals, r * LANES, REALS) for r in range(rows)]

    def load(data, before):
        place = builder.mul(builder.add(before, block.index), const(LANES))
        return builder.load(place_of(builder, data, place, REALS), align=4)

    slots = [slot_of(builder, builder.load(place, align=4)) for place in results]
    offset = builder.icmp_signed("!=", size, const(0))
    with cgutils.for_range(builder, blocks) as block:
        at = builder.mul(block.index, const(unit // 4))
        places = [builder.gep(plane, [at]) for plane in of_planes]
        dots = _products(builder, x, of_rows, block.index, places, unit, deep)
        step = load(scales, const(0))
        for r, before in enumerate(of_rows):
            total = builder.load(slots[r])
            total = add_groups(builder, total, dots[r], times, load(starts, before), step, load(shares, before))
            builder.store(total, slots[r])
        with builder.if_then(offset):
            low = load(lows, const(0))
            for r, before in enumerate(of_rows):
                builder.store(add_product(builder, low, load(sums, before), builder.load(slots[r])), slots[r])
    for slot, place in zip(slots, results, strict=True):
        builder.store(builder.load(slot), place, align=4)
    builder.ret_void()
    return function
