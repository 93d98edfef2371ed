"""Pick bits anywhere in 64 bytes as one word: by a permutation of bytes, then by a choice within 8 bytes."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..llvm.vectors import I8, I64, const, pointer
from ..runtime.isa import FEATURES

_BYTES = ir.VectorType(I8, 64)
_BITS = ir.VectorType(ir.IntType(1), 64)


@intrinsic
def pick_bits(typingctx, words, byte, choice, at):
    """picked bit i = bit choice[64 + i] % 8 of byte choice[i], of the 64 bytes from `byte` of words on, as uint64.

    Both arrays are C-contiguous uint64 and indexed flat; choice is 128 bytes from choice[at] on, of which byte 64 + i
    also says, 8 times, where within 8 chosen bytes its own is: i % 8. AVX512-VBMI and BITALG.
    """
    signature = types.uint64(words, types.int64, choice, types.int64)

    def codegen(context, builder, signature, args):
        data = builder.bitcast(pointer(context, builder, signature, args, 0), I8.as_pointer())
        read = builder.load(builder.bitcast(builder.gep(data, [args[1]]), _BYTES.as_pointer()), align=1)
        chosen = builder.bitcast(pointer(context, builder, signature, args, 2, args[3]), _BYTES.as_pointer())
        which, bits = (builder.load(builder.gep(chosen, [const(i)]), align=8) for i in range(2))
        permute, choose = ir.FunctionType(_BYTES, [_BYTES, _BYTES]), ir.FunctionType(_BITS, [_BYTES, _BYTES])
        vpermb = cgutils.get_or_insert_function(builder.module, permute, "llvm.x86.avx512.permvar.qi.512")
        vpshufbitqmb = cgutils.get_or_insert_function(builder.module, choose, "llvm.x86.avx512.vpshufbitqmb.512")
        return builder.bitcast(builder.call(vpshufbitqmb, [builder.call(vpermb, [read, which]), bits]), I64)

    return signature, codegen


if not {"avx512vbmi", "avx512bitalg"} <= FEATURES:
    pick_bits = None  # bits of words are moved by shifts
