"""Kernels, and dealing their work out to threads: each takes another piece when it has done one.

    @Kernel
    def _pack_rows(codes, out, first, last): ...  # tasks first .. last, its last two arguments

    @partial(Kernel, takes=True)
    def _conv_range(x, .., dealt, worker): ...  # tasks that it takes one by one: chunk, .. = next_stretch(dealt, ..)

`threads.run` calls kernels. One that takes its tasks makes what it needs ready once, however many pieces there are.

Numba gives each thread its share of a `prange` before the loop begins, whatever `set_parallel_chunksize` says, so a
thread that starts late, or on a core that others use too, would hold all up; here they take piece after piece of their
own share, whose memory their cache may still hold, and then of others' (docs/decisions/0015).

What Python calls, `_call`, and the one `prange`, in `_deal`, know kernels by their addresses, so that each kernel is
compiled once: a function around it that Python calls would have it compiled again as a part of itself, and one with a
`prange` three times more (docs/decisions/0016).
"""

from functools import cache

import numpy as np
from llvmlite import ir
from numba import njit, prange, typeof, types
from numba._dispatcher import compute_fingerprint
from numba.core import cgutils
from numba.extending import intrinsic

from .compiled import entry, inline, inner, kept
from .micro.vectors import I8, I32, I64, const, pointer

_VOID, _ADDRESS = ir.VoidType(), I8.as_pointer()
_PIECE = ir.FunctionType(_VOID, [_ADDRESS, I64, I64])
_DEAL = ir.FunctionType(_ADDRESS, [I64] * 6)
_LINE = 8  # numbers of a cache line
_NUMBERS = (types.int64,) * 6  # what `_deal` takes, and `_call` besides arguments


class Kernel:
    """A function that does the tasks first .. last, its last two arguments, and returns nothing.

    If it `takes` its tasks, these arguments are what `next_task` needs.
    """

    def __init__(self, function, takes=False):
        self.compiled = inner(function)
        self._takes = int(takes)
        self._made = {}

    def __call__(self, arguments, kind, tasks, pieces, workers, deal):
        """The function of `arguments` for all tasks in so many pieces, one of them here, or more by `deal`.

        `kind` tells types of arguments apart; None where these have to be looked at, 0.2 us each with those in tuples.
        Raises MemoryError where a call fails: kernels raise nothing else.
        """
        if kind is None:
            kind = compute_fingerprint(arguments)
        call, address = self._made.get(kind) or self._make(kind, arguments)
        call(arguments, address, tasks, pieces, workers, self._takes, deal)

    def _make(self, kind, arguments):
        """What calls such a function from Python, past Numba's look at the arguments' types, and its address."""
        given = typeof(arguments)
        made = _compiled(self.compiled, (*given.types, types.int64, types.int64))
        assert made.signature.return_type == types.none
        address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
        found = _compiled(_call, (given, *_NUMBERS)).entry_point, address
        self._made[kind] = found
        return found


def _compiled(function, takes):
    function.compile(takes)
    return function.overloads[takes]


@inline
def share(piece, pieces, tasks):
    """(first, last): the tasks of a piece, as many as of any other or one fewer."""
    return tasks * piece // pieces, tasks * (piece + 1) // pieces


@intrinsic
def _address(typingctx, array):
    def codegen(context, builder, signature, args):
        return builder.ptrtoint(pointer(context, builder, signature, args, 0), I64)

    return types.int64(array), codegen


@intrinsic
def _number(typingctx, address, i):
    def codegen(context, builder, signature, args):
        return builder.load(builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]]))

    return types.int64(address, i), codegen


@intrinsic
def _count_up(typingctx, address, i):
    """The i-th number at an address, which then is one more: no two threads get the same."""

    def codegen(context, builder, signature, args):
        place = builder.gep(builder.inttoptr(args[0], I64.as_pointer()), [args[1]])
        return builder.atomic_rmw("add", place, const(1), "monotonic")

    return types.int64(address, i), codegen


@inner
def next_task(dealt, worker):
    """The next piece for a thread, or -1: of its own share, then of others'.

    At the address `dealt` lie the numbers of workers and of pieces, and a cache line on, a line each, the number of the
    piece that comes next of each worker's share.
    """
    workers, pieces = _number(dealt, 0), _number(dealt, 1)
    for other in range(workers):
        whose = (worker + other) % workers
        piece = _count_up(dealt, (1 + whose) * _LINE)
        if piece < share(whose, workers, pieces)[1]:
            return piece
    return -1


@intrinsic
def _run(typingctx, function, held, first, last):
    """Call what `_spread` has made of a kernel, which lies at an address."""

    def codegen(context, builder, signature, args):
        run = builder.inttoptr(args[0], _PIECE.as_pointer())
        builder.call(run, [builder.inttoptr(args[1], _ADDRESS), *args[2:]])
        return context.get_dummy_value()

    return types.void(function, held, first, last), codegen


@kept
@njit(cache=True, parallel=True, nogil=True)
def _deal(function, held, tasks, pieces, workers, takes):
    dealt = np.empty((1 + workers) * _LINE, np.int64)
    dealt[0], dealt[1] = workers, pieces
    for worker in range(workers):  # `np.zeros` would be a parallel loop of its own
        dealt[(1 + worker) * _LINE] = share(worker, workers, pieces)[0]
    for worker in prange(workers):
        if takes:
            _run(function, held, _address(dealt), worker)
        else:
            piece = next_task(_address(dealt), worker)
            while piece >= 0:
                first, last = share(piece, pieces, tasks)
                _run(function, held, first, last)
                piece = next_task(_address(dealt), worker)


@cache
def dealer():
    """The address of `_deal`."""
    made = _compiled(_deal, _NUMBERS)
    return made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name)


def _of_a_piece(context, module, types_of_arguments, held):
    """A function of an address and two numbers that calls a kernel.

    At the address lies a struct `held`: the kernel's address, and pointers to its other arguments and to where 1 goes
    if it fails.
    """
    takes = (*types_of_arguments, types.int64, types.int64)
    function = ir.Function(module, _PIECE, module.get_unique_name("of_a_piece"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    address, *tasks = function.args
    kernel, given, failed = cgutils.unpack_tuple(builder, builder.load(builder.bitcast(address, held.as_pointer())))
    called = builder.inttoptr(kernel, context.call_conv.get_function_type(types.none, takes).as_pointer())
    arguments = [*cgutils.unpack_tuple(builder, builder.load(given)), *tasks]
    status, _ = context.call_conv.call_function(builder, called, types.none, takes, arguments)
    with builder.if_then(status.is_error):
        builder.store(ir.Constant(I32, 1), failed)
    builder.ret_void()
    return function


@intrinsic
def _spread(typingctx, arguments, kernel, tasks, pieces, workers, takes, deal):
    """All tasks of the kernel at an address: one piece at once, more by what lies at the address `deal`."""

    def codegen(context, builder, signature, args):
        given = cgutils.alloca_once_value(builder, args[0])
        failed = cgutils.alloca_once_value(builder, ir.Constant(I32, 0))
        held = cgutils.pack_struct(builder, (args[1], given, failed))
        place = cgutils.alloca_once_value(builder, held)
        function = _of_a_piece(context, builder.module, signature.args[0].types, held.type)
        with builder.if_else(builder.icmp_signed("==", args[3], const(1))) as (one, more):
            with one:
                dealt = cgutils.alloca_once(builder, I64, 2 * _LINE)  # to one worker
                for i, number in ((0, const(1)), (1, args[2]), (_LINE, const(0))):
                    builder.store(number, builder.gep(dealt, [const(i)]))
                takes = builder.icmp_signed("!=", args[5], const(0))
                first = builder.select(takes, builder.ptrtoint(dealt, I64), const(0))
                last = builder.select(takes, const(0), args[2])
                builder.call(function, [builder.bitcast(place, _ADDRESS), first, last])
            with more:
                run = builder.inttoptr(args[6], _DEAL.as_pointer())
                builder.call(run, [builder.ptrtoint(function, I64), builder.ptrtoint(place, I64), *args[2:6]])
        with builder.if_then(builder.trunc(builder.load(failed), ir.IntType(1))):
            context.call_conv.return_user_exc(builder, MemoryError, ("quantarray: no memory for a kernel's buffers",))
        return context.get_dummy_value()

    return types.void(arguments, kernel, tasks, pieces, workers, takes, deal), codegen


@entry
def _call(arguments, kernel, tasks, pieces, workers, takes, deal):
    _spread(arguments, kernel, tasks, pieces, workers, takes, deal)
