"""A bar for runs that a person waits for."""

from __future__ import annotations

import sys
import time

PATIENCE = 1.0  # seconds before a progress bar shows
_BAR = 30


class Progress:
    """A bar on stderr for runs of more than a second; nothing where stderr is not a terminal, or of nothing."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.began = time.monotonic()
        self.shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def update(self, done: int) -> None:
        if not self.total or not sys.stderr.isatty() or time.monotonic() - self.began < PATIENCE:
            return
        filled = _BAR * done // self.total
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (_BAR - filled)}] {done:,} of {self.total:,}")
        sys.stderr.flush()
        self.shown = True
