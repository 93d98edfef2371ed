"""Count the thresholds below each lane: on a line where they are about evenly spaced, or by bisection.

Bisection compares once per bit of the answer, not once per threshold. If each lane loads its own threshold at every
step, 255 take 8 ns a value; with four steps on vectors that all lanes load, then gathers, 5; on a line 1.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, F64, I8, I32, I64, LANES, const, full, joined, own_function, place_of, pointer, splat
from ..runtime.isa import COUNTING

BLENDED = 4  # planes whose thresholds are loaded as vectors; for those below, each lane loads its own
NEAR = 5  # rows of lines whose ranks are corrected
NO_CODES = ir.Constant(ir.VectorType(I8, LANES), None)
_GATHERS = COUNTING not in ("portable", "neon", "avx2")


@intrinsic
def put_ranks(typingctx, values, start, thresholds, lines, at, flip, valid, channel, words, row):
    """words[j, row] |= (bit j of rank l) << (channel + l), for l < valid <= 32.

    Rank l is the number of t with values[start + l] > thresholds[t, at + l]. There are 2**planes - 1 thresholds for
    words[planes rows words]; they ascend in t, and NaN among them is below all. Bits are flipped where those of `flip`
    are ones. With one plane for several, byte channel + l of words[0, row] is set to the rank, those after the channels
    to 0; channel is a multiple of 32. If there are lines[:, at + l], of `rank_lines.py`, ranks are read from them. All
    arrays are C-contiguous and indexed flat, values and thresholds int32, int64, float32 or float64 alike.
    """
    i64 = types.int64
    signature = types.void(values, i64, thresholds, lines, i64, types.uint64, i64, i64, words, i64)
    real = isinstance(values.dtype, types.Float)
    compare = ir.IRBuilder.fcmp_unordered if real else ir.IRBuilder.icmp_signed

    def codegen(context, builder, signature, args):
        values, limits, lines = (
            pointer(context, builder, signature, args, i, args[k]) for i, k in ((0, 1), (2, 4), (3, 4))
        )
        apart = shape_of(context, builder, signature, args, 2)[1]
        numbers, lanes = shape_of(context, builder, signature, args, 3)
        held, rows, length = shape_of(context, builder, signature, args, 8)
        planes = builder.ctpop(shape_of(context, builder, signature, args, 2)[0])
        bits = pointer(context, builder, signature, args, 8, builder.mul(args[9], length))
        between = builder.mul(rows, length)
        with builder.if_then(are_bytes(builder, held, planes)):
            codes = place_of(builder, builder.bitcast(bits, I8.as_pointer()), args[7], NO_CODES.type)
            builder.store(NO_CODES, codes, align=1)
            clear_rest(builder, bits, length, args[7], const(1), const(0))
        shared = _function(builder.module, values.type.pointee, compare)
        builder.call(shared, [values, limits, apart, lines, numbers, lanes, *args[5:8], bits, planes, between, held])

    return signature, codegen


def shape_of(context, builder, signature, args, i):
    """Return the shape of array argument i."""
    return cgutils.unpack_tuple(builder, context.make_array(signature.args[i])(context, builder, args[i]).shape)


def _function(module, kind, compare):
    """Build one function for all places of a kernel that compare: it takes a fifth of a first compilation."""
    name = f"quantarray.put_ranks.{kind}"
    if name in module.globals:
        return module.globals[name]
    takes = [kind.as_pointer()] * 2 + [I64, F64.as_pointer()] + [I64] * 5 + [I64.as_pointer()] + [I64] * 3
    function = own_function(module, name, takes)
    builder = ir.IRBuilder(function.append_basic_block())
    values, limits, apart, lines, numbers, line_lanes, flip, valid, channel, words, planes, between, held = (
        function.args
    )
    vector = full(kind)
    firsts = range(0, LANES, vector.count)
    lanes = [builder.load(place_of(builder, values, first, vector), align=4) for first in firsts]
    columns = [builder.gep(limits, [const(first)]) for first in firsts]
    store = _storing(builder, flip, valid, channel, words, planes, between, held)
    many = builder.append_basic_block()
    choice = builder.switch(planes, many)
    for number in range(2, BLENDED + 1):
        block = builder.append_basic_block()
        choice.add_case(const(number), block)
        builder.position_at_end(block)
        limits = [limits_of(builder, column, apart, number, vector) for column in columns]
        masks = [bisect(builder, *pair, compare) for pair in zip(lanes, limits, strict=True)]
        for plane, parts in enumerate(zip(*masks, strict=True), 1):
            store(const(number - plane), parts)
        builder.ret_void()
    builder.position_at_end(many)
    if kind in (I32, I64):
        with builder.if_then(builder.icmp_signed("!=", line_lanes, const(0))):
            ranks = _on_lines(builder, lanes, lines, line_lanes)
            with builder.if_then(builder.icmp_signed("!=", numbers, const(NEAR))):
                _store_ranks(builder, ranks, planes, store)
                builder.ret_void()
            pairs = zip(ranks, lanes, columns, strict=True)
            _store_ranks(builder, [corrected(builder, *pair, apart, compare) for pair in pairs], planes, store)
            builder.ret_void()
    _loaded(builder, lanes, columns, apart, planes, compare, store)
    builder.ret_void()
    return function


def _storing(builder, flip, valid, channel, words, planes, between, held):
    """Return store(plane, masks), which stores `valid` bits of the masks of neighbouring vectors from `channel` on.

    A plane of bytes where there is one plane for several.
    """
    as_bytes = are_bytes(builder, held, planes)
    lanes = ir.VectorType(I8, LANES)
    codes = builder.bitcast(builder.gep(builder.bitcast(words, I8.as_pointer()), [channel]), lanes.as_pointer())
    used = builder.sub(builder.shl(const(1), valid), const(1))
    shift, word = builder.and_(channel, const(63)), builder.lshr(channel, const(6))
    over = builder.icmp_signed(">", builder.add(shift, valid), const(64))

    def add(place, bits):
        builder.store(builder.or_(builder.load(place), bits), place)

    def store(plane, masks):
        bits = const(0)
        for i, mask in enumerate(masks):
            part = builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I64)
            bits = builder.or_(bits, builder.shl(part, const(i * mask.type.count)))
        bits = builder.and_(builder.xor(bits, flip), used)
        with builder.if_else(as_bytes) as (in_bytes, in_planes):
            with in_bytes:
                mask = builder.bitcast(builder.trunc(bits, I32), ir.VectorType(ir.IntType(1), LANES))
                bit = splat(builder, builder.trunc(builder.shl(const(1), plane), I8), LANES)
                part = builder.select(mask, bit, ir.Constant(lanes, None))
                builder.store(builder.or_(builder.load(codes, align=1), part), codes, align=1)
            with in_planes:
                place = builder.gep(words, [builder.add(builder.mul(plane, between), word)])
                add(place, builder.shl(bits, shift))
                with builder.if_then(over, likely=False):
                    add(builder.gep(place, [const(1)]), builder.lshr(bits, builder.sub(const(64), shift)))

    return store


def clear_rest(builder, words, length, channel, pixels, apart):
    """Clear the bytes after those of 32 channels in the last word of rows of bytes, whose last channels these may be.

    Rows are `length` numbers of 64 bits, `apart` such numbers from each other, so there is a rest where an odd number
    of blocks has channels. A block that is stored there later replaces it.
    """
    even = builder.icmp_signed("==", builder.and_(channel, const(63)), const(0))
    last = builder.icmp_signed("==", builder.add(channel, const(64)), builder.shl(length, const(3)))
    with builder.if_then(builder.and_(even, last)):
        rest = builder.gep(builder.bitcast(words, I8.as_pointer()), [builder.add(channel, const(LANES))])
        with cgutils.for_range(builder, pixels) as pixel:
            at = builder.mul(pixel.index, builder.shl(apart, const(3)))
            builder.store(NO_CODES, place_of(builder, rest, at, NO_CODES.type), align=1)


def are_bytes(builder, planes, several):
    """Return whether codes are stored as bytes: in one plane, where there are several thresholds, or bits of a code."""
    return builder.and_(builder.icmp_signed("==", planes, const(1)), builder.icmp_signed(">", several, const(1)))


def limits_of(builder, limits, apart, planes, vector):
    """Load the thresholds of a vector's lanes, from those in row `limits` on, as vectors."""
    rows = [builder.gep(limits, [builder.mul(apart, const(t))]) for t in range(2**planes - 1)]
    return [builder.load(place_of(builder, row, 0, vector), align=4) for row in rows]


def bisect(builder, value, candidates, compare):
    """Return the masks of a vector's planes, the highest first; each mask halves the candidates."""
    masks = []
    while candidates:
        middle = len(candidates) // 2
        masks.append(compare(builder, ">", value, candidates[middle]))
        halves = zip(candidates[middle + 1 :], candidates[:middle], strict=True)
        candidates = [builder.select(masks[-1], high, low) for high, low in halves]
    return masks


def _on_lines(builder, lanes, lines, apart):
    """Return floor(slope * v + shift) of each lane, clipped: in float64, so that no threshold is missed."""
    parts = []
    for nth, value in enumerate(lanes):
        wide = ir.VectorType(F64, value.type.count)
        rows = [builder.gep(lines, [builder.mul(apart, const(k))]) for k in range(4)]
        slope, shift, least, most = (
            builder.load(place_of(builder, row, nth * value.type.count, wide), align=8) for row in rows
        )
        rank = builder.fadd(builder.fmul(builder.sitofp(value, wide), slope), shift)
        rank = builder.select(builder.fcmp_ordered("<", rank, least), least, rank)
        rank = builder.select(builder.fcmp_ordered(">", rank, most), most, rank)
        parts.append(builder.fptosi(rank, ir.VectorType(I32, value.type.count)))
    return parts


def corrected(builder, rank, value, column, apart, compare):
    """Return rank + 1 where the value passes threshold number `rank` of its lane."""
    lanes = ir.Constant(rank.type, list(range(rank.type.count)))
    at = builder.add(builder.mul(rank, splat(builder, builder.trunc(apart, I32), rank.type.count)), lanes)
    passes = compare(builder, ">", value, _gathered(builder, column, at, value.type))
    return builder.sub(rank, builder.sext(passes, rank.type))


def _store_ranks(builder, parts, planes, store):
    """Store the planes of each lane's rank."""
    ranks = builder.trunc(joined(builder, parts), ir.VectorType(I8, LANES))
    with cgutils.for_range(builder, planes) as plane:
        bit = builder.trunc(builder.shl(const(1), plane.index), I8)
        some = builder.icmp_unsigned("!=", builder.and_(ranks, splat(builder, bit, LANES)), ranks.type(None))
        store(plane.index, [some])


def _loaded(builder, lanes, columns, apart, planes, compare, store):
    """Bisect for more planes than BLENDED: below these, a lane loads the threshold that it compares with."""
    vector, left = lanes[0].type, builder.sub(planes, const(BLENDED))
    wide, half = ir.VectorType(I32, vector.count), builder.trunc(builder.shl(const(1), left), I32)
    between, last = builder.shl(apart, left), builder.neg(apart)
    slots = [cgutils.alloca_once(builder, wide) for _ in lanes]
    blended = []
    for value, column, slot in zip(lanes, columns, slots, strict=True):
        limits = limits_of(builder, builder.gep(column, [builder.add(between, last)]), between, BLENDED, vector)
        blended.append(bisect(builder, value, limits, compare))
        rank = ir.Constant(wide, None)
        for mask in blended[-1]:
            rank = builder.sub(builder.add(rank, rank), builder.sext(mask, wide))
        builder.store(builder.mul(rank, splat(builder, half, vector.count)), slot)
    for plane, parts in enumerate(zip(*blended, strict=True), 1):
        store(builder.sub(planes, const(plane)), parts)
    apart = splat(builder, builder.trunc(apart, I32), vector.count)
    with cgutils.for_range(builder, left) as step:
        plane = builder.sub(builder.sub(left, const(1)), step.index)
        half, masks = splat(builder, builder.trunc(builder.shl(const(1), plane), I32), vector.count), []
        for value, column, slot in zip(lanes, columns, slots, strict=True):
            rank = builder.load(slot)
            row = builder.add(rank, builder.sub(half, ir.Constant(wide, [1] * vector.count)))
            at = builder.add(builder.mul(row, apart), ir.Constant(wide, list(range(vector.count))))
            masks.append(compare(builder, ">", value, _gathered(builder, column, at, vector)))
            builder.store(builder.add(rank, builder.select(masks[-1], half, ir.Constant(wide, None))), slot)
        store(plane, masks)


def _gathered(builder, data, at, vector):
    """Load data[at[l]] for each lane."""
    if not _GATHERS:
        limit = ir.Constant(vector, None)
        for lane in range(vector.count):
            place = builder.gep(data, [builder.zext(builder.extract_element(at, const(lane)), I64)])
            limit = builder.insert_element(limit, builder.load(place), const(lane))
        return limit
    name = {I32: "dpi", I64: "dpq", F32: "dps", F64: "dpd"}[vector.element]
    mask, address = ir.VectorType(ir.IntType(1), vector.count), I8.as_pointer()
    takes = ir.FunctionType(vector, [vector, address, at.type, mask, I32])
    gather = cgutils.get_or_insert_function(builder.module, takes, f"llvm.x86.avx512.mask.gather.{name}.512")
    every, size = ir.Constant(mask, [1] * vector.count), ir.Constant(I32, 64 // vector.count)
    return builder.call(gather, [ir.Constant(vector, None), builder.bitcast(data, address), at, every, size])
