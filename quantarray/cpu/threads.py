"""How kernels are spread over threads, safely.

The tasks of a kernel (`deal.py`) are done by the caller alone where there is little work, and in forked children of a
process in which Numba's threads were started, by whomever: they are not there in the child, for which GNU OpenMP would
wait, and Numba's own loops end it. Numba's `workqueue` layer aborts the process when two Python threads use it at once,
so there one lock is held around each call.
"""

import os
import threading
from functools import cache

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.ufunc import parallel

from ..core.forks import no_fork
from .compiled import entry
from .deal import NOTHING, dealer, version
from .micro.vectors import I32, I64
from .team import team

PIECES = 4
_lock = threading.Lock()
_state = {"forked": False}


def _after_fork():
    global _lock
    _lock = threading.Lock()
    _state["forked"] = _state["forked"] or parallel._is_initialized


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def layer():
    """The threading layer in use, or None before the first parallel kernel."""
    try:
        return numba.threading_layer()
    except ValueError:
        return None


@intrinsic
def _own(typingctx):
    """Numba's number of threads for the calling thread."""

    def codegen(context, builder, signature, args):
        number = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, []), "get_num_threads")
        return builder.zext(builder.call(number, []), I64)

    return types.int64(), codegen


@entry
def _number():
    return _own()


@cache
def _asking():
    """What Python calls for that: 0.03 us, where numba.get_num_threads takes 0.7."""
    with no_fork:
        numba.get_num_threads()  # makes the function known to compiled ones
    return version(_number, ()).entry_point


def count():
    """How many threads a kernel is spread over: one where more are not safe."""
    return 1 if _state["forked"] else _asking()()


def workers(work, least):
    """How many threads a kernel's tasks are for: one where `work` is less than `least`."""
    return count() if work >= least else 1


def pieces(tasks, workers):
    """How many ranges of tasks are dealt out: some for each thread, so that a late one does not hold all up."""
    return min(tasks, PIECES * workers)


@cache
def _spreader():
    """(the address of what deals pieces out to threads, whether several calls may be in it at once)."""
    with no_fork:
        numba.get_num_threads()  # from here on there is a threading layer
        return team() or dealer(), layer() in ("omp", "tbb")


def run(kernel, arguments, tasks, workers, dealt=None, kind=None, held=NOTHING):
    """Do all tasks of a kernel: here, or by more threads than one, in `dealt` pieces if that is given.

    `kind` and what is `held` are the kernel's (`deal.Kernel`). One call at a time unless the threading layer is known
    to be thread safe.
    """
    if workers == 1:
        kernel(arguments, kind, tasks, 1, 1, 0, held)
        return
    dealt = pieces(tasks, workers) if dealt is None else dealt
    deal, safe = _spreader()
    given = arguments, kind, tasks, dealt, workers, deal, held
    if safe:
        kernel(*given)
        return
    with _lock:
        kernel(*given)
