"""The windows of a tile of 4 pixels moved side by side, a cache line at a time."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .dot import QUAD
from .vectors import I8, TILE, const, place_of, pointer, splat

_LINE = 64
_ROW = ir.VectorType(I8, _LINE)


@intrinsic
def copy_windows(typingctx, codes, places, place, spans, first, last, rows, row, apart):
    """rows[row + p * apart + 4 * to + k] = codes[places[place + p] + 4 * at + k] for 4 pixels p and k < 4 * quads.

    Spans first .. last of int64 spans[n 3] are (at, to, quads); zeros follow each up to a multiple of 64 bytes, as many
    as are read. Both are uint8, C-contiguous and indexed flat. As a loop over pixels around `copy_bytes` this took ten
    times as long as the products of 64 channels.
    """
    i64 = types.int64
    signature = types.void(codes, places, i64, spans, i64, i64, rows, i64, i64)

    def codegen(context, builder, signature, args):
        codes, spans = (pointer(context, builder, signature, args, i) for i in (0, 3))
        places, rows = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 6))
        windows = [builder.gep(codes, [builder.load(builder.gep(places, [const(p)]))]) for p in range(TILE)]
        rows = [builder.gep(rows, [builder.mul(args[8], const(p))]) for p in range(TILE)]
        with cgutils.for_range(builder, builder.sub(args[5], args[4])) as span:
            line = builder.mul(builder.add(args[4], span.index), const(3))
            at, to, size = (
                builder.mul(builder.load(builder.gep(spans, [builder.add(line, const(i))])), const(QUAD))
                for i in range(3)
            )

            def copy(place, keep):
                for window, row in zip(windows, rows, strict=True):
                    found = builder.load(place_of(builder, window, builder.add(at, place), _ROW), align=1)
                    builder.store(keep(found), place_of(builder, row, builder.add(to, place), _ROW), align=1)

            whole = builder.and_(size, const(-_LINE))
            with cgutils.for_range(builder, builder.udiv(size, const(_LINE))) as step:
                copy(builder.mul(step.index, const(_LINE)), lambda found: found)
            rest = builder.sub(size, whole)
            with builder.if_then(builder.icmp_signed("!=", rest, const(0))):
                lanes = ir.Constant(_ROW, list(range(_LINE)))
                kept = builder.icmp_unsigned("<", lanes, splat(builder, builder.trunc(rest, I8), _LINE))
                copy(whole, lambda found: builder.select(kept, found, ir.Constant(_ROW, None)))

    return signature, codegen
