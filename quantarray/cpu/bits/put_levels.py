"""Store levels of codes, 16 at a time: chosen by bits where there are few, computed from codes otherwise."""

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import F32, F64, I8, I32, const, joined, lanes_of, place_of, pointer, splat
from ..runtime.isa import COUNTING, FEATURES

LANES = 16
FEW = 4  # planes, of codes that name one of 16 levels
# Planes from which on levels are chosen by indices, and not by masks
_LEAST_INDEXED = 2 if "avx512f" in FEATURES else 3 if COUNTING == "avx2" else FEW + 1
_BITS = ir.IntType(16)
_FLAGS, _LEVELS, _CODES, _WIDE = (ir.VectorType(kind, LANES) for kind in (ir.IntType(1), F32, I32, F64))


@intrinsic
def put_few(typingctx, words, at, apart, planes, table, first, count, out, start):
    """out[start + i] = table[first + code i] of 16 * count codes of 1 to 4 planes; float32, C-contiguous, indexed flat.

    Bits of plane p are words[at + p * apart ..], counted in units of 16 bits; apart is even. table has 16 levels from
    `first` on.
    """
    i64 = types.int64
    signature = types.void(words, i64, i64, i64, table, i64, i64, out, i64)

    def codegen(context, builder, signature, args):
        data = pointer(context, builder, signature, args, 0)
        table = pointer(context, builder, signature, args, 4, args[5])
        levels = builder.load(place_of(builder, table, 0, _LEVELS), align=4)
        to = pointer(context, builder, signature, args, 7, args[8])
        begin, end = args[1], builder.add(args[1], args[6])
        for number in range(1, FEW + 1):
            with builder.if_then(builder.icmp_signed("==", args[3], const(number))):
                put = _Units(builder, data, begin, args[2], levels, number, to)
                if number < _LEAST_INDEXED:
                    put.units(begin, end)
                    continue
                even = builder.and_(builder.add(begin, const(1)), const(-2))
                first = builder.select(builder.icmp_signed("<", even, end), even, end)
                put.units(begin, first)
                pairs = builder.and_(builder.sub(end, first), const(-2))
                put.pairs(first, builder.add(first, pairs))
                put.units(builder.add(first, pairs), end)
        return context.get_dummy_value()

    return signature, codegen


class _Units(NamedTuple):
    """Store levels of codes of some planes, whose bits are read in units of 16."""

    builder: ir.IRBuilder
    data: ir.Value
    begin: ir.Value
    apart: ir.Value
    levels: ir.Value
    planes: int
    to: ir.Value

    def units(self, first, end):
        """Store 16 levels a step: bits become masks."""
        builder, units = self.builder, self.builder.bitcast(self.data, _BITS.as_pointer())
        each = [
            builder.shuffle_vector(self.levels, self.levels, ir.Constant(_CODES, [i] * LANES))
            for i in range(1 << self.planes)
        ]
        with cgutils.for_range(builder, builder.sub(end, first)) as step:
            unit, left = builder.add(first, step.index), each
            for plane in range(self.planes):
                place = builder.gep(units, [builder.add(unit, builder.mul(self.apart, const(plane)))])
                bits = builder.bitcast(builder.load(place, align=2), _FLAGS)
                left = [builder.select(bits, odd, even) for even, odd in zip(left[::2], left[1::2], strict=True)]
            self._store(unit, left[0])

    def pairs(self, first, end):
        """Store 32 levels a step, chosen by indices."""
        builder, pairs = self.builder, self.builder.bitcast(self.data, I32.as_pointer())
        with cgutils.for_range(builder, builder.lshr(builder.sub(end, first), const(1))) as step:
            unit = builder.add(first, builder.shl(step.index, const(1)))
            words = []
            for plane in range(self.planes):
                at = builder.lshr(builder.add(unit, builder.mul(self.apart, const(plane))), const(1))
                words.append(builder.load(builder.gep(pairs, [at]), align=4))
            choose = self._sixteen if "avx512f" in FEATURES else self._eights
            for half, levels in enumerate(choose(words)):
                self._store(builder.add(unit, const(half)), levels)

    def _sixteen(self, words):
        """Return two vectors of levels: bits are rotated to their places. Masks would all go by one port."""
        builder, words = self.builder, [splat(self.builder, word, LANES) for word in words]
        kind = ir.FunctionType(_CODES, [_CODES] * 3)
        rotate = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fshl.v{LANES}i32")
        kind = ir.FunctionType(_LEVELS, [_LEVELS, _CODES])
        choose = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.permvar.sf.512")
        for half in range(2):
            index = ir.Constant(_CODES, [0] * LANES)
            for plane, word in enumerate(words):
                turn = ir.Constant(_CODES, [(plane - lane - LANES * half) % 32 for lane in range(LANES)])
                bit = ir.Constant(_CODES, [1 << plane] * LANES)
                index = builder.or_(index, builder.and_(builder.call(rotate, [word, word, turn]), bit))
            yield builder.call(choose, [self.levels, index])

    def _eights(self, words):
        """Return the same by AVX2, which chooses among 8 levels: by 3 bits, and of two choices by the fourth.

        By masks, of which four planes take 15 for 8 levels, a row by 4096x4096 took 11.9 ms instead of 6.3.
        """
        builder, words = self.builder, [splat(self.builder, word, 8) for word in words]
        integers, floats = ir.VectorType(I32, 8), ir.VectorType(F32, 8)
        kind = ir.FunctionType(floats, [floats, integers])
        choose = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.permps")
        low, high = (lanes_of(builder, self.levels, first, 8) for first in (0, 8))

        def eight(begin):
            index = ir.Constant(integers, [0] * 8)
            for plane, word in enumerate(words[:3]):
                up = 0 if begin else plane  # bits move down to their places, and the first ones would have to move up
                word = builder.shl(word, ir.Constant(integers, [up] * 8))
                down = ir.Constant(integers, [begin + lane + up - plane for lane in range(8)])
                index = builder.or_(
                    index, builder.and_(builder.lshr(word, down), ir.Constant(integers, [1 << plane] * 8))
                )
            chosen = builder.call(choose, [low, index])
            if self.planes < FEW:
                return chosen
            sign = builder.shl(words[3], ir.Constant(integers, [31 - begin - lane for lane in range(8)]))
            above = builder.icmp_signed("<", sign, ir.Constant(integers, [0] * 8))
            return builder.select(above, builder.call(choose, [high, index]), chosen)

        for half in range(2):
            yield joined(builder, [eight(LANES * half), eight(LANES * half + 8)])

    def _store(self, unit, levels):
        at = self.builder.mul(self.builder.sub(unit, self.begin), const(LANES))
        self.builder.store(levels, place_of(self.builder, self.to, at, _LEVELS), align=4)


@intrinsic
def put_computed(typingctx, codes, at, low, step, out, start):
    """out[start + i] = low + step * codes[at + i], in float64, of 16 bytes; out float32, both C-contiguous, flat."""
    signature = types.void(codes, types.int64, types.float64, types.float64, out, types.int64)

    def codegen(context, builder, signature, args):
        data = pointer(context, builder, signature, args, 0, args[1])
        lower, each = (splat(builder, value, LANES) for value in args[2:4])
        code = builder.uitofp(builder.load(place_of(builder, data, 0, ir.VectorType(I8, LANES)), align=1), _WIDE)
        value = builder.fptrunc(builder.fadd(lower, builder.fmul(each, code)), _LEVELS)
        to = pointer(context, builder, signature, args, 4, args[5])
        builder.store(value, place_of(builder, to, 0, _LEVELS), align=4)

    return signature, codegen
