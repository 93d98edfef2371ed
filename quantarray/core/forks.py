"""Forks and signal handlers wait for first calls (docs/decisions/0022).

A child of `os.fork` has one thread, and every lock in the state that it had at that moment. One that another thread
held stays locked in the child for good: of a module that is being imported, of Numba's compiler, of a dictionary. So
`os.fork` takes these locks first, and both processes give them back.

    with no_fork:
        import numba

`no_fork` is held where modules are imported, kernels compiled and threads started; `brief` where a few entries of a
dictionary change. Locks are taken in one order everywhere: `no_fork`, those of `wait_for`, `brief`.

A signal handler of Python runs in the main thread, between any two of its steps. One that called the package while a
module was half imported raised ImportError, one that came while `brief` was held waited for ever. So handlers wait
while the main thread holds one of these locks, or waits for one.
"""

from __future__ import annotations

import logging as logging  # its hook comes first, so its lock is taken last: Numba asks for it while `no_fork` is held
import os
import signal
import threading
import time
import warnings
from _signal import getsignal  # type: ignore[import-not-found]  # 25 times as fast as `signal`'s
from _signal import signal as set_handler
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property as _locked_property
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

MOST_SECONDS = 60.0  # of waiting: a lock of others' that is held by the forking thread must not stop both threads


class Lock(Protocol):
    """A lock with the methods of threading's."""

    def acquire(self, blocking: bool = ..., timeout: float = ..., /) -> bool: ...

    def release(self) -> None: ...


_NUMBERS = sorted(map(int, signal.valid_signals()))
Handler = Callable[[int, FrameType | None], Any]


class _Signals:
    """A set of signal handlers that wait from `hold` to `release` and run in `deliver`, all in the main thread.

    That of KeyboardInterrupt does not wait: it calls nothing, and a compilation may be interrupted.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Handler] = {}  # those that `_note` replaces, or replaced last
        self._arrived: dict[int, FrameType | None] = {}

    def hold(self) -> None:
        """Note signals until as many calls of `release`."""
        self._depth += 1
        if self._depth > 1:
            return
        try:
            for number in _NUMBERS:
                handler = getsignal(number)
                if callable(handler) and handler not in (signal.default_int_handler, self._note):
                    self._handlers[number] = handler
                    with suppress(ValueError):  # in an interpreter whose threads may set none
                        set_handler(number, self._note)
        except BaseException:  # of a handler that is still in force
            self.release()
            raise

    def release(self) -> None:
        """Put the handlers back where this is the last `release`."""
        try:
            if self._depth == 1:
                self._restore()
        finally:
            self._depth -= 1

    def _restore(self) -> None:
        try:
            for number, handler in list(self._handlers.items()):
                if getsignal(number) == self._note:  # what was imported meanwhile may have set another
                    set_handler(number, handler)
        except BaseException:  # of a handler that is in force again
            self._restore()
            raise

    def deliver(self) -> None:
        """Call the handlers of the signals that came: each of them, also after one that raises."""
        if self._depth == 0 and self._arrived:
            try:
                number, frame = self._arrived.popitem()  # one step: a handler may come between any two, and deliver too
            except KeyError:
                return
            try:
                self._handlers[number](number, frame)
            finally:
                self.deliver()

    def forget(self) -> None:
        """Forget the signals that came: they were the parent's, not a forked child's."""
        self._arrived.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self._arrived[number] = frame
        else:  # called by a handler that was set meanwhile and took this one for the one before it
            self._handlers[number](number, frame)


class Uninterrupted:
    """A re-entrant lock. While the main thread holds it or waits for it, signal handlers of Python wait."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holds = 0  # of signals, by the thread that has the lock

    def acquire(self, blocking: bool = True, timeout: float = -1, /) -> bool:
        if threading.get_ident() != threading.main_thread().ident:
            return self._lock.acquire(blocking, timeout)
        _signals.hold()  # first: a handler that raises just after the lock is taken would leave it so for good
        taken = False
        try:
            taken = self._lock.acquire(blocking, timeout)
            if taken:
                self._holds += 1
        finally:
            if not taken:
                self._let_signals()
        return taken

    def release(self) -> None:
        if not self._holds:  # also in a forked child whose main thread was another one before
            self._lock.release()
            return
        self._holds -= 1
        try:
            self._lock.release()
        finally:
            self._let_signals()

    def _let_signals(self) -> None:
        try:
            _signals.release()
        finally:
            _signals.deliver()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_signals = _Signals()
no_fork = Uninterrupted()  # may be held for seconds
brief = Uninterrupted()  # for microseconds, and no other lock is taken inside
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


def _after_in_child() -> None:
    _signals.forget()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)


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
