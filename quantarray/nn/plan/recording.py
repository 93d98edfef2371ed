"""Record which kernels a thread launches, with their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ...core.forks import no_fork
from ..operators.movement import order_in_memory


@cache
def runtime() -> Any:
    """Import what runs kernels on the CPU, when a network is first prepared: it imports Numba."""
    with no_fork:
        from ...cpu.runtime import driver, launch, threads
    return SimpleNamespace(Driver=driver.Driver, Launch=launch.Launch, threads=threads)


def root(a: Array) -> Array:
    """Return the array that owns the memory of a view."""
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a


def address(a: Array) -> int:
    """Return the address of an array's first byte."""
    return int(a.__array_interface__["data"][0])


def bytes_of(a: Array) -> Array:
    """Return all bytes of an array that owns its memory, in order: a view, or a copy where it has gaps."""
    whole = np.asarray(a.transpose(order_in_memory(a)), order="C")
    return np.frombuffer(whole.data, np.uint8) if a.nbytes else np.empty(0, np.uint8)


def replaced(value: Any, by: Callable[[Array], Any]) -> Any:
    """Replace each array in a tuple of tuples, arrays and numbers."""
    if isinstance(value, np.ndarray):
        return by(value)
    if isinstance(value, tuple):
        items = [replaced(item, by) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def parts_of(value: Any) -> Iterator[Any]:
    """Yield the arrays and numbers of a tuple of tuples, in order."""
    if isinstance(value, tuple):
        for item in value:
            yield from parts_of(item)
    else:
        yield value


class Launched:
    """A launch as it was recorded: the kernel, its arguments, which of their arrays could be written, and the cut.

    `begins` has the bytes of each writable array's memory as they were before.
    """

    def __init__(self, kernel: Any, arguments: Any, tasks: int, workers: int, pieces: int, held: Any) -> None:
        self.kernel, self.arguments, self.held = kernel, arguments, held
        self.cut = tasks, pieces, workers
        arrays = [part for part in parts_of(arguments) if isinstance(part, np.ndarray)]
        self.arrays = arrays
        self.writable = [a.flags.writeable for a in arrays]  # packed results are locked once they are there
        self.begins = {id(root(a)): bytes_of(root(a)).copy() for a in arrays if a.flags.writeable}

    def changed(self, owner: Array) -> bool:
        """True if the bytes of a writable array's memory are no longer as they were before the launch."""
        return not np.array_equal(self.begins[id(owner)], bytes_of(owner))


@contextmanager
def recording() -> Iterator[list[Launched]]:
    """Return a list of the launches that this thread makes inside, which run as always."""
    threads = runtime().threads
    launches: list[Launched] = []

    def record(kernel: Any, arguments: Any, tasks: int, workers: int, pieces: int | None, held: Any) -> None:
        dealt = threads.pieces(tasks, workers) if pieces is None else pieces
        launches.append(Launched(kernel, arguments, tasks, workers, dealt, held))

    outer = threads.recorders.get(get_ident())  # that of a call which a signal's handler interrupts
    threads.recorders[get_ident()] = record
    try:
        yield launches
    finally:
        if outer is None:
            del threads.recorders[get_ident()]
        else:
            threads.recorders[get_ident()] = outer


def alike(one: list[Launched], other: list[Launched]) -> bool:
    """True if two recordings have the same kernels and numbers: only the memory of some arrays differs.

    Arrays that share memory in one recording share it in the other, as far from each other.
    """
    if len(one) != len(other):
        return False
    shifts: dict[tuple[int, int], int] = {}
    for a, b in zip(one, other, strict=True):
        if a.kernel is not b.kernel or a.held is not b.held or a.cut != b.cut or a.writable != b.writable:
            return False
        pairs = zip(parts_of(a.arguments), parts_of(b.arguments), strict=True)
        if not all(_alike(p, q, shifts) for p, q in pairs):
            return False
    first, second = zip(*shifts, strict=True) if shifts else ((), ())
    return len(set(first)) == len(set(second)) == len(shifts)


def _alike(p: Any, q: Any, shifts: dict[tuple[int, int], int]) -> bool:
    """True for equal numbers, and for arrays of one form whose places in their memory differ as those before did.

    shifts: by the ids of two memories, the distance that their first arrays have. Results begin on a cache line,
    wherever their memory does.
    """
    if not isinstance(p, np.ndarray):
        return type(p) is type(q) and bool(p == q)
    owners = root(p), root(q)
    distance = (address(p) - address(owners[0])) - (address(q) - address(owners[1]))
    shift = 0 if owners[0] is owners[1] else shifts.setdefault((id(owners[0]), id(owners[1])), distance)
    return p.dtype == q.dtype and p.shape == q.shape and p.strides == q.strides and distance == shift
