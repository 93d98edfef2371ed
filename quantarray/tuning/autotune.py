"""`autotune`: kernels chosen by measuring, kept for the process, and in a file for later ones.

A call is made ready once for each form of its operands (`ops/products/calls.py`), and that is where kernels
are chosen. So that is where a table of measured choices is consulted, and where a new problem is timed: the call is
made ready once for each kernel that can do it, each on its own view of the weights, so that no layout of a slower one
is kept.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ..arrays import checks
from ..arrays.array import QuantArray
from ..backends import kernel_choice
from ..core.dtypes import Array
from ..core.errors import FormatError
from ..core.forks import no_fork
from ..io import files
from ..ops.products import calls
from . import timing
from .results import Problem, Row, Tuned, problem_of

VARIABLE = "QUANTARRAY_AUTOTUNE"
_OP = "autotune"
Make = Callable[[QuantArray], Any]  # a call that is made ready for some weights


def _install() -> None:
    """Let prepared calls ask this module; until then they look no further."""
    calls.install(sys.modules[__name__])


class _State:
    """A record of the choices in force in this process."""

    def __init__(self) -> None:
        self.variable = os.environ.get(VARIABLE, "")  # a file to read before the first call is made ready
        self.rows: dict[tuple[int, Problem], Row] = {}
        self.version = 0  # grows when calls that were made ready may have other kernels now
        self.timed = 0  # problems, ever
        self.open: list[tuple[Tuned, float]] = []  # blocks, and when they began
        self.lock = threading.RLock()  # one problem is timed at a time
        if self.variable:
            _install()

    def in_force(self, rows: dict[tuple[int, Problem], Row]) -> None:
        self.rows |= rows
        self.version += bool(rows)


state = _State()


def _after_fork() -> None:
    state.lock = threading.RLock()  # a thread that is not in the child may hold it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def autotune(file: str | os.PathLike[str] | bool | None = None, *, again: bool = False) -> Iterator[Tuned]:
    """Time, inside a `with` block, each kernel that can make a product, and keep the fastest from then on.

        kernel = argmin over kernels k of median(microseconds of the whole call by k)

    Without it a cost model chooses (docs/tuning.md has how well). Every `conv2d`, `linear` or `matmul` on the CPU of a
    form that is new (operation, laws and shapes of both operands, options, number of threads) is timed at its first
    call, which takes some 0.02 to 0.2 s: at least 5 calls of each kernel in turns, on the operands it came with, after
    two that do not count. The model's kernel stays unless another is 2 % faster, and in more than four rounds of five:
    do this on a machine that does nothing else. Results are the same to the bit whatever is chosen. All threads of the
    process are tuned, one call at a time; choices stay in force after the block, and in processes that are forked
    later. Products on a GPU have one kernel and are left alone.

    file: None keeps choices for this process. A path is read at the beginning, if there is such a file, and written at
    the end, whole or not at all, with what other processes have written meanwhile; True is the default place,
    `$XDG_CACHE_HOME/quantarray/autotune.json`. Its choices for this machine (processor, kernels, versions) apply at
    once, so an empty block applies a file; so does the environment variable QUANTARRAY_AUTOTUNE=PATH, from the first
    call on. again: forget earlier choices, and time all again.

    Yields a `Tuned`, a table of the calls that were met inside and had a choice: print it, go over its rows, or take
    `to_json()`.

    Raises TypeError for anything but a path, FileNotFoundError if its folder is missing, FormatError for a damaged or
    foreign file, which is left as it is.

    >>> import quantarray as qa
    >>> x = qa.encode([[1, 0, 3]], values=range(4))
    >>> with qa.autotune() as tuned:
    ...     qa.linear(x, qa.encode([[2, 1, 1]], values=range(4)))
    array([[5]], dtype=int32)
    >>> all(row.kernel == row.model or row.gain > 1.01 for row in tuned)
    True
    """
    again = checks.flag(_OP, "again", again)
    path = _path(file)
    _begin(path, again)
    block, timed = (Tuned(path), time.monotonic()), state.timed
    state.open.append(block)
    try:
        yield block[0]
    finally:
        state.open.remove(block)
        state.version += state.timed != timed  # what was made ready outside, before, may have another kernel now
        if path is not None and len(block[0]):
            _files().merge(_OP, path, block[0].rows)


def _begin(path: Path | None, again: bool) -> None:
    read_variable()
    rows = {} if path is None else _read(path)  # a file that cannot be written to later is refused now
    if again:
        state.rows.clear()
        state.version += 1
    _install()
    state.in_force({} if again else rows)


def _path(file: Any) -> Path | None:
    """Return where to save, in a folder that exists."""
    if file is None or file is False:
        return None
    if file is True:
        default: Path = _files().default_path()
        default.parent.mkdir(parents=True, exist_ok=True)
        return default
    path = files.path_of(_OP, file)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{_OP}: there is no folder {str(path.parent)!r} for {path.name!r}")
    return path


def _read(path: Path) -> dict[tuple[int, Problem], Row]:
    rows: dict[tuple[int, Problem], Row] = _files().read(_OP, path)
    return rows


def _files() -> Any:
    """Import the module that reads and writes files of choices, with the first."""
    with no_fork:
        from . import file as tuned

    return tuned


def known() -> int:
    """Count the problems on this machine have a measured kernel in this process, for all numbers of threads."""
    read_variable()
    return len(state.rows)


def read_variable() -> None:
    """Put the file that QUANTARRAY_AUTOTUNE names in force, once. What is wrong with it is a warning: programs run
    without it too."""
    if not state.variable:  # as nearly always, and then nobody waits for a thread that is timing
        return
    with state.lock:
        named, state.variable = state.variable, ""
        if not named:
            return
        try:
            path = _path(True if named == "1" else named)
            if path is None or not path.exists():
                raise FileNotFoundError(f"there is no file {named!r}")
            if path.is_dir():
                raise IsADirectoryError(f"{named!r} is a folder, not a file that `autotune` has written")
            state.in_force(_read(path))
        except (FormatError, OSError) as error:
            warnings.warn(f"{VARIABLE}: {error}; the cost model chooses kernels", RuntimeWarning, stacklevel=2)


# Calls


def mark() -> tuple[int, bool, int]:
    """Return what a prepared call depends on besides its operands."""
    return state.version, bool(state.open), _counter()()


def prepared(
    op: str, device: str, x: Any, w: QuantArray, options: tuple[Any, ...], bias: Array | None, build: Callable[..., Any]
) -> Any:
    """`build(device, x, w, bias, *given)`, by the kernel that is known as the fastest, or turns out to be."""

    def make(w: QuantArray) -> Any:
        return build(device, x, w, bias, *options)

    if device != "cpu":
        return make(w)
    read_variable()
    problem, threads = problem_of(op, x, w, options, bias), _counter()()
    row = state.rows.get((threads, problem))
    if row is None and state.open:
        row = _tuned(problem, threads, x, w, make)
    if row is None:
        return make(w)
    for report, _ in tuple(state.open):
        report.add(row)
    with kernel_choice.forced(row.kernel):
        return make(w)


def _tuned(problem: Problem, threads: int, x: Any, w: QuantArray, make: Make) -> Row | None:
    """Time a new problem and return its row; None where only one kernel can do it."""
    with state.lock:
        if (threads, problem) in state.rows:  # another thread was faster
            return state.rows[threads, problem]
        with kernel_choice.heard() as questions:
            make(w._view())
        names = list(dict.fromkeys(name for q in questions for name in q.candidates))
        if len(names) < 2:
            return None
        began = min((began for _, began in state.open), default=time.monotonic())
        samples = timing.in_turns({name: _run(name, x, w, make) for name in names}, str(problem), began)
        us = {name: round(statistics.median(times), 2) for name, times in samples.items()}
        model, fastest = questions[-1].model, min(us, key=us.__getitem__)
        chosen = fastest if timing.better(samples[fastest], samples[model]) else model
        row = Row(problem, threads, us, chosen, model)
        state.rows[threads, problem] = row
        state.timed += 1
        return row


def _run(name: str, x: Any, w: QuantArray, make: Make) -> Callable[[], Any]:
    with kernel_choice.forced(name):
        call = make(w._view())
    return lambda: call(x)


@cache
def _counter() -> Callable[[], int]:
    """Return what says over how many threads a kernel is spread. Looked up once: an import takes a microsecond each
    time."""
    with no_fork:
        from ..cpu.runtime import threads

    allowed: Callable[[], int] = threads.allowed
    return allowed
