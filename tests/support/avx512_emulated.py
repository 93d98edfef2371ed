"""Count as with VPOPCNTDQ on a CPU without it: imported before the package's kernels, in a process of its own.

Vectors of 512 bits are LLVM's, which splits them into this CPU's; what is assembly in `popcount/majorities.py` is
written here as LLVM's operations. Kernels so compiled need a cache folder of their own (NUMBA_CACHE_DIR).
"""

from importlib import import_module

from llvmlite import ir
from numba.core import cgutils

from quantarray.cpu.llvm.vectors import I32, const, splat
from quantarray.cpu.popcount import majorities
from quantarray.cpu.runtime import isa

for name in ("bits.search_tree", "epilogue.ranks"):  # have instructions of AVX-512 for it, and stay this CPU's
    import_module(f"quantarray.cpu.{name}")
isa.NAME = isa.COUNTING = "avx512"  # before modules are imported that read it


def add_majorities(builder, place, sums, column, ones=None):
    """Return what `majorities.add_majorities` returns."""
    row, (pointer, *index) = sums[0].type, place
    at = builder.bitcast(builder.gep(pointer, index) if index else pointer, row.element.as_pointer())
    a, beside = builder.load(at), builder.load(builder.gep(at, [const(1)]))
    both = builder.xor(a, beside) if row.element == I32 else beside
    results = [
        builder.add(total, _ones(builder, builder.xor(b, splat(builder, a, row.count)), alike, both))
        for total, b, alike in zip(sums, column[::2], column[1::2], strict=True)
    ]
    if ones is not None:
        total, either = ones
        results.append(builder.add(total, builder.ctpop(builder.or_(both, builder.and_(a, either)))))
    return results


def _ones(builder, one, other, scalar):
    """popcount(majority(one, other, scalar)) in each lane of vectors; the scalar goes to all."""
    row, third = one.type, splat(builder, scalar, one.type.count)
    majority = builder.or_(builder.and_(one, other), builder.and_(builder.or_(one, other), third))
    name = f"llvm.ctpop.v{row.count}i{row.element.width}"
    count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(row, [row]), name)
    return builder.call(count, [majority])


majorities.add_majorities = add_majorities
