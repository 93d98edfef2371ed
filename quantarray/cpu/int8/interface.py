"""Dot products of byte blocks, 4 pixels by 32 or 64 output channels: the interface of all instruction sets.

A byte block is what any unit for 8-bit products takes, a matrix unit too: pixels are rows of uint8 codes, weights are
int8 [quads 32 4], in which a quad is 4 neighbours of the contraction. Sums of 32 bits stay in registers for all spans
of a call. They may wrap: what they end as is right modulo 2**32.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I32, LANES, TILE, const, place_of, pointer, splat
from ..llvm.views import flat

QUAD = 4  # neighbours of the contraction whose products one instruction adds to a 32-bit lane


def tile_dotter(kernel):
    """Build the `dot_tile` of a kernel for one instruction set.

    `kernel.lanes` are the 32-bit lanes of its vectors, `kernel.sweeps(blocks)` the vectors of a pixel that registers
    hold in one walk over the contraction; `kernel.add(builder, sum, codes, weights)` adds products of 4 bytes a lane.
    """

    @intrinsic
    def dot_tile(typingctx, codes, places, weights, spans, fresh, totals):
        """totals[b, p, l] += sum over the spans of a * w, or = that where `fresh`, with

            a = codes[places[p] + 4 * at + k],   w = weights[b * apart + 4 * (32 * row + l) + k]

        Spans first .. last of int64 spans[n 3], a `RunSpan`, are (first at, first row, number of both); k < 4. codes
        are uint8, weights `ByteWeights`, places a `View` of int64, and totals `Rows` of int32[4 32], one of each of 1
        or 2 blocks.
        """
        signature = types.void(codes, places, weights, spans, types.boolean, totals)

        def codegen(context, builder, signature, args):
            signature, args = flat(context, builder, signature, args)
            codes, places = (
                pointer(context, builder, signature, args, 0),
                pointer(context, builder, signature, args, 1, args[2]),
            )
            rows = [builder.gep(codes, [builder.load(builder.gep(places, [const(p)]))]) for p in range(TILE)]
            spans, totals = (
                pointer(context, builder, signature, args, 7),
                pointer(context, builder, signature, args, 11, args[12]),
            )
            weights = pointer(context, builder, signature, args, 3, args[4])
            spans = spans, args[8], args[9]
            with builder.if_else(builder.icmp_signed("==", args[6], const(1))) as (one, two):
                for branch, blocks in ((one, 1), (two, 2)):
                    with branch:
                        for vectors in kernel.sweeps(blocks):
                            _sweep(
                                builder, kernel, vectors, rows, (weights, args[5]), spans, args[10], (totals, args[13])
                            )

        return signature, codegen

    return dot_tile


def _sweep(builder, kernel, vectors, rows, weights, spans, fresh, totals):
    """Sum up some vectors of lanes: `vectors` are the numbers of their first lanes among the blocks' 32 or 64.

    weights and totals are (pointer, distance of blocks), spans (pointer, first, last).
    """
    row, (spans, first, last) = ir.VectorType(I32, kernel.lanes), spans
    sums = [[cgutils.alloca_once_value(builder, ir.Constant(row, None)) for _ in vectors] for _ in range(TILE)]
    for slot in (slot for pixel in sums for slot in pixel):
        builder.store(ir.Constant(row, None), slot)
    columns = [_column(builder, *weights, lane) for lane in vectors]
    with cgutils.for_range(builder, builder.sub(last, first)) as span:
        at = builder.mul(builder.add(first, span.index), const(3))
        pixel, weight, quads = (builder.load(builder.gep(spans, [builder.add(at, const(i))])) for i in range(3))
        begin = builder.mul(weight, const(QUAD * LANES))
        starts = [builder.gep(column, [begin]) for column in columns]
        codes = [builder.bitcast(builder.gep(r, [builder.mul(pixel, const(QUAD))]), I32.as_pointer()) for r in rows]
        with cgutils.for_range(builder, quads) as step:
            place = builder.mul(step.index, const(QUAD * LANES))
            loaded = [builder.load(place_of(builder, start, place, row), align=1) for start in starts]
            for p in range(TILE):
                code = splat(builder, builder.load(builder.gep(codes[p], [step.index]), align=1), kernel.lanes)
                for slot, column in zip(sums[p], loaded, strict=True):
                    builder.store(kernel.add(builder, builder.load(slot), code, column), slot)
    with builder.if_else(fresh) as (store, add):
        with store:
            _move(builder, sums, vectors, totals, lambda total, place: total)
        with add:
            _move(builder, sums, vectors, totals, lambda total, place: builder.add(builder.load(place, align=4), total))


def _column(builder, weights, apart, lane):
    """Return a pointer to the first byte of a lane."""
    inside = builder.gep(weights, [const(lane % LANES * QUAD)])
    return builder.gep(inside, [apart]) if lane >= LANES else inside


def _move(builder, sums, vectors, totals, value):
    for p in range(TILE):
        for slot, first in zip(sums[p], vectors, strict=True):
            block, lane = divmod(first, LANES)
            of_block = builder.gep(totals[0], [totals[1]]) if block else totals[0]
            place = place_of(builder, of_block, p * LANES + lane, slot.type.pointee)
            builder.store(value(builder.load(slot), place), place, align=4)
