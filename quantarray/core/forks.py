"""Forks wait for first calls (docs/decisions/0022).

A child of `os.fork` has one thread, and every lock in the state that it had at that moment. One that another thread
held stays locked in the child for good: of a module that is being imported, of Numba's compiler, of a dictionary. So
`os.fork` takes these locks first, and both processes give them back.

    with no_fork:
        import numba

`no_fork` is held where modules are imported, kernels compiled and threads started; `brief` where a few entries of a
dictionary change. Locks are taken in one order everywhere: `no_fork`, those of `wait_for`, `brief`.
"""

from __future__ import annotations

import logging as logging  # its hook comes first, so its lock is taken last: Numba asks for it while `no_fork` is held
import os
import threading
import time
import warnings
from functools import cached_property as _locked_property
from typing import TYPE_CHECKING, Protocol

MOST_SECONDS = 60.0  # of waiting: a lock of others' that is held by the forking thread must not stop both threads


class Lock(Protocol):
    """A lock with the methods of threading's."""

    def acquire(self, blocking: bool = ..., timeout: float = ..., /) -> bool: ...

    def release(self) -> None: ...


no_fork = threading.RLock()  # may be held for seconds
brief = threading.Lock()  # for microseconds, and no other lock is taken inside
_others: list[Lock] = []


class _Taken(threading.local):
    """A list of the locks that a forking thread has taken."""

    locks: list[Lock] = []  # noqa: RUF012  # replaced, not changed


_taken = _Taken()


def wait_for(lock: Lock) -> None:
    """Let forks wait for a lock of another package too. Threads take such locks in the order of these calls."""
    with no_fork:
        _others.append(lock)


def _before() -> None:
    _taken.locks = []
    end = time.monotonic() + MOST_SECONDS
    for lock in (no_fork, *_others, brief):
        if not lock.acquire(True, max(0.0, end - time.monotonic())):
            warnings.warn(
                f"quantarray: forked after {MOST_SECONDS:.0f} s of waiting for another thread's first call; the child "
                f"may hang in its own first call",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        _taken.locks.append(lock)


def _after() -> None:
    while _taken.locks:
        _taken.locks.pop().release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(_locked_property):
        """`functools.cached_property` without a lock, which Python 3.11's has. Two threads may both compute a value."""

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
