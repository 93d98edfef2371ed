"""Caches with a bounded number of entries and bytes, for calls that ask for the same."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from .forks import brief

R = TypeVar("R")


class Kept:
    """A cache of at most `most` entries by a key, whose arrays have at most `most_bytes`: the oldest make room.

    The latest entry is stored whatever its size, but not one whose key has no hash.
    """

    def __init__(self, most: int, most_bytes: float = float("inf")) -> None:
        self.entries: dict[Any, Any] = {}
        self._most, self._most_bytes, self._nbytes = most, most_bytes, 0

    def get(self, key: Any) -> Any:
        """Return the entry of a key, or None."""
        try:  # `suppress` takes 0.3 us
            return self.entries.get(key)
        except TypeError:
            return None

    def keep(self, key: Any, entry: Any) -> None:
        """Keep an entry."""
        with brief, suppress(TypeError):
            self._nbytes += _nbytes(entry) - _nbytes(self.entries.get(key))
            self.entries[key] = entry
            while len(self.entries) > self._most or (self._nbytes > self._most_bytes and len(self.entries) > 1):
                self._nbytes -= _nbytes(self.entries.pop(next(iter(self.entries))))


def _nbytes(entry: Any) -> int:
    """Count the bytes of an array, or of the arrays in a tuple."""
    if isinstance(entry, tuple):
        return sum(map(_nbytes, entry))
    return entry.nbytes if isinstance(entry, np.ndarray) else 0


def cached(function: Callable[..., R]) -> Callable[..., R]:
    """Store the arrays that a function returns, by its arguments: of 256 calls, and at most 32 MiB.

    `functools.lru_cache` counts entries alone: those of 256 images of 1000x1000 pixels took 9 GB.
    """
    cache = Kept(256, 32 << 20)

    @wraps(function)
    def call(*args: Any) -> R:
        result: R | None = cache.get(args)
        if result is None:
            result = function(*args)
            cache.keep(args, result)
        return result

    return call
