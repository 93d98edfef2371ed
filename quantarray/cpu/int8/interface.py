"""Dot products of byte blocks, 4 pixels by 32 or 64 output channels: the interface of all instruction sets.

A byte block is what any unit for 8-bit products takes, a matrix unit too: pixels are rows of uint8 codes, weights are
int8 [quads 32 4], in which a quad is 4 neighbours of the contraction. Sums of 32 bits stay in registers for all spans
of a call. They may wrap: what they end as is right modulo 2**32.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..epilogue.codes_in_registers import Layout, checks_of, corrector, store_codes
from ..epilogue.ranks import NO_CODES, are_bytes, shape_of
from ..llvm.vectors import I8, I32, I64, LANES, PAIR, TILE, const, place_of, pointer, slot_of, splat
from ..llvm.views import flat

HALF = LANES // 2  # channels that no instruction set's registers divide
QUAD = 4  # neighbours of the contraction whose products one instruction adds to a 32-bit lane


def tile_dotter(kernel_of):
    """Build the `dot_tile` of a kernel for one instruction set.

    `kernel_of` takes Numba's type of `most`, and returns a kernel. `kernel.lanes` are the 32-bit lanes of its vectors,
    `kernel.sweeps(lanes)` those of so many lanes of a pixel that registers hold in one walk over the contraction,
    `kernel.sums` the type of sums in it. `kernel.add(builder, sum, codes, weights)` adds products of 4 bytes a lane, of
    which `kernel.parts(builder, bytes, signed)` prepares each operand; `kernel.whole(builder, sum)` has 32 bits a lane.
    A kernel with `fold(builder, sum, some)` adds so to each sum, every few quads, what `kernel.some` has of them.
    """

    @intrinsic
    def dot_tile(typingctx, codes, places, weights, spans, fresh, totals, most):
        """totals[b, p, l] += sum over the spans of a * w, or = that where `fresh`, with

            a = codes[places[p] + 4 * at + k],   w = weights[b * apart + 4 * (32 * row + l) + k]

        Spans first .. last of int64 spans[n 3], a `RunSpan`, are (first at, first row, number of both); k < 4. codes
        are uint8, weights `ByteWeights`, places a `View` of int64, and totals `Rows` of int32[4 32], one of each of 1
        or 2 blocks. most is None, or an integer where 16 bits hold all sums of products: at most so many quads. It is
        `SomeQuads` where they hold those of fewer than a word has.
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
            spans = spans, args[8], args[9], _first_span(builder, spans, args[8], args[9])
            with builder.if_else(builder.icmp_signed("==", args[6], const(1))) as (one, two):
                for branch, blocks in ((one, 1), (two, 2)):
                    with branch:
                        for vectors in kernel.sweeps(blocks * LANES):
                            sums = _sweep(builder, kernel, vectors, rows, (weights, args[5]), spans, args[-1])
                            _add(builder, sums, vectors, args[10], (totals, args[13]))

        return signature, codegen

    return dot_tile


def tile_writers(kernel_of):
    """Build `dot_sums` and `dot_codes` of a kernel for one instruction set, as `tile_dotter` its `dot_tile`.

    Their sums are those of `dot_tile` for tiles i < `tiles`: of codes from windows[i, p] on, p < sizes[i], over spans
    firsts[kinds[i]] .. firsts[kinds[i] + 1], plus extra[kind, lane ..]. They stay in registers: to store and load those
    of codes took a third of a convolution of 16 to 96 channels, and those of 24 channels a quarter of one from 144.
    rows, kinds and sizes are those of `Places`, `windows` int64[tiles 4].
    """

    @intrinsic
    def dot_sums(
        typingctx, codes, windows, tiles, places, weights, spans, firsts, extra, lane, valid, channel, values, most
    ):  # fmt: skip
        """values[rows[i, p], channel + l] = sum l, for l < valid; values are int32 [rows channels]."""
        i64 = types.int64
        signature = types.void(
            codes, windows, i64, places, weights, spans, firsts, extra, i64, i64, i64, values, most
        )  # fmt: skip

        def codegen(context, builder, signature, args):
            if any(signature.args[i].dtype != types.int32 for i in (7, 11)):
                return
            signature, args = flat(context, builder, signature, args)
            valid, channel = args[15:17]
            values = pointer(context, builder, signature, args, 17, channel)
            length = shape_of(context, builder, signature, args, 17)[-1]

            def store(sums, vectors, to, counts):
                for of_pixel, row in zip(sums, to, strict=True):
                    for total, first in zip(of_pixel, vectors, strict=True):
                        lanes = ir.Constant(total.type, list(range(first, first + total.type.count)))
                        most = splat(builder, builder.trunc(valid, I32), total.type.count)
                        _store_some(builder, total, place_of(builder, row, first, total.type), lanes, most)

            _each_tile(context, builder, signature, args, kernel_of(most), values, length, store)

        return signature, codegen

    @intrinsic
    def dot_codes(
        typingctx, codes, windows, tiles, places, weights, spans, firsts, extra, lane, valid, channel, lines, words,
        checks, checked, most,
    ):  # fmt: skip
        """Store the codes of sums l < valid as codes channel + l of words[:, rows[i, p]], as `put_strip_by_lines` does.

        Lines, those from `lane` on of `ByteLines`, are all right where `checked` is None, else corrected by `Checks`;
        step is 1. words are uint64[planes rows words], or [1 rows words] for bytes; what a word has after the
        channels is set to 0. Corrected codes are bytes.
        """
        i64 = types.int64
        signature = types.void(
            codes, windows, i64, places, weights, spans, firsts, extra, i64, i64, i64, lines, words, checks, checked,
            most,
        )  # fmt: skip
        corrected = not isinstance(checked, types.NoneType)

        def codegen(context, builder, signature, args):
            signature, args = flat(context, builder, signature, args)
            lines, ends, words = (pointer(context, builder, signature, args, i) for i in (17, 18, 19))
            width = shape_of(context, builder, signature, args, 17)[-1]
            held, number, length = shape_of(context, builder, signature, args, 19)
            lane, _, channel, row_bytes = *args[14:17], builder.shl(length, const(3))
            count = shape_of(context, builder, signature, args, 20)[0]
            planes, as_bytes = builder.ctpop(count), are_bytes(builder, held, count)
            rows = (0, 1, 4) if corrected else (0, 1)
            lines = [builder.gep(lines, [builder.add(lane, builder.mul(width, const(k)))]) for k in rows]
            correct = (
                corrector(builder, checks_of(context, builder, signature, args, 20), lines[0]) if corrected else None
            )
            ends = [builder.gep(ends, [builder.add(lane, builder.mul(width, const(k)))]) for k in range(4)]
            first_byte = channel if corrected else builder.select(as_bytes, channel, builder.lshr(channel, const(3)))
            words = builder.gep(builder.bitcast(words, I8.as_pointer()), [first_byte])
            last = builder.icmp_signed("==", builder.add(channel, const(PAIR)), row_bytes)
            plane = builder.mul(number, row_bytes)

            def store(sums, vectors, to, counts):
                apart = [builder.select(one, plane, const(0)) for one in counts]
                store_codes(builder, sums, vectors, lines, ends, to, correct, Layout(as_bytes, planes, apart))

            def clear(to, lanes, counts):
                none = ir.Constant(ir.VectorType(I8, HALF), None)
                with builder.if_else(as_bytes) as (in_bytes, in_planes):
                    with in_bytes:
                        for row in to if lanes == HALF else ():
                            builder.store(none, place_of(builder, row, HALF, none.type), align=1)
                        with builder.if_then(last):
                            for row in to:
                                builder.store(NO_CODES, place_of(builder, row, LANES, NO_CODES.type), align=1)
                    with in_planes, cgutils.for_range(builder, planes) as number:
                        for row, one in zip(to, counts, strict=True):
                            at = builder.mul(number.index, builder.select(one, plane, const(0)))
                            _clear_word(builder, builder.gep(row, [at]), lanes)

            _each_tile(context, builder, signature, args, kernel_of(most), words, row_bytes, store, clear)

        return signature, codegen

    return dot_sums, dot_codes


def _each_tile(context, builder, signature, args, kernel, base, apart, store, clear=None):
    """Call `store(sums, vectors, pointers, counts)` for each tile, and `clear(pointers, lanes, counts)` after a block.

    Pixel p of tile i has its results at base[apart * rows[i, p]], or in a buffer where it does not count: `counts` says
    whether. `args` begin as both functions' do. Sums are those of 16, 32 or 64 lanes.
    """
    codes, windows, targets, kinds, sizes, spans, firsts, extra = (
        pointer(context, builder, signature, args, i) for i in (0, 1, 4, 5, 6, 11, 12, 13)
    )
    weights, valid = (pointer(context, builder, signature, args, 7, args[8]), args[9]), args[15]
    of_kind, extra = shape_of(context, builder, signature, args, 13)[-1], builder.gep(extra, [args[14]])
    nowhere = builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(I32, PAIR)), base.type)

    def place(nth):
        """Return where tile `nth` reads and writes: its codes, results, spans, the first of them, and constants."""
        kind, size = (builder.load(builder.gep(one, [nth])) for one in (kinds, sizes))
        four = builder.mul(nth, const(TILE))
        pixels = [builder.add(four, const(p)) for p in range(TILE)]
        rows = [builder.gep(codes, [builder.load(builder.gep(windows, [pixel]))]) for pixel in pixels]
        to = [builder.mul(builder.load(builder.gep(targets, [pixel])), apart) for pixel in pixels]
        inside = [builder.icmp_signed("<", const(p), size) for p in range(TILE)]
        to = [builder.select(one, builder.gep(base, [at]), nowhere) for one, at in zip(inside, to, strict=True)]
        begin, end = (builder.load(builder.gep(firsts, [builder.add(kind, const(i))])) for i in range(2))
        fixed = builder.gep(extra, [builder.mul(kind, of_kind)])
        return [*rows, *to, begin, end, *_first_span(builder, spans, begin, end), fixed]

    def each(lanes):
        # Places of the next tile are read before a tile is summed up, so that its sums do not wait for them
        slots = [slot_of(builder, value) for value in place(const(0))]
        last = builder.sub(args[2], const(1))
        with cgutils.for_range(builder, args[2]) as loop:
            *places, begin, end, pixel, weight, quads, fixed = [builder.load(slot) for slot in slots]
            more = builder.icmp_signed("<", loop.index, last)
            following = place(builder.select(more, builder.add(loop.index, const(1)), last))
            rows, to, span = places[:TILE], places[TILE:], (spans, begin, end, (pixel, weight, quads))
            counts = [builder.icmp_unsigned("!=", row, nowhere) for row in to]
            for vectors in kernel.sweeps(lanes):
                store(_sweep(builder, kernel, vectors, rows, weights, span, args[-1], fixed), vectors, to, counts)
            if lanes <= LANES and clear:
                clear(to, lanes, counts)
            for slot, value in zip(slots, following, strict=True):
                builder.store(value, slot)

    with builder.if_else(builder.icmp_signed(">", valid, const(LANES))) as (two, one):
        with two:
            each(PAIR)
        with one, builder.if_else(builder.icmp_signed(">", valid, const(HALF))) as (whole, half):
            with whole:
                each(LANES)
            with half:
                each(HALF)


def _clear_word(builder, word, lanes):
    """Set the bits of a word after its first 16 or 32 to 0."""
    for bits in (16, 32):
        if bits >= lanes:
            rest = builder.bitcast(builder.gep(word, [const(bits // 8)]), ir.IntType(bits).as_pointer())
            builder.store(ir.Constant(ir.IntType(bits), 0), rest, align=1)


def _store_some(builder, vector, place, numbers, limit):
    """Store those lanes of a vector of int32 whose numbers are less than a limit."""
    mask = builder.icmp_signed("<", numbers, limit)
    kind = ir.FunctionType(ir.VoidType(), [vector.type, place.type, I32, mask.type])
    count = vector.type.count
    store = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{count}i32.p0v{count}i32")
    builder.call(store, [vector, place, I32(4), mask])


def _sweep(builder, kernel, vectors, rows, weights, spans, most, extra=None):
    """Sum up some vectors of lanes: `vectors` are the numbers of their first lanes among the blocks' 32 or 64.

    weights are (pointer, distance of blocks), spans (pointer, first, last, the first one's numbers), most the quads
    that are added until a kernel folds their sums, extra a pointer to what is added to lanes. Returns sums by pixel and
    vector.
    """
    row, (spans, first, last, span) = ir.VectorType(I32, kernel.lanes), spans
    starts, fixed = [ir.Constant(kernel.sums, None)] * len(vectors), None
    if extra is not None:
        fixed = [builder.load(place_of(builder, extra, first, row), align=4) for first in vectors]
        starts, fixed = (fixed, None) if kernel.sums == row else (starts, fixed)
    slots = [[slot_of(builder, start) for start in starts] for _ in range(TILE)]
    columns = [_column(builder, *weights, lane) for lane in vectors]
    slots_of_span = [slot_of(builder, number) for number in span]
    with cgutils.for_range(builder, builder.sub(last, first)) as nth:
        pixel, weight, quads = (builder.load(slot) for slot in slots_of_span)
        following = builder.add(builder.add(first, nth.index), const(1))
        with builder.if_then(builder.icmp_signed("<", following, last)):
            for slot, number in zip(slots_of_span, _span(builder, spans, following), strict=True):
                builder.store(number, slot)
        begin = builder.mul(weight, const(QUAD * LANES))
        starts = [builder.gep(column, [begin]) for column in columns]
        codes = [builder.bitcast(builder.gep(r, [builder.mul(pixel, const(QUAD))]), I32.as_pointer()) for r in rows]

        def add(step, slots):
            place = builder.mul(step, const(QUAD * LANES))
            loaded = [builder.load(place_of(builder, start, place, row), align=1) for start in starts]
            loaded = [kernel.parts(builder, one, True) for one in loaded]
            for p in range(TILE):
                code = splat(builder, builder.load(builder.gep(codes[p], [step]), align=1), kernel.lanes)
                code = kernel.parts(builder, code, False)
                for slot, column in zip(slots[p], loaded, strict=True):
                    builder.store(kernel.add(builder, builder.load(slot), code, column), slot)

        if hasattr(kernel, "fold"):
            _add_some(builder, kernel, slots, quads, most, add)
        else:
            with cgutils.for_range(builder, quads) as step:
                add(step.index, slots)
    sums = [[kernel.whole(builder, builder.load(slot)) for slot in pixel] for pixel in slots]
    return (
        sums if fixed is None else [[builder.add(*pair) for pair in zip(pixel, fixed, strict=True)] for pixel in sums]
    )


def _add_some(builder, kernel, slots, quads, most, add):
    """Call `add(quad, slots)` for up to `most` quads at a time, and fold what is in these slots then."""
    with cgutils.for_range_slice(builder, const(0), quads, most, I64) as (first, _):
        some = [[slot_of(builder, kernel.some(None)) for _ in pixel] for pixel in slots]
        left = builder.sub(quads, first)
        with cgutils.for_range(builder, builder.select(builder.icmp_signed("<", left, most), left, most)) as step:
            add(builder.add(first, step.index), some)
        for pixel, parts in zip(slots, some, strict=True):
            for slot, part in zip(pixel, parts, strict=True):
                builder.store(kernel.fold(builder, builder.load(slot), builder.load(part)), slot)


def _first_span(builder, spans, first, last):
    """Load the numbers of span `first`, or of span 0 where there is none: windows may be outside of an image."""
    return _span(builder, spans, builder.select(builder.icmp_signed("<", first, last), first, const(0)))


def _span(builder, spans, nth):
    """Load the numbers of span `nth`."""
    at = builder.mul(nth, const(3))
    return [builder.load(builder.gep(spans, [builder.add(at, const(i))])) for i in range(3)]


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
