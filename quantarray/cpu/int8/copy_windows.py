"""Copy the windows of pixels side by side, a cache line at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import LINE
from ..llvm.vectors import I8, const, place_of, pointer, splat
from ..llvm.views import flat

HALF = 32  # bytes: the rest of a run is copied by half a line where that is enough: most whole ones cross two lines


@intrinsic
def copy_windows(typingctx, codes, places, count, spans, unit, base, rows):
    """rows[p, to + k] = codes[places[p] + at + k] - base for p < count and k < length, modulo 256.

    Spans first .. last of int64 spans[n 3], a `RunSpan`, are (at, to, length) in units of `unit` bytes. Zeros follow
    each up to a multiple of 32 bytes, and up to 63 bytes after it are read. codes are uint8, places a `View` of
    int64, rows a `Rows` of uint8. As a loop over pixels around `copy_bytes` this took ten times as long as the
    products of 64 channels.
    """
    i64 = types.int64
    signature = types.void(codes, places, i64, spans, i64, i64, rows)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        codes, spans = (pointer(context, builder, signature, args, i) for i in (0, 4))
        places, rows = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 9))
        low = builder.trunc(args[8], I8)
        with cgutils.for_range(builder, builder.sub(args[6], args[5])) as span:
            line = builder.mul(builder.add(args[5], span.index), const(3))
            at, to, size = (
                builder.mul(builder.load(builder.gep(spans, [builder.add(line, const(i))])), args[7]) for i in range(3)
            )

            def copy(width, place, keep):
                vector, base = ir.VectorType(I8, width), splat(builder, low, width)
                first, begin = builder.gep(codes, [builder.add(at, place)]), builder.gep(rows, [builder.add(to, place)])
                with cgutils.for_range(builder, args[3]) as pixel:
                    window = builder.load(builder.gep(places, [pixel.index]))
                    read = builder.load(place_of(builder, first, window, vector), align=1)
                    row = place_of(builder, begin, builder.mul(pixel.index, args[11]), vector)
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
