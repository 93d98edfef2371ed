"""Run kernels on threads, safely.

The tasks of a kernel (`schedule.py`) are done by one of three:

- `own`: a pool of threads that sleep between calls (`thread_pool.py`);
- `shared`: the threads of the OpenMP that PyTorch brought, where it is imported (`team.py`);
- `numba`: a loop on Numba's threads, where there is no futex. Its `workqueue` layer aborts the process when two Python
  threads use it at once, so there one lock is held around each call.

They are done by the caller alone where there is little work, for a while after threads came late, and in forked
children of a process in which threads were started, by whomever: they are not there in the child.
"""

import os
import sys
import threading
from functools import cache

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.ufunc import parallel

from ...core.forks import no_fork
from ...core.numba_threads import start
from ...core.recordings import RECORDINGS, recording
from ..llvm.vectors import I32, I64
from .atomics import WHY_NOT
from .jit import entry
from .schedule import NOTHING, dealer, version
from .team import Dealing, Team, ask, library_of
from .thread_pool import limited, pool

PIECES = 4
VARIABLE = "QUANTARRAY_THREADS"
FORCED = ("own", "numba")
_lock = threading.RLock()  # a signal handler may call the package while its thread holds it
_state = {"forked": False, "sought": False, "team": None}


def _after_fork():
    global _lock
    _lock = threading.RLock()
    _state["forked"] = _state["forked"] or parallel._is_initialized


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def layer():
    """Return the threading layer in use, or None before the first parallel kernel."""
    try:
        return numba.threading_layer()
    except ValueError:
        return None


@intrinsic
def _own(typingctx):
    """Return Numba's number of threads for the calling thread."""

    def codegen(context, builder, signature, args):
        number = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, []), "get_num_threads")
        return builder.zext(builder.call(number, []), I64)

    return types.int64(), codegen


@entry
def _number(pool, others):
    """Return Numba's number, or that of others' threads where it is less; fewer while a pool has it so."""
    threads = _own()
    if others:
        theirs = ask(others)
        threads = theirs if 1 < theirs < threads else threads
    return limited(pool, threads)


def _forced():
    """Return the scheduler that the environment asks for, or None."""
    asked = os.environ.get(VARIABLE) or None
    if asked not in (None, *FORCED):
        raise ValueError(f"{VARIABLE} must be {' or '.join(FORCED)}, got {asked!r}")
    return asked


@cache
def _alone():
    """Return the scheduler of calls that share no threads: the pool, or Numba's loop."""
    with no_fork:
        start()  # from here on there is a threading layer, and compiled code finds its function of the number
        chosen = None if _forced() == "numba" else pool()
        return Dealing(chosen.address, chosen.address, 0) if chosen else Dealing(dealer().ctypes.data, 0, 0)


def _find_team():
    """Look once for PyTorch's threads, after it was imported."""
    torch = sys.modules["torch"]
    if getattr(getattr(torch, "__spec__", None), "_initializing", False):
        return  # its libraries are not there yet
    with no_fork:
        library = library_of(torch) if _forced() is None and _alone().pool else None
        if library is not None:
            _state["team"] = Team(library, pool())
        _state["sought"] = True


def _dealing():
    if "torch" in sys.modules and not _state["sought"]:
        _find_team()
    team = _state["team"]
    return team.dealing if team is not None and team.is_ours() else _alone()


def described():
    """Say which threads do the work of calls from this thread, and why."""
    dealing, forced = _dealing(), f"{VARIABLE}={', '.join(FORCED)} forces one"
    if not dealing.pool:
        why = f"{VARIABLE} asks for it" if _forced() else f"there is no pool: {WHY_NOT}"
        return f"numba: a loop on Numba's threads ({layer()}), as {why}"
    if dealing.others:
        return f"shared: PyTorch's, as it is imported, for calls from this Python thread; own for others; {forced}"
    why = f"{VARIABLE} asks for it" if _forced() else "a process that imports PyTorch shares PyTorch's"
    return f"own: a pool whose threads sleep between calls; {why}; {forced}"


@cache
def _asking():
    """Return the function that Python calls for it: 0.03 us, where numba.get_num_threads takes 0.7."""
    return version(_number, (types.int64, types.int64)).entry_point


def count():
    """Return the number of threads that a kernel is spread over: one where more are not safe, or came late."""
    if _state["forked"]:
        return 1
    if RECORDINGS and recording() is not None:
        return allowed()  # what is recorded is run when threads come in time, too
    _, pool, others = _dealing()
    return _asking()(pool, others)


def most():
    """Return (number of threads for a row of kernels, where none come late; the pool that says when some do, or 0)."""
    if _state["forked"]:
        return 1, 0
    _, pool, others = _dealing()
    return _asking()(0, others), pool


def allowed():
    """Return the number of threads that calls of this Python thread may use, even if threads come late now."""
    _alone()
    return 1 if _state["forked"] else _asking()(0, 0)


def dealer_for(workers):
    """Return where the address of the function that deals pieces to `workers` threads is stored; 0 for Numba's loop."""
    deal, pooled, _ = _dealing()
    if pooled:
        pool().grow(workers)
    return deal if pooled else 0


def workers(work, least):
    """Return the number of threads for a kernel's tasks: one where `work` is less than `least`."""
    return count() if work >= least else 1


def pieces(tasks, workers):
    """Return the number of ranges of tasks: some for each thread, so that a late one does not hold all up."""
    return min(tasks, PIECES * workers)


def run(kernel, arguments, tasks, workers, parts=None, kind=None, held=NOTHING):
    """Run all tasks of a kernel: here, or on several threads, in `dealt` pieces if that is set.

    `kind` and what is `held` are those of `schedule.Kernel`. One call at a time where they are not safe otherwise.
    """
    if RECORDINGS and (planned := recording()) is not None:
        planned.launch(kernel, arguments, tasks, workers, pieces(tasks, workers) if parts is None else parts, held)
        return
    if workers == 1:
        if kind in kernel.versions:  # what `kernel` does, without its call
            call, address = kernel.versions[kind]
            call(arguments, held.address, address, tasks, 1, 1, kernel.takes, 0)
        else:
            kernel(arguments, kind, tasks, 1, 1, 0, held)
        return
    parts = pieces(tasks, workers) if parts is None else parts
    deal, pooled, _ = _dealing()
    call = arguments, kind, tasks, parts, workers, deal, held
    if pooled:
        pool().grow(workers)
        kernel(*call)
    elif layer() in ("omp", "tbb"):
        kernel(*call)
    else:
        kernel.prepare(arguments, kind, held)  # which waits for `no_fork`, and so may its holder for this lock
        with _lock:
            kernel(*call)
