"""Forks at random points of other threads' first and later calls: the child finishes a call, with the right result.

A case is a fork in a process in which nothing is imported (and, seldom, nothing compiled), in which kernels' modules
are, or in which all calls have been made. The first two are children of a process in which that is so (a zygote), since
a new process would import for a second; the last is one process for all its cases.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from . import fork_cases
from .proof import Proof

_COMPILING = 900.0  # seconds in which a child that compiles all its kernels is done on a busy machine


class Stage(NamedTuple):
    """A stage of the process before its threads start, with its share of the cases and its time limits."""

    share: float  # of the cases
    longest: float  # seconds from the threads' start to the fork, at most
    patience: float  # seconds after which something hangs; a child imports and loads all in 2 on an idle machine


STAGES = {
    "nothing compiled": Stage(0.003, 5.0, _COMPILING),
    "nothing imported": Stage(0.1, 2.0, 120.0),
    "first": Stage(0.297, 0.5, 120.0),
    "later": Stage(0.6, 0.03, 120.0),
}


def run(rng: np.random.Generator) -> str:
    stage = str(rng.choice(list(STAGES), p=[one.share for one in STAGES.values()]))
    said = _zygote(stage)(int(rng.integers(2**62)))
    if said != "right":
        raise AssertionError(f"{stage}: {said}")
    return stage


class Zygote:
    """A process that has done `start`, and forks once for each number that it is sent."""

    def __init__(self, stage: str, start: Callable[[], None]) -> None:
        self._stage, self._start = stage, start
        here, other = socket.socketpair()
        if os.fork() == 0:
            here.close()
            self._serve(other)
        other.close()
        self._reports = here.makefile("rw")

    def __call__(self, seed: int) -> str:
        """Let the process fork for the case of this seed, and return the case's outcome."""
        print(seed, file=self._reports, flush=True)
        return self._reports.readline().rstrip("\n") or "the process died"

    def _serve(self, connection: socket.socket) -> None:
        self._start()
        with connection.makefile("rw") as requests:
            for line in requests:
                print(self._case(int(line)).replace("\n", " "), file=requests, flush=True)
        os._exit(0)

    def _case(self, seed: int) -> str:
        rng, (_, longest, patience) = np.random.default_rng(seed), STAGES[self._stage]
        if self._stage == "later":
            return fork_cases.fork(rng, longest, patience)
        cold = self._stage == "nothing compiled"
        return _in_child(lambda: fork_cases.fork(rng, longest, patience), int(3 * patience), cold)


def _in_child(case: Callable[[], str], seconds: int, cold: bool) -> str:
    """Run a case in a forked process, with an empty cache of kernels if it is `cold`, and return its outcome."""
    folder = tempfile.mkdtemp() if cold else None
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)  # which ends it where nothing else does
        if folder:
            os.environ["NUMBA_CACHE_DIR"] = folder
        os.write(writer, case().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        outcome = said.read()
    _, status = os.waitpid(child, 0)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome or f"the process ended with status {status}"


@cache
def _zygote(stage: str) -> Zygote:
    return Zygote(stage, {"first": _import, "later": _call_all}.get(stage, lambda: None))


def _import() -> None:
    """Import all of the package that needs no extra, and make no call."""
    import quantarray
    import quantarray.cpu

    others = "quantarray.__main__", "quantarray.torch"
    for package, listed in ((quantarray, pkgutil.iter_modules), (quantarray.cpu, pkgutil.walk_packages)):
        for module in listed(package.__path__, f"{package.__name__}."):
            if module.name not in others:
                importlib.import_module(module.name)


def _call_all() -> None:
    fork_cases.share()
    assert all(call() for call in fork_cases.CALLS)


def _prepare() -> None:
    """Start the processes of all stages, before this one reads anything, and compile what calls need."""
    tempfile.NamedTemporaryFile().close()  # whose own locks, for what it looks up once, are no matter of the package
    _zygote("later")
    for stage in STAGES:
        _zygote(stage)


PROOF = Proof(run, count=2000, seconds=3 * _COMPILING, prepare=_prepare, stretch=250)
