"""Hamming distances of 8 or 32 rows at a time, and masks of the rows that are near enough."""

from functools import reduce
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.masks import ask_for
from ..llvm.transpose import WOVEN, weave_words
from ..llvm.vectors import F64, I64, LANES, WIDTH, const, own_function, place_of, pointer, slot_of, splat

ROWS = WIDTH
AHEAD = 1 << 13  # bytes: how far ahead of the transposed rows others are prefetched
QUERIES = 5  # by 32 rows at once: 20 of 32 registers


@intrinsic
def near_rows(typingctx, words, row, query, at, length, limit, out):
    """out[i] = |words[row + i * length ..] ^ query[at ..]| of `length` words; bit i of the result is out[i] < limit.

    words and query are uint64 of any shape, C-contiguous and indexed flat; out is int64[8]. A row is read 8 words at a
    time, and 8 sums of 8 lanes become one vector by three rounds of adding halves.
    """
    i64 = types.int64
    signature = types.uint64(words, i64, query, i64, i64, i64, out)

    def codegen(context, builder, signature, args):
        length, vector = args[4], ir.VectorType(I64, WIDTH)
        query = pointer(context, builder, signature, args, 2, args[3])
        first = pointer(context, builder, signature, args, 0, args[1])
        rows = [builder.gep(first, [builder.mul(const(i), length)]) for i in range(ROWS)]
        sums = [slot_of(builder, ir.Constant(vector, None)) for _ in rows]
        _count_vectors(builder, query, rows, length, sums)
        total = slot_of(builder, _lane_sums(builder, [builder.load(slot) for slot in sums]))
        _count_rest(builder, query, rows, length, total)
        distances = builder.load(total)
        builder.store(distances, place_of(builder, pointer(context, builder, signature, args, 6), 0, vector), align=8)
        near = builder.icmp_signed("<", distances, splat(builder, args[5], WIDTH))
        return builder.zext(builder.bitcast(near, ir.IntType(WIDTH)), I64)

    return signature, codegen


@intrinsic
def near_lanes(
    typingctx, lanes, at, length, queries, query, count, limits, limit, masks, words, row, transposed, to, sizes
):  # fmt: skip
    """masks[q] bit l = row l of 32 differs from query q in fewer than limits[limit + q] bits, q < count; returns the
    bits that any mask has. Of float64 limits, [queries 2], a row's is the first plus sizes[l] times the second.

    Word k of the rows is lanes[at + 32 * k + l], of the queries queries[query + q * length + k]; 1 to QUERIES of them.
    All are uint64 but limits, int64 or float64, and float64 sizes, C-contiguous and indexed flat. Sums stay in
    registers while the words stream by.

    Besides, the first `transposed` words, a multiple of 4, of 32 other rows from words[row] on become
    lanes[to + 32 * k + l], 8 rows by 4 words a step: shuffles and stores take the place that counting leaves.
    """
    i64 = types.int64
    signature = types.uint64(lanes, i64, i64, queries, i64, i64, limits, i64, masks, words, i64, i64, i64, sizes)

    def codegen(context, builder, signature, args):
        here, next_lanes = (pointer(context, builder, signature, args, 0, args[i]) for i in (1, 12))
        queries, limits = (
            pointer(context, builder, signature, args, 3, args[4]),
            limits_of(context, builder, signature, args),
        )
        masks, words = (pointer(context, builder, signature, args, i, at) for i, at in ((8, const(0)), (9, args[10])))
        sizes, near = pointer(context, builder, signature, args, 13), slot_of(builder, const(0))
        operands = here, args[2], queries, limits, masks, words, args[11], next_lanes, sizes
        single = builder.icmp_signed("==", args[11], const(0))
        for number in range(1, QUERIES + 1):
            with builder.if_then(builder.icmp_signed("==", args[5], const(number))):
                # A single loop: between two, sums would be spilled and loaded again for a few words a row
                with builder.if_else(single) as branches:
                    for branch, ahead in zip(branches, (False, True), strict=True):
                        with branch:
                            builder.store(
                                builder.call(
                                    _function(builder.module, number, ahead, limits.type, sizes.type), operands
                                ),
                                near,
                            )
        return builder.load(near)

    return signature, codegen


def limits_of(context, builder, signature, args):
    """Return a pointer to the limits of the first query, one number or two, of the arguments of `near_lanes`."""
    each = 2 if signature.args[6].dtype == types.float64 else 1
    return pointer(context, builder, signature, args, 6, builder.mul(args[7], const(each)))


def _function(module, number, ahead, limit, size):
    """Build the loop for `number` queries as a function: inlined, it would run out of registers for addresses."""
    name = f"quantarray.near_lanes.{number}{'.ahead' * ahead}{'.sized' * (limit.pointee == F64)}"
    if name in module.globals:
        return module.globals[name]
    word = I64.as_pointer()
    function = own_function(module, name, [word, I64, word, limit, word, word, I64, word, size], I64)
    builder = ir.IRBuilder(function.append_basic_block())
    here, length, queries, limits, masks, words, transposed, next_lanes, sizes = function.args
    besides = Ahead(words, length, transposed, next_lanes) if ahead else None
    sums = _count_lanes(builder, here, length, queries, number, besides)
    builder.ret(mask_lanes(builder, sums, limits, masks, sizes))
    return function


class Ahead(NamedTuple):
    """A block of rows that is transposed while another is counted."""

    words: ir.Value
    length: ir.Value
    transposed: ir.Value
    lanes: ir.Value

    def weave(self, builder, step):
        """Interleave 4 words of 8 rows."""
        row, word = builder.mul(builder.and_(step, const(3)), const(WIDTH)), builder.and_(step, const(-WOVEN))
        source = builder.gep(self.words, [builder.add(builder.mul(row, self.length), word)])
        weave_words(
            builder, source, self.length, builder.gep(self.lanes, [builder.add(row, builder.mul(word, const(LANES)))])
        )

    def prefetch(self, builder, step):
        """Prefetch as many words of later rows as `weave` reads in a step: many requests at once would stall."""
        at = builder.add(builder.mul(step, const(8 * LANES)), const(AHEAD))
        ask_for(builder, self.words, at, LANES // WIDTH, 2)


def _count_lanes(builder, lanes, length, queries, number, ahead):
    """Return [query][vector of 8 rows] of distances."""
    vector, vectors = ir.VectorType(I64, WIDTH), range(0, LANES, WIDTH)
    slots = [[slot_of(builder, ir.Constant(vector, None)) for _ in vectors] for _ in range(number)]

    def count(step):
        at = builder.mul(step, const(LANES))
        column = [builder.load(place_of(builder, lanes, builder.add(at, const(v)), vector), align=8) for v in vectors]
        for q, row in enumerate(slots):
            place = builder.add(builder.mul(const(q), length), step)
            word = splat(builder, builder.load(builder.gep(queries, [place])), WIDTH)
            for slot, rows in zip(row, column, strict=True):
                builder.store(builder.add(builder.load(slot), _ones(builder, word, rows)), slot)
        if ahead:
            ahead.prefetch(builder, step)

    done = ahead.transposed if ahead else const(0)
    if ahead:
        with cgutils.for_range(builder, done) as step:
            count(step.index)
            ahead.weave(builder, step.index)
    with cgutils.for_range(builder, builder.sub(length, done)) as step:
        count(builder.add(done, step.index))
    return [[builder.load(slot) for slot in row] for row in slots]


def mask_lanes(builder, sums, limits, masks, sizes):
    """Store masks of the sums below their query's limit, and return the bits that any mask has."""
    masked, real = [], ir.VectorType(F64, WIDTH)
    for q, row in enumerate(sums):
        if limits.type.pointee == F64:
            first, slope = (
                splat(builder, builder.load(builder.gep(limits, [const(2 * q + i)])), WIDTH) for i in (0, 1)
            )
            places = [place_of(builder, sizes, v * WIDTH, real) for v in range(len(row))]
            most = [builder.fadd(first, builder.fmul(slope, builder.load(place, align=8))) for place in places]
            below = [
                builder.fcmp_ordered("<", builder.sitofp(one, real), limit)
                for one, limit in zip(row, most, strict=True)
            ]
        else:
            least = splat(builder, builder.load(builder.gep(limits, [const(q)])), WIDTH)
            below = [builder.icmp_signed("<", one, least) for one in row]
        near = [builder.bitcast(one, ir.IntType(WIDTH)) for one in below]
        bits = [builder.shl(builder.zext(one, I64), const(v * WIDTH)) for v, one in enumerate(near)]
        masked.append(reduce(builder.or_, bits))
        builder.store(masked[-1], builder.gep(masks, [const(q)]))
    return reduce(builder.or_, masked)


def popcounts(builder, vector):
    """Count the ones of each lane."""
    kind = ir.FunctionType(vector.type, [vector.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{WIDTH}i64"), [vector])


def _ones(builder, a, b):
    """Count the differing bits in each lane of two vectors."""
    return popcounts(builder, builder.xor(a, b))


def _count_vectors(builder, query, rows, length, sums):
    """Add the words that fill vectors to a row's 8 sums."""
    vector = ir.VectorType(I64, WIDTH)

    def count(k):
        asked = builder.load(place_of(builder, query, k, vector), align=8)
        for row, slot in zip(rows, sums, strict=True):
            differing = _ones(builder, asked, builder.load(place_of(builder, row, k, vector), align=8))
            builder.store(builder.add(builder.load(slot), differing), slot)

    # Usual lengths without a loop: with one, 1024 bits take a third longer
    done = builder.append_basic_block("counted")
    for vectors in (1, 2, 4):
        with builder.if_then(builder.icmp_signed("==", length, const(vectors * WIDTH))):
            for v in range(vectors):
                count(const(v * WIDTH))
            builder.branch(done)
    with cgutils.for_range(builder, builder.sdiv(length, const(WIDTH))) as step:
        count(builder.mul(step.index, const(WIDTH)))
    builder.branch(done)
    builder.position_at_end(done)


def _count_rest(builder, query, rows, length, total):
    """Add the words after the last full vector, a word of all rows at a time."""
    vector = ir.VectorType(I64, WIDTH)
    whole = builder.and_(length, const(-WIDTH))
    with cgutils.for_range(builder, builder.sub(length, whole)) as step:
        k = builder.add(whole, step.index)
        column = ir.Constant(vector, ir.Undefined)
        for i, row in enumerate(rows):
            column = builder.insert_element(column, builder.load(builder.gep(row, [k])), const(i))
        asked = splat(builder, builder.load(builder.gep(query, [k])), WIDTH)
        builder.store(builder.add(builder.load(total), _ones(builder, asked, column)), total)


def _lane_sums(builder, vectors):
    """Return one vector whose lane i is the sum of the lanes of vector i; their number is that of the lanes."""
    lanes, size = len(vectors), 1
    kind = ir.VectorType(ir.IntType(32), lanes)
    while len(vectors) > 1:  # pairs of stretches of `size` lanes are added, and those of two vectors interleave
        low = [side + first + i for first in range(0, lanes, 2 * size) for side in (0, lanes) for i in range(size)]
        orders = [ir.Constant(kind, [lane + shift for lane in low]) for shift in (0, size)]
        vectors = [
            builder.add(*(builder.shuffle_vector(a, b, order) for order in orders))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        size *= 2
    return vectors[0]
