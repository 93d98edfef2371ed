"""Count by byte shuffles, for CPUs of AVX2, and of AVX-512 without VPOPCNTDQ.

Half a byte of a pixel picks a row of 16 counts, |half & n| for every n; half a byte of each channel's weights is an
index into the row. One shuffle so counts 4 bits of 32 channels, where LLVM's ctpop takes 4.5 instructions.
"""

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ..llvm.adders import full_adder, ternary_adder
from ..llvm.vectors import I8, I32, I64, LANES, const, place_of
from ..runtime.isa import COUNTING
from .count_bytes import kernel, lay_out

__all__ = ["count_tile", "lay_out"]

_HALVES = (np.arange(256)[:, None] >> np.array([0, 4]) & 15)[:, :, None]
# For each byte of a pixel the row of its low half, then of its high half; all of |a & b|, then all of |a ^ b|. 8 KiB
# each: one table of 16 rows instead costs three more scalar instructions a byte.
_ROWS = np.bitwise_count([_HALVES & np.arange(16), _HALVES ^ np.arange(16)]).astype(np.uint8)
_TABLE = _ROWS[0].size
_ROW = ir.VectorType(I8, LANES)


class _Shuffles:
    def __init__(self, builder, differ):
        rows = ir.Constant(ir.ArrayType(I8, _ROWS.size), bytearray(_ROWS.tobytes()))
        table = builder.bitcast(cgutils.global_constant(builder, "counts_of_halves", rows), I8.as_pointer())
        self.table = builder.gep(table, [builder.and_(differ, const(_TABLE))])
        kind = ir.FunctionType(_ROW, [_ROW, _ROW])
        self.shuffle = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.pshuf.b")

    def weights(self, builder, loaded):
        """Split 32 bytes into their halves."""
        low, four = _ROW([15] * LANES), _ROW([4] * LANES)
        return builder.and_(loaded, low), builder.and_(builder.lshr(loaded, four), low)

    def of(self, builder, byte, halves):
        """Count the common or differing bits of a pixel's byte and each of 32."""
        at = builder.shl(builder.zext(byte, I64), const(5))
        return builder.add(*(self._look_up(builder, builder.add(at, const(16 * i)), h) for i, h in enumerate(halves)))

    def _look_up(self, builder, at, index):
        """Look 32 indices up in the row of 16 counts at an offset."""
        row = builder.load(place_of(builder, self.table, at, ir.VectorType(I8, 16)), align=1)
        twice = builder.shuffle_vector(row, row, ir.Constant(ir.VectorType(I32, LANES), [*range(16)] * 2))
        return builder.call(self.shuffle, [twice, index])


count_tile = kernel(_Shuffles, ternary_adder if COUNTING == "avx512bw" else full_adder)
