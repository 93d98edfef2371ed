"""Dealing pieces of work out to threads: each takes the next piece when it has done one.

Numba gives each thread its share of a `prange` before the loop begins, whatever `set_parallel_chunksize` says, so a
thread that starts late, or on a core that others use too, would hold all up; here they take pieces from one counter.
A kernel for tasks first .. last, its last two arguments, has a twin that `threads.run` calls:

    @entry
    def _pack_parallel(codes, out, tasks, pieces, workers, dealer):
        deal(_pack_rows, (codes, out), tasks, pieces, workers, dealer)

The `prange` is in one function, `_deal`, which is given the twins' kernels and arguments by address. With one in each
twin Numba compiles the kernel four times, on its own and in three functions around it (docs/decisions/0016).
"""

from functools import cache

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from .compiled import inline
from .micro.vectors import I8, I32, I64, const, pointer

_VOID, _ADDRESS = ir.VoidType(), I8.as_pointer()
_KERNEL = ir.FunctionType(_VOID, [_ADDRESS, I64, I64])
_DEALER = ir.FunctionType(_ADDRESS, [I64] * 5)


@inline
def share(piece, pieces, tasks):
    """(first, last): the tasks of a piece, as many as of any other or one fewer."""
    return tasks * piece // pieces, tasks * (piece + 1) // pieces


@intrinsic
def _next_piece(typingctx, dealt):
    """The number of the next piece, from 0 on; no two threads get the same."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", pointer(context, builder, signature, args, 0), const(1), "monotonic")

    return types.int64(dealt), codegen


@intrinsic
def _run(typingctx, kernel, arguments, first, last):
    """Call what `deal` has made of a kernel, which lies at an address."""

    def codegen(context, builder, signature, args):
        function = builder.inttoptr(args[0], _KERNEL.as_pointer())
        builder.call(function, [builder.inttoptr(args[1], _ADDRESS), *args[2:]])
        return context.get_dummy_value()

    return types.void(kernel, arguments, first, last), codegen


@njit(cache=True, parallel=True, nogil=True)
def _deal(kernel, arguments, tasks, pieces, workers):
    dealt = np.empty(1, np.int64)  # `np.zeros` would be a parallel loop of its own
    dealt[0] = 0
    for _ in prange(workers):
        piece = _next_piece(dealt)
        while piece < pieces:
            first, last = share(piece, pieces, tasks)
            _run(kernel, arguments, first, last)
            piece = _next_piece(dealt)


@cache
def dealer():
    """The address of `_deal`."""
    takes = (types.int64,) * 5
    _deal.compile(takes)
    made = _deal.overloads[takes]
    return made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)


def _call_of_a_piece(context, module, fndesc, called, held):
    """A function of an address, first and last that calls a kernel.

    Two pointers lie at the address, a struct `held`: to the kernel's other arguments, and to where 1 goes if it fails.
    """
    name = module.get_unique_name(f"{fndesc.llvm_func_name}.of_a_piece")
    function = ir.Function(module, _KERNEL, name)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    address, *tasks = function.args
    given, failed = cgutils.unpack_tuple(builder, builder.load(builder.bitcast(address, held.as_pointer())))
    arguments = cgutils.unpack_tuple(builder, builder.load(given))
    status, _ = context.call_internal_no_propagate(builder, fndesc, called, [*arguments, *tasks])
    with builder.if_then(status.is_error):
        builder.store(ir.Constant(I32, 1), failed)
    builder.ret_void()
    return function


@intrinsic
def deal(typingctx, kernel, arguments, tasks, pieces, workers, dealer):
    """kernel(*arguments, first, last) for all tasks in so many pieces, by so many threads. What it returns is dropped.

    Raises MemoryError where a call fails: kernels raise nothing else.
    """
    called = kernel.get_call_type(typingctx, (*arguments.types, types.int64, types.int64), {})

    def codegen(context, builder, signature, args):
        made = kernel.dispatcher.overloads[called.args]
        context.active_code_library.add_linking_library(made.library)
        given = cgutils.alloca_once_value(builder, args[1])
        failed = cgutils.alloca_once_value(builder, ir.Constant(I32, 0))
        held = cgutils.pack_struct(builder, (given, failed))
        place = cgutils.alloca_once_value(builder, held)
        function = _call_of_a_piece(context, builder.module, made.fndesc, called, held.type)
        run = builder.inttoptr(args[5], _DEALER.as_pointer())
        builder.call(run, [builder.ptrtoint(function, I64), builder.ptrtoint(place, I64), *args[2:5]])
        with builder.if_then(builder.trunc(builder.load(failed), ir.IntType(1))):
            context.call_conv.return_user_exc(builder, MemoryError, ("quantarray: no memory for a kernel's buffers",))
        return context.get_dummy_value()

    return types.void(kernel, arguments, tasks, pieces, workers, dealer), codegen
