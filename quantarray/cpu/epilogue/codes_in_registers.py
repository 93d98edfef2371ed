"""Codes of sums that are in registers, as bytes or planes, by lines; bytes that may be too low are computed again."""

from typing import NamedTuple

from llvmlite import ir
from numba.core import cgutils

from ..llvm.vectors import F32, I8, I32, LANES, const, place_of, pointer
from .ranks import shape_of
from .strips import LEAST, by_lines, bytes_on_lines, checked_on_lines


class Layout(NamedTuple):
    """A tuple of LLVM values: whether codes are stored as bytes, else how many planes, and their distance by pixel."""

    as_bytes: ir.Value
    planes: ir.Value
    apart: list  # bytes


def store_codes(builder, sums, vectors, lines, ends, to, correct=None, layout=None):
    """Store codes of sums at a pointer for each pixel: those of four vectors at once, whose first lanes are `vectors`.

    lines are pointers to rows of `ByteLines`, ends those to its ends. Codes are bytes, or as a `Layout` says; with
    `correct`, they are bytes, and the last line is how far from a half a fraction may be.
    """
    kind = sums[0][0].type
    floats = ir.VectorType(F32, kind.count)
    for i in range(0, len(vectors), 4):
        firsts = vectors[i : i + 4]
        rows = [[builder.load(place_of(builder, row, first, floats), align=4) for first in firsts] for row in lines]
        some = ir.VectorType(I8, len(firsts) * kind.count)
        least, most, turned, used = (builder.load(place_of(builder, row, firsts[0], some), align=1) for row in ends)
        for p, (of_pixel, row) in enumerate(zip(sums, to, strict=True)):
            here, unsure = of_pixel[i : i + 4], None
            if correct:
                code, unsure = checked_on_lines(builder, here, *rows, least, most)
            else:
                code = bytes_on_lines(builder, here, *rows, least, most)
            code = builder.and_(builder.xor(code, turned), used)
            if layout is None or correct:
                builder.store(code, place_of(builder, row, firsts[0], some), align=1)
            else:
                with builder.if_else(layout.as_bytes) as (in_bytes, in_planes):
                    with in_bytes:
                        builder.store(code, place_of(builder, row, firsts[0], some), align=1)
                    with in_planes:
                        _store_planes(builder, code, row, firsts[0], layout.planes, layout.apart[p])
            if correct:
                with builder.if_then(unsure, likely=False):
                    correct(here, firsts[0], row)


def _store_planes(builder, code, row, first, planes, apart):
    """Store bits j < planes of some bytes from bit `first` of the plane at byte j * apart of a row on."""
    bits = ir.IntType(code.type.count)

    def put(j):
        bit = builder.and_(code, ir.Constant(code.type, [1 << j] * code.type.count))
        mask = builder.bitcast(builder.icmp_unsigned("!=", bit, ir.Constant(code.type, None)), bits)
        place = builder.gep(row, [builder.add(builder.mul(apart, const(j)), const(first // 8))])
        builder.store(mask, builder.bitcast(place, bits.as_pointer()), align=1)

    for j in range(LEAST):
        put(j)
    for j in range(LEAST, 8):
        with builder.if_then(builder.icmp_signed(">", planes, const(j)), likely=True):
            put(j)


def checks_of(context, builder, signature, args, i):
    """Return (pointer to thresholds, their lanes, planes of codes, flips and used lanes of two blocks) of `Checks`."""
    count, lanes = shape_of(context, builder, signature, args, i)
    limits = pointer(context, builder, signature, args, i, args[i + 1])
    return limits, lanes, builder.ctpop(count), (args[i + 2 : i + 4], args[i + 4 : i + 6])


def corrector(builder, checks, singles):
    """Return correct(sums, first lane, row), which stores codes of vectors of a pixel as `put_strip_by_lines` does."""
    limits, lanes, planes, blocks = checks
    buffer, none, bytes_of = (cgutils.alloca_once(builder, ir.VectorType(I32, LANES)) for _ in range(3))
    near, as_bytes = by_lines(builder.module, "near"), ir.Constant(ir.IntType(1), 1)

    def correct(sums, first, row):
        count = sums[0].type.count
        values, zero, codes = (builder.bitcast(place, I32.as_pointer()) for place in (buffer, none, bytes_of))
        builder.store(ir.Constant(none.type.pointee, None), none)
        for begin in range(0, len(sums) * count, LANES):
            some = sums[begin // count : (begin + LANES) // count]
            for i, total in enumerate(some):
                builder.store(total, place_of(builder, values, i * count, total.type), align=4)
            block, lane = divmod(first + begin, LANES)  # AVX2 has 16 lanes at once
            masks = [builder.lshr(mask, const(lane)) for mask in blocks[block]]
            columns = [builder.gep(data, [const(first + begin)]) for data in (limits, singles)]
            operands = [values, const(0), const(1), zero, *columns, lanes, *masks, const(1), codes]
            builder.call(near, [*operands, const(0), const(0), planes, as_bytes])
            kind = ir.VectorType(I8, len(some) * count)
            code = builder.load(builder.bitcast(codes, kind.as_pointer()), align=4)
            builder.store(code, place_of(builder, row, first + begin, kind), align=1)

    return correct
