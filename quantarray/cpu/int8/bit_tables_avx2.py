"""Tables of 4 weights of one bit, for vectors of 256 bits: a vector has byte i of 16 outputs, and their bytes 16 + i.

A sum of four int8 has 10 bits. One table has its 5 lowest, another one the others, so that bytes hold 8 of either.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.masks import ask_for
from ..llvm.vectors import I8, I16, I32, I64, const, lanes_of, own_function, place_of, pointer, slot_of, splat
from ..runtime.jit import inner

OUTPUTS = 32  # at once
WORDS = 4  # of an output in a block, whose sums of 256 bytes fit into 16 bits
MOST_QUERIES = 1 << 30  # of int8 that are looked up
LONGEST = 32  # words of an output of `byte_row_product`: bytes are as fast where tables leave L1
ROOM = 1  # words that `laid_out` needs for each of an output
ENTRIES, ENTRY = 512, np.uint8  # of the tables of a word
_TABLE = 32  # entries: 16 for each half of a vector
_LOW = 5  # bits in the first of two tables
_LEAST = -512  # of the sums of four int8
_TOGETHER = 8  # bytes that are added before they are widened
_VECTOR, _SHORTS, _SUMS = ir.VectorType(I8, 32), ir.VectorType(I16, 16), ir.VectorType(I32, 8)
_ORDER = ir.VectorType(I32, 32)


@inner
def tables_of_row(codes, row, out):
    """out = tables for each 4 of codes int8[.. k] of a row, zeros after k; returns the sum of the codes.

    In a block of WORDS words, vector i of 16 looks up the low and the high half of bytes i and 16 + i: tables of lower
    and of higher bits for each.
    """
    values, total = np.empty(16, np.int32), np.int64(0)
    for quad in range(len(out) // (2 * 16)):  # of four elements, in the order of codes
        values[0] = -_LEAST
        for bit in range(4):
            at = quad * 4 + bit
            code = np.int32(codes[row, at] if at < codes.shape[1] else 0)
            total += code
            for i in range(np.uint64(1 << bit)):
                values[i + (1 << bit)] = values[i] + code
        block, place = divmod(quad, 64)
        byte, half = place // 2, place % 2
        to = ((block * 16 + byte % 16) * 2 + half) * 2 * _TABLE + byte // 16 * 16
        for i in range(np.uint64(16)):
            out[to + i] = values[i] & ((1 << _LOW) - 1)
            out[to + _TABLE + i] = values[i] >> _LOW
    return total


@inner
def laid_out(words, length, count, room):
    """Write the words of `count` outputs to room, transposed, and return it."""
    _transpose(words, length, count, room)
    return room


@intrinsic
def _transpose(typingctx, words, length, count, out):
    """Write vectors i of the first 16 of 32 outputs and of the others side by side, block by block."""
    signature = types.void(words, types.int64, types.int64, out)

    def codegen(context, builder, signature, args):
        words, to = (pointer(context, builder, signature, args, i) for i in (0, 3))
        blocks = builder.udiv(args[1], const(WORDS))
        with cgutils.for_range_slice(builder, const(0), args[2], const(OUTPUTS), I64) as (o, _):
            start = builder.mul(o, args[1])
            with cgutils.for_range(builder, blocks) as block:
                at = builder.add(start, builder.mul(block.index, const(WORDS)))
                of_block = builder.add(start, builder.mul(block.index, const(OUTPUTS * WORDS)))
                later = builder.add(of_block, builder.mul(args[1], const(OUTPUTS)))
                ask_for(builder, builder.gep(words, [later]), const(0), OUTPUTS * WORDS // 8, 3)
                for half in (0, 1):
                    places = [builder.add(at, builder.mul(args[1], const(16 * half + i))) for i in range(16)]
                    rows = [builder.load(place_of(builder, words, place, _VECTOR), align=8) for place in places]
                    for i, vector in enumerate(_transposed(builder, rows)):
                        place = builder.add(of_block, const((2 * i + half) * WORDS))
                        builder.store(vector, place_of(builder, to, place, _VECTOR), align=8)
        return context.get_dummy_value()

    return signature, codegen


def _transposed(builder, rows):
    """Return vectors i of bytes i and 16 + i of 16 rows."""
    for _ in range(4):
        rows = [_turns(builder, rows[i], rows[8 + i], side) for i in range(8) for side in (0, 1)]
    return rows


def _turns(builder, a, b, side):
    """Take bytes of a and b in turns, of the first or second half of each 128 bits."""
    order = [base + first + i for first in (8 * side, 16 + 8 * side) for i in range(8) for base in (0, 32)]
    return builder.shuffle_vector(a, b, ir.Constant(_ORDER, order))


def look_up(module, shortest):
    """Build the loops over outputs, 32 at a time, and blocks of their words, of which there is one in the shortest."""
    name = f"quantarray.look_up_rows.{int(shortest)}"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [I8.as_pointer(), I64.as_pointer(), I64, I64, I32.as_pointer()])
    builder = ir.IRBuilder(function.append_basic_block())
    tables, words, length, count, out = function.args
    blocks = const(1) if shortest else builder.udiv(length, const(WORDS))
    size = const(OUTPUTS * WORDS)
    too_much = builder.mul(builder.trunc(blocks, I32), ir.Constant(I32, _LEAST * 16 * WORDS))
    with cgutils.for_range_slice(builder, const(0), count, const(OUTPUTS), I64) as (o, _):
        totals = [slot_of(builder, splat(builder, too_much, 8)) for _ in range(OUTPUTS // 8)]
        start = builder.gep(words, [builder.mul(o, builder.mul(blocks, const(WORDS)))])
        with cgutils.for_range(builder, blocks) as block:
            vectors = builder.gep(start, [builder.mul(block.index, size)])
            of_block = builder.gep(tables, [builder.mul(block.index, const(WORDS * ENTRIES))])
            for total, sums in zip(totals, _looked_up(builder, of_block, vectors), strict=True):
                builder.store(builder.add(builder.load(total), sums), total)
        for i, total in enumerate(totals):
            builder.store(builder.load(total), place_of(builder, builder.gep(out, [o]), 8 * i, _SUMS), align=4)
    builder.ret_void()
    return function


def _looked_up(builder, tables, vectors):
    """Return the sums of all tables' entries for 32 outputs, 8 at a time, int32."""
    look = _instruction(builder, "pshuf.b", _VECTOR, _VECTOR, _VECTOR)
    pairs = _instruction(builder, "pmadd.ub.sw", _SHORTS, _VECTOR, _VECTOR)
    digits, weights = ir.Constant(_VECTOR, [15] * 32), ir.Constant(_VECTOR, [1, 1 << _LOW] * 16)
    wide, low, high = [_SHORTS(None)] * 4, [[], []], [[], []]
    for i in range(32):  # halves of bytes
        parts = [builder.load(place_of(builder, tables, (2 * i + n) * _TABLE, _VECTOR), align=1) for n in (0, 1)]
        for half in (0, 1):
            index = builder.load(place_of(builder, vectors, (i // 2 * 2 + half) * WORDS, _VECTOR), align=8)
            if i % 2:
                index = builder.lshr(builder.bitcast(index, _SHORTS), ir.Constant(_SHORTS, [4] * 16))
            index = builder.and_(builder.bitcast(index, _VECTOR), digits)
            for sums, table in zip((low[half], high[half]), parts, strict=True):
                entries = builder.call(look, [table, index])
                sums[:] = [builder.add(*sums, entries) if sums else entries]
        if (i + 1) % _TOGETHER == 0:
            for half in (0, 1):
                for side in (0, 1):
                    both = _turns(builder, *low[half], *high[half], side)
                    wide[2 * half + side] = builder.add(wide[2 * half + side], builder.call(pairs, [both, weights]))
            low, high = [[], []], [[], []]
    halves = [[builder.sext(lanes_of(builder, v, 8 * i, 8), _SUMS) for i in (0, 1)] for v in wide]
    return [builder.add(*two) for two in halves]


def _instruction(builder, name, result, *takes):
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, takes), f"llvm.x86.avx2.{name}")
