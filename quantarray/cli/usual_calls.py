"""Make a usual call in a process of its own: `python -m quantarray.cli.usual_calls NAME FOLDER`.

`tools/usual_calls.py` writes the list, of examples in the documentation. FOLDER holds locks that all such processes
share, so that none compiles what another one compiles at that moment.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numba.core import event
from numba.core.dispatcher import Dispatcher


def listed() -> list[dict[str, str]]:
    """Return the usual calls: `from`, where the documentation has one, and its `code`."""
    text = (resources.files("quantarray") / "data" / "usual_calls.json").read_text(encoding="utf-8")
    calls: list[dict[str, str]] = json.loads(text)
    return calls


class _Count(event.Listener):
    """A count of compiled functions; those that come from disk do not count."""

    compiled = 0

    def on_start(self, started: Any) -> None:
        self.compiled += 1

    def on_end(self, ended: Any) -> None:
        pass


def _share_compilation(folder: Path) -> None:
    """Let one process at a time compile a function; the next one loads it from disk.

    Functions compile those that they call, and none calls itself through others: processes that wait for each other in
    a ring do not occur.
    """
    compile_function, held = Dispatcher.compile, set()

    def compile_alone(self: Any, signature: Any) -> Any:
        lock = folder / f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        if lock in held:
            return compile_function(self, signature)
        lock.mkdir(exist_ok=True)
        with alone(lock):
            held.add(lock)
            try:
                return compile_function(self, signature)
            finally:
                held.remove(lock)

    Dispatcher.compile = compile_alone  # type: ignore[assignment, method-assign]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let other processes that compile in the folder wait, where the system has such locks; else the last one wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked child has the descriptor too
        os.close(descriptor)


def main(name: str, folder: str) -> None:
    """Run the code of a call, and print how many functions were compiled and the seconds of CPU time."""
    code = next(call["code"] for call in listed() if call["from"] == name)
    count = _Count()
    _share_compilation(Path(folder).absolute())
    with event.install_listener("numba:compile", count), contextlib.redirect_stdout(io.StringIO()):
        with TemporaryDirectory() as place:  # for files that examples write
            os.chdir(place)
            exec(compile(code, name, "exec"), {"__name__": "usual_call"})
            os.chdir(folder)
    print(json.dumps({"compiled": count.compiled, "seconds": time.process_time()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
