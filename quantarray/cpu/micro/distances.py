"""Hamming distances of 8 or 32 rows at a time, and which of them are near enough to look at."""

from functools import reduce

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .vectors import I64, LANES, WIDTH, const, place_of, pointer, slot_of, splat

ROWS = WIDTH
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
        found = builder.load(total)
        builder.store(found, place_of(builder, pointer(context, builder, signature, args, 6), 0, vector), align=8)
        near = builder.icmp_signed("<", found, splat(builder, args[5], WIDTH))
        return builder.zext(builder.bitcast(near, ir.IntType(WIDTH)), I64)

    return signature, codegen


@intrinsic
def near_lanes(typingctx, lanes, length, queries, query, count, limits, limit, masks):
    """Bit l of masks[q], q < count, is whether row l of 32 differs from query q in fewer than limits[limit + q] bits.

    Word k of the rows is lanes[32 * k + l], of the queries queries[query + q * length + k]; 1 to QUERIES of them. All
    are uint64 but limits, int64, C-contiguous and indexed flat. Sums stay in registers while the words stream by.
    """
    i64 = types.int64
    signature = types.void(lanes, i64, queries, i64, i64, limits, i64, masks)

    def codegen(context, builder, signature, args):
        lanes = pointer(context, builder, signature, args, 0)
        queries, limits = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (2, 5))
        masks = pointer(context, builder, signature, args, 7)
        for number in range(1, QUERIES + 1):
            with builder.if_then(builder.icmp_signed("==", args[4], const(number))):
                sums = _count_lanes(builder, lanes, args[1], queries, number)
                for q, row in enumerate(sums):
                    least = splat(builder, builder.load(builder.gep(limits, [const(q)])), WIDTH)
                    near = [builder.bitcast(builder.icmp_signed("<", one, least), ir.IntType(WIDTH)) for one in row]
                    bits = [builder.shl(builder.zext(one, I64), const(v * WIDTH)) for v, one in enumerate(near)]
                    builder.store(reduce(builder.or_, bits), builder.gep(masks, [const(q)]))

    return signature, codegen


def _count_lanes(builder, lanes, length, queries, number):
    """[query][vector of 8 rows] of distances."""
    vector, vectors = ir.VectorType(I64, WIDTH), range(0, LANES, WIDTH)
    slots = [[slot_of(builder, ir.Constant(vector, None)) for _ in vectors] for _ in range(number)]
    with cgutils.for_range(builder, length) as step:
        at = builder.mul(step.index, const(LANES))
        column = [builder.load(place_of(builder, lanes, builder.add(at, const(v)), vector), align=8) for v in vectors]
        for q, row in enumerate(slots):
            place = builder.add(builder.mul(const(q), length), step.index)
            word = splat(builder, builder.load(builder.gep(queries, [place])), WIDTH)
            for slot, rows in zip(row, column, strict=True):
                builder.store(builder.add(builder.load(slot), _ones(builder, word, rows)), slot)
    return [[builder.load(slot) for slot in row] for row in slots]


def _ones(builder, a, b):
    """How many bits differ in each lane of two vectors."""
    kind = ir.FunctionType(a.type, [a.type])
    ctpop = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{WIDTH}i64")
    return builder.call(ctpop, [builder.xor(a, b)])


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
    """Add the words behind the last full vector, a word of all rows at a time."""
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
    """One vector whose lane i is the sum of the lanes of vector i; their number is that of the lanes."""
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
