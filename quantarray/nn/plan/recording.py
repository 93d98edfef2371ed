"""Record what a thread launches, on arrays without elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ...core.forks import no_fork
from .reserved import Reserved


@cache
def runtime() -> Any:
    """Import what runs kernels on the CPU, when a network is first prepared: it imports Numba."""
    with no_fork:
        from ...cpu.epilogue.packed_shortcut import packed_shortcut
        from ...cpu.int8 import stored_bytes
        from ...cpu.runtime import driver, launch, threads
    return SimpleNamespace(
        Driver=driver.Driver, Launch=launch.Launch, threads=threads, stored_bytes=stored_bytes,
        packed_shortcut=packed_shortcut,
    )  # fmt: skip


class ElementsAreRead(Exception):  # no error of a user's
    """A step that is recorded reads or writes an element."""


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
    """A launch as it was recorded: the kernel, its arguments, which of their arrays could be written, and the cut."""

    def __init__(self, kernel: Any, arguments: Any, tasks: int, workers: int, pieces: int, held: Any) -> None:
        self.kernel, self.arguments, self.held = kernel, arguments, held
        self.cut = tasks, pieces, workers
        parts = list(parts_of(arguments))
        self.arrays = [a for a in parts if isinstance(a, np.ndarray)]
        self.numbers = [n for n in parts if isinstance(n, int)]
        self.name = kernel.compiled.py_func.__module__.removeprefix("quantarray.cpu.")  # "popcount.conv"
        self.writable = [a.flags.writeable for a in self.arrays]  # packed results are locked once they are there

    def replace(self, a: Array, by: Array) -> None:
        """Replace an array among the arguments."""
        self.arguments = replaced(self.arguments, lambda one: by if one is a else one)
        self.arrays = [by if one is a else one for one in self.arrays]


class Recorder(Reserved):
    """A recording (`core/recordings.py`): memory of no elements, launches, and notes of kernels that are read."""

    backend = "cpu"

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launched] = []
        self.notes: list[Array] = []

    def launch(self, kernel: Any, arguments: Any, tasks: int, workers: int, pieces: int, held: Any) -> None:
        launched = Launched(kernel, arguments, tasks, workers, pieces, held)
        reserved = [self.place_of(a) is not None for a in launched.arrays]
        if not any(map(all, zip(reserved, launched.writable, strict=True))):
            raise ElementsAreRead  # of what it writes, as nobody would run a kernel for nothing
        held_too = parts_of(getattr(held, "arguments", ()))
        if any(isinstance(a, np.ndarray) and self.place_of(a) is not None for a in held_too):
            raise ElementsAreRead  # of what a cache may hold
        others = [a for a, known in zip(launched.arrays, reserved, strict=True) if not known and a.dtype == np.int64]
        if any(map(self.has_addresses, [np.array(launched.numbers, object), *others])):
            raise ElementsAreRead  # by a kernel that gets addresses as numbers, such as `place`
        self.launches.append(launched)

    def taken(self, *how: Any) -> Array:
        raise ElementsAreRead  # nothing of the CPU does

    def note(self, notes: Array) -> None:
        if self.place_of(notes) is None:
            raise ElementsAreRead
        self.notes.append(notes)
