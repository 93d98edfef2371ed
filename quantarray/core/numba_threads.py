"""Numba's threading layer, which has its numbers of threads, started once."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from .forks import no_fork


@cache
def start() -> None:
    """Start Numba's threading layer; OpenMP's and PyTorch's numbers of threads stay as they are.

    Numba sets that number, of an OpenMP that PyTorch may run on: `torch.set_num_threads(1)` was gone with the first
    call of a kernel, and PyTorch's calls came to wait for each other's threads.
    """
    with no_fork, _kept():
        import numba

        numba.get_num_threads()


@contextmanager
def _kept() -> Iterator[None]:
    """Put OpenMP's number back, and PyTorch's, whose OpenMP may be another one of the same name."""
    torch = sys.modules.get("torch")
    ask = getattr(torch, "get_num_threads", None)  # not while PyTorch is being imported
    theirs = None if ask is None else ask()
    try:
        from numba.np.ufunc import omppool  # type: ignore[attr-defined]
    except ImportError:  # another layer
        yield
        return
    openmp = ctypes.CDLL(omppool.__file__)
    before = openmp.omp_get_max_threads()
    yield
    openmp.omp_set_num_threads(before)
    if torch is not None and ask is not None and ask() != theirs:
        torch.set_num_threads(theirs)
