"""A cache with a bounded number of entries, for calls that ask for the same."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .forks import brief


class Kept:
    """A cache of at most `most` entries by a key: the oldest makes room for another.

    An entry whose key has no hash is not stored.
    """

    def __init__(self, most: int) -> None:
        self.entries: dict[Any, Any] = {}
        self._most = most

    def get(self, key: Any) -> Any:
        """Return the entry of a key, or None."""
        try:  # `suppress` takes 0.3 us
            return self.entries.get(key)
        except TypeError:
            return None

    def keep(self, key: Any, entry: Any) -> None:
        """Keep an entry."""
        with brief, suppress(TypeError):
            self.entries[key] = entry
            if len(self.entries) > self._most:
                del self.entries[next(iter(self.entries))]
