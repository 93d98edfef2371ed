"""Dot products of eight rows and two outputs by VNNI, whose sums fill half of the registers.

Codes go from bits to bytes in registers, as in `group_rows`: of 2 bits by a fifth as many instructions as products.
The bytes of eight rows are side by side, vector by vector: the same place of rows of 4 KiB would be one set of L1.
"""

from functools import partial
from itertools import product

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..float32.product_tile import add_product
from ..llvm.vectors import F32, I8, I32, I64, const, own_function, place_of, pointer, slot_of
from ..llvm.views import flat
from .byte_sums import VNNI
from .dot_avx512vnni import Vnni
from .group_bytes import BYTES, LANES, ask_ahead, codes_of_lanes, lanes_of_groups
from .group_dots import IN_HALVES, INTEGERS, REALS, call_one, sums_of
from .group_rows import RowsOfConstants, constants_of_block, planes_of

HAS_TALL = VNNI
TALL = 8  # rows
PAIR = 2  # outputs
FEW_PLANES = 4  # planes of which constants are repeated in registers; of 8, which need these, it took 16 % longer
SUMS = TALL * PAIR  # vectors
_PLANES = _WORDS = 8  # of weights at most, and of a plane in a block of groups of 32
_BLOCK = TALL * LANES  # constants of rows


@intrinsic
def dot_tall_rows(typingctx, x, words, between, length, apart, planes, outputs, out):
    """out[r apart + o] = sum of products of row r of x and the packed weights of output o < outputs, r < TALL.

    Planes are `between` words apart, the first from words[0] on, and have a row of `length` words, at least 8, for each
    output. Block b of x int8[blocks 8 TALL 64] has the bytes for the 8 words from 8 b on, the last block for the last 8
    words, in the order of `spread`. out int32; after an odd number of outputs one more sum of each row is written.
    """
    i64 = types.int64
    signature = types.void(x, words, i64, i64, i64, i64, i64, out)

    def codegen(context, builder, signature, args):
        _, _, between, length, apart, planes, outputs, _ = args
        x, w, target = (pointer(context, builder, signature, args, i) for i in (0, 1, 7))
        cases = {count: partial(_of_rows, count) for count in range(1, _PLANES + 1)}
        call_one(builder, planes, cases, [x, w, between, length, apart, outputs, target])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def dot_tall_groups(typingctx, x, tile, begin, w, blocks, unit, scales, lows, twice, outputs, totals):
    """totals[16 (TALL o + 2 r + c) + i] += the products of row r of a tile of x and output o + c, r < TALL.

    For even o < outputs, c < 2; after an odd number of outputs the last one is met again. x are `ByteRows` of tiles:
    codes int8[tiles blocks vectors TALL 64], the others float32[tiles blocks TALL 16]. Words, constants and sums as in
    `dot_group_rows`, but of more than FEW_PLANES planes a block has 16 constants; twice says that levels are 2 apart
    and not 1.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, w, i64, i64, scales, lows, types.boolean, i64, totals)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        row_blocks, tile, begin, _, at, length, between, planes, blocks, unit = args[4:14]
        constants, (twice, outputs) = args[14:24], args[24:26]
        block = builder.add(builder.mul(tile, row_blocks), begin)
        bytes_of_block = builder.mul(builder.lshr(unit, const(2)), const(TALL * BYTES))
        x = pointer(context, builder, signature, args, 0, builder.mul(block, bytes_of_block))
        of_rows = [pointer(context, builder, signature, args, i, builder.mul(block, const(_BLOCK))) for i in (1, 2, 3)]
        words, target = (pointer(context, builder, signature, args, i, first) for i, first in ((7, at), (26, None)))
        operands = [x, *of_rows, words, length, between, begin, *constants, blocks, outputs, target]
        number = builder.add(builder.shl(unit, const(4)), builder.shl(builder.zext(twice, I64), const(10)))
        cases = {
            (double << 10) + (wide << 4) + count: partial(_of_groups, wide, count, double)
            for double, wide, count in product((0, 1), (16, 32), range(1, _PLANES + 1))
            if not double or count < _PLANES  # levels are at most 255 apart
        }
        call_one(builder, builder.add(number, planes), cases, operands)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fold_tall(typingctx, totals, at, out, to, apart):
    """out[to + r apart + c] = sum of totals[at + 16 (2 r + c) ..], r < TALL, c < 2, in the order of `row_product`."""
    i64 = types.int64
    signature = types.void(totals, i64, out, i64, i64)

    def codegen(context, builder, signature, args):
        data, target = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2))
        builder.call(_folding(builder.module), [data, target, args[4]])
        return context.get_dummy_value()

    return signature, codegen


def _folding(module):
    """Build `fold_tall`."""
    name = "quantarray.fold_tall"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [F32.as_pointer(), F32.as_pointer(), I64])
    builder = ir.IRBuilder(function.append_basic_block())
    data, out, apart = function.args
    vectors = [builder.load(place_of(builder, data, i * LANES, REALS), align=4) for i in range(SUMS)]
    _put_pairs(builder, sums_of(builder, vectors, IN_HALVES, builder.fadd), out, apart)
    builder.ret_void()
    return function


def _put_pairs(builder, sums, out, apart):
    """Store sums of two outputs for each of TALL rows."""
    sums = builder.bitcast(sums, ir.VectorType(I64, TALL))
    for r in range(TALL):
        place = builder.gep(out, [builder.mul(apart, const(r))])
        builder.store(builder.extract_element(sums, I32(r)), builder.bitcast(place, I64.as_pointer()), align=4)


def _of_rows(planes, module):
    """Build the loops over pairs of outputs and blocks of `dot_tall_rows`."""
    name = f"quantarray.dot_tall_rows.{planes}"
    if name in module.globals:
        return module.globals[name]
    word, lane = I64.as_pointer(), I32.as_pointer()
    function = own_function(module, name, [I8.as_pointer(), word, I64, I64, I64, I64, lane])
    builder = ir.IRBuilder(function.append_basic_block())
    x, words, between, length, apart, outputs, out = function.args
    final, end = builder.sub(outputs, const(1)), builder.sub(length, const(_WORDS))  # where the last block begins
    end = builder.select(builder.icmp_signed("<", end, const(0)), const(0), end)
    with cgutils.for_range_slice(builder, const(0), outputs, const(PAIR), I64) as (o, _):
        other = builder.add(o, const(1))  # or the last one again
        starts = [builder.mul(i, length) for i in (o, builder.select(builder.icmp_signed("<", o, final), other, o))]
        slots = [[slot_of(builder, INTEGERS(None)) for _ in starts] for _ in range(TALL)]
        with cgutils.for_range_slice(builder, const(0), length, const(_WORDS), I64) as (first, _):
            at = builder.select(builder.icmp_signed("<", first, end), first, end)
            weights = [builder.gep(words, [builder.add(start, at)]) for start in starts]
            rows = builder.gep(x, [builder.mul(first, const(TALL * BYTES))])
            _add_products(builder, rows, weights, between, planes, _WORDS, slots)
        sums = sums_of(builder, [builder.load(slot) for row in slots for slot in row], (1, 1, 4, 4), builder.add)
        _put_pairs(builder, sums, builder.gep(out, [o]), apart)
    builder.ret_void()
    return function


def _of_groups(unit, planes, twice, module):
    """Build the loops over pairs of outputs and blocks of `dot_tall_groups`."""
    name = f"quantarray.dot_tall_groups.{unit}.{planes}.{twice}"
    if name in module.globals:
        return module.globals[name]
    byte, real, word, vectors = I8.as_pointer(), F32.as_pointer(), I64.as_pointer(), unit // 4
    kinds = [byte, real, real, real, word, *[I64] * 15, real]
    function = own_function(module, name, kinds)
    builder = ir.IRBuilder(function.append_basic_block())
    x, shares, starts, sums, words, length, between, begin, *constants, blocks, outputs, totals = function.args
    scales, lows = (RowsOfConstants(*constants[i : i + 5]) for i in (0, 5))
    offset, final = builder.icmp_signed("!=", lows.place, const(0)), builder.sub(outputs, const(1))
    with cgutils.for_range_slice(builder, const(0), outputs, const(PAIR), I64) as (o, _):
        pair = o, builder.select(builder.icmp_signed("<", o, final), builder.add(o, const(1)), o)
        results = builder.gep(totals, [builder.mul(o, const(TALL * LANES))])
        with cgutils.for_range(builder, blocks) as step:
            block, nth = step.index, builder.add(begin, step.index)

            def of_row(data, r, block=block):
                place = builder.add(builder.mul(block, const(_BLOCK)), const(r * LANES))
                return builder.load(place_of(builder, data, place, REALS), align=4)

            def of_output(of, number, nth=nth):
                if planes <= FEW_PLANES:
                    return constants_of_block(builder, of, number, nth)
                at = builder.add(builder.mul(nth, const(LANES)), builder.mul(of.apart, number))
                return builder.load(place_of(builder, builder.inttoptr(of.place, real), at, REALS), align=4)

            slots = []
            for r in range(TALL):  # sums begin with what the lowest level adds, an integer
                start = builder.fptosi(of_row(starts, r), INTEGERS)
                slots.append([slot_of(builder, start) for _ in pair])
            at = builder.mul(block, const(vectors))
            weights = [builder.gep(words, [builder.add(builder.mul(number, length), at)]) for number in pair]
            rows = builder.gep(x, [builder.mul(block, const(vectors * TALL * BYTES))])
            _add_products(builder, rows, weights, between, planes, vectors, slots, twice)
            here = _opaque(builder, results)
            places = [
                [place_of(builder, here, (r * PAIR + c) * LANES, REALS) for c in range(PAIR)] for r in range(TALL)
            ]
            steps, totals_here = [of_output(scales, number) for number in pair], []
            for r in range(TALL):
                share = of_row(shares, r)
                for slot, place, scale in zip(slots[r], places[r], steps, strict=True):
                    whole, total = builder.sitofp(builder.load(slot), REALS), builder.load(place, align=4)
                    total = add_product(builder, whole, builder.fmul(scale, share), total)
                    totals_here.append(slot_of(builder, total))
            with builder.if_then(offset):
                low = [of_output(lows, number) for number in pair]
                for r in range(TALL):
                    several = of_row(sums, r)
                    for slot, one in zip(totals_here[r * PAIR : (r + 1) * PAIR], low, strict=True):
                        builder.store(add_product(builder, one, several, builder.load(slot)), slot)
            for slot, place in zip(totals_here, [place for row in places for place in row], strict=True):
                builder.store(builder.load(slot), place, align=4)
    builder.ret_void()
    return function


def _opaque(builder, place):
    """Return a pointer of which LLVM does not know that it is the same in each step of a loop.

    It would load all totals before the loop, and spill them to a stack that is not aligned to lines: 1.28 ms instead of
    1.14 for 8 rows by 4096x4096 of 2 bits.
    """
    kind = ir.FunctionType(place.type, [place.type])
    return builder.asm(kind, "", "=r,0", [place], side_effect=True)


def _add_products(builder, rows, weights, between, planes, vectors, slots, twice=False):
    """Add the products of a block of rows and of two outputs' words, of which codes may be doubled, to slots[r][c]."""
    codes = []
    for first in weights:
        places = planes_of(builder, first, between, planes)
        for place in places:
            ask_ahead(builder, place)
        lanes = [lanes_of_groups(builder, place, 4 * vectors) for place in places]
        codes.append(codes_of_lanes(builder, lanes, vectors))
    for v, pair in enumerate(zip(*codes, strict=True)):
        if twice:
            pair = [builder.add(value, value) for value in pair]
        for r in range(TALL):
            row = builder.load(place_of(builder, rows, (v * TALL + r) * BYTES, INTEGERS), align=4)
            for slot, value in zip(slots[r], pair, strict=True):
                builder.store(Vnni.add(builder, builder.load(slot), value, row), slot)
