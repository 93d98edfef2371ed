"""How kernels are spread over threads, safely.

The tasks of a kernel (`deal.py`) are done by the caller alone where there is little work, and in forked children of a
process that used threads already: GNU OpenMP would kill the child. Numba's `workqueue` layer aborts the process when
two Python threads use it at once, so there one lock is held around each call.
"""

import os
import threading

import numba

from .deal import dealer

PIECES = 4
_lock = threading.Lock()
_state = {"used": False, "forked": False}


def _after_fork():
    global _lock
    _lock = threading.Lock()
    _state["forked"] = _state["forked"] or _state["used"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def layer():
    """The threading layer in use, or None before the first parallel kernel."""
    try:
        return numba.threading_layer()
    except ValueError:
        return None


def count():
    """How many threads a kernel is spread over: one where more are not safe."""
    return 1 if _state["forked"] else numba.get_num_threads()


def workers(work, least):
    """How many threads a kernel's tasks are for: one where `work` is less than `least`."""
    return count() if work >= least else 1


def pieces(tasks, workers):
    """How many ranges of tasks are dealt out: some for each thread, so that a late one does not hold all up."""
    return min(tasks, PIECES * workers)


def run(kernel, arguments, tasks, workers, dealt=None, kind=None):
    """Do all tasks of a kernel: here, or by more threads than one, in `dealt` pieces if that is given.

    `kind` is the kernel's (`deal.Kernel`). One call at a time unless the threading layer is known to be thread safe.
    """
    if workers == 1:
        kernel(arguments, kind, tasks, 1, 1, 0)
        return
    _state["used"] = True
    dealt = pieces(tasks, workers) if dealt is None else dealt
    given = arguments, kind, tasks, dealt, workers, dealer()
    if layer() in ("omp", "tbb"):
        kernel(*given)
        return
    with _lock:
        kernel(*given)
