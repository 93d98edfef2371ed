"""A thread pool whose threads sleep between calls, and for which no call waits that they have not begun.

Each thread has a line of memory with a state. A caller that finds it free writes where its job lies and posts it; the
thread begins by changing the state, and only then reads the job. When the caller has done all pieces that are left, it
takes back what was not begun, and waits for the rest. So memory of a call is never read after it, and a thread that
gets no processor holds nobody up. One that loses its processor while it has a piece does; `hold` then has calls of the
process done by one thread for a while (docs/decisions/0023).

A thread waits for its next job in a loop for some microseconds, if jobs came that fast lately, and then sleeps.
"""

import ctypes
import signal
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
from numba import njit, types

from ..forks import no_fork
from .atomics import compare_swap, load, now, number, on_stack, pause, set_number, sleep_at, store, swap, wake, why_not
from .compiled import inline, inner, kept
from .deal import address_of, work, workers_of

# States of a thread's line
IDLE, ASLEEP, TAKEN, POSTED, BUSY, AWAITED, DONE, RESTING = (np.int32(i) for i in range(8))
_LINE = 16  # numbers of a thread's line: two cache lines, as they are fetched in pairs
_STATE, _JOB, _SHARE, _AT, _READY = range(5)  # of a line: what a caller writes; whether jobs come fast
# Of the first line: the dealing function's address (`deal`), threads, until when calls are by one thread, after a stall
# for how many times its length
FUNCTION, THREADS, HOLD, TIMES = range(4)

SPIN = 50_000  # ns in which a thread waits for its next job without sleep, where the last ones came within that
_SHORT_SPIN = 2_000  # and where they did not
_FAST = 8  # jobs after which one that came fast is forgotten
_PAUSES = 8  # between two looks at the clock
_AWAKE = 50_000  # ns that a caller waits for a thread without sleep
_STALL = 100_000  # ns that a caller waits for a thread before this is called a stall
_LEAST, _MOST = 8, 128  # times the length of a stall that calls are then by one thread


@inline
def hold(at, own, late):
    """Note that a caller, after its own work of `own` ns, waited for threads for `late` ns."""
    times = number(at, TIMES)
    if late > max(_STALL, own):
        set_number(at, TIMES, min(_MOST, 2 * times))
        set_number(at, HOLD, now() + late * times)
    elif times > _LEAST:
        set_number(at, TIMES, times - 1)


@inline
def _post(at, job, workers, time):
    """Post a job to as many threads as are wanted and free, and return how many that are."""
    posted = 0
    for i in range(1, number(at, THREADS) + 1):
        if posted == workers - 1:
            break
        line = at + i * (_LINE * 8)
        state = load(line)
        if (state == IDLE or state == ASLEEP) and compare_swap(line, state, TAKEN):
            posted += 1
            set_number(line, _JOB, job)
            set_number(line, _SHARE, posted)
            set_number(line, _AT, time)
            store(line, POSTED)
            if state == ASLEEP:
                wake(line)
    return posted


@inline
def _collect(at, job, since):
    """Take a job back from threads that have not begun it, and wait for the others."""
    for i in range(1, number(at, THREADS) + 1):
        line = at + i * (_LINE * 8)
        if number(line, _JOB) == job:
            if not compare_swap(line, POSTED, TAKEN):
                _wait(line, since)
            set_number(line, _JOB, 0)
            if not compare_swap(line, DONE, IDLE) and not compare_swap(line, RESTING, ASLEEP):
                store(line, IDLE)


@inline
def _wait(line, since):
    """Wait until a thread is done: asleep from some time on, so that it may have this processor."""
    state, looks = load(line), 0
    while state < DONE:
        looks += 1
        if state == AWAITED:
            sleep_at(line, AWAITED)
        elif looks % _PAUSES == 0 and now() - since > _AWAKE:
            compare_swap(line, BUSY, AWAITED)
        else:
            pause()
        state = load(line)


@kept
@njit(cache=True, nogil=True)
def _deal(function, held, dealt, tasks, takes, at):
    start = now()
    job = on_stack((function, held, dealt, tasks, takes))
    posted = _post(at, job, workers_of(dealt), start)
    work(function, held, dealt, tasks, takes, 0)
    if posted:
        end = now()
        _collect(at, job, end)
        hold(at, end - start, now() - end)


@inner
def _await(line, since):
    """Wait for a job, of which the last was done at a time."""
    looks, spin = 0, SPIN if number(line, _READY) else _SHORT_SPIN
    while load(line) != POSTED:
        looks += 1
        pause()
        if looks % _PAUSES == 0 and now() - since > spin:
            _rest(line)
            since = now()


@inline
def _rest(line):
    """Sleep until woken, also if the caller of the last job has not seen yet that it is done."""
    if compare_swap(line, IDLE, ASLEEP) or compare_swap(line, DONE, RESTING):
        state = load(line)
        while state == ASLEEP or state == RESTING:
            sleep_at(line, state)
            state = load(line)


@kept
@njit(cache=True, nogil=True)
def _serve(line):
    since = now()
    while True:
        _await(line, since)
        if compare_swap(line, POSTED, BUSY):
            ready = number(line, _READY)
            set_number(line, _READY, _FAST if number(line, _AT) - since < SPIN else max(0, ready - 1))
            job = number(line, _JOB)
            work(number(job, 0), number(job, 1), number(job, 2), number(job, 3), number(job, 4), number(line, _SHARE))
            since = now()
            if swap(line, DONE) == AWAITED:
                wake(line)


class Dealing(NamedTuple):
    """What deals a kernel's tasks out to threads."""

    deal: int  # of `Kernel`
    at: int  # a thread pool's memory, or 0
    others: int  # the function that says how many threads another library's calls take, or 0


class ThreadPool:
    """Threads of this process, at most one fewer than Numba may use; they start when calls first want so many."""

    def __init__(self):
        most = numba.config.NUMBA_NUM_THREADS - 1
        self._memory = np.zeros((most + 2) * _LINE, np.int64)
        self.at = self._memory.ctypes.data + -self._memory.ctypes.data % 128
        self._header = np.frombuffer((ctypes.c_int64 * _LINE).from_address(self.at), np.int64)
        self._header[FUNCTION] = address_of(_deal, (types.int64,) * 6)
        self._header[TIMES] = _LEAST
        self._serve = address_of(_serve, (types.int64,))
        self.threads = 0

    def grow(self, workers):
        """Have threads for so many workers, of which the caller is one."""
        if self.threads >= workers - 1:
            return
        with no_fork:
            while self.threads < workers - 1:
                self._start(self.threads + 1)
                self.threads += 1
                self._header[THREADS] = self.threads

    def _start(self, i):
        """Start a thread that no signal is delivered to: those are for Python's threads."""
        libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            line = ctypes.c_void_p(self.at + i * _LINE * 8)
            error = libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(self._serve), line)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if error:
            raise OSError(error, "quantarray: no thread could be started")
        libc.pthread_setname_np(thread, f"quantarray-{i}".encode())
        libc.pthread_detach(thread)


@cache
def pool():
    """The pool of this process, or None where it cannot be."""
    return None if why_not() else ThreadPool()
