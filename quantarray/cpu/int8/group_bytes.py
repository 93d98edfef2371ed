"""Bits of planes become bytes in the order in which sums of groups are added: a group a lane of 32 bits.

A block is 16 groups, whose bits of a plane are the lanes of one vector. Transposing planes and the bits of fields of 1,
2, 4 or 8, all lanes at once, makes codes of the fields: no mask and no table is needed, on any CPU.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.masks import ask_for
from ..llvm.vectors import I16, I32, I64, const, own_function, place_of, pointer
from ..runtime.isa import FEATURES
from ..runtime.jit import inline
from .byte_sums import VNNI, WIDE

LANES = 16  # groups of a block
BYTES = 4 * LANES  # of a vector
_AHEAD = 1 << 13  # bytes from what is read to what is asked for: planes are many short streams
_VECTOR, _PLANES = ir.VectorType(I32, LANES), (1, 2, 4, 8)
_BYTES = ir.VectorType(ir.IntType(8), BYTES)
_FIELDS = {"gfni", "avx512f"} <= FEATURES  # one instruction moves and masks bits


@inline
def place_in_group(unit, element, apart):
    """Return where in a block a group's element is, less 4 times the number of the group: see `spread`.

    Vectors are `apart` bytes apart.
    """
    if unit == 32:
        return element % 8 * apart + element // 8
    return element % 4 * apart + element // 8 + element // 4 % 2 * 2


@inline
def put_in_order(codes, unit, groups, to, apart):
    """Put the bytes of groups of a block in the order of `spread`; 16 groups of 32 are byte v of each 8 in vector v."""
    if unit == 32 and groups == LANES:
        for v in range(np.uint64(8)):
            for i in range(np.uint64(BYTES)):
                to[v * np.uint64(apart) + i] = codes[i * np.uint64(8) + v]
        return
    for group in range(groups):
        for element in range(unit):
            to[place_in_group(unit, element, apart) + group * 4] = codes[group * unit + element]


@intrinsic
def spread(typingctx, words, at, between, planes, blocks, unit, codes, to):
    """codes[to + (b unit/4 + v) 64 + 4 g + i] = the code of an element of group g of block b, b < blocks, v < unit / 4.

    It is element 8 i + v of a group of unit = 32, or 8 (i % 2) + 4 (i // 2) + v of one of 16. Planes are `between`
    words apart, the first from words[at] on; codes uint8. Both are flat.
    """
    i64 = types.int64
    signature = types.void(words, i64, i64, i64, i64, i64, codes, i64)

    def codegen(context, builder, signature, args):
        bits, target = (pointer(context, builder, signature, args, i, args[j]) for i, j in ((0, 1), (6, 7)))
        for unit in (16, 32):
            with builder.if_then(builder.icmp_signed("==", args[5], const(unit))):
                builder.call(_function(builder.module, unit), [bits, args[2], args[3], args[4], target])
        return context.get_dummy_value()

    return signature, codegen


def _function(module, unit):
    """Build the loops over blocks for 1 to 8 planes."""
    name = f"quantarray.group_bytes.{unit}"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [I64.as_pointer(), I64, I64, I64, ir.IntType(8).as_pointer()])
    builder = ir.IRBuilder(function.append_basic_block())
    words, between, planes, blocks, codes = function.args
    after = function.append_basic_block()
    choice = builder.switch(planes, after)
    for number in range(1, _PLANES[-1] + 1):
        case = function.append_basic_block()
        choice.add_case(const(number), case)
        builder.position_at_end(case)
        rows = [builder.gep(words, [builder.mul(between, const(plane))]) for plane in range(number)]
        with cgutils.for_range(builder, blocks) as block:
            at = builder.mul(block.index, const(unit // 4))
            places = [builder.gep(row, [at]) for row in rows]
            for place in places:
                ask_ahead(builder, place)
            lanes = [lanes_of_groups(builder, place, unit) for place in places]
            for v, value in enumerate(codes_of_lanes(builder, lanes, unit // 4)):
                place = builder.mul(builder.add(at, const(v)), const(BYTES))
                builder.store(value, place_of(builder, codes, place, _VECTOR), align=4)
        builder.branch(after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


def ask_ahead(builder, place):
    """Ask for what is read soon, into L2.

    Not without VNNI: a row by 4096x4096 weights of 8 bits from memory took 1.8 ms instead of 1.5 then (Zen 3).
    """
    if VNNI:
        ask_for(builder, place, const(_AHEAD), 1, 2)


def lanes_of_groups(builder, words, unit):
    """Load the bits of 16 groups: of groups of 16, with bits 4 .. 16 again from bit 16 on."""
    if unit == 32:
        return builder.load(builder.bitcast(words, _VECTOR.as_pointer()), align=8)
    halves = ir.VectorType(I16, LANES)
    bits = builder.zext(builder.load(builder.bitcast(words, halves.as_pointer()), align=8), _VECTOR)
    return builder.or_(bits, builder.shl(bits, _all(bits, 12)))


def codes_of_lanes(builder, lanes, vectors):
    """Return the first vectors of codes of planes' lanes: vector v has the codes of bits v of each byte."""
    lanes, width = _transposed(builder, lanes)
    field = _all(lanes[0], ((1 << width) - 1) * 0x01010101)
    for v in range(vectors):
        value, first = lanes[v % width], v // width * width
        if first and _FIELDS:
            yield _bits_of_bytes(builder, value, first, width)
        else:
            yield builder.and_(builder.lshr(value, _all(value, first)) if first else value, field)


def raised_codes_of_lanes(builder, lanes, vectors, most):
    """Yield (v, codes times 2**place, place) of the first vectors of `codes_of_lanes`, from high places to 0.

    To mask codes where they are takes one instruction that any port has. Bytes are moved first where codes and their
    places would have more than `most` bits, 4 or 8. So are single bits: to move four places of sums takes more.
    """
    lanes, width = _transposed(builder, lanes)
    most = 4 if width == 1 else most
    parts = [
        [builder.lshr(lane, _all(lane, first)) if first else lane for lane in lanes] for first in range(0, 8, most)
    ]
    for place in reversed(range(0, most, width)):
        field = _all(lanes[0], ((1 << width) - 1 << place) * 0x01010101)
        for n, part in enumerate(parts):
            for i in range(width):
                if (v := most * n + place + i) < vectors:
                    yield v, builder.and_(part[i], field), place


def _transposed(builder, lanes):
    """Return (vectors, bits of a field, of which there are as many): vector i has the codes of bits i of each field."""
    width = next(count for count in _PLANES if count >= len(lanes))
    lanes = [*lanes, *[ir.Constant(lanes[0].type, None)] * (width - len(lanes))]
    apart = width // 2
    while apart:
        for i in (i for i in range(width) if not i & apart):
            lanes[i], lanes[i + apart] = _exchanged(builder, lanes[i], lanes[i + apart], apart)
        apart //= 2
    return lanes, width


def _exchanged(builder, first, second, apart):
    """Swap the upper of each two fields of `apart` bits of the first vector, and the lower ones of the second."""
    low, places = (_all(first, n) for n in (sum(1 << bit for bit in range(32) if not bit & apart), apart))
    up, down = builder.shl(second, places), builder.lshr(first, places)
    if WIDE:  # one instruction chooses bits
        return _chosen(builder, low, first, up), _chosen(builder, low, down, second)
    swapped = builder.and_(builder.xor(down, second), low)
    return builder.xor(first, builder.shl(swapped, places)), builder.xor(second, swapped)


def _bits_of_bytes(builder, value, first, count):
    """Move bits of all bytes to the lowest places, by one instruction: a product with a matrix of 8 rows of bits."""
    matrix = ir.Constant(_BYTES, [1 << 7 - i + first if 7 - i < count else 0 for i in range(8)] * 8)
    function = ir.FunctionType(_BYTES, [_BYTES, _BYTES, ir.IntType(8)])
    moved = cgutils.get_or_insert_function(builder.module, function, "llvm.x86.vgf2p8affineqb.512")
    parts = [builder.bitcast(value, _BYTES), matrix, ir.Constant(ir.IntType(8), 0)]
    return builder.bitcast(builder.call(moved, parts), _VECTOR)


def _chosen(builder, mask, first, second):
    """Return the bits of `first` where the mask has them, and of `second` elsewhere."""
    return builder.or_(builder.and_(first, mask), builder.and_(second, builder.not_(mask)))


def _all(like, number):
    return ir.Constant(like.type, [number] * like.type.count)
