"""Dot products of byte blocks by AMX: 32 pixels by 32 output channels in four tiles of sums.

A tile of codes is 16 pixels by 64 bytes, so windows have to be evenly spaced (`im2row.py`). A tile of weights is 16
quads of 16 channels: rows of the int8 [quads 32 4] of `dot.py` as they are, 128 bytes apart.
"""

from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, LANES, const, pointer
from ..llvm.views import flat
from .amx_emulated import EmulatedAmx
from .amx_tiles import BYTES, ROWS, Amx
from .interface import QUAD

# Pairs of planes that `count_tile` counts in the same time, of which 1.4 T products/s: `../costs.py`
DOT_PASSES = DOT_WIDE = 0.9
DOT_ALONE = 1
DOT_COPY = 0.7  # of a pass, for a word of a window besides its expansion
DOT_EXPAND = 0.35  # of a pass, for a word of weights that becomes bytes in the order of tiles, besides its planes
SIDES = LANES // ROWS  # tiles of 16 channels in a block
CODES, WEIGHTS = 4, 6  # the first tiles of each; sums are 0 .. 3, since two products wait for each other in any fewer
_WEIGHT_STRIDE = LANES * QUAD
_TOTAL_STRIDE = LANES * 4


class Tiles(NamedTuple):
    """An argument whose type tells a kernel to multiply by AMX."""

    rows: int = ROWS  # pixels that are multiplied at once


class EmulatedTiles(NamedTuple):
    """An argument whose type tells a kernel to run its AMX code on emulated tiles, in memory."""

    rows: int = ROWS


_INSTRUCTIONS = {Tiles: Amx, EmulatedTiles: EmulatedAmx}


@intrinsic
def dot_rows(typingctx, unit, codes, pixels, weights, spans, fresh, totals):
    """totals[b, p * 32 + l] += sum of a * w, or = that where `fresh`, with

        a = codes[p, 4 * (at + q) + i]
        w = weights[b, 4 * (32 * (to + q) + l) + i]

    for spans start .. stop of int64 spans[n 3], a `RunSpan` of (at, to, length), over q < length and i < 4, as in
    `dot_tile`; lengths are multiples of 16. For l < 32, b < blocks and p < pixels, rounded up to a multiple of 16: so
    many rows of codes and totals must exist. codes are `Rows` of uint8, weights `ByteWeights`, totals `Rows` of int32.
    Sums may wrap. Fast where rows begin on cache lines.
    """
    signature = types.void(unit, codes, types.int64, weights, spans, types.boolean, totals)
    instructions = _INSTRUCTIONS[unit.instance_class]

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        codes, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 5))
        spans, totals = (pointer(context, builder, signature, args, i) for i in (9, 13))
        totals = builder.gep(totals, [args[14]])
        rows, blocks, spans = (codes, args[3]), (weights, *args[7:9]), (spans, *args[10:12])
        multiply(builder, instructions(context, builder), rows, args[4], blocks, spans, args[12], (totals, args[15]))

    return signature, codegen


def multiply(builder, tiles, codes, pixels, weights, spans, fresh, totals):
    """Write the code of `dot_rows` for pointers: (codes, stride), (weights, apart, blocks), (spans, start, stop),
    (totals, beside).

    A block's weights meet all pixels before the next block's, and stay in L1 up to 18 words. Tiles are configured here
    and not once a thread, though it takes some 200 clocks: so no code that runs between has to know of them.
    """
    (codes, stride), (weights, apart, blocks), (totals, beside) = codes, weights, totals
    tiles.configure()
    pieces = builder.udiv(builder.add(pixels, const(ROWS - 1)), const(ROWS))
    with cgutils.for_range(builder, blocks) as block:
        column = builder.gep(weights, [builder.mul(block.index, apart)])
        rows = builder.gep(totals, [builder.mul(block.index, beside)])

        def product(many, piece):
            """Multiply `many` pieces of 16 pixels at once."""
            first = builder.mul(piece, const(ROWS))
            from_code = builder.gep(codes, [builder.mul(first, stride)])
            to_row = builder.gep(rows, [builder.mul(first, const(LANES))])
            _product(builder, tiles, many, (from_code, stride), column, spans, fresh, to_row)

        with cgutils.for_range(builder, builder.udiv(pieces, const(2))) as pair:
            product(2, builder.mul(pair.index, const(2)))
        with builder.if_then(builder.trunc(pieces, ir.IntType(1))):
            product(1, builder.sub(pieces, const(1)))
    tiles.release()


def _product(builder, tiles, many, codes, weights, spans, fresh, totals):
    """Multiply 16 or 32 pixels by 32 channels: sums stay in tiles for the whole contraction."""
    codes, stride = codes
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
    """Emit a loop over the words of spans start .. stop; yield pointers to (codes, weights)."""
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
