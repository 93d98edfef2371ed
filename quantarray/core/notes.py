"""Read what a kernel has noted about its values, such as a NaN, so that a recorded call reads it again each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from .dtypes import Array

_readers: dict[int, list[Array]] = {}  # of threads, by their identity


def is_set(notes: Array) -> bool:
    """Return True if a kernel has set one of the notes, which were zero before."""
    if _readers and (read := _readers.get(get_ident())) is not None:
        read.append(notes)
    return bool(notes.any())


@contextmanager
def listing() -> Iterator[list[Array]]:
    """Give the list of notes that this thread reads inside."""
    read: list[Array] = []
    outer = _readers.get(get_ident())  # that of a call which a signal's handler interrupts
    _readers[get_ident()] = read
    try:
        yield read
    finally:
        if outer is None:
            del _readers[get_ident()]
        else:
            _readers[get_ident()] = outer
