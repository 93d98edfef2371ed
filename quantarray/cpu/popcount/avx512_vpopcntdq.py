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

from ..llvm.vectors import (
    I32,
    I64,
    LANES,
    PAIR,
    TILE,
    Windows,
    const,
    each_run,
    full,
    place_of,
    pointer,
    slot_of,
    splat,
)
from ..llvm.views import flat
from .interface import by_pixels
from .lanes import by_step
from .majorities import add_majorities

_ROW = full(I32)
_WIDTH = _ROW.count


def lay_out(words):
    """Lay out weight words[.. 32] as they are counted: the lower halves of 32 channels, then ~B of each."""
    low, high = (words >> np.uint64(shift) & np.uint64(0xFFFFFFFF) for shift in (0, 32))
    halves = np.concatenate([low, ~(low ^ high)], axis=-1).astype(np.uint32)
    return halves.view(np.uint64)


class _Sums:
    """A tile's counts in registers: its first `pixels` by some vectors of channels. Operands are plain pointers."""

    def __init__(self, builder, pixels, vectors):
        self.builder, self.shape = builder, (pixels, vectors)
        # Registers that live through all loops
        self.slots = [[slot_of(builder, ir.Constant(_ROW, None)) for _ in range(vectors)] for _ in range(pixels)]
        self.ones = [slot_of(builder, ir.Constant(I32, 0)) for _ in range(pixels)]

    def count(self, windows, planes, apart, weights, beside, differ, columns, ones=True):
        """Count `planes` planes of words, `apart` apart, the highest first: counts are doubled before each next one.

        Only vectors of some `columns` are counted, and a pixel's `ones` only where no other columns were before.
        """
        builder, rows = self.builder, [row[columns] for row in self.slots]
        either = builder.not_(builder.trunc(differ, I32))  # all ones where a & b is counted
        with cgutils.for_range(builder, planes) as step:
            with builder.if_then(builder.icmp_signed("!=", step.index, const(0)), likely=False):
                for slot in chain(*rows, self.ones if ones else ()):
                    value = builder.load(slot)
                    builder.store(builder.add(value, value), slot)
            plane = builder.sub(builder.sub(planes, const(1)), step.index)
            seen = windows._replace(words=builder.gep(windows.words, [builder.mul(plane, apart)]))
            with each_run(builder, seen) as (pixel, weight, length):
                with cgutils.for_range(builder, length) as word:
                    at = builder.mul(builder.add(weight, word.index), const(LANES))
                    blocks = [builder.gep(weights, [at]), builder.gep(weights, [builder.add(at, beside)])]
                    column = [part for v in range(self.shape[1])[columns] for part in self._weights(blocks, v)]
                    for p, slots in enumerate(rows):
                        sums, slots = [builder.load(slot) for slot in slots], [*slots, *self.ones[p : p + 1]]
                        counted = (builder.load(self.ones[p]), either) if ones else None  # |A|, or |a | a'|
                        added = add_majorities(builder, (pixel[p], word.index), sums, column, counted)
                        for slot, value in zip(slots, added, strict=False):
                            builder.store(value, slot)

    def _weights(self, blocks, v):
        """Load (lower halves, ~B) of a vector of channels."""
        block, lane = divmod(v * _WIDTH, LANES)
        words = self.builder.bitcast(blocks[block], I32.as_pointer())
        return [
            self.builder.load(place_of(self.builder, words, lane + half * LANES, _ROW), align=4) for half in range(2)
        ]

    def use(self, differ, then, columns=slice(None)):
        """Call then([pixel][vector]) with the counts of all pixels of a tile.

        They are |a ^ b| less |B|, or |a & b| less the ones that b's halves have in common.
        """
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
    """Count with as few vectors as the first `lanes` of `most` need, then call then(sums)."""

    def emit(pixels):
        if pixels < TILE:
            _single(builder, lanes, most, operands, differ, then)
        else:
            narrower([size for size in (1, 2, 4) if size * _WIDTH <= most])

    def narrower(sizes):
        size, *rest = sizes
        if not rest:
            sums = _Sums(builder, TILE, size)
            sums.count(*operands, differ, slice(None))
            sums.use(differ, then)
            return
        with builder.if_else(builder.icmp_signed("<=", lanes, const(size * _WIDTH)), likely=False) as (fits, wider):
            with fits:
                narrower([size])
            with wider:
                narrower(rest)

    by_pixels(builder, origins, emit)


def _single(builder, lanes, most, operands, differ, then):
    """Count a single row, one block after the other: MR = 1 is bound by loading weights, here read in sequence."""
    sums, first, second = _Sums(builder, 1, most // _WIDTH), slice(0, LANES // _WIDTH), slice(LANES // _WIDTH, None)
    sums.count(*operands, differ, first)
    if most == LANES:
        sums.use(differ, then)
        return
    with builder.if_else(builder.icmp_signed("<=", lanes, const(LANES)), likely=False) as (one, both):
        with one:
            sums.use(differ, then, first)
        with both:
            sums.count(*operands, differ, second, ones=False)
            sums.use(differ, then)


def _operands(context, builder, signature, args):
    """Return (origins, differ, first arguments of `_Sums.count`) of a `Counted`, the first 13 of flat arguments."""
    words, origins, weights = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 4, 6))
    runs = pointer(context, builder, signature, args, 9)
    windows = Windows(words, origins, runs, args[10], args[11])
    return origins, args[12], (windows, args[2], args[3], weights, args[8])


_i64 = types.int64


@intrinsic
def plane_counts(typingctx, counted, counts, lanes):
    """counts[p, l] = sum over i of 2^i * (|a_i & b| - |b's halves in common|) over the runs of a `Counted`

    or, where `differ` is -1 and not 0, the sum of 2^i * (|a_i ^ b| - |B|), with

        a_i = words[i * apart + origins[p] + at + k],   b = weights[weight word + k][l]

    The last pixel fills a tile up: the first and the last of a tile begin at one place only where all do. A run is
    (at, weight word, length k); a weight word is 32 lanes, laid out by `lay_out`. counts, int32 or int64 [4 32], is
    overwritten for the first `lanes`, 32 at most; others may stay as they are. Sums have 32 bits, modulo 2^32. Only
    the first block of weights is read.
    """
    signature = types.void(counted, counts, _i64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        origins, differ, operands = _operands(context, builder, signature, args)
        counts = pointer(context, builder, signature, args, 13)

        def store(sums):
            for p in range(TILE):
                for v, vector in enumerate(sums[p]):
                    for lane, part in _as_elements(builder, vector, counts.type.pointee):
                        at = p * LANES + v * _WIDTH + lane
                        builder.store(part, place_of(builder, counts, at, part.type), align=4)

        _by_lanes(builder, origins, args[14], LANES, operands, differ, store)

    return signature, codegen


@intrinsic
def mask_counts(typingctx, counted, limits, out, rows, lanes):
    """out[rows[p]] = used & (flips ^ m), where bit l of m is limits[l] < count of pixel p and lane l.

    The counts are those of `plane_counts`, and limits a `Limits` of int32: counts are compared in the registers in
    which they were added up, and stored nowhere. Lanes after the first 32 are of the second block of weights; bits
    from `lanes`, at most 64, on may be anything. out is a `Rows` of uint64, whose rows are indexed by a `View` of
    int64. Repeated pixels at the end of a tile are written again: a loop over the others alone took 3 % of 1x56x56x64.
    """
    signature = types.void(counted, limits, out, rows, _i64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
        origins, differ, operands = _operands(context, builder, signature, args)
        limits, out, rows = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (13, 17, 20))
        flips, used, size = args[15], args[16], args[19]

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
                builder.store(mask, builder.gep(out, [place]))

        _by_lanes(builder, origins, args[22], PAIR, operands, differ, compare)

    return signature, codegen


@intrinsic
def value_counts(typingctx, counted, extra, step, values, places, lanes):
    """values[places[p] + l] = extra[l] + step * count of pixel p and lane l, as `plane_counts` counts.

    The step is plus or minus a power of two, places int64[4] and extra a `View`; extra and values are both int32 or
    both int64. Lanes after the first 32 are of the second block; those from `lanes`, at most 64, on may be anything.
    """
    signature = types.void(counted, extra, _i64, values, places, _i64)

    def codegen(context, builder, signature, args):
        signature, args = flat(context, builder, signature, args)
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
    """Split counts into [(first lane, vector)] of int32 or int64."""
    if element == I32:
        return [(0, counts)]
    vector = full(element)
    parts = range(0, _WIDTH, vector.count)
    lanes = [ir.Constant(ir.VectorType(I32, vector.count), list(range(at, at + vector.count))) for at in parts]
    return [
        (at, builder.sext(builder.shuffle_vector(counts, counts, lane), vector))
        for at, lane in zip(parts, lanes, strict=True)
    ]
