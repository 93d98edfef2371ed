"""Make bytes of 32-bit lanes."""

from llvmlite import ir
from numba.core import cgutils

from ..runtime.isa import COUNTING, FEATURES
from .vectors import I8, I16, I32, joined, lanes_of

_BITS = 256 if COUNTING == "avx2" else 512 if "avx512bw" in FEATURES else 0  # of registers that are packed
_PACKED = 4  # of them, whose bytes fill one


def saturated_bytes(builder, vectors):
    """Return int32 vectors side by side as uint8, clipped to 0 .. 255.

    Packing takes two bytes of each lane at a time, within 128 bits: 4 instructions for 4 registers, where vpmovusdb, of
    two steps, and the vpmaxsd before it take 12.
    """
    if not _BITS or len(vectors) * vectors[0].type.count * 32 < 2 * _BITS:
        return joined(builder, [_truncated(builder, one) for one in vectors])
    count = _BITS // 32
    parts = [lanes_of(builder, one, at, count) for one in vectors for at in range(0, one.type.count, count)]
    return joined(builder, [_packed(builder, parts[i : i + _PACKED]) for i in range(0, len(parts), _PACKED)])


def _packed(builder, parts):
    """Return the bytes of 2 or 4 registers."""
    used, count = len(parts), parts[0].type.count
    words = [_pack(builder, "packssdw", *parts[i : i + 2], I16) for i in range(0, used, 2)]
    quads = builder.bitcast(_pack(builder, "packuswb", words[0], words[-1], I8), parts[0].type)
    # Quad 4 * i + s is part i of register s, where i counts 128 bits
    order = [_PACKED * i + s for s in range(used) for i in range(count // _PACKED)]
    quads = builder.shuffle_vector(quads, quads, ir.Constant(ir.VectorType(I32, len(order)), order))
    return builder.bitcast(quads, ir.VectorType(I8, _PACKED * len(order)))


def _pack(builder, name, a, b, to):
    result = ir.VectorType(to, 2 * a.type.count)
    name = f"llvm.x86.avx2.{name}" if _BITS == 256 else f"llvm.x86.avx512.{name}.512"
    kind = ir.FunctionType(result, [a.type] * 2)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [a, b])


def _truncated(builder, one):
    least, most = (ir.Constant(one.type, [number] * one.type.count) for number in (0, 255))
    one = builder.select(builder.icmp_signed(">", one, least), one, least)
    one = builder.select(builder.icmp_signed("<", one, most), one, most)
    return builder.trunc(one, ir.VectorType(I8, one.type.count))
