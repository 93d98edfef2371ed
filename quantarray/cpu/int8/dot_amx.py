"""Dot products of byte blocks by AMX: 32 pixels by 32 output channels in four tiles of sums.

A tile of codes is 16 pixels by 64 bytes, so windows have to lie evenly spaced (`../rows.py`). A tile of weights is 16
quads of 16 channels: rows of the int8 [quads 32 4] of `dot.py` as they are, 128 bytes apart.
"""

from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, LANES, const, pointer
from .amx_emulated import EmulatedAmx
from .amx_tiles import BYTES, ROWS, Amx
from .interface import QUAD

DOT_PASSES = 0.47  # of `count_tile`, as 1.27 and 2.7 T products/s on the same CPU: see `../costs.py`
DOT_ALONE = 1
DOT_COPY = 0.2  # of a pass, for a word of a window besides its expansion: runs of 1 to 3 words take 3 ns each
MOST_PRODUCT = 2**15  # of two bytes: all
SIDES = LANES // ROWS  # tiles of 16 channels in a block
CODES, WEIGHTS = 4, 6  # the first tiles of each; sums are 0 .. 3, since two products wait for each other in any fewer
_WEIGHT_STRIDE = LANES * QUAD
_TOTAL_STRIDE = LANES * 4


class Tiles(NamedTuple):
    """Says by its type, where a kernel takes it, that AMX multiplies."""

    rows: int = ROWS  # pixels that are multiplied at once


class EmulatedTiles(NamedTuple):
    """The same code on tiles in memory."""

    rows: int = ROWS


_INSTRUCTIONS = {Tiles: Amx, EmulatedTiles: EmulatedAmx}


@intrinsic
def dot_rows(
    typingctx, unit, codes, code, stride, pixels, weights, weight, apart, blocks, spans, start, stop, fresh, totals,
    total, beside,
):  # fmt: skip
    """totals[total + b * beside + p * 32 + l] += sum of a * w, or = that where `fresh`, with

        a = codes[code + p * stride + 4 * (at + q) + i]
        w = weights[weight + b * apart + 4 * (32 * (to + q) + l) + i]

    for spans start .. stop of int64 spans[n 3], rows (at, to, length), over q < length and i < 4, as in `dot_tile`;
    lengths are multiples of 16. For l < 32, b < blocks and p < pixels, rounded up to a multiple of 16: as many rows of
    codes and totals must be there. codes uint8, weights uint8 that are read as int8, totals int32, C-contiguous and
    indexed flat. Sums may wrap. Fast where rows begin on cache lines.
    """
    i64 = types.int64
    signature = types.void(
        unit, codes, i64, i64, i64, weights, i64, i64, i64, spans, i64, i64, types.boolean, totals, i64, i64
    )  # fmt: skip
    instructions = _INSTRUCTIONS[unit.instance_class]

    def codegen(context, builder, signature, args):
        codes, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 5))
        spans, totals = (pointer(context, builder, signature, args, i) for i in (9, 13))
        totals = builder.gep(totals, [args[14]])
        multiply(
            builder, instructions(context, builder), codes, *args[3:5], weights, *args[7:9], spans, *args[10:13],
            totals, args[15],
        )  # fmt: skip

    return signature, codegen


def multiply(builder, tiles, codes, stride, pixels, weights, apart, blocks, spans, start, stop, fresh, totals, beside):
    """The code of `dot_rows` for pointers.

    A block's weights meet all pixels before the next block's, and stay in L1 up to 18 words. Tiles are configured here
    and not once a thread, though it takes some 200 clocks: so no code that runs between has to know of them.
    """
    tiles.configure()
    pieces = builder.udiv(builder.add(pixels, const(ROWS - 1)), const(ROWS))
    with cgutils.for_range(builder, blocks) as block:
        column = builder.gep(weights, [builder.mul(block.index, apart)])
        rows = builder.gep(totals, [builder.mul(block.index, beside)])

        def product(many, piece):
            """Pixels from a piece of 16 on, as many pieces at once."""
            first = builder.mul(piece, const(ROWS))
            from_code = builder.gep(codes, [builder.mul(first, stride)])
            to_row = builder.gep(rows, [builder.mul(first, const(LANES))])
            _product(builder, tiles, many, from_code, stride, column, (spans, start, stop), fresh, to_row)

        with cgutils.for_range(builder, builder.udiv(pieces, const(2))) as pair:
            product(2, builder.mul(pair.index, const(2)))
        with builder.if_then(builder.trunc(pieces, ir.IntType(1))):
            product(1, builder.sub(pieces, const(1)))
    tiles.release()


def _product(builder, tiles, many, codes, stride, weights, spans, fresh, totals):
    """16 or 32 pixels by 32 channels: sums stay in tiles for the whole contraction."""
    sums = [(side, m, m * SIDES + side) for m in range(many) for side in range(SIDES)]
    places = {total: _at(builder, totals, (m * LANES + side) * ROWS) for side, m, total in sums}
    with builder.if_else(fresh) as (new, old):
        with new:
            for total in places:
                tiles.zero(total)
        with old:
            for total, place in places.items():
                tiles.load(total, place, const(_TOTAL_STRIDE))
    below = builder.mul(stride, const(ROWS))
    with _words(builder, codes, weights, *spans) as (row, column):
        for side in range(SIDES):
            tiles.load(WEIGHTS + side, builder.gep(column, [const(side * BYTES)]), const(_WEIGHT_STRIDE))
        for m in range(many):
            tiles.load(CODES + m, builder.gep(row, [below]) if m else row, stride)
            for side in range(SIDES):
                tiles.dot(m * SIDES + side, CODES + m, WEIGHTS + side)
    for total, place in places.items():
        tiles.store(total, place, const(_TOTAL_STRIDE))


@contextmanager
def _words(builder, codes, weights, spans, start, stop):
    """(where its codes, where its weights begin) for each word of some spans."""
    with cgutils.for_range(builder, builder.sub(stop, start)) as span:
        line = builder.mul(builder.add(start, span.index), const(3))
        at, to, length = (builder.load(builder.gep(spans, [builder.add(line, const(i))])) for i in range(3))
        first = builder.gep(codes, [builder.mul(at, const(QUAD))])
        first_weight = builder.gep(weights, [builder.mul(to, const(_WEIGHT_STRIDE))])
        with cgutils.for_range(builder, builder.udiv(length, const(ROWS))) as word:
            row = builder.gep(first, [builder.mul(word.index, const(BYTES))])
            yield row, builder.gep(first_weight, [builder.mul(word.index, const(ROWS * _WEIGHT_STRIDE))])


def _at(builder, totals, index):
    return builder.bitcast(builder.gep(totals, [const(index)]), I8.as_pointer())
