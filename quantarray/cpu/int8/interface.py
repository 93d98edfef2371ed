"""Dot products of byte blocks, 4 pixels by 32 or 64 output channels: the interface of all instruction sets.

A byte block is what any unit for 8-bit products takes, a matrix unit too: pixels are rows of uint8 codes, weights are
int8 [quads 32 4], in which a quad is 4 neighbours of the contraction. Sums of 32 bits stay in registers for all spans
of a call. They may wrap: what they end as is right modulo 2**32.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..epilogue.ranks import NO_CODES, shape_of
from ..epilogue.strips import bytes_on_lines
from ..llvm.vectors import F32, I8, I32, LANES, PAIR, TILE, const, place_of, pointer, slot_of, splat
from ..llvm.views import flat

QUAD = 4  # neighbours of the contraction whose products one instruction adds to a 32-bit lane


def tile_dotter(kernel_of):
    """Build the `dot_tile` of a kernel for one instruction set.

    `kernel_of` takes Numba's type of `most`, and returns a kernel. `kernel.lanes` are the 32-bit lanes of its vectors,
    `kernel.sweeps(blocks)` the vectors of a pixel that registers hold in one walk over the contraction, `kernel.sums`
    the type of sums in it. `kernel.add(builder, sum, codes, weights)` adds products of 4 bytes a lane, of which
    `kernel.parts(builder, bytes, signed)` prepares each operand; `kernel.whole(builder, sum)` has 32 bits a lane.
    """

    @intrinsic
    def dot_tile(typingctx, codes, places, weights, spans, fresh, totals, most):
        """totals[b, p, l] += sum over the spans of a * w, or = that where `fresh`, with

            a = codes[places[p] + 4 * at + k],   w = weights[b * apart + 4 * (32 * row + l) + k]

        Spans first .. last of int64 spans[n 3], a `RunSpan`, are (first at, first row, number of both); k < 4. codes
        are uint8, weights `ByteWeights`, places a `View` of int64, and totals `Rows` of int32[4 32], one of each of 1
        or 2 blocks. most is None, or an integer where 16 bits hold all sums of products: at most so many quads.
        """
        signature = types.void(codes, places, weights, spans, types.boolean, totals, most)
        kernel = kernel_of(most)

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
                            sums = _sweep(builder, kernel, vectors, rows, (weights, args[5]), spans)
                            _add(builder, sums, vectors, args[10], (totals, args[13]))

        return signature, codegen

    return dot_tile


def tile_coder(kernel_of):
    """Build the `dot_codes` of a kernel for one instruction set, as `tile_dotter` its `dot_tile`."""

    @intrinsic
    def dot_codes(typingctx, codes, places, weights, spans, rows, size, extra, lines, lane, channel, words, most):
        """Store the codes of the sums of `dot_tile` as bytes channel .. of words[rows[p]], for p < size <= 4.

        Codes are those of `put_strip_by_lines`, with lines that are all right and step 1: 32 or 64 channels, those from
        `lane` on of `ByteLines` and from the start of the `View` extra. rows are a `View`, words uint64[1 rows words].
        The sums stay in registers: to store and load them took a third of a convolution of 16 to 96 channels.
        """
        i64 = types.int64
        signature = types.void(codes, places, weights, spans, rows, i64, extra, lines, i64, i64, words, most)
        kernel = kernel_of(most)

        def codegen(context, builder, signature, args):
            signature, args = flat(context, builder, signature, args)
            codes, lines, ends, words = (pointer(context, builder, signature, args, i) for i in (0, 15, 16, 19))
            places, weights, targets, extra = (
                pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 3, 10, 13)
            )
            rows = [builder.gep(codes, [builder.load(builder.gep(places, [const(p)]))]) for p in range(TILE)]
            spans = pointer(context, builder, signature, args, 7), args[8], args[9]
            width, length = (shape_of(context, builder, signature, args, i)[-1] for i in (15, 19))
            nowhere = cgutils.alloca_once(builder, ir.ArrayType(I8, 2 * PAIR))
            row_bytes, to = builder.shl(length, const(3)), []
            for p in range(TILE):
                at = builder.add(builder.mul(builder.load(builder.gep(targets, [const(p)])), row_bytes), args[18])
                row = builder.gep(builder.bitcast(words, I8.as_pointer()), [at])
                inside = builder.icmp_signed("<", const(p), args[12])
                to.append(builder.select(inside, row, builder.bitcast(nowhere, I8.as_pointer())))
            lines = [builder.gep(lines, [builder.add(args[17], builder.mul(width, const(k)))]) for k in range(2)]
            ends = [builder.gep(ends, [builder.add(args[17], builder.mul(width, const(k)))]) for k in range(4)]
            with builder.if_else(builder.icmp_signed("==", args[6], const(1))) as (one, two):
                for branch, blocks in ((one, 1), (two, 2)):
                    with branch:
                        for vectors in kernel.sweeps(blocks):
                            sums = _sweep(builder, kernel, vectors, rows, (weights, args[5]), spans)
                            _encode(builder, sums, vectors, extra, lines, ends, to)
                        if blocks == 1:
                            last = builder.icmp_signed("==", builder.add(args[18], const(PAIR)), row_bytes)
                            with builder.if_then(last):
                                for row in to:
                                    builder.store(NO_CODES, place_of(builder, row, LANES, NO_CODES.type), align=1)

        return signature, codegen

    return dot_codes


def _sweep(builder, kernel, vectors, rows, weights, spans):
    """Sum up some vectors of lanes: `vectors` are the numbers of their first lanes among the blocks' 32 or 64.

    weights are (pointer, distance of blocks), spans (pointer, first, last). Returns sums by pixel and vector.
    """
    row, (spans, first, last) = ir.VectorType(I32, kernel.lanes), spans
    slots = [[slot_of(builder, ir.Constant(kernel.sums, None)) for _ in vectors] for _ in range(TILE)]
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
            loaded = [kernel.parts(builder, one, True) for one in loaded]
            for p in range(TILE):
                code = splat(builder, builder.load(builder.gep(codes[p], [step.index]), align=1), kernel.lanes)
                code = kernel.parts(builder, code, False)
                for slot, column in zip(slots[p], loaded, strict=True):
                    builder.store(kernel.add(builder, builder.load(slot), code, column), slot)
    return [[kernel.whole(builder, builder.load(slot)) for slot in pixel] for pixel in slots]


def _encode(builder, sums, vectors, extra, lines, ends, to):
    """Store codes of sums at a pointer for each pixel."""
    kind = sums[0][0].type
    of_block, floats = LANES // kind.count, ir.VectorType(F32, kind.count)
    for i in range(0, len(vectors), of_block):
        firsts = vectors[i : i + of_block]
        fixed = [builder.load(place_of(builder, extra, first, kind), align=4) for first in firsts]
        slopes, shifts = (
            [builder.load(place_of(builder, row, first, floats), align=4) for first in firsts] for row in lines
        )
        some = ir.VectorType(I8, len(firsts) * kind.count)
        least, most, turned, used = (builder.load(place_of(builder, row, firsts[0], some), align=1) for row in ends)
        for of_pixel, row in zip(sums, to, strict=True):
            totals = [builder.add(*pair) for pair in zip(fixed, of_pixel[i : i + of_block], strict=True)]
            code = bytes_on_lines(builder, totals, slopes, shifts, least, most)
            code = builder.and_(builder.xor(code, turned), used)
            builder.store(code, place_of(builder, row, firsts[0], some), align=1)


def _add(builder, sums, vectors, fresh, totals):
    """Store sums as totals (pointer, distance of blocks), or add them where they are not `fresh`."""
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
        for total, first in zip(sums[p], vectors, strict=True):
            block, lane = divmod(first, LANES)
            of_block = builder.gep(totals[0], [totals[1]]) if block else totals[0]
            place = place_of(builder, of_block, p * LANES + lane, total.type)
            builder.store(value(total, place), place, align=4)
