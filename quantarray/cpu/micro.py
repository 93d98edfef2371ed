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
AHEAD = 4096  # bytes
_VECTORS = LANES // _WIDTH
_I32, _I64, _F64 = ir.IntType(32), ir.IntType(64), ir.DoubleType()


def _pointer(context, builder, signature, args, i, offset=None):
    """The data of array argument i, from an offset in elements on."""
    data = context.make_array(signature.args[i])(context, builder, args[i]).data
    return data if offset is None else builder.gep(data, [offset])


def _place(builder, pointer, index, vector):
    """Where the vector that begins at an element lies."""
    at = builder.gep(pointer, [ir.Constant(_I64, index) if isinstance(index, int) else index])
    return builder.bitcast(at, vector.as_pointer())


def _splat(builder, value, lanes):
    """A vector of one value."""
    zero = ir.Constant(ir.VectorType(value.type, lanes), None)
    one = builder.insert_element(zero, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, zero, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


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
        vector = ir.VectorType(_F64 if real else _I64, _WIDTH)
        left = _pointer(context, builder, signature, args, 0, args[1])
        right = _pointer(context, builder, signature, args, 2, args[3])
        above = builder.fcmp_unordered if real else builder.icmp_signed
        mask = ir.Constant(_I64, 0)
        for lane in range(0, LANES, _WIDTH):
            a, b = (builder.load(_place(builder, side, lane, vector), align=8) for side in (left, right))
            bits = builder.bitcast(above(">", a, b), ir.IntType(_WIDTH))
            mask = builder.or_(mask, builder.shl(builder.zext(bits, _I64), ir.Constant(_I64, lane)))
        return mask

    return signature, codegen


@intrinsic
def mask_at_least(typingctx, values, start, threshold):
    """Bit i of the uint64 result is values[start + i] >= threshold, for 64 floats of a C-contiguous array, flat.

    NaN is not at least anything.
    """
    signature = types.uint64(values, types.int64, values.dtype)

    def codegen(context, builder, signature, args):
        x = _load_64(context, builder, signature, args)
        return builder.bitcast(builder.fcmp_ordered(">=", x, _splat(builder, args[2], 64)), _I64)

    return signature, codegen


@intrinsic
def mask_nan(typingctx, values, start):
    """Not 0 where one of values[start + i] is NaN, for 64 floats: the halves of the 64 are compared with each other."""
    signature = types.uint64(values, types.int64)

    def codegen(context, builder, signature, args):
        x = _load_64(context, builder, signature, args)
        half = [
            builder.shuffle_vector(x, x, ir.Constant(ir.VectorType(_I32, 32), list(range(at, at + 32))))
            for at in (0, 32)
        ]
        unordered = builder.bitcast(builder.fcmp_unordered("uno", *half), _I32)
        return builder.zext(unordered, _I64)

    return signature, codegen


@intrinsic
def prefetch(typingctx, values, start):
    """Ask for the 256 bytes that lie AHEAD of values[start], of a C-contiguous array, flat.

    A thread that only compares waits for memory otherwise. Beyond the array's end it does no harm.
    """
    signature = types.void(values, types.int64)

    def codegen(context, builder, signature, args):
        byte = ir.IntType(8).as_pointer()
        first = builder.bitcast(_pointer(context, builder, signature, args, 0, args[1]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch")
        read, keep, data = (ir.Constant(_I32, n) for n in (0, 3, 1))
        for line in range(AHEAD, AHEAD + 256, 64):
            builder.call(ask, [builder.gep(first, [ir.Constant(_I64, line)]), read, keep, data])

    return signature, codegen


def _load_64(context, builder, signature, args):
    """64 values of array argument 0 from element argument 1 on: one vector, which LLVM splits as the CPU asks."""
    real = signature.args[0].dtype
    vector = ir.VectorType(ir.FloatType() if real.bitwidth == 32 else _F64, 64)
    data = _pointer(context, builder, signature, args, 0, args[1])
    return builder.load(_place(builder, data, 0, vector), align=real.bitwidth // 8)


@intrinsic
def shift_tile(typingctx, dot, extra, at, ones, along, step):
    """dot[p, l] = extra[at + l] + along * ones[p] + step * dot[p, l], for 4 pixels and 32 lanes, all int64.

    As a loop it took longer than the counting before it: LLVM checks first that none of its arrays overlap.
    """
    signature = types.void(dot, extra, types.int64, ones, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        vector = ir.VectorType(_I64, _WIDTH)
        dots, ones = (_pointer(context, builder, signature, args, i) for i in (0, 3))
        extras = _pointer(context, builder, signature, args, 1, args[2])
        step = _splat(builder, args[5], _WIDTH)
        shifts = [_pixel_shift(builder, ones, p, args[4]) for p in range(TILE)]
        for lane in range(0, LANES, _WIDTH):
            fixed = builder.load(_place(builder, extras, lane, vector), align=8)
            for p in range(TILE):
                place = _place(builder, dots, p * LANES + lane, vector)
                scaled = builder.mul(step, builder.load(place, align=8))
                builder.store(builder.add(builder.add(fixed, shifts[p]), scaled), place, align=8)

    return signature, codegen


def _pixel_shift(builder, ones, p, along):
    """A vector of along * ones[p]."""
    return _splat(builder, builder.mul(along, builder.load(builder.gep(ones, [ir.Constant(_I64, p)]))), _WIDTH)


@intrinsic
def add_tile(typingctx, value, scales, w_scale, w_at, base, sums, sums_at, along, ones, ones_at, step, dot):
    """value[p, l] += (scales[p] * w_scale[w_at + l]) * exact, for 4 pixels and 32 lanes, where

        exact = base * sums[sums_at + l] + along * ones[ones_at + p] + step * dot[p, l]

    The last factor is the exact integer product of two terms, int64; the rest is float64, multiplied and added one by
    one: no fused multiply-add, so that every backend agrees. sums may be None, which stands for ones; with ones or dot
    None their part is left out.
    """
    i64 = types.int64
    signature = types.void(value, scales, w_scale, i64, i64, sums, i64, i64, ones, i64, i64, dot)

    def codegen(context, builder, signature, args):
        whole, real = ir.VectorType(_I64, _WIDTH), ir.VectorType(_F64, _WIDTH)
        values, scales = (_pointer(context, builder, signature, args, i) for i in (0, 1))
        weights = _pointer(context, builder, signature, args, 2, args[3])
        base, step = (_splat(builder, args[i], _WIDTH) for i in (4, 10))
        absent = [signature.args[i] == types.none for i in (5, 8, 11)]
        no_sums, no_ones, no_dot = absent
        sums = None if no_sums else _pointer(context, builder, signature, args, 5, args[6])
        dots = None if no_dot else _pointer(context, builder, signature, args, 11)
        if not no_ones:
            ones = _pointer(context, builder, signature, args, 8, args[9])
            shifts = [_pixel_shift(builder, ones, p, args[7]) for p in range(TILE)]
        pixel = [
            _splat(builder, builder.load(builder.gep(scales, [ir.Constant(_I64, p)])), _WIDTH) for p in range(TILE)
        ]
        for lane in range(0, LANES, _WIDTH):
            weight = builder.load(_place(builder, weights, lane, real), align=8)
            fixed = base
            if not no_sums:
                fixed = builder.mul(base, builder.load(_place(builder, sums, lane, whole), align=8))
            for p in range(TILE):
                exact = fixed if no_ones else builder.add(fixed, shifts[p])
                if not no_dot:
                    count = builder.load(_place(builder, dots, p * LANES + lane, whole), align=8)
                    exact = builder.add(exact, builder.mul(step, count))
                product = builder.fmul(builder.fmul(pixel[p], weight), builder.sitofp(exact, real))
                place = _place(builder, values, p * LANES + lane, real)
                builder.store(builder.fadd(builder.load(place, align=8), product), place, align=8)

    return signature, codegen


@intrinsic
def clear_tile(typingctx, value):
    """value[p, l] = 0.0; as a loop it takes as long as three `add_tile`s."""

    def codegen(context, builder, signature, args):
        real = ir.VectorType(_F64, _WIDTH)
        values = _pointer(context, builder, signature, args, 0)
        for at in range(0, TILE * LANES, _WIDTH):
            builder.store(ir.Constant(real, None), _place(builder, values, at, real), align=8)

    return types.void(value), codegen


@intrinsic
def round_tile(typingctx, value, pad, pad_at, bias, bias_at):
    """value[p, l] = float32((value[p, l] + pad[pad_at + l]) + bias[bias_at + l]), kept as float64."""
    signature = types.void(value, pad, types.int64, bias, types.int64)

    def codegen(context, builder, signature, args):
        real, single = ir.VectorType(_F64, _WIDTH), ir.VectorType(ir.FloatType(), _WIDTH)
        values = _pointer(context, builder, signature, args, 0)
        pads, biases = (_pointer(context, builder, signature, args, i, args[i + 1]) for i in (1, 3))
        for lane in range(0, LANES, _WIDTH):
            pad, bias = (builder.load(_place(builder, side, lane, real), align=8) for side in (pads, biases))
            for p in range(TILE):
                place = _place(builder, values, p * LANES + lane, real)
                total = builder.fadd(builder.fadd(builder.load(place, align=8), pad), bias)
                builder.store(builder.fpext(builder.fptrunc(total, single), real), place, align=8)

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
        vector = ir.VectorType(_I64, _WIDTH)
        ctpop = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.ctpop.v{_WIDTH}i64"
        )
        words = _pointer(context, builder, signature, args, 0, args[1])
        weights = _pointer(context, builder, signature, args, 3, args[4])
        origins, runs, counts = (_pointer(context, builder, signature, args, i) for i in (2, 5, 8))
        const = lambda n: ir.Constant(_I64, n)  # noqa: E731
        zero = ir.Constant(vector, None)
        # One stack slot a vector: LLVM's mem2reg makes each a register that lives through both loops
        slots = [[cgutils.alloca_once_value(builder, zero) for _ in range(_VECTORS)] for _ in range(TILE)]
        for p in range(TILE):
            for v in range(_VECTORS):
                builder.store(zero, slots[p][v])
        begin = [builder.load(builder.gep(origins, [const(p)])) for p in range(TILE)]
        with cgutils.for_range(builder, builder.sub(args[7], args[6])) as run:
            row = builder.mul(builder.add(args[6], run.index), const(3))
            at, weight, length = (builder.load(builder.gep(runs, [builder.add(row, const(i))])) for i in range(3))
            pixel = [builder.gep(words, [builder.add(begin[p], at)]) for p in range(TILE)]
            with cgutils.for_range(builder, length) as step:
                lane = builder.mul(builder.add(weight, step.index), const(LANES))
                column = [
                    builder.load(_place(builder, weights, builder.add(lane, const(v * _WIDTH)), vector), align=8)
                    for v in range(_VECTORS)
                ]
                for p in range(TILE):
                    word = _splat(builder, builder.load(builder.gep(pixel[p], [step.index])), _WIDTH)
                    for v in range(_VECTORS):
                        ones = builder.call(ctpop, [builder.and_(word, column[v])])
                        builder.store(builder.add(builder.load(slots[p][v]), ones), slots[p][v])
        for p in range(TILE):
            for v in range(_VECTORS):
                place = _place(builder, counts, p * LANES + v * _WIDTH, vector)
                builder.store(builder.load(slots[p][v]), place, align=8)

    return signature, codegen
