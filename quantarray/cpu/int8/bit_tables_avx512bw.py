"""Tables of 5 and 6 weights of one bit, for vectors of 512 bits: the words of a vector are 16 weights of 32 outputs.

A word has the indices of three tables, of one or two registers each.
"""

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..llvm.masks import ask_for
from ..llvm.vectors import I16, I32, I64, const, joined, own_function, place_of, slot_of
from ..runtime.jit import inline, inner

OUTPUTS = 32  # at once
WORDS = 4  # of an output in a block, whose sums of 256 bytes fit into 16 bits
MOST_QUERIES = 1  # of int8 that are looked up: more share the bytes of products
LONGEST = 1 << 30  # words of an output of `byte_row_product`
ROOM = 0  # words that `laid_out` needs for each of an output
_PARTS = (0, 6, 0), (6, 5, 64), (11, 5, 96)  # first bit and bits of an index in 16, and where its table begins
_TABLES = 128  # entries of the three
ENTRIES, ENTRY = 4 * _TABLES, np.int16  # of the tables of a word
_AHEAD = 1 << 11  # bytes
_VECTOR, _SUMS = ir.VectorType(I16, OUTPUTS), ir.VectorType(I32, OUTPUTS)
_COUNT = _VECTOR.count


@inline
def laid_out(words, length, count, room):
    """Return the words of outputs as `look_up` reads them."""
    return words


@inner
def tables_of_row(codes, row, out):
    """out = tables for each 16 of codes int8[.. k] of a row, zeros after k; returns the sum of the codes."""
    of_word, total = np.zeros(16, np.int16), np.int64(0)
    for word in range(len(out) // _TABLES):
        for i in range(16):
            at = word * 16 + i
            of_word[i] = codes[row, at] if at < codes.shape[1] else 0
            total += of_word[i]
        for start, bits, to in _PARTS:
            _fill(of_word, start, bits, out, word * _TABLES + to)
    return total


@inline
def _fill(codes, start, bits, out, to):
    """out[to + i] = the sum of those of some codes of which i has the bits."""
    out[to] = 0
    for bit in range(bits):
        size, code = 1 << bit, codes[start + bit]
        for i in range(np.uint64(to), np.uint64(to + size)):
            out[i + size] = out[i] + code


def look_up(module, shortest):
    """Build the loops over outputs, 32 at a time, and blocks of their words, of which there is one in the shortest."""
    name = f"quantarray.look_up_rows.{int(shortest)}"
    if name in module.globals:
        return module.globals[name]
    function = own_function(module, name, [I16.as_pointer(), I64.as_pointer(), I64, I64, I32.as_pointer()])
    builder = ir.IRBuilder(function.append_basic_block())
    tables, words, length, count, out = function.args
    length = const(WORDS) if shortest else length
    with cgutils.for_range_slice(builder, const(0), count, const(OUTPUTS), I64) as (o, _):
        total, start = slot_of(builder, _SUMS(None)), builder.gep(words, [builder.mul(o, length)])
        with cgutils.for_range(builder, builder.udiv(length, const(WORDS))) as block:
            at = builder.mul(block.index, const(WORDS))
            places = [builder.gep(start, [builder.add(at, builder.mul(length, const(i)))]) for i in range(OUTPUTS)]
            for place in places[:: 8 // WORDS]:
                ask_for(builder, place, const(_AHEAD), 1, 3)
            kind = ir.VectorType(I16, 4 * WORDS)
            rows = [builder.load(place_of(builder, place, 0, kind), align=8) for place in places]
            of_block = builder.gep(tables, [builder.mul(at, const(ENTRIES))])
            sums = _looked_up(builder, of_block, _words_of(builder, rows))
            builder.store(builder.add(builder.load(total), builder.sext(sums, _SUMS)), total)
        to = place_of(builder, out, o, _SUMS)
        builder.store(builder.load(total), to, align=4)
    builder.ret_void()
    return function


def _words_of(builder, rows):
    """Return 16 vectors, of words i of 16 bits of all rows."""
    halves = []
    for first in (0, 16):
        pairs = [joined(builder, [rows[first + i], rows[first + 8 + i]]) for i in range(8)]
        columns, width = [[pair] for pair in pairs], 1
        while len(columns) > 1:
            columns = [
                [_merged(builder, *pair, width, side) for pair in zip(*two, strict=True) for side in (0, 1)]
                for two in zip(columns[::2], columns[1::2], strict=True)
            ]
            width *= 2
        halves.append(columns[0])
    quarters = [[8 * i + j for i in some for j in range(8)] for some in ((0, 2, 4, 6), (1, 3, 5, 7))]
    orders = [ir.Constant(_SUMS, quarter) for quarter in quarters]
    return [builder.shuffle_vector(*pair, order) for order in orders for pair in zip(*halves, strict=True)]


def _merged(builder, a, b, width, side):
    """Take turns of `width` words of a and b, of the first or second half of each 128 bits."""
    order = []
    for first in range(4 * side, _COUNT, 8):
        for unit in range(first, first + 4, width):
            order += [base + unit + i for base in (0, _COUNT) for i in range(width)]
    return builder.shuffle_vector(a, b, ir.Constant(_SUMS, order))


def _looked_up(builder, tables, words):
    """Return the sums of three tables' entries for each word; instructions look at as many bits as a table needs."""
    takes = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    both = cgutils.get_or_insert_function(builder.module, takes, "llvm.x86.avx512.vpermi2var.hi.512")
    takes = ir.FunctionType(_VECTOR, [_VECTOR] * 2)
    one = cgutils.get_or_insert_function(builder.module, takes, "llvm.x86.avx512.permvar.hi.512")
    totals = [_VECTOR(None)] * len(_PARTS)
    for i, word in enumerate(words):
        parts = [builder.load(place_of(builder, tables, i * _TABLES + at, _VECTOR), align=2) for at in (0, 32, 64, 96)]
        low, middle, high = (
            builder.lshr(word, ir.Constant(_VECTOR, [first] * _COUNT)) if first else word for first, _, _ in _PARTS
        )
        each = [
            builder.call(both, [parts[0], low, parts[1]]),
            builder.call(one, [parts[2], middle]),
            builder.call(one, [parts[3], high]),
        ]
        totals = [builder.add(total, value) for total, value in zip(totals, each, strict=True)]
    return builder.add(builder.add(*totals[:2]), totals[2])
