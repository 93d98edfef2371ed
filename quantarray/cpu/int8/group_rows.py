"""Dot products of one to four rows and packed weights in groups: codes go from bits to sums in registers.

A panel of bytes is worth its writes and reads where more rows meet it. The sums are those of `group_dots`.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..float32.product_tile import add_product
from ..llvm.masks import ask_for
from ..llvm.vectors import F32, I8, I64, const, own_function, place_of, pointer, slot_of
from ..llvm.views import flat
from .group_bytes import AHEAD, BYTES, LANES, codes_of_lanes, lanes_of_groups
from .group_dots import INTEGERS, REALS, VNNI, add_dots, add_groups, factor

MOST_ROWS = 4
_PLANES = 8


@intrinsic
def dot_words(typingctx, x, rows, begin, words, at, between, planes, blocks, unit, scales, lows, apart, deep, totals):
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
        after = builder.append_basic_block()
        forms = builder.add(builder.shl(unit, const(4)), builder.add(planes, builder.shl(rows, const(10))))
        if not VNNI:
            forms = builder.add(forms, builder.shl(builder.zext(deep, I64), const(12)))
        choice = builder.switch(forms, after)
        for many in (False, True) if not VNNI else (False,):
            for height in range(1, MOST_ROWS + 1):
                for width in (16, 32):
                    for number in range(1, _PLANES + 1):
                        block = builder.append_basic_block()
                        choice.add_case(const((width << 4) + number + (height << 10) + (many << 12)), block)
                        builder.position_at_end(block)
                        builder.call(_function(builder.module, height, width, number, many), operands)
                        builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return signature, codegen


def _function(module, rows, unit, planes, deep):
    """Build the loop over blocks for so many rows and planes, of groups of `unit` elements."""
    name = f"quantarray.dot_words.{rows}.{unit}.{planes}.{int(deep)}"
    if name in module.globals:
        return module.globals[name]
    byte, real, word = I8.as_pointer(), F32.as_pointer(), I64.as_pointer()
    function = own_function(module, name, [byte, real, real, real, I64, word, I64, real, real, I64, I64, I64, real])
    builder = ir.IRBuilder(function.append_basic_block())
    x, shares, starts, sums, row_blocks, words, between, scales, lows, size, blocks, apart, totals = function.args
    vectors, times = unit // 4, factor(builder, apart)
    of_planes = [builder.gep(words, [builder.mul(between, const(plane))]) for plane in range(planes)]
    of_rows = [builder.mul(row_blocks, const(r)) for r in range(rows)]
    results = [place_of(builder, totals, r * LANES, REALS) for r in range(rows)]

    def load(data, before):
        place = builder.mul(builder.add(before, block.index), const(LANES))
        return builder.load(place_of(builder, data, place, REALS), align=4)

    slots = [slot_of(builder, builder.load(place, align=4)) for place in results]
    offset = builder.icmp_signed("!=", size, const(0))
    with cgutils.for_range(builder, blocks) as block:
        first = builder.mul(block.index, const(vectors))
        places = [builder.gep(plane, [first]) for plane in of_planes]
        for place in places:
            ask_for(builder, place, const(AHEAD), 1, 3)
        lanes = [lanes_of_groups(builder, place, unit) for place in places]
        dots = [INTEGERS(None)] * rows
        for v, codes in enumerate(codes_of_lanes(builder, lanes, vectors)):
            for r, before in enumerate(of_rows):
                at = builder.mul(builder.add(before, block.index), const(vectors * BYTES))
                row = builder.load(place_of(builder, x, builder.add(at, const(v * BYTES)), INTEGERS), align=4)
                dots[r] = add_dots(builder, dots[r], codes, row, deep)
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
