"""A bar for runs that a person waits for."""

from __future__ import annotations

import shutil
import sys
import time

PATIENCE = 1.0  # seconds before a progress bar shows
_BAR = 30


class Progress:
    """A bar on stderr for runs of more than a second, and a text beside it; nothing where stderr is not a terminal, or
    of nothing. `began` is the time.monotonic() at which a run began that has several bars, one after the other."""

    def __init__(self, total: int, text: str = "", began: float | None = None) -> None:
        self.total = total
        self.text = text
        self.began = time.monotonic() if began is None else began
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
        line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {done:,} of {self.total:,}  {self.text}".rstrip()
        sys.stderr.write("\r" + line[: shutil.get_terminal_size().columns - 1])  # a second line would stay
        sys.stderr.flush()
        self.shown = True
