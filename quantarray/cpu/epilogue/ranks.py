"""Count the thresholds below each lane by bisection: one comparison for a bit of the answer, not for a threshold."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I64, LANES, const, full, own_function, place_of, pointer, splat

BLENDED = 4  # planes up to which all thresholds are loaded as vectors; beyond, each lane loads its own


@intrinsic
def put_ranks(typingctx, values, start, thresholds, at, flip, valid, channel, words, row):
    """words[j, row] |= (bit j of rank l) << (channel + l), for l < valid <= 32.

    Rank l is the number of t with values[start + l] > thresholds[t, at + l]. There are 2**planes - 1 thresholds for
    words[planes rows words]; they ascend in t, and NaN among them is below all. Bits are flipped where those of `flip`
    are ones. All arrays are C-contiguous and indexed flat, values and thresholds int32, int64 or float64 alike.
    """
    i64 = types.int64
    signature = types.void(values, i64, thresholds, i64, types.uint64, i64, i64, words, i64)
    compare = ir.IRBuilder.fcmp_unordered if values.dtype == types.float64 else ir.IRBuilder.icmp_signed

    def codegen(context, builder, signature, args):
        values, limits = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 2))
        apart = shape_of(context, builder, signature, args, 2)[1]
        planes, rows, length = shape_of(context, builder, signature, args, 7)
        bits = pointer(context, builder, signature, args, 7, builder.mul(args[8], length))
        between = builder.mul(rows, length)
        shared = _function(builder.module, values.type.pointee, compare)
        builder.call(shared, [values, limits, apart, *args[4:7], bits, planes, between])

    return signature, codegen


def shape_of(context, builder, signature, args, i):
    """Return the shape of array argument i."""
    return cgutils.unpack_tuple(builder, context.make_array(signature.args[i])(context, builder, args[i]).shape)


def _function(module, kind, compare):
    """Build one function for all places of a kernel that compare: it takes a fifth of a first compilation."""
    name = f"quantarray.put_ranks.{kind}"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [kind.as_pointer()] * 2 + [I64] * 4 + [I64.as_pointer()] + [I64] * 2)
    builder = ir.IRBuilder(function.append_basic_block())
    values, limits, apart, flip, valid, channel, words, planes, between = function.args
    vector = full(kind)
    firsts = range(0, LANES, vector.count)
    lanes = [builder.load(place_of(builder, values, first, vector), align=4) for first in firsts]
    columns = [builder.gep(limits, [const(first)]) for first in firsts]
    store = _storing(builder, flip, valid, channel, words, between)
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
    _loaded(builder, lanes, columns, apart, planes, compare, store)
    builder.ret_void()
    return function


def _storing(builder, flip, valid, channel, words, between):
    """Return store(plane, masks), which stores `valid` bits of the masks of neighbouring vectors from `channel` on."""
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
        place = builder.gep(words, [builder.add(builder.mul(plane, between), word)])
        add(place, builder.shl(bits, shift))
        with builder.if_then(over, likely=False):
            add(builder.gep(place, [const(1)]), builder.lshr(bits, builder.sub(const(64), shift)))

    return store


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


def _loaded(builder, lanes, columns, apart, planes, compare, store):
    """Bisect for any number of planes: in each step, a lane loads the threshold that it compares with."""
    count = lanes[0].type.count
    wide = ir.VectorType(I64, count)
    slots = [cgutils.alloca_once_value(builder, ir.Constant(wide, None)) for _ in lanes]
    for slot in slots:
        builder.store(ir.Constant(wide, None), slot)
    with cgutils.for_range(builder, planes) as step:
        plane = builder.sub(builder.sub(planes, step.index), const(1))
        half, masks = builder.shl(const(1), plane), []
        for value, column, slot in zip(lanes, columns, slots, strict=True):
            rank, limit = builder.load(slot), ir.Constant(value.type, None)
            rows = builder.add(rank, splat(builder, builder.sub(half, const(1)), count))
            rows = builder.mul(rows, splat(builder, apart, count))
            for lane in range(count):
                place = builder.gep(column, [builder.add(builder.extract_element(rows, const(lane)), const(lane))])
                limit = builder.insert_element(limit, builder.load(place), const(lane))
            masks.append(compare(builder, ">", value, limit))
            more = builder.select(masks[-1], splat(builder, half, count), ir.Constant(wide, None))
            builder.store(builder.add(rank, more), slot)
        store(plane, masks)
