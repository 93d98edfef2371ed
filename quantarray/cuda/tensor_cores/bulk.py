"""Copies of a whole piece of memory by one thread (`cp.async.bulk`, compute capability 9.0), and barriers to wait for.

A barrier's phase is over when its one arrival has come and as many bytes as that announced have been written; then the
next phase begins, of the other parity. As for `tensor`, tests put models of what the PTX manual says in these
functions' places: "Data Movement and Conversion Instructions: cp.async.bulk", and "mbarrier".
"""

from llvmlite import ir

from ..runtime.target import intrinsic, types
from .ptx import pointer, shared_address

_BIT32, _VOID = ir.IntType(32), ir.VoidType()


@intrinsic
def start(typing, barriers, i):
    """Start barrier uint64 barriers[i] of shared memory, for one arrival a phase; its first phase has parity 0.

    The async proxy sees it after a fence (`warpgroup.fence_copies`), other threads after a barrier of the block.
    """

    def generate(context, builder, signature, args):
        place = shared_address(context, builder, signature.args[0], *args)
        _run(builder, "mbarrier.init.shared::cta.b64 [$0], 1;", "r", place)
        return context.get_dummy_value()

    return types.void(barriers, types.int64), generate


@intrinsic
def expect(typing, barriers, i, nbytes):
    """Arrive at barrier i, whose phase then also waits for `nbytes` bytes."""

    def generate(context, builder, signature, args):
        place = shared_address(context, builder, signature.args[0], *args[:2])
        code = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        _run(builder, code, "r,r", place, builder.trunc(args[2], _BIT32))
        return context.get_dummy_value()

    return types.void(barriers, types.int64, types.int64), generate


@intrinsic
def copy(typing, into, at, source, first, nbytes, barriers, i):
    """Start to copy `nbytes` bytes from source[first] of global memory to into[at] of shared memory, both indexed flat.

    Size and addresses are multiples of 16 bytes. Barrier i counts the bytes written. Products read them without a
    fence of a thread.
    """

    def generate(context, builder, signature, args):
        into, at, source, first, nbytes, barriers, i = args
        to = shared_address(context, builder, signature.args[0], into, at)
        of = pointer(context, builder, signature.args[2], source, first)
        barrier = shared_address(context, builder, signature.args[5], barriers, i)
        code = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];"
        _run(builder, code, "r,l,r,r", to, of, builder.trunc(nbytes, _BIT32), barrier)
        return context.get_dummy_value()

    whole = types.int64
    return types.void(into, whole, source, whole, whole, barriers, whole), generate


@intrinsic
def arrived(typing, barriers, i, parity):
    """Return True once the latest phase of that parity is over; it may wait for that a while."""

    def generate(context, builder, signature, args):
        place = shared_address(context, builder, signature.args[0], *args[:2])
        code = "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.b32 $0, 1, 0, p; }"
        kind = ir.FunctionType(_BIT32, [_BIT32, _BIT32])
        asm = ir.InlineAsm(kind, code, "=r,r,r,~{memory}", side_effect=True)
        over = builder.call(asm, [place, builder.trunc(args[2], _BIT32)])
        return builder.icmp_unsigned("!=", over, ir.Constant(_BIT32, 0))

    return types.boolean(barriers, types.int64, types.int64), generate


def _run(builder, code, constraints, *operands):
    kind = ir.FunctionType(_VOID, [operand.type for operand in operands])
    builder.call(ir.InlineAsm(kind, code, constraints + ",~{memory}", side_effect=True), operands)
