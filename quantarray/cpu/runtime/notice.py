"""Print one line on a terminal where kernels must be compiled, which takes seconds, once on a machine."""

import sys

from numba.core import event

TEXT = "quantarray: compiling kernels for this CPU, once; later processes load them from disk\n"


class _Notice(event.Listener):
    shown = False

    def on_start(self, started):
        module = started.data["dispatcher"].py_func.__module__
        if not self.shown and module.startswith("quantarray.cpu") and sys.stderr.isatty():
            self.shown = True
            sys.stderr.write(TEXT)

    def on_end(self, ended):
        pass


event.register("numba:compile", _Notice())
