"""How kernels are spread over threads, safely.

A kernel is a function `range(..., first, last)` over independent tasks, and a twin that deals them out (`deal.py`). The
serial one runs where there is little work, and in forked children of a process that used threads already: GNU
OpenMP would kill the child. Numba's `workqueue` layer aborts the process when two Python threads use it at once, so
there one lock is held around each call.
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


def serial(work, least):
    """True where a kernel should not be spread over threads: `work` is below `least`, or threads are not safe."""
    return work < least or count() == 1


def pieces(tasks):
    """How many ranges of tasks are dealt out: some for each thread, so that a late one does not hold all up."""
    return min(tasks, PIECES * numba.get_num_threads())


def run(kernel, *args):
    """Call a parallel kernel, one at a time unless the threading layer is known to be thread safe.

    It has two arguments more than `args`: how many threads there are, and what deals work out to them.
    """
    _state["used"] = True
    args = *args, numba.get_num_threads(), dealer()
    if layer() in ("omp", "tbb"):
        return kernel(*args)
    with _lock:
        return kernel(*args)
