"""Copy the windows of a tile of 4 pixels side by side, a cache line at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...core.format import LINE
from ..llvm.vectors import I8, TILE, const, place_of, pointer, splat
from ..llvm.views import flat

HALF = 32  # bytes: the rest of a run is copied by half a line where that is enough: most whole ones cross two lines


@intrinsic
def copy_windows(typingctx, codes, places, spans, unit, base, rows):
    """rows[p, to + k] = codes[places[p] + at + k] - base for 4 pixels p and k < length, modulo 256.

    Spans first .. last of int64 spans[n 3], a `RunSpan`, are (at, to, length) in units of `unit` bytes. Zeros follow
    each up to a multiple of 32 bytes, and up to 63 bytes after it are read. codes are uint8, places a `View` of
    int64, rows a `Rows` of uint8. As a loop over pixels around `copy_bytes` this took ten times as long as the
    products of 64 channels.
    """
    i64 = types.int64
    signature = types.void(codes, places, spans, i64, i64, rows)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        codes, spans = (pointer(context, builder, signature, args, i) for i in (0, 3))
        places, rows = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 8))
        windows = [builder.gep(codes, [builder.load(builder.gep(places, [const(p)]))]) for p in range(TILE)]
        rows = [builder.gep(rows, [builder.mul(args[10], const(p))]) for p in range(TILE)]
        low = builder.trunc(args[7], I8)
        with cgutils.for_range(builder, builder.sub(args[5], args[4])) as span:
            line = builder.mul(builder.add(args[4], span.index), const(3))
            at, to, size = (
                builder.mul(builder.load(builder.gep(spans, [builder.add(line, const(i))])), args[6]) for i in range(3)
            )

            def copy(width, place, keep):
                vector, base = ir.VectorType(I8, width), splat(builder, low, width)
                for window, row in zip(windows, rows, strict=True):
                    read = builder.load(place_of(builder, window, builder.add(at, place), vector), align=1)
                    to_row = place_of(builder, row, builder.add(to, place), vector)
                    builder.store(keep(builder.sub(read, base)), to_row, align=1)

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
