"""Recordings: what a thread allocates and launches while a network or a call is planned, in place of doing it."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Protocol

from .dtypes import Array


class Recording(Protocol):
    """A receiver of the allocations, launches and notes of a thread, on one backend."""

    backend: str  # "cpu" or "cuda"

    def array(self, shape: tuple[int, ...], dtype: Any, cleared: bool = False) -> Array:
        """Return an array without elements, or one that is `cleared` before its first launch."""

    def launch(self, kernel: Any, *how: Any) -> None:
        """Record a launch, of what the backend's own function for launches takes."""

    def taken(
        self, shape: tuple[int, ...], dtype: Any, take: Callable[[], Array],
        give_back: Callable[[Array], None] | None = None,
    ) -> Array:  # fmt: skip
        """Return an array without elements for one that each call takes, and gives back at its end."""

    def note(self, notes: Array) -> None:
        """Record that notes of a kernel are read."""


RECORDINGS: dict[int, Recording] = {}  # of threads, by their identity; usually empty, which each call looks at


def recording(backend: str = "cpu") -> Recording | None:
    """Return the recording of this thread on a backend, if there is one."""
    one = RECORDINGS.get(get_ident()) if RECORDINGS else None
    return one if one is not None and one.backend == backend else None


def is_set(notes: Array) -> bool:
    """Return True if a kernel has set one of its notes, such as that of a NaN; a recorded call reads it each time.

    Notes of a GPU are waited for.
    """
    if RECORDINGS and (one := RECORDINGS.get(get_ident())) is not None:
        one.note(notes)
        return False
    return any(notes.tolist())  # NumPy's `any` of a few elements takes three times as long


class unrecorded:  # used as a function; a generator would stay suspended in a traceback
    """A context in which this thread does what a recording around it would record, such as weights for a cache."""

    def __enter__(self) -> None:
        self._outer = RECORDINGS.pop(get_ident(), None)

    def __exit__(self, *error: object) -> None:
        if self._outer is not None:
            RECORDINGS[get_ident()] = self._outer
