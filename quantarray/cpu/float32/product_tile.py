"""Multiply some rows by a matrix of float32 values, with the sums of a tile in registers."""

from itertools import product

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import LINE
from ..llvm.masks import ask_for
from ..llvm.vectors import F32, I8, const, place_of, pointer, slot_of, splat
from ..runtime.isa import FEATURES

# (rows, vectors) of tiles, widest first: 24, 16 and 8 sums of 16 lanes, or as many as registers of 8 lanes hold
_TILES = ((12, 2), (4, 4), (1, 8)) if "avx512f" in FEATURES else ((4, 1), (1, 4))
_LANES = 16
_NARROW = 4, 1  # lanes for matrices of less than 16 columns
ROWS = _TILES[0][0]
# Rows of the matrix before which one is asked for, where the time is that of reading it: neighbours of a column are
# pages from each other. 1 x 1280 by 1280 x 1000 int8, in a network: 222 -> 140 us
_AHEAD = 16


@intrinsic
def multiply_rows(
    typingctx, x, at, row_apart, apart, rows, depth, w, scale, bias, first, columns, out, out_row
):  # fmt: skip
    """out[out_row + r, first + j] = bias[first + j] + sum over k of x[at + r row_apart + k apart] w[k, first + j].

    For r < rows and j < columns. x is flat, all arrays are float32 and C-contiguous; w may be int8, for the values
    w[k, j] * scale[j]. Sums go in the order of k, so they depend on no tile: with fused products and sums where the CPU
    has them. -0 is no sum, for they begin with 0.
    """
    number = types.int64
    signature = types.void(
        x, number, number, number, number, number, w, scale, bias, number, number, out, number
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        _, _, row_apart, apart, rows, depth, _, _, _, first, columns, _, out_row = args
        width = cgutils.unpack_tuple(builder, context.make_array(signature.args[6])(context, builder, args[6]).shape, 2)
        values = pointer(context, builder, signature, args, 0, args[1])
        matrix, scales, biases = (pointer(context, builder, signature, args, i, first) for i in (6, 7, 8))
        to = pointer(context, builder, signature, args, 11, builder.add(builder.mul(out_row, width[1]), first))
        row = slot_of(builder, const(0))
        for tile_rows, vectors in _TILES:
            ready = builder.load(row)
            count = builder.sdiv(builder.sub(rows, ready), const(tile_rows))
            with cgutils.for_range(builder, count) as part:
                begin = builder.add(ready, builder.mul(part.index, const(tile_rows)))
                source = builder.gep(values, [builder.mul(begin, row_apart)])
                target = builder.gep(to, [builder.mul(begin, width[1])])
                operands = source, row_apart, apart, depth, (matrix, scales), width[1], biases, target
                _sweep(builder, columns, vectors, tile_rows, operands)
            builder.store(builder.add(ready, builder.mul(count, const(tile_rows))), row)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def multiply_channels(typingctx, rows, at, depth, w, bias, out, out_row):
    """out[out_row, c] = bias[c] + sum over k < depth of rows[at + k * columns + c] w[k, c], for all columns c of w.

    rows are flat, all arrays float32 and C-contiguous. Sums are those of `multiply_rows`.
    """
    number = types.int64
    signature = types.void(rows, number, number, w, bias, out, number)

    def codegen(context, builder, signature, args):
        shape = context.make_array(signature.args[3])(context, builder, args[3]).shape
        columns = cgutils.unpack_tuple(builder, shape, 2)[1]
        values = pointer(context, builder, signature, args, 0, args[1])
        matrix, biases = (pointer(context, builder, signature, args, i, const(0)) for i in (3, 4))
        to, start = pointer(context, builder, signature, args, 5, builder.mul(args[6], columns)), const(0)
        for lanes in (_LANES, 1):
            kind, count = ir.VectorType(F32, lanes), builder.sdiv(builder.sub(columns, start), const(lanes))
            with cgutils.for_range(builder, count) as part:
                column = builder.add(start, builder.mul(part.index, const(lanes)))
                total = slot_of(builder, ir.Constant(kind, [0.0] * lanes))
                with cgutils.for_range(builder, args[2]) as step:
                    at = builder.add(builder.mul(step.index, columns), column)
                    value, weight = (_load(builder, data, at, kind) for data in (values, matrix))
                    builder.store(add_product(builder, value, weight, builder.load(total)), total)
                result = builder.fadd(builder.load(total), _load(builder, biases, column, kind))
                builder.store(result, place_of(builder, to, column, kind), align=4)
            start = builder.add(start, builder.mul(count, const(lanes)))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_channels(typingctx, x, at, apart, channels, rows, to):
    """rows[to + c] = x[at + c apart], or 0 where `at` is below 0, for c < channels; both are flat float32."""
    number = types.int64
    signature = types.void(x, number, number, number, rows, number)

    def codegen(context, builder, signature, args):
        source = pointer(context, builder, signature, args, 0, args[1])
        target = pointer(context, builder, signature, args, 4, args[5])

        def copy(lanes, count, value):
            kind = ir.VectorType(F32, lanes)
            with cgutils.for_range(builder, builder.sdiv(count, const(lanes))) as part:
                at = builder.mul(part.index, const(lanes))
                builder.store(value(at, kind), place_of(builder, target, at, kind), align=4)
            done = builder.and_(count, const(-lanes))
            with cgutils.for_range(builder, builder.sub(count, done)) as part:
                at, kind = builder.add(done, part.index), ir.VectorType(F32, 1)
                builder.store(value(at, kind), place_of(builder, target, at, kind), align=4)

        inside = builder.icmp_signed(">=", args[1], const(0))
        near = builder.and_(inside, builder.icmp_signed("==", args[2], const(1)))
        with builder.if_else(near) as (together, others):
            with together:
                copy(_LANES, args[3], lambda at, kind: _load(builder, source, at, kind))
            with others, builder.if_else(inside) as (spread, outside):
                with spread:
                    copy(1, args[3], lambda at, kind: _load(builder, source, builder.mul(at, args[2]), kind))
                with outside:
                    copy(_LANES, args[3], lambda at, kind: ir.Constant(kind, [0.0] * kind.count))
        return context.get_dummy_value()

    return signature, codegen


def _sweep(builder, columns, vectors, rows, operands):
    """Multiply a tile's rows by all columns: whole tiles, then single vectors, of which the last one may overlap."""
    wide = builder.icmp_signed(">=", columns, const(_LANES))
    with builder.if_else(wide) as (many, few):
        with many:
            tiles = builder.sdiv(columns, const(vectors * _LANES))
            with cgutils.for_range(builder, tiles) as tile:
                _tile(builder, builder.mul(tile.index, const(vectors * _LANES)), vectors, _LANES, rows, operands)
            _rest(builder, builder.mul(tiles, const(vectors * _LANES)), columns, _LANES, rows, operands)
        with few:
            several = builder.icmp_signed(">=", columns, const(_NARROW[0]))
            with builder.if_else(several) as branches:
                for branch, lanes in zip(branches, _NARROW, strict=True):
                    with branch:
                        _rest(builder, const(0), columns, lanes, rows, operands)


def _rest(builder, begin, columns, lanes, rows, operands):
    """Multiply by the columns from `begin` on, a vector at a time; the last one ends with the columns."""
    left = builder.sub(columns, begin)
    count = builder.sdiv(builder.add(left, const(lanes - 1)), const(lanes))
    with cgutils.for_range(builder, count) as part:
        at = builder.add(begin, builder.mul(part.index, const(lanes)))
        last = builder.sub(columns, const(lanes))
        _tile(builder, builder.select(builder.icmp_signed("<", at, last), at, last), 1, lanes, rows, operands)


def _tile(builder, column, vectors, lanes, rows, operands):
    """Multiply rows by `vectors` vectors of columns; x is read an element at a time, the matrix a vector."""
    x, row_apart, apart, depth, (matrix, scales), width, biases, to = operands
    kind = ir.VectorType(F32, lanes)
    places = list(product(range(rows), range(vectors)))
    zero = ir.Constant(kind, [0.0] * lanes)
    sums = {place: slot_of(builder, zero) for place in places}
    starts = [builder.gep(x, [builder.mul(row_apart, const(r))]) for r in range(rows)]
    of_bytes = matrix.type.pointee == I8
    columns = [builder.add(column, const(v * lanes)) for v in range(vectors)]
    factors = [_load(builder, scales, at, kind) for at in columns] if of_bytes else []
    with cgutils.for_range(builder, depth) as step:
        row = builder.mul(step.index, width)
        if rows == 1:
            size = 1 if of_bytes else 4
            ahead = builder.mul(builder.add(row, builder.mul(width, const(_AHEAD))), const(size))
            ahead = builder.add(ahead, builder.mul(column, const(size)))
            ask_for(builder, matrix, ahead, -(-vectors * lanes * size // LINE) + of_bytes, 3)
        weights = [_load(builder, matrix, builder.add(row, at), kind) for at in columns]
        if of_bytes:
            weights = [builder.fmul(*pair) for pair in zip(weights, factors, strict=True)]
        offset = builder.mul(step.index, apart)
        for r, start in enumerate(starts):
            value = splat(builder, builder.load(builder.gep(start, [offset])), lanes)
            for v, weight in enumerate(weights):
                builder.store(add_product(builder, value, weight, builder.load(sums[r, v])), sums[r, v])
    for r, v in places:
        at = builder.add(column, const(v * lanes))
        result = builder.fadd(builder.load(sums[r, v]), _load(builder, biases, at, kind))
        place = builder.add(builder.mul(width, const(r)), at)
        builder.store(result, place_of(builder, to, place, kind), align=4)


def _load(builder, data, at, kind):
    """Load values as float32, from float32 or int8."""
    if data.type.pointee == F32:
        return builder.load(place_of(builder, data, at, kind), align=4)
    integers = builder.load(place_of(builder, data, at, ir.VectorType(I8, kind.count)), align=1)
    return builder.sitofp(integers, kind)


def add_product(builder, a, b, total):
    if "fma" not in FEATURES:
        return builder.fadd(total, builder.fmul(a, b))
    kind = ir.FunctionType(total.type, [total.type] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{total.type.count}f32")
    return builder.call(fused, [a, b, total])
