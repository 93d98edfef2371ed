"""Transpose bit matrices of 64 x 64, eight at a time: matrix l has its 64 rows in lane l of 64 vectors.

Auto-vectorisation would store every step. Arrays are C-contiguous uint64 and indexed flat.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..runtime.jit import inner
from .vectors import I32, I64, LANES, WIDTH, const, place_of, pointer

SQUARES = 64 * WIDTH  # words of eight matrices
WOVEN = 4  # words of a row that `weave_lanes` transposes at a time
_VECTOR = ir.VectorType(I64, WIDTH)


@inner
def empty_squares(words):
    """Allocate words that begin on a cache line: a row of eight matrices then never crosses two."""
    raw = np.empty(words + WIDTH, np.uint64)
    first = (-raw.ctypes.data % (8 * WIDTH)) // 8
    return raw[first : first + words]


def _load(builder, data, index):
    return builder.load(place_of(builder, data, index, _VECTOR), align=8)


def _store(builder, vector, data, index):
    builder.store(vector, place_of(builder, data, index, _VECTOR), align=8)


@intrinsic
def transpose(typingctx, rows, at):
    """Transpose bits: swap bit j of word i and bit i of word j, in each lane of the 64 x 8 words from rows[at] on.

    Off-diagonal quarters are swapped first, then those of each quarter: 6 steps of 32 pairs of rows. Three steps join
    no more than 8 rows, which stay in registers, so that all words are loaded and stored twice, not 6 times.
    """
    signature = types.void(rows, types.int64)

    def codegen(context, builder, signature, args):
        data = pointer(context, builder, signature, args, 0, args[1])
        for distances in (32, 16, 8), (4, 2, 1):
            for first in (i for i in range(64) if not i & sum(distances)):
                _three_steps(builder, data, range(first, first + 8 * distances[-1], distances[-1]), distances)

    return signature, codegen


def _three_steps(builder, data, rows, distances):
    row = {i: _load(builder, data, i * WIDTH) for i in rows}
    for distance in distances:
        shift, mask = (ir.Constant(_VECTOR, [n] * WIDTH) for n in (distance, (2**64 - 1) // (2**distance + 1)))
        for i in (i for i in rows if not i & distance):
            low, high = row[i], row[i + distance]
            swap = builder.and_(builder.xor(builder.lshr(low, shift), high), mask)
            row[i], row[i + distance] = builder.xor(low, builder.shl(swap, shift)), builder.xor(high, swap)
    for i in rows:
        _store(builder, row[i], data, i * WIDTH)


def _weaver(near):
    @intrinsic
    def weave(typingctx, words, at, apart, squares, to):
        """Interleave `near` rows of 8 words: those from words[at], words[at + apart], .. on.

        Word k of all rows comes first, side by side, then word k + 1 of all. The result goes to squares[to],
        squares[to + 512], .., 8 words each.
        """
        signature = types.void(words, types.int64, types.int64, squares, types.int64)

        def codegen(context, builder, signature, args):
            data = pointer(context, builder, signature, args, 0, args[1])
            places = [builder.mul(args[2], ir.Constant(I64, n)) for n in range(near)]
            vectors = woven(builder, [_load(builder, data, place) for place in places])
            data = pointer(context, builder, signature, args, 3, args[4])
            for n, vector in enumerate(vectors):
                _store(builder, vector, data, n * SQUARES)

        return signature, codegen

    return weave


@intrinsic
def weave_lanes(typingctx, words, at, apart, lanes, to):
    """lanes[to + 32 * k + i] = words[at + i * apart + k] for 4 words of 8 rows."""
    signature = types.void(words, types.int64, types.int64, lanes, types.int64)

    def codegen(context, builder, signature, args):
        data = pointer(context, builder, signature, args, 0, args[1])
        weave_words(builder, data, args[2], pointer(context, builder, signature, args, 3, args[4]))

    return signature, codegen


def weave_words(builder, words, apart, lanes):
    """Interleave lanes as `weave_lanes` does, from plain pointers.

    Halves of vectors are joined as they are loaded. Two shuffles are left for each vector, which need no indices in
    registers, and no more than 5 registers are in use at a time.
    """
    half = ir.VectorType(I64, WIDTH // 2)

    def rows(first, second):
        """Load words of a row, followed by words of another."""
        places = [builder.gep(words, [builder.mul(apart, const(row))]) for row in (first, second)]
        halves = [builder.load(place_of(builder, place, 0, half), align=8) for place in places]
        return chosen(builder, halves, range(WIDTH))

    # Pairs of words, of rows 0, 2, 4 and 6, and of 1, 3, 5 and 7
    even, odd = (
        [chosen(builder, sides, [k + i for k in (at, at + 4, at + 8, at + 12) for i in (0, 1)]) for at in (0, 2)]
        for sides in ([rows(first, first + 2), rows(first + 4, first + 6)] for first in (0, 1))
    )
    for n in range(WIDTH // 2):
        order = [i + n % 2 + side for i in range(0, WIDTH, 2) for side in (0, WIDTH)]
        _store(builder, chosen(builder, (even[n // 2], odd[n // 2]), order), lanes, const(n * LANES))


def chosen(builder, vectors, order):
    """Choose elements of two vectors, those of the second numbered after those of the first."""
    order = list(order)
    return builder.shuffle_vector(*vectors, ir.Constant(ir.VectorType(I32, len(order)), order))


def _parter(length):
    @intrinsic
    def part(typingctx, words, at, lanes, to):
        """lanes[to + 32 * k + i] = words[at + length * i + k] for 8 consecutive rows of `length` words."""
        signature = types.void(words, types.int64, lanes, types.int64)

        def codegen(context, builder, signature, args):
            source = pointer(context, builder, signature, args, 0, args[1])
            target = pointer(context, builder, signature, args, 2, args[3])
            vectors = [_load(builder, source, const(n * WIDTH)) for n in range(length)]
            for k in range(length):
                _store(builder, _every(builder, vectors, length, k), target, const(k * LANES))

        return signature, codegen

    return part


def _every(builder, vectors, apart, first):
    """Take 8 elements first, first + apart .. of the concatenated vectors."""
    wanted = range(first, first + WIDTH * apart, apart)
    taken = vectors[0]
    for n, vector in enumerate(vectors):  # places of earlier vectors' elements are taken, those of later ones are free
        order = [WIDTH + w % WIDTH if w // WIDTH == n else i if n else 0 for i, w in enumerate(wanted)]
        taken = chosen(builder, (taken, vector), order)
    return taken


part_1, part_2, part_3 = (_parter(length) for length in (1, 2, 3))


@intrinsic
def weave_rows(typingctx, words, at, apart, squares, to, length):
    """Interleave 8 words that are 8 / length rows of 1, 2, 4 or 8 words.

    Each word goes to the square of its place in the row, rows one below the other.
    """
    signature = types.void(words, types.int64, types.int64, squares, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        data, length = pointer(context, builder, signature, args, 0, args[1]), args[5]
        vectors = woven(builder, [_load(builder, data, builder.mul(args[2], const(n))) for n in range(WIDTH)])
        data = pointer(context, builder, signature, args, 3, args[4])
        for n, vector in enumerate(vectors):
            square, row = builder.urem(const(n), length), builder.udiv(const(n), length)
            place = builder.add(builder.mul(square, const(SQUARES)), builder.mul(row, const(WIDTH)))
            _store(builder, vector, data, place)

    return signature, codegen


def woven(builder, vectors, parts=1):
    """Interleave vectors: element k of all, then element k + 1 of all, within each of some parts of the vectors."""
    if len(vectors) == 1:
        return vectors
    pairs = zip(woven(builder, vectors[::2], parts), woven(builder, vectors[1::2], parts), strict=True)
    return [zipped(builder, even, odd, half, parts) for even, odd in pairs for half in range(2)]


def zipped(builder, even, odd, half, parts=1):
    """Interleave the elements of two vectors, of the first or the second half of each part."""
    count = even.type.count // parts
    firsts = [part * count + half * (count // 2) for part in range(parts)]
    order = [first + i // 2 + i % 2 * even.type.count for first in firsts for i in range(count)]
    return chosen(builder, (even, odd), order)


weave_1, weave_2, weave_4, weave_8 = (_weaver(near) for near in (1, 2, 4, 8))


def _copier(count, past_cache=False):
    vector = ir.VectorType(I64, count)

    @intrinsic
    def copy(typingctx, words, at, out, to):
        """Copy `count` words from words[at] on to out[to] and on: one store, and not a call of memcpy."""
        signature = types.void(words, types.int64, out, types.int64)

        def codegen(context, builder, signature, args):
            source = pointer(context, builder, signature, args, 0, args[1])
            value = builder.load(place_of(builder, source, 0, vector), align=8)
            to = place_of(builder, pointer(context, builder, signature, args, 2, args[3]), 0, vector)
            stored = builder.store(value, to, 8 * count if past_cache else 8)
            if past_cache:
                stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))

        return signature, codegen

    return copy


copy_2, copy_4, copy_8 = (_copier(count) for count in (2, 4, 8))
# To a whole cache line that no one reads soon: its old contents are not fetched. out[to] must begin a cache line
stream_8 = _copier(8, past_cache=True)
