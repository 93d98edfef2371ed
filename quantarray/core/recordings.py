"""Recordings: what a thread allocates and launches while its network is planned, in place of doing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Protocol

from .dtypes import Array
from .forks import no_fork


class Recording(Protocol):
    """A receiver of the allocations, launches and notes of a thread."""

    def array(self, shape: tuple[int, ...], dtype: Any, cleared: bool = False) -> Array:
        """Return an array without elements, or one that is `cleared` before its first launch."""

    def launch(self, kernel: Any, arguments: Any, tasks: int, workers: int, pieces: int, held: Any) -> None:
        """Record a launch."""

    def note(self, notes: Array) -> None:
        """Record that notes of a kernel are read."""


RECORDINGS: dict[int, Recording] = {}  # of threads, by their identity; usually empty, which each call looks at


def recording() -> Recording | None:
    """Return the recording of this thread, if there is one."""
    return RECORDINGS.get(get_ident()) if RECORDINGS else None


def is_set(notes: Array) -> bool:
    """Return True if a kernel has set one of its notes, such as that of a NaN; a recorded call reads it each time."""
    if (one := recording()) is not None:
        one.note(notes)
        return False
    return any(notes.tolist())  # NumPy's `any` of a few elements takes three times as long


@contextmanager
def recording_to(one: Recording) -> Iterator[None]:
    """Record what this thread does inside. Signal handlers wait: they may call the package too."""
    with no_fork, _replaced(one):
        yield


@contextmanager
def unrecorded() -> Iterator[None]:
    """Run what this thread does inside, such as laying out weights for a cache, in the middle of a recording."""
    with _replaced(None):
        yield


@contextmanager
def _replaced(one: Recording | None) -> Iterator[None]:
    thread = get_ident()
    outer = RECORDINGS.pop(thread, None)
    if one is not None:
        RECORDINGS[thread] = one
    try:
        yield
    finally:
        RECORDINGS.pop(thread, None)
        if outer is not None:
            RECORDINGS[thread] = outer
