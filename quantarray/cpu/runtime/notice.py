"""Print one line on stderr where a process has compiled kernels for more than a second.

It is printed once, on a terminal or not: a log then says why a first call took so long. QUANTARRAY_QUIET=1 silences it.
"""

import contextlib
import os
import sys
import time

from numba.core import event

VARIABLE = "QUANTARRAY_QUIET"
TEXT = "quantarray: compiling kernels for this CPU, once; `quantarray warm` compiles what calls usually need\n"
PATIENCE = 1.0  # seconds of compilation before it prints


def _is_kernel(compilation):
    """True for a function of the package; one that `exec` made has no module."""
    return (compilation.data["dispatcher"].py_func.__module__ or "").startswith("quantarray.cpu")


class Notice(event.Listener):
    """A clock of compilations, which are nested: a function compiles those that it calls."""

    def __init__(self):
        self.shown, self.depth, self.before, self.began = False, 0, 0.0, 0.0

    def on_start(self, started):
        if _is_kernel(started):
            if not self.depth:
                self.began = time.monotonic()
            self.depth += 1
            self._look()

    def on_end(self, ended):
        if _is_kernel(ended):
            self._look()
            self.depth -= 1
            if not self.depth:
                self.before += time.monotonic() - self.began

    def _look(self):
        if not self.shown and self.before + time.monotonic() - self.began > PATIENCE:
            self.shown = True
            if sys.stderr is not None and not os.environ.get(VARIABLE):
                with contextlib.suppress(OSError, ValueError):  # of a file that is closed
                    sys.stderr.write(TEXT)
                    sys.stderr.flush()


event.register("numba:compile", Notice())
