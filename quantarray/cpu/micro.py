"""Micro-kernels: what the compiler would not write by itself.

`popcount` is LLVM's ctpop. `mask_above` and `mask_at_least` compare a row of lanes into one mask. `count_tile` is the
inner loop of every product: 4 pixels times 32 output channels of counts stay in registers while the words of a run
stream by. All are explicit vectors of 512 bits, because auto-vectorisation stays at 256 and keeps the counts in memory;
LLVM splits the vectors where the machine's are shorter, so the same text is right on AVX2 and NEON.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

TILE = 4  # pixels
LANES = 32  # output channels
_WIDTH = 8  # 64-bit lanes of a vector
_VECTORS = LANES // _WIDTH


@intrinsic
def popcount(typingctx, word):
    """The ones of a uint64, as int64."""
    if word != types.uint64:
        return None

    def codegen(context, builder, signature, args):
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@intrinsic
def mask_above(typingctx, values, start, thresholds, at):
    """Bit l of the uint64 result is values[start + l] > thresholds[at + l], for 32 lanes; a threshold NaN is below all.

    Both arrays are C-contiguous, int64 or float64 alike, and indexed flat: a slice would cost two atomic operations.
    """
    signature = types.uint64(values, types.int64, thresholds, types.int64)
    real = values.dtype == types.float64

    def codegen(context, builder, signature, args):
        element = ir.DoubleType() if real else ir.IntType(64)
        vector = ir.VectorType(element, _WIDTH)
        i64 = ir.IntType(64)
        above = builder.fcmp_unordered if real else builder.icmp_signed

        def load(i, first, v):
            array = context.make_array(signature.args[i])(context, builder, args[i])
            place = builder.gep(array.data, [builder.add(first, ir.Constant(i64, v * _WIDTH))])
            return builder.load(builder.bitcast(place, vector.as_pointer()), align=8)

        mask = ir.Constant(i64, 0)
        for v in range(_VECTORS):
            bits = builder.bitcast(above(">", load(0, args[1], v), load(2, args[3], v)), ir.IntType(_WIDTH))
            mask = builder.or_(mask, builder.shl(builder.zext(bits, i64), ir.Constant(i64, v * _WIDTH)))
        return mask

    return signature, codegen


@intrinsic
def mask_at_least(typingctx, values, start, threshold):
    """Bit i of the uint64 result is values[start + i] >= threshold, for 64 floats of a C-contiguous array, flat.

    NaN is not at least anything.
    """
    real = values.dtype
    signature = types.uint64(values, types.int64, real)
    lanes = 512 // real.bitwidth

    def codegen(context, builder, signature, args):
        element = ir.FloatType() if real.bitwidth == 32 else ir.DoubleType()
        vector, i64 = ir.VectorType(element, lanes), ir.IntType(64)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        one = builder.insert_element(ir.Constant(vector, [0.0] * lanes), args[2], ir.Constant(ir.IntType(32), 0))
        splat = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))
        mask = ir.Constant(i64, 0)
        for first in range(0, 64, lanes):
            place = builder.gep(data, [builder.add(args[1], ir.Constant(i64, first))])
            x = builder.load(builder.bitcast(place, vector.as_pointer()), align=real.bitwidth // 8)
            bits = builder.bitcast(builder.fcmp_ordered(">=", x, splat), ir.IntType(lanes))
            mask = builder.or_(mask, builder.shl(builder.zext(bits, i64), ir.Constant(i64, first)))
        return mask

    return signature, codegen


@intrinsic
def count_tile(typingctx, words, word, origins, weights, weight, runs, first, last, counts):
    """counts[p, l] = sum over the runs of popcount(words[word + origins[p] + at + k] & weights[weight + ..][l]).

    Runs first .. last of int64 runs[n 3] are (at, weight word, length k); a weight word is 32 lanes. words and weights
    are uint64 of any shape, origins int64[4]; counts int64[4 32] is overwritten. All arrays are C-contiguous and
    indexed flat from `word` and `weight`: a slice would cost two atomic operations.
    """
    signature = types.void(words, types.int64, origins, weights, types.int64, runs, types.int64, types.int64, counts)

    def codegen(context, builder, signature, args):
        i64 = ir.IntType(64)
        vector = ir.VectorType(i64, _WIDTH)
        ctpop = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.ctpop.v{_WIDTH}i64"
        )

        def data(i):
            array = context.make_array(signature.args[i])(context, builder, args[i])
            return builder.bitcast(array.data, i64.as_pointer())

        words, origins, weights, runs, counts = (data(i) for i in (0, 2, 3, 5, 8))
        words, weights = builder.gep(words, [args[1]]), builder.gep(weights, [args[4]])
        const = lambda n: ir.Constant(i64, n)  # noqa: E731
        zero = ir.Constant(vector, [0] * _WIDTH)
        lanes0 = ir.Constant(ir.VectorType(ir.IntType(32), _WIDTH), [0] * _WIDTH)

        def vector_at(pointer, index):
            return builder.bitcast(builder.gep(pointer, [index]), vector.as_pointer())

        # One stack slot a vector: LLVM's mem2reg makes each a register that lives through both loops
        slots = [[cgutils.alloca_once_value(builder, zero) for _ in range(_VECTORS)] for _ in range(TILE)]
        for p in range(TILE):
            for v in range(_VECTORS):
                builder.store(zero, slots[p][v])
        begin = [builder.load(builder.gep(origins, [const(p)])) for p in range(TILE)]
        count = builder.sub(args[7], args[6])
        with cgutils.for_range(builder, count) as run:
            row = builder.mul(builder.add(args[6], run.index), const(3))
            at, weight, length = (builder.load(builder.gep(runs, [builder.add(row, const(i))])) for i in range(3))
            pixel = [builder.gep(words, [builder.add(begin[p], at)]) for p in range(TILE)]
            with cgutils.for_range(builder, length) as step:
                lane = builder.mul(builder.add(weight, step.index), const(LANES))
                column = [
                    builder.load(vector_at(weights, builder.add(lane, const(v * _WIDTH))), align=8)
                    for v in range(_VECTORS)
                ]
                for p in range(TILE):
                    word = builder.load(builder.gep(pixel[p], [step.index]))
                    one = builder.insert_element(zero, word, ir.Constant(ir.IntType(32), 0))
                    splat = builder.shuffle_vector(one, zero, lanes0)
                    for v in range(_VECTORS):
                        ones = builder.call(ctpop, [builder.and_(splat, column[v])])
                        builder.store(builder.add(builder.load(slots[p][v]), ones), slots[p][v])
        for p in range(TILE):
            for v in range(_VECTORS):
                target = vector_at(counts, const(p * LANES + v * _WIDTH))
                builder.store(builder.load(slots[p][v]), target, align=8)

    return signature, codegen
