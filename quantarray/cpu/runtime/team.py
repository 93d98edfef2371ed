"""Run calls on the team of threads of an OpenMP that another package loaded, as compiled loops of C do.

PyTorch's threads wait in a loop for some milliseconds after each of its calls. Threads of another pool would have to
take their processors from them; these threads are as good as running (docs/decisions/0023).
"""

import ctypes
import os
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.typing import signature as signed
from numba.extending import intrinsic

from ..llvm.vectors import I8, I32, I64
from .atomics import now, number, on_stack, set_number
from .jit import stored
from .schedule import address_of, work, workers_of
from .thread_pool import note_wait

_ADDRESS, _VOID = I8.as_pointer(), ir.VoidType()
_BODY = ir.FunctionType(_VOID, [_ADDRESS])
_PARALLEL = ir.FunctionType(_VOID, [_BODY.as_pointer(), _ADDRESS, I32, I32])
_ASK = ir.FunctionType(I32, [])
_DEAL = ir.FunctionType(_ADDRESS, [I64] * 6)
# Numbers of a team: the address of the dealing function (`deal`), the thread pool, and functions of the library
_FUNCTION, _POOL, _START, _THREAD, _THREADS = range(5)
_SYMBOLS = {_START: "GOMP_parallel", _THREAD: "omp_get_thread_num", _THREADS: "omp_get_max_threads"}


@intrinsic
def ask(typingctx, function):
    """Call a function of C that takes nothing and returns an int."""

    def codegen(context, builder, signature, args):
        return builder.sext(builder.call(builder.inttoptr(args[0], _ASK.as_pointer()), []), I64)

    return types.int64(types.int64), codegen


@intrinsic
def deal_by(typingctx, function, held, dealt, tasks, takes, deal):
    """Call the dealing function, of a thread pool or of a team, whose address is stored at `deal`."""

    def codegen(context, builder, signature, args):
        deal = builder.load(builder.inttoptr(args[-1], _DEAL.as_pointer().as_pointer()))
        builder.call(deal, args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), codegen


@intrinsic
def _start_team(typingctx, start, job, workers):
    """Call `_work` of a job by so many threads."""

    def codegen(context, builder, signature, args):
        start = builder.inttoptr(args[0], _PARALLEL.as_pointer())
        job = builder.inttoptr(args[1], _ADDRESS)
        builder.call(start, [_body(context, builder.module), job, builder.trunc(args[2], I32), ir.Constant(I32, 0)])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 3), codegen


def _body(context, module):
    """Build the function that each thread of a team calls: `_work` of a job, for C."""
    body = ir.Function(module, _BODY, module.get_unique_name("of_a_thread"))
    body.linkage = "internal"
    builder = ir.IRBuilder(body.append_basic_block())
    takes = signed(types.none, types.int64)
    compiled = context.compile_subroutine(builder, _work, takes)
    context.call_internal_no_propagate(builder, compiled.fndesc, takes, [builder.ptrtoint(body.args[0], I64)])
    builder.ret_void()
    return body


def _work(job):
    """Run one thread's part of a team's job. Thread 0, the caller, also stores how long it worked."""
    begin, thread = now(), ask(number(job, 5))
    work(number(job, 0), number(job, 1), number(job, 2), number(job, 3), number(job, 4), thread)
    if thread == 0:
        set_number(job, 6, now() - begin)


@stored
@njit(nogil=True)
def _deal(function, held, dealt, tasks, takes, team):
    workers, pool = workers_of(dealt), number(team, _POOL)
    if workers == ask(number(team, _THREADS)):
        start = now()
        job = on_stack((function, held, dealt, tasks, takes, number(team, _THREAD), 0))
        _start_team(number(team, _START), job, workers)
        worked = number(job, 6)
        note_wait(pool, workers, worked, now() - start - worked, False)  # threads may be late to begin and to end
    else:
        # A team of another size than the last one's has its threads ended and started
        deal_by(function, held, dealt, tasks, takes, pool)


class Dealing(NamedTuple):
    """A scheduler of a kernel's tasks on threads."""

    deal: int  # of `Kernel`
    pool: int  # the thread pool's memory, or 0
    others: int  # the function that says how many threads another library's calls take, or 0


class Team:
    """A team of PyTorch's threads, for calls from one Python thread: the first that makes one.

    OpenMP has a team for each thread that calls. PyTorch's calls mostly come from one thread, and teams for others
    would start more threads.
    """

    def __init__(self, library, pool):
        self._memory = np.zeros(len(_SYMBOLS) + 2, np.int64)
        self._memory[_FUNCTION] = address_of(_deal, (types.int64,) * 6)
        self._memory[_POOL] = pool.address
        for i, name in _SYMBOLS.items():
            self._memory[i] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        self.dealing = Dealing(self._memory.ctypes.data, pool.address, int(self._memory[_THREADS]))
        self._thread = threading.current_thread()

    def is_ours(self):
        """True in the Python thread whose calls the team does, which becomes this one where that has ended."""
        if self._thread.ident != threading.get_ident():
            if self._thread.is_alive():
                return False
            self._thread = threading.current_thread()
        return True


def library_of(torch):
    """Find the OpenMP that PyTorch's kernels call, or None where it has none: there may be several in a process."""
    path = Path(getattr(torch, "__file__", None) or ".").parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path), os.RTLD_NOLOAD | os.RTLD_NOW)  # finds names in what it was linked to as well
        return library if all(hasattr(library, name) for name in _SYMBOLS.values()) else None
    except OSError:
        return None
