"""Counting both halves of a word by one popcount, for AVX-512 with VPOPCNTDQ.

With a and b the lower halves of two words, A and B the exclusive ors of both their halves, a full adder of a ^ b, A and
~B has the upper halves' a' ^ b' as its sum's complement, so that for each of the 32 bits

    (a ^ b) + (a' ^ b')  =  2 majority(a ^ b, A, ~B) - A + B

|A| is the pixel's alone and |B| the channel's, so what is left to count is the majority: exclusive or, majority,
popcount, add for 64 products, where a popcount of each half takes six instructions, and one of the whole word on lanes
of 64 bits takes three for half the lanes (docs/kernels/halves.md).
"""

from functools import reduce
from itertools import chain

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I32, I64, LANES, PAIR, TILE, const, each_run, full, place_of, pointer, slot_of, splat
from .interface import by_pixels
from .lanes import by_step
from .majorities import add_majorities

_ROW = full(I32)
_WIDTH = _ROW.count


def lay_out(words):
    """Weight words[.. 32] as they are counted: the lower halves of 32 channels, then ~B of each."""
    low, high = (words >> np.uint64(shift) & np.uint64(0xFFFFFFFF) for shift in (0, 32))
    halves = np.concatenate([low, ~(low ^ high)], axis=-1).astype(np.uint32)
    return halves.view(np.uint64)


class _Sums:
    """What is counted of the first `pixels` of a tile by some vectors of channels, of plain pointers."""

    def __init__(self, builder, pixels, vectors):
        self.builder, self.shape = builder, (pixels, vectors)
        # Registers that live through all loops
        self.slots = [[slot_of(builder, ir.Constant(_ROW, None)) for _ in range(vectors)] for _ in range(pixels)]
        self.ones = [slot_of(builder, ir.Constant(I32, 0)) for _ in range(pixels)]

    def count(self, words, planes, apart, origins, weights, beside, runs, first, last, differ, columns, ones=True):
        """Of `planes` planes of words that lie `apart`, the highest first: what is there is doubled before the next.

        Vectors of some `columns`; a pixel's `ones` only where no others have been counted before.
        """
        builder, sums = self.builder, [row[columns] for row in self.slots]
        either = builder.not_(builder.trunc(differ, I32))  # all ones where |a & b| is asked for
        with cgutils.for_range(builder, planes) as done:
            with builder.if_then(builder.icmp_signed("!=", done.index, const(0)), likely=False):
                for slot in chain(*sums, self.ones if ones else ()):
                    value = builder.load(slot)
                    builder.store(builder.add(value, value), slot)
            plane = builder.sub(builder.sub(planes, const(1)), done.index)
            plane = builder.gep(words, [builder.mul(plane, apart)])
            with each_run(builder, plane, origins, runs, first, last) as (pixel, weight, length):
                with cgutils.for_range(builder, length) as step:
                    at = builder.mul(builder.add(weight, step.index), const(LANES))
                    blocks = [builder.gep(weights, [at]), builder.gep(weights, [builder.add(at, beside)])]
                    column = [part for v in range(self.shape[1])[columns] for part in self._weights(blocks, v)]
                    for p, slots in enumerate(sums):
                        held, slots = [builder.load(slot) for slot in slots], [*slots, *self.ones[p : p + 1]]
                        counted = (builder.load(self.ones[p]), either) if ones else None  # |A|, or |a | a'|
                        added = add_majorities(builder, (pixel[p], step.index), held, column, counted)
                        for slot, value in zip(slots, added, strict=False):
                            builder.store(value, slot)

    def _weights(self, blocks, v):
        """(lower halves, ~B) of a vector of channels."""
        block, lane = divmod(v * _WIDTH, LANES)
        words = self.builder.bitcast(blocks[block], I32.as_pointer())
        return [
            self.builder.load(place_of(self.builder, words, lane + half * LANES, _ROW), align=4) for half in range(2)
        ]

    def found(self, differ, then, columns=slice(None)):
        """then([pixel][vector]) of counts for all pixels of a tile: of |a ^ b| less |B|, or of |a & b| less what b's
        halves have in common."""
        builder, (pixels, _) = self.builder, self.shape
        majorities = [[builder.load(slot) for slot in row[columns]] for row in self.slots]
        ones = [splat(builder, builder.load(slot), _WIDTH) for slot in self.ones]
        with builder.if_else(builder.icmp_signed("==", differ, const(0))) as (common, apart):
            with common:
                rows = [[builder.sub(n, most) for most in row] for n, row in zip(ones, majorities, strict=True)]
                then(rows * (TILE // pixels))
            with apart:
                rows = [
                    [builder.sub(builder.add(most, most), n) for most in row]
                    for n, row in zip(ones, majorities, strict=True)
                ]
                then(rows * (TILE // pixels))


def _by_lanes(builder, origins, lanes, most, operands, differ, then):
    """Count by as few vectors as the first `lanes` need, of at most so many, and then(sums)."""

    def emit(pixels):
        if pixels < TILE:
            _alone(builder, lanes, most, operands, differ, then)
        else:
            narrower([size for size in (1, 2, 4) if size * _WIDTH <= most])

    def narrower(sizes):
        size, *rest = sizes
        if not rest:
            sums = _Sums(builder, TILE, size)
            sums.count(*operands, differ, slice(None))
            sums.found(differ, then)
            return
        with builder.if_else(builder.icmp_signed("<=", lanes, const(size * _WIDTH)), likely=False) as (few, more):
            with few:
                narrower([size])
            with more:
                narrower(rest)

    by_pixels(builder, origins, emit)


def _alone(builder, lanes, most, operands, differ, then):
    """A row alone, one block after the other: it waits for its weights, and reads them as they lie."""
    sums, first, second = _Sums(builder, 1, most // _WIDTH), slice(0, LANES // _WIDTH), slice(LANES // _WIDTH, None)
    sums.count(*operands, differ, first)
    if most == LANES:
        sums.found(differ, then)
        return
    with builder.if_else(builder.icmp_signed("<=", lanes, const(LANES)), likely=False) as (few, more):
        with few:
            sums.found(differ, then, first)
        with more:
            sums.count(*operands, differ, second, ones=False)
            sums.found(differ, then)


def _operands(context, builder, signature, args):
    """(origins, differ, what `_Sums.count` takes) of the arguments that the functions below share."""
    words, origins, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 4, 6))
    runs = pointer(context, builder, signature, args, 9)
    return origins, args[12], (words, args[2], args[3], origins, weights, args[8], runs, args[10], args[11])


_i64 = types.int64


def _takes(words, origins, weights, runs):
    """Types of the arguments that the functions below share."""
    return (words, _i64, _i64, _i64, origins, _i64, weights, _i64, _i64, runs, _i64, _i64, _i64)


@intrinsic
def plane_counts(
    typingctx, words, word, planes, apart, origins, origin, weights, weight, beside, runs, first, last, differ, counts,
    lanes,
):  # fmt: skip
    """counts[p, l] = sum over i of 2^i * (|a_i & b| - |b's halves in common|) over the runs, or where `differ` is -1
    and not 0 of 2^i * (|a_i ^ b| - |B|), with

        a_i = words[word + i * apart + origins[origin + p] + at + k],   b = weights[weight + ..][l]

    The last pixel fills a tile up: the first and the last of a tile begin at one place only where all do. Runs
    first .. last of int64 runs[n 3] are (at, weight word, length k); a weight word is 32 lanes, laid out by `lay_out`.
    words and weights are uint64 of any shape, origins int64; counts, int32 or int64 [4 32], is overwritten. All arrays
    are C-contiguous and indexed flat from `word`, `origin` and `weight`: a slice would cost two atomic operations. Sums
    are of 32 bits, modulo 2^32. Of the first `lanes`, 32 at most; others may stay as they are. The block that lies
    `beside` is not asked for.
    """
    signature = types.void(*_takes(words, origins, weights, runs), counts, _i64)

    def codegen(context, builder, signature, args):
        origins, differ, operands = _operands(context, builder, signature, args)
        counts = pointer(context, builder, signature, args, 13)

        def store(sums):
            for p in range(TILE):
                for v, found in enumerate(sums[p]):
                    for lane, part in _as_elements(builder, found, counts.type.pointee):
                        at = p * LANES + v * _WIDTH + lane
                        builder.store(part, place_of(builder, counts, at, part.type), align=4)

        _by_lanes(builder, origins, args[14], LANES, operands, differ, store)

    return signature, codegen


@intrinsic
def mask_counts(
    typingctx, words, word, planes, apart, origins, origin, weights, weight, beside, runs, first, last, differ, limits,
    limits_at, flips, used, out, rows, row, size, at, lanes,
):  # fmt: skip
    """out[rows[row + p] * size + at] = used & (flips ^ m), where bit l of m is limits[limits_at + l] < what
    `plane_counts` counts for pixel p and lane l.

    The limits are int32: counts are compared in the registers in which they were added up, and stored nowhere. Of the
    first `lanes` of 64: those behind the first 32 are of the block that lies `beside`, so many words on; bits of others
    may be anything. out is uint64 and rows int64. Pixels that fill a tile up write what their like did: a loop over
    those that count took 3 % of 1x56x56x64.
    """
    signature = types.void(
        *_takes(words, origins, weights, runs), limits, _i64, types.uint64, types.uint64, out, rows, _i64, _i64, _i64,
        _i64,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        origins, differ, operands = _operands(context, builder, signature, args)
        limits, rows = (pointer(context, builder, signature, args, i, args[at]) for i, at in ((13, 14), (18, 19)))
        flips, used, out, size, at = args[15], args[16], pointer(context, builder, signature, args, 17), *args[20:22]

        def compare(sums):
            bounds = [builder.load(place_of(builder, limits, v * _WIDTH, _ROW), align=4) for v in range(len(sums[0]))]
            for p in range(TILE):
                parts = [
                    builder.zext(builder.bitcast(builder.icmp_signed(">", *pair), ir.IntType(_WIDTH)), I64)
                    for pair in zip(sums[p], bounds, strict=True)
                ]
                mask = reduce(builder.or_, (builder.shl(part, const(v * _WIDTH)) for v, part in enumerate(parts)))
                place = builder.mul(builder.load(builder.gep(rows, [const(p)])), size)
                mask = builder.and_(used, builder.xor(flips, mask))
                builder.store(mask, builder.gep(out, [builder.add(place, at)]))

        _by_lanes(builder, origins, args[22], PAIR, operands, differ, compare)

    return signature, codegen


@intrinsic
def value_counts(
    typingctx, words, word, planes, apart, origins, origin, weights, weight, beside, runs, first, last, differ, extra,
    extra_at, step, values, places, lanes,
):  # fmt: skip
    """values[places[p] + l] = extra[extra_at + l] + step * what `plane_counts` counts for pixel p and lane l.

    The step is plus or minus a power of two, places int64[4]; extra and values are both int32 or both int64. Of the
    first `lanes` of 64, as in `mask_counts`.
    """
    signature = types.void(*_takes(words, origins, weights, runs), extra, _i64, _i64, values, places, _i64)

    def codegen(context, builder, signature, args):
        origins, differ, operands = _operands(context, builder, signature, args)
        extras = pointer(context, builder, signature, args, 13, args[14])
        values, places = (pointer(context, builder, signature, args, i) for i in (16, 17))
        element = values.type.pointee
        value = by_step(builder, args[15], full(element))

        def store(sums):
            for p in range(TILE):
                row = builder.gep(values, [builder.load(builder.gep(places, [const(p)]))])
                for v, counts in enumerate(sums[p]):
                    for lane, part in _as_elements(builder, counts, element):
                        at = v * _WIDTH + lane
                        fixed = builder.load(place_of(builder, extras, at, part.type), align=4)
                        builder.store(value(fixed, part), place_of(builder, row, at, part.type), align=4)

        _by_lanes(builder, origins, args[18], PAIR, operands, differ, store)

    return signature, codegen


def _as_elements(builder, counts, element):
    """(first lane, vector) of counts as int32 or int64."""
    if element == I32:
        return [(0, counts)]
    vector = full(element)
    parts = range(0, _WIDTH, vector.count)
    lanes = [ir.Constant(ir.VectorType(I32, vector.count), list(range(at, at + vector.count))) for at in parts]
    return [
        (at, builder.sext(builder.shuffle_vector(counts, counts, lane), vector))
        for at, lane in zip(parts, lanes, strict=True)
    ]
