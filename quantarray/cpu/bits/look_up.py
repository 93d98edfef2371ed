"""Map codes, or pairs of codes, through a table of bytes; sums of scaled pairs are computed where that gives the table.

A table takes a load for each element; the sum takes 16 elements at a time.
"""

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..int8.expand import copy_lines, expand
from ..llvm.masks import low_bits, mask_of_plane
from ..llvm.vectors import F32, F64, I8, I32, const, place_of, pointer, splat
from ..llvm.views import Planes, View
from ..runtime import threads
from ..runtime.isa import FEATURES
from ..runtime.jit import inline
from ..runtime.schedule import Kernel

_LEAST = 1 << 9  # words that are worth a parallel region
_TOGETHER = 16  # words
_LANES = 16
_INTEGERS = 1.5 * 2**23  # near which float32 holds integers alone


def look_up(words, others, table, factors, length, out):
    if not out.size:
        return
    count = out.shape[1] * out.shape[2]
    arguments = words, others, table, factors, np.int64(length), np.int64(len(words)), np.int64(len(others)), out
    threads.run(_look_up, arguments, count, threads.workers(count, _LEAST))


@partial(Kernel, of_bytes=True)
def _look_up(words, others, table, factors, length, planes, other_planes, out, first, last):
    row_words = -(-length // 64)
    x, y = np.zeros(_TOGETHER * 64, np.uint8), np.zeros(_TOGETHER * 64, np.uint8)
    shift, written = np.uint32(planes), out.reshape(-1).view(np.uint8)
    for begin in range(first, last, _TOGETHER):
        count = min(_TOGETHER, last - begin)
        _bring(words, planes, row_words, begin, count, x)
        if others.size:
            _bring(others, other_planes, row_words, begin, count, y)
        if factors.size:
            add_scaled(x, y, factors, count)
        else:
            for i in range(np.uint64(count * 64)):
                x[i] = table[np.uint32(x[i]) | (np.uint32(y[i]) << shift)]
        for i in range(count):
            row, at = (begin + i) // row_words, (begin + i) % row_words
            channels = min(64, length - at * 64)
            if out.shape[2] > row_words:
                place = np.uint64((begin + i) * 64)
                for k in range(np.uint64(64)):
                    written[place + k] = x[np.uint64(i * 64) + k] if k < np.uint64(channels) else 0
                continue
            used = low_bits(channels)
            for plane in range(out.shape[0]):
                out[plane, row, at] = mask_of_plane(x, i * 64, plane) & used


@inline
def _bring(words, planes, row_words, begin, count, codes):
    """Bring the codes of some words of planes; words may be those of bytes (`int8/stored_bytes.py`)."""
    if words.shape[2] > row_words:
        copy_lines(View(words, begin * 8), 1, count, View(codes, 0))
    else:
        expand(Planes(words, begin, planes, words.shape[1] * row_words), 1, count, 0, 1, View(codes, 0))


@intrinsic
def add_scaled(typingctx, x, y, factors, count):
    """x[i] = clip(rint((x[i] * f[0] + f[1] + (y[i] * f[2] + f[3])) * f[4]) + f[5], f[6], f[7]), for i < 64 * count.

    In float32; each product and the first addition to it are rounded once together. f are the factors.
    """
    signature = types.void(x, y, factors, types.int64)

    def codegen(context, builder, signature, args):
        codes, others, numbers = (pointer(context, builder, signature, args, i, const(0)) for i in range(3))
        floats, wide = ir.VectorType(F32, _LANES), ir.VectorType(F64, _LANES)
        f = [splat(builder, builder.load(builder.gep(numbers, [const(i)])), _LANES) for i in range(8)]

        whole_of = ir.Constant(floats, [_INTEGERS] * _LANES)

        def scaled(data, at, factor, offset):
            value = builder.uitofp(
                builder.load(place_of(builder, data, at, ir.VectorType(I8, _LANES)), align=1), floats
            )
            if "fma" in FEATURES:
                kind = ir.FunctionType(floats, [floats] * 3)
                fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{_LANES}f32")
                return builder.call(fused, [value, factor, offset])
            # The product, of 8 by 24 bits, and its sum with a multiple of the factor's last bit are exact in float64
            product = builder.fmul(builder.fpext(value, wide), builder.fpext(factor, wide))
            return builder.fptrunc(builder.fadd(product, builder.fpext(offset, wide)), floats)

        least, most = (builder.fsub(end, f[5]) for end in f[6:])
        with cgutils.for_range(builder, builder.mul(args[3], const(64 // _LANES))) as step:
            at = builder.mul(step.index, const(_LANES))
            total = builder.fadd(scaled(codes, at, f[0], f[1]), scaled(others, at, f[2], f[3]))
            level = builder.fmul(total, f[4])
            level = builder.select(builder.fcmp_ordered("<", level, least), least, level)
            level = builder.select(builder.fcmp_ordered(">", level, most), most, level)
            level = builder.fadd(builder.fsub(builder.fadd(level, whole_of), whole_of), f[5])
            whole = builder.trunc(builder.fptosi(level, ir.VectorType(I32, _LANES)), ir.VectorType(I8, _LANES))
            builder.store(whole, place_of(builder, codes, at, whole.type), align=1)

    return signature, codegen
