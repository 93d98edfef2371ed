"""Dot products of rows of float32 values, in 16 sums side by side.

Lane i of a vector adds the products at k = i, i + 16, i + 32, ..; then lanes i and i + 8 are added, then 4, 2 and 1
apart. Tiles of all sizes add in this order.
"""

from itertools import product

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, I32, const, own_function, place_of, pointer, slot_of
from ..runtime.isa import FEATURES
from .product_tile import add_product

LANES = 16
# (rows, columns) of tiles, largest first: the sums, and a vector of each column, are in registers
_TILES = ((6, 4), (1, 4), (4, 1), (1, 1)) if "avx512f" in FEATURES else ((2, 2), (1, 2), (2, 1), (1, 1))
_VECTOR = ir.VectorType(F32, LANES)


@intrinsic
def dot_values(typingctx, x, row, rows, values, count, out, first):
    """out[r, first + o] = sum over k of x[r, k] values[o, k] for `rows` rows r from `row` on, and o < count.

    All float32, C-contiguous.
    """
    i64 = types.int64
    signature = types.void(x, i64, i64, values, i64, out, i64)

    def codegen(context, builder, signature, args):
        depth, width = (
            cgutils.unpack_tuple(builder, context.make_array(signature.args[i])(context, builder, args[i]).shape, 2)[1]
            for i in (0, 5)
        )
        at = builder.add(builder.mul(args[1], width), args[6])
        left = pointer(context, builder, signature, args, 0, builder.mul(args[1], depth))
        right, to = (pointer(context, builder, signature, args, i, offset) for i, offset in ((3, const(0)), (5, at)))
        done = slot_of(builder, const(0))
        for tall in sorted({rows for rows, _ in _TILES}, reverse=True):
            begin = builder.load(done)
            tiles = builder.sdiv(builder.sub(args[2], begin), const(tall))
            with cgutils.for_range(builder, tiles) as tile:
                r = builder.add(begin, builder.mul(tile.index, const(tall)))
                operands = builder.gep(left, [builder.mul(r, depth)]), right, depth
                _columns(builder, tall, args[4], operands, builder.gep(to, [builder.mul(r, width)]), width)
            builder.store(builder.add(begin, builder.mul(tiles, const(tall))), done)
        return context.get_dummy_value()

    return signature, codegen


def _columns(builder, tall, count, operands, to, width):
    """Compute a tile of rows for all columns."""
    x, values, depth = operands
    done = const(0)
    for wide in sorted({columns for rows, columns in _TILES if rows == tall or columns == 1}, reverse=True):
        tiles = builder.sdiv(builder.sub(count, done), const(wide))
        with cgutils.for_range(builder, tiles) as tile:
            column = builder.add(done, builder.mul(tile.index, const(wide)))
            function = _function(builder.module, tall, wide)
            right, target = builder.gep(values, [builder.mul(column, depth)]), builder.gep(to, [column])
            builder.call(function, [x, right, depth, target, width])
        done = builder.add(done, builder.mul(tiles, const(wide)))


def _function(module, rows, columns):
    name = f"quantarray.dot_values.{rows}.{columns}"
    if name in module.globals:
        return module.globals[name]
    data = F32.as_pointer()
    function = own_function(module, name, [data, data, ir.IntType(64), data, ir.IntType(64)])
    builder = ir.IRBuilder(function.append_basic_block())
    x, values, depth, to, width = function.args
    lefts, rights = (
        [builder.gep(side, [builder.mul(const(i), depth)]) for i in range(count)]
        for side, count in ((x, rows), (values, columns))
    )
    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    sums = {place: slot_of(builder, zero) for place in product(range(rows), range(columns))}

    def add(load):
        right = [load(side) for side in rights]
        for r, side in enumerate(lefts):
            left = load(side)
            for c, value in enumerate(right):
                builder.store(add_product(builder, left, value, builder.load(sums[r, c])), sums[r, c])

    whole = builder.and_(depth, const(-LANES))
    with cgutils.for_range(builder, builder.sdiv(depth, const(LANES))) as step:
        at = builder.mul(step.index, const(LANES))
        add(lambda side: builder.load(place_of(builder, side, at, _VECTOR), align=4))
    left = builder.sub(depth, whole)
    with builder.if_then(builder.icmp_signed(">", left, const(0))):
        add(lambda side: _first_lanes(builder, builder.gep(side, [whole]), left, zero))
    for (r, c), slot in sums.items():
        place = builder.gep(to, [builder.add(builder.mul(const(r), width), const(c))])
        builder.store(folded(builder, builder.load(slot)), place)
    builder.ret_void()
    return function


def _first_lanes(builder, data, count, zero):
    """Load the first lanes of a vector, and 0 in others, whose memory is not read."""
    vector = slot_of(builder, zero)
    with cgutils.for_range(builder, count) as lane:
        value = builder.load(builder.gep(data, [lane.index]))
        builder.store(builder.insert_element(builder.load(vector), value, lane.index), vector)
    return builder.load(vector)


def folded(builder, total):
    """Add the halves of a vector until one lane is left."""
    count = LANES
    while count > 1:
        count //= 2
        halves = (ir.Constant(ir.VectorType(I32, count), list(range(first, first + count))) for first in (0, count))
        low, high = (builder.shuffle_vector(total, total, half) for half in halves)
        total = builder.fadd(low, high)
    return builder.extract_element(total, I32(0))
