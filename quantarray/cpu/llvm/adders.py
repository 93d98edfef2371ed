"""Full adders of vectors of bits: three bits to their sum and their carry."""

from llvmlite import ir
from numba.core import cgutils

from ..runtime.isa import COUNTING
from .vectors import I32

_SUM, _CARRY = 0x96, 0xE8  # bit 4a + 2b + c: what three bits give


def full_adder(builder, a, b, c):
    """Return (sum, carry) of each bit."""
    differ = builder.xor(a, b)
    return builder.xor(differ, c), builder.or_(builder.and_(a, b), builder.and_(differ, c))


def ternary_adder(builder, a, b, c):
    """Return (sum, carry) in two instructions of AVX-512, for vectors of 256 or 512 bits; LLVM needs three or four."""
    bits = a.type.count * a.type.element.width
    vector = ir.VectorType(I32, bits // 32)
    kind = ir.FunctionType(vector, [vector, vector, vector, I32])
    add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx512.pternlog.d.{bits}")
    operands = [builder.bitcast(v, vector) for v in (a, b, c)]
    results = (builder.call(add, [*operands, ir.Constant(I32, table)]) for table in (_SUM, _CARRY))
    return [builder.bitcast(v, a.type) for v in results]


def adder(kind):
    """Choose the adder for vectors, or words, of a type."""
    ternary = isinstance(kind, ir.VectorType) and COUNTING not in ("portable", "neon", "avx2")
    return ternary_adder if ternary else full_adder
