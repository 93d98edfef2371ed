"""Atomic numbers, the clock and Linux's futex, for compiled code: all take addresses as int64.

`load`, `store`, `swap` and `compare_swap` are of the 32 bits at an address, as a futex is; `number` and `set_number` of
64 bits that only one thread uses at a time.
"""

import platform
import sys

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from ..llvm.vectors import I8, I32, I64, const

_SYSCALLS = {"x86_64": 202, "aarch64": 98}  # of futex
_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", []), "aarch64": ("llvm.aarch64.hint", [ir.Constant(I32, 1)])}
_MACHINE = platform.machine()
_WAIT, _WAKE, _PRIVATE = 0, 1, 128
_MONOTONIC = 1
_LIBC = {
    "clock_gettime": "quantarray_clock",
    "sched_getcpu": "quantarray_processor",
    "syscall": "quantarray_syscall",
}


def _find():
    """Make functions of libc known to LLVM; return why they cannot be used here, or ""."""
    if sys.platform != "linux" or _MACHINE not in _SYSCALLS or sys.maxsize < 2**32:
        return f"it needs 64-bit Linux on {' or '.join(_SYSCALLS)}, this is {sys.platform} on {_MACHINE}"
    _ = cpu_target.target_context  # once it is there, LLVM finds the symbols of this process
    for theirs, ours in _LIBC.items():
        address = llvmlite.binding.address_of_symbol(theirs)
        if address is None:
            return f"this C library has no {theirs}"
        llvmlite.binding.add_symbol(ours, address)
    return ""


WHY_NOT = _find()


def _word(builder, address, kind=I32):
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load(typingctx, address):
    def codegen(context, builder, signature, args):
        return builder.load_atomic(_word(builder, args[0]), "acquire", 4)

    return types.int32(types.int64), codegen


@intrinsic
def store(typingctx, address, value):
    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _word(builder, args[0]), "release", 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), codegen


@intrinsic
def swap(typingctx, address, value):
    """Store a value and return the one before."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("xchg", _word(builder, args[0]), args[1], "acq_rel")

    return types.int32(types.int64, types.int32), codegen


@intrinsic
def compare_swap(typingctx, address, old, new):
    """Store `new` where `old` is stored: True if it was."""

    def codegen(context, builder, signature, args):
        outcome = builder.cmpxchg(_word(builder, args[0]), args[1], args[2], "acq_rel", "acquire")
        return builder.extract_value(outcome, 1)

    return types.boolean(types.int64, types.int32, types.int32), codegen


@intrinsic
def number(typingctx, address, i):
    """Load the i-th of the 64-bit numbers at an address."""

    def codegen(context, builder, signature, args):
        return builder.load(builder.gep(_word(builder, args[0], I64), [args[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def set_number(typingctx, address, i, value):
    def codegen(context, builder, signature, args):
        builder.store(args[2], builder.gep(_word(builder, args[0], I64), [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def on_stack(typingctx, values):
    """Return the address of a tuple of int64, which is valid until the calling function returns."""

    def codegen(context, builder, signature, args):
        place = cgutils.alloca_once(builder, args[0].type)
        builder.store(args[0], place)
        return builder.ptrtoint(place, I64)

    return types.int64(values), codegen


@intrinsic
def pause(typingctx):
    """Tell the processor that this thread waits in a loop."""

    def codegen(context, builder, signature, args):
        name, arguments = _PAUSES[_MACHINE]
        kind = ir.FunctionType(ir.VoidType(), [one.type for one in arguments])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def now(typingctx):
    """Return nanoseconds of a clock that only goes forward; 0 where `WHY_NOT` has a reason."""

    def codegen(context, builder, signature, args):
        if WHY_NOT:
            return const(0)
        place = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))
        kind = ir.FunctionType(I32, [I32, I8.as_pointer()])
        clock = cgutils.get_or_insert_function(builder.module, kind, "quantarray_clock")
        builder.call(clock, [ir.Constant(I32, _MONOTONIC), builder.bitcast(place, I8.as_pointer())])
        seconds, rest = cgutils.unpack_tuple(builder, builder.load(place), 2)
        return builder.add(builder.mul(seconds, const(10**9)), rest)

    return types.int64(), codegen


@intrinsic
def processor(typingctx):
    """Return the number of the processor that this thread runs on."""

    def codegen(context, builder, signature, args):
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, []), "quantarray_processor")
        return builder.sext(builder.call(function, []), I64)

    return types.int64(), codegen


def _futex(builder, address, operation, value, timeout):
    kind = ir.FunctionType(I64, [I64] * 7)
    syscall = cgutils.get_or_insert_function(builder.module, kind, "quantarray_syscall")
    fixed = const(_SYSCALLS[_MACHINE]), address, const(operation | _PRIVATE)
    builder.call(syscall, [*fixed, value, timeout, const(0), const(0)])


@intrinsic
def sleep_at(typingctx, address, value):
    """Sleep until `wake` is called for an address, unless another value than this one is stored there."""

    def codegen(context, builder, signature, args):
        _futex(builder, args[0], _WAIT, builder.zext(args[1], I64), const(0))
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), codegen


@intrinsic
def nap_at(typingctx, address, value, ns):
    """Sleep as `sleep_at`, for less than a second."""

    def codegen(context, builder, signature, args):
        time = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))
        builder.store(cgutils.pack_array(builder, [const(0), args[2]]), time)
        _futex(builder, args[0], _WAIT, builder.zext(args[1], I64), builder.ptrtoint(time, I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int32, types.int64), codegen


@intrinsic
def wake(typingctx, address):
    """Wake the thread that sleeps at an address."""

    def codegen(context, builder, signature, args):
        _futex(builder, args[0], _WAKE, const(1), const(0))
        return context.get_dummy_value()

    return types.void(types.int64), codegen
