"""Rows of floats become int8, each run of elements, or each row, by its largest magnitude."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I32, const, place_of, pointer, prefer_wide, slot_of, splat
from ..runtime import threads
from ..runtime.jit import inline
from ..runtime.schedule import Kernel

_LEAST = 1 << 15  # elements that are worth a parallel region
_INFINITE = np.uint32(0x7F800000)  # the bits of what is not finite, without the sign, are at least these
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_PIECE, _SHORT = 16, 256  # elements at once, and of runs that are taken so: LLVM's loops are for long ones
_BITS = ir.VectorType(I32, _PIECE)
_SMALLEST, _MOST = np.float32(1e-5), np.float32(127)


def encode_runs(x, run, unit, first, wrong, shares, starts, sums, out):
    if x.size:
        arguments = x, x.view(np.uint32), run, unit, first, out, shares, starts, sums, wrong
        threads.run(_encode, arguments, len(x), threads.workers(x.size, _LEAST))


def encode_rows(x, least, wrong, scales, out):
    if len(x):
        arguments = x, x.view(np.uint32), np.float32(least), out, scales, wrong
        threads.run(_encode_rows, arguments, len(x), threads.workers(x.size, _LEAST))


@Kernel
def _encode_rows(x, bits, least, codes, scales, wrong, begin, end):
    prefer_wide()
    largest = np.empty(1, np.uint32)
    for row in range(begin, end):
        scales[row] = _MOST / max(_magnitude(bits, row, 0, x.shape[1], largest, wrong), least)
        _put_codes(x, row, 0, x.shape[1], scales[row], codes)


@inline
def _magnitude(bits, row, start, stop, largest, wrong):
    """Return the largest magnitude of some elements; wrong[0] = True where one is not finite. `largest` is a buffer."""
    pieces, r = (stop - start) // _PIECE if stop - start <= _SHORT else 0, np.uint64(row)
    most = largest_of_vectors(bits, row * bits.shape[1] + start, pieces)
    for i in range(np.uint64(start + pieces * _PIECE), np.uint64(stop)):
        most = max(most, bits[r, i] & _MAGNITUDE)
    if most >= _INFINITE:
        wrong[0] = True
    largest[0] = most
    return largest.view(np.float32)[0]


@Kernel
def _encode(x, bits, run, unit, first, codes, shares, starts, sums, wrong, begin, end):
    length, largest, pieces = x.shape[1], np.empty(1, np.uint32), unit // _PIECE
    for row in range(begin, end):
        n = np.uint64(0)
        for start in range(0, length, run):
            stop = min(start + run, length)
            magnitude = max(_magnitude(bits, row, start, stop, largest, wrong), _SMALLEST)
            factor, share = _MOST / magnitude, magnitude / _MOST
            for at in range(start, stop, unit):
                if at + unit <= stop:  # a loop over so few elements took a third longer
                    total = put_vectors(x, row * length + at, factor, codes, row * codes.shape[1] + at, pieces)
                else:
                    total = _put_codes(x, row, at, stop, factor, codes)
                for i in range(stop, at + unit):
                    codes[row, i] = 0
                shares[row, n], starts[row, n] = share, np.float32(first * total)
                if row < len(sums):
                    sums[row, n] = np.float32(total) * share
                n += np.uint64(1)


@inline
def _put_codes(x, row, first, last, factor, codes):
    """Write codes of some elements; return their sum.

    Indices are unsigned: for signed ones, which may be negative, LLVM does not vectorise, and it took 5 times as long.
    """
    total, r = np.int32(0), np.uint64(row)
    for i in range(np.uint64(first), np.uint64(last)):
        code = np.int32(np.rint(x[r, i] * factor))
        codes[r, i] = code
        total += code
    return total


@intrinsic
def largest_of_vectors(typingctx, bits, at, pieces):
    """Return the largest magnitude of 16 * pieces numbers from bits[at] on, as the bits of float32; flat."""

    def codegen(context, builder, signature, args):
        data, largest = pointer(context, builder, signature, args, 0, args[1]), slot_of(builder, _BITS(None))
        with cgutils.for_range(builder, args[2]) as piece:
            place = place_of(builder, data, builder.mul(piece.index, const(_PIECE)), _BITS)
            some = builder.and_(builder.load(place, align=4), ir.Constant(_BITS, [int(_MAGNITUDE)] * _PIECE))
            before = builder.load(largest)
            builder.store(builder.select(builder.icmp_unsigned(">", some, before), some, before), largest)
        return _reduced(builder, "umax", builder.load(largest))

    return types.uint32(bits, types.int64, types.int64), codegen


@intrinsic
def put_vectors(typingctx, x, at, factor, codes, to, pieces):
    """codes[to + i] = rint(x[at + i] * factor), i < 16 * pieces, flat; return their sum."""
    i64 = types.int64
    signature = types.int32(x, i64, types.float32, codes, i64, i64)

    def codegen(context, builder, signature, args):
        data, target = (pointer(context, builder, signature, args, i, args[i + 1]) for i in (0, 3))
        total, times = slot_of(builder, _BITS(None)), splat(builder, args[2], _PIECE)
        rounding = ir.FunctionType(times.type, [times.type])
        with cgutils.for_range(builder, args[5]) as piece:
            first = builder.mul(piece.index, const(_PIECE))
            scaled = builder.fmul(builder.load(place_of(builder, data, first, times.type), align=4), times)
            rint = cgutils.get_or_insert_function(builder.module, rounding, f"llvm.rint.v{_PIECE}f32")
            whole = builder.fptosi(builder.call(rint, [scaled]), _BITS)
            place = place_of(builder, target, first, ir.VectorType(I8, _PIECE))
            builder.store(builder.trunc(whole, ir.VectorType(I8, _PIECE)), place, align=1)
            builder.store(builder.add(builder.load(total), whole), total)
        return _reduced(builder, "add", builder.load(total))

    return signature, codegen


def _reduced(builder, how, vector):
    """Return the sum, or the largest, of a vector's lanes."""
    kind = ir.FunctionType(I32, [vector.type])
    name = f"llvm.vector.reduce.{how}.v{vector.type.count}i32"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [vector])
