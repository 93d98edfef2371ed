"""Explicit LLVM vectors: how the micro-kernels address arrays and build vectors.

Vectors have 512 bits, because auto-vectorisation stays at 256; LLVM splits them where the machine's are shorter, so the
same text is right everywhere.
"""

from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

TILE = 4  # pixels
LANES = 32  # output channels: a block
PAIR = 2 * LANES  # of two blocks
WIDTH = 8  # 64-bit lanes of a vector
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
NOTHING = ir.VoidType()


def const(n):
    return ir.Constant(I64, n)


def full(kind):
    """Return the vector type of 512 bits with elements of a kind: int32, float32, int64 or float64."""
    return ir.VectorType(kind, 2 * WIDTH if kind in (I32, F32) else WIDTH)


def pointer(context, builder, signature, args, i, offset=None):
    """Return a pointer to the data of array argument i, at an offset in elements."""
    data = context.make_array(signature.args[i])(context, builder, args[i]).data
    return data if offset is None else builder.gep(data, [offset])


def place_of(builder, data, index, vector):
    """Return a pointer to the vector that begins at data[index]."""
    at = builder.gep(data, [const(index) if isinstance(index, int) else index])
    return builder.bitcast(at, vector.as_pointer())


def splat(builder, value, lanes):
    """Fill a vector with one value."""
    zero = ir.Constant(ir.VectorType(value.type, lanes), None)
    one = builder.insert_element(zero, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, zero, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def slot_of(builder, value):
    """Allocate a stack slot that is set to a value each time it is passed; LLVM's mem2reg makes it a register."""
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return slot


def lanes_of(builder, vector, first, count):
    """Take `count` lanes of a vector from `first` on."""
    lanes = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
    return builder.shuffle_vector(vector, vector, lanes)


def joined(builder, vectors):
    """Join a power of two of vectors of one type into one: the lanes of the first, then those of the second, .."""
    while len(vectors) > 1:
        count = 2 * vectors[0].type.count
        order = ir.Constant(ir.VectorType(I32, count), list(range(count)))
        vectors = [builder.shuffle_vector(*pair, order) for pair in zip(vectors[::2], vectors[1::2], strict=True)]
    return vectors[0]


def own_function(module, name, arguments, result=NOTHING):
    """Declare a function that is compiled once for all places of a kernel that call it, and never inlined."""
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    return function


class Windows(NamedTuple):
    """A tuple of LLVM values for the windows of 4 pixels: pointers to words, origins and runs; runs first .. last."""

    words: ir.Value
    origins: ir.Value
    runs: ir.Value
    first: ir.Value
    last: ir.Value


@contextmanager
def each_run(builder, windows):
    """Emit a loop over the runs of 4 windows; yield (pointers to the pixels' words, weight word, length)."""
    words, origins, runs, first, last = windows
    begin = [builder.load(builder.gep(origins, [const(p)])) for p in range(TILE)]
    with cgutils.for_range(builder, builder.sub(last, first)) as run:
        row = builder.mul(builder.add(first, run.index), const(3))
        at, weight, length = (builder.load(builder.gep(runs, [builder.add(row, const(i))])) for i in range(3))
        yield [builder.gep(words, [builder.add(start, at)]) for start in begin], weight, length


@intrinsic
def words_at(typingctx, address):
    """Turn the address of uint64 words into a pointer for `carray`: so a kernel takes any number of arrays."""
    signature = types.CPointer(types.uint64)(types.int64)

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], I64.as_pointer())

    return signature, codegen


@intrinsic
def prefer_wide(typingctx):
    """Let LLVM turn the loops of the calling function into vectors of 512 bits, where the machine has these."""

    def codegen(context, builder, signature, args):
        # A set of names that llvmlite knows, of which this is none: it is written as it is
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), codegen
