"""Copy the windows of pixels side by side, a cache line at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import LINE
from ..llvm.vectors import I8, I64, const, place_of, pointer, splat
from ..llvm.views import RunSpan, flat
from ..runtime.isa import FEATURES
from ..runtime.jit import inline

HALF = 32  # bytes: the rest of a run is copied by half a line where that is enough: most whole ones cross two lines
_MASKED = "avx512bw" in FEATURES  # loads of some bytes of a line
_AT_ONCE = 4  # runs of a line that are loaded for each pixel


@inline
def copy_windows(codes, places, count, spans, base, rows):
    """rows[p, to + k] = codes[places[p] + at + k] - base for p < count and k < length, modulo 256.

    Spans first .. last of int64 spans[n 3], a `RunSpan`, are (at, to, length), one after the other in a row. Zeros
    follow each up to a multiple of 32 bytes, the end of a line of the row or the next span, whichever is first; up
    to 63 bytes after it are read. codes are uint8, places a `View` of int64, rows a `Rows` of uint8.
    """
    if _MASKED:
        _copy_lines(codes, places, count, spans, base, rows)
    else:
        _copy_runs(codes, places, count, spans, base, rows)


@inline
def _copy_lines(codes, places, count, spans, base, rows):
    """Copy windows line by line: 7 runs of 21 bytes are 3 stores, of which none crosses lines as most of 7 would."""
    runs, first = spans.runs, spans.first
    begin = runs[first, 1] & -LINE if first < spans.last else 0
    while first < spans.last:
        last = first
        while last < spans.last and runs[last, 1] < begin + LINE:
            last += 1
        for run in range(first, last, _AT_ONCE):
            some = RunSpan(runs, run, min(run + _AT_ONCE, last))
            _copy_line(codes, places, count, some, begin, run == first, base, rows)
        begin += LINE
        while first < spans.last and runs[first, 1] + runs[first, 2] <= begin:
            first += 1


@intrinsic
def _copy_line(typingctx, codes, places, count, spans, begin, fresh, base, rows):
    """Copy what 1 to 4 spans have in the line of each row that begins with byte `begin`; where `fresh`, zeros between.

    Each pixel takes as many masked loads, from where the line would begin if its window had no gaps, and a store. Bytes
    that the mask leaves out are not read, even where they belong to no array.
    """
    i64 = types.int64
    signature = types.void(codes, places, i64, spans, i64, types.boolean, i64, rows)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        codes, spans = (pointer(context, builder, signature, args, i) for i in (0, 4))
        places, rows = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 10))
        count, first, last, begin, fresh, base, apart = args[3], *args[5:10], args[12]
        line = ir.VectorType(I8, LINE)
        none, every = ir.Constant(line, None), ir.VectorType(ir.IntType(1), LINE)
        kind = ir.FunctionType(line, [line.as_pointer(), ir.IntType(32), every, line])
        load = cgutils.get_or_insert_function(builder.module, kind, "llvm.masked.load.v64i8.p0v64i8")
        row_line, low = builder.gep(rows, [begin]), splat(builder, builder.trunc(base, I8), LINE)
        before = builder.select(fresh, I64(0), I64(-1))

        def ones(count):
            """Return as many ones from bit 0 on: none to 64."""
            some = builder.shl(I64(-1), builder.and_(count, const(LINE - 1)))
            return builder.select(builder.icmp_signed("<", count, const(LINE)), builder.not_(some), I64(-1))

        def source(run):
            """Return where the line of a pixel at codes[0] would begin, and a mask of the bytes that a run has."""
            at, to, length = (
                builder.load(builder.gep(spans, [builder.add(builder.mul(run, const(3)), const(i))])) for i in range(3)
            )
            start = builder.sub(to, begin)
            end = builder.add(start, length)
            start = builder.select(builder.icmp_signed(">", start, const(0)), start, const(0))
            mask = builder.and_(ones(end), builder.not_(ones(start)))
            return builder.gep(codes, [builder.add(at, builder.sub(begin, to))]), mask

        after = builder.append_basic_block("copied")
        choice = builder.switch(builder.sub(last, first), after)
        for number in range(1, _AT_ONCE + 1):
            block = builder.append_basic_block(f"runs{number}")
            choice.add_case(const(number), block)
            with builder.goto_block(block):
                sources = [source(builder.add(first, const(i))) for i in range(number)]
                union = sources[0][1]
                for _, mask in sources[1:]:
                    union = builder.or_(union, mask)
                inside = builder.bitcast(union, every)
                with cgutils.for_range(builder, count) as pixel:
                    window = builder.load(builder.gep(places, [pixel.index]))
                    read = none
                    for place, mask in sources:
                        place = builder.bitcast(builder.gep(place, [window]), line.as_pointer())
                        read = builder.call(load, [place, ir.IntType(32)(1), builder.bitcast(mask, every), read])
                    row = place_of(builder, row_line, builder.mul(pixel.index, apart), line)
                    held = builder.call(load, [row, ir.IntType(32)(1), builder.bitcast(before, every), none])
                    builder.store(builder.select(inside, builder.sub(read, low), held), row, align=1)
                builder.branch(after)
        builder.position_at_end(after)

    return signature, codegen


@intrinsic
def _copy_runs(typingctx, codes, places, count, spans, base, rows):
    """Copy windows run by run, by whole or half lines, most of which cross two lines of a row.

    As a loop over pixels around `copy_bytes` this took ten times as long as the products of 64 channels.
    """
    i64 = types.int64
    signature = types.void(codes, places, i64, spans, i64, rows)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        codes, spans = (pointer(context, builder, signature, args, i) for i in (0, 4))
        places, rows = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 8))
        low = builder.trunc(args[7], I8)
        with cgutils.for_range(builder, builder.sub(args[6], args[5])) as span:
            line = builder.mul(builder.add(args[5], span.index), const(3))
            at, to, size = (builder.load(builder.gep(spans, [builder.add(line, const(i))])) for i in range(3))

            def copy(width, place, keep):
                vector, base = ir.VectorType(I8, width), splat(builder, low, width)
                first, begin = builder.gep(codes, [builder.add(at, place)]), builder.gep(rows, [builder.add(to, place)])
                with cgutils.for_range(builder, args[3]) as pixel:
                    window = builder.load(builder.gep(places, [pixel.index]))
                    read = builder.load(place_of(builder, first, window, vector), align=1)
                    row = place_of(builder, begin, builder.mul(pixel.index, args[10]), vector)
                    builder.store(keep(builder.sub(read, base)), row, align=1)

            def copy_rest(width):
                vector = ir.VectorType(I8, width)
                lanes, count = ir.Constant(vector, list(range(width))), splat(builder, builder.trunc(rest, I8), width)
                inside = builder.icmp_unsigned("<", lanes, count)
                copy(width, whole, lambda codes: builder.select(inside, codes, ir.Constant(vector, None)))

            whole = builder.and_(size, const(-LINE))
            with cgutils.for_range(builder, builder.udiv(size, const(LINE))) as step:
                copy(LINE, builder.mul(step.index, const(LINE)), lambda codes: codes)
            rest = builder.sub(size, whole)
            with builder.if_then(builder.icmp_signed("!=", rest, const(0))):
                with builder.if_else(builder.icmp_signed("<=", rest, const(HALF))) as (short, long):
                    for branch, width in ((short, HALF), (long, LINE)):
                        with branch:
                            copy_rest(width)

    return signature, codegen
