"""A thread pool whose threads sleep between calls, and that never waits for a thread that has not begun.

Each thread has a line of memory with a state. A caller that finds it free writes the address of its job and posts it;
the thread begins by changing the state, and only then reads the job. When the caller has done all pieces that were
left, it takes the job back from threads that have not begun, and waits for the others. So nobody reads a call's memory
after the call, and a thread that gets no processor delays nobody. A thread that loses its processor while it has a
piece does: then `note_wait` makes calls use fewer threads for a while (docs/decisions/0023).

A thread waits for its next job in a loop for some microseconds, if recent jobs came as fast, and then sleeps.
"""

import atexit
import ctypes
import os
import signal
import time
from functools import cache

import numba
import numpy as np
from numba import njit, types

from ...core.forks import no_fork
from .atomics import (
    WHY_NOT,
    compare_swap,
    load,
    nap_at,
    now,
    number,
    on_stack,
    pause,
    processor,
    set_number,
    sleep_at,
    store,
    swap,
    wake,
)
from .jit import inline, inner, stored
from .schedule import address_of, work, workers_of

# States of a thread's line. A caller has it from TAKEN on, but for BUSY and AWAITED, until it is IDLE or ASLEEP again;
# RESTING is DONE by a thread that sleeps
IDLE, ASLEEP, TAKEN, POSTED, BUSY, AWAITED, DONE, RESTING = (np.int32(i) for i in range(8))
_LINE = 16  # numbers of a line: two cache lines, which processors fetch in pairs
# Numbers of a line: its state; what a caller writes, which are its job, the share to begin with, when, on which
# processor, and when it woke the thread; what the thread writes, which are for how many jobs more it counts as fast,
# how long it was being woken, if that was long, and whether it stepped back
_STATE, _JOB, _SHARE, _TIME, _PROCESSOR, _WOKEN, _FAST, _WAKING, _BACK = range(9)
# Numbers of the first line: the address of the dealing function (`deal`), how many threads there are, until when fewer
# are used, how many these are, for how long that is, and how many ns of stalls are made up for by work of all threads
_FUNCTION, _THREADS, UNTIL, LIMIT, _LENGTH, _CREDIT = range(6)

_SPIN = 50_000  # ns in which a thread waits for its next job without sleep, where one of the last jobs came as fast
_SHORT_SPIN = 2_000  # and where none did
_FORGOTTEN = 8  # jobs after one that came fast
_PAUSES = 8  # between two looks at the clock
_AWAKE = 50_000  # ns in which a caller waits for a thread without sleep
_STALL = 100_000  # ns of waiting that are called a stall,
_LATE = 500_000  # and of being woken
_MADE_UP = 4  # ns of work by all threads that make up for 1 ns of stalls
_MOST_CREDIT = 5_000_000  # ns of stalls, at most, that work makes up for: less than another process's turn or two
_SOON = 4  # times as long as fewer threads were used: after that a stall is no longer one of a row
_LONGEST = 100_000_000  # ns for which fewer threads are used after a stall,
_LONGEST_BACK = 25_000_000  # and after a thread stepped back, which costs some microseconds
_NAP, _LONGEST_NAP = 100_000, 3_000_000  # ns for which a thread that steps back sleeps
_FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"}


@inline
def note_wait(pool, workers, worked, late, back):
    """Note that a caller, after `worked` ns of work, waited for its threads for `late` ns, or that one stepped back.

    Stalls that take little of the time in which all threads work are left alone. Another one is soon forgotten; if they
    go on, as beside other processes, all threads are tried ever more rarely.
    """
    stalled, credit = late > max(_STALL, worked), number(pool, _CREDIT)
    if stalled:
        stalled = late > credit
        set_number(pool, _CREDIT, 0 if stalled else credit - late)
    elif worked > late:
        set_number(pool, _CREDIT, min(credit + (worked - late) // _MADE_UP, _MOST_CREDIT))
    if stalled or back:
        time, last, most = now(), number(pool, _LENGTH), _LONGEST if stalled else _LONGEST_BACK
        lasts = 2 * max(late, _STALL) if stalled else 2 * _STALL
        if time - number(pool, UNTIL) < _SOON * last:
            lasts = max(lasts, 2 * last)
        lasts = min(lasts, most)
        set_number(pool, LIMIT, max(1, workers // 2))
        set_number(pool, _LENGTH, lasts)
        set_number(pool, UNTIL, time + lasts)


@inline
def limited(pool, threads):
    """Return a number of threads, or the pool's limit where that is less and has not run out; pool 0 has none."""
    if threads > 1 and pool and number(pool, UNTIL) and now() < number(pool, UNTIL):
        threads = min(threads, number(pool, LIMIT))
    return threads


@inline
def _post(pool, job, workers, time):
    """Post a job to as many threads as are wanted and free, and return (how many, for how long one was last woken).

    The second is 0 where threads got a processor at once. One that did not is passed over this time.
    """
    posted, waking, here = 0, 0, processor()
    for i in range(1, number(pool, _THREADS) + 1):
        if posted == workers - 1:
            break
        line = pool + i * (_LINE * 8)
        state = load(line)
        if (state == IDLE or state == ASLEEP) and compare_swap(line, state, TAKEN):
            if number(line, _WAKING):
                waking = max(waking, number(line, _WAKING))
                set_number(line, _WAKING, 0)
                store(line, state)
                continue
            posted += 1
            set_number(line, _JOB, job)
            set_number(line, _SHARE, posted)
            set_number(line, _TIME, time)
            set_number(line, _PROCESSOR, here)
            if state == ASLEEP:
                set_number(line, _WOKEN, time)
            store(line, POSTED)
            if state == ASLEEP:
                wake(line)
    return posted, waking


@inline
def _collect(pool, job, since):
    """Take a job back from threads that have not begun it, wait for the others, and return how many stepped back."""
    back = 0
    for i in range(1, number(pool, _THREADS) + 1):
        line = pool + i * (_LINE * 8)
        if number(line, _JOB) == job:
            if not compare_swap(line, POSTED, TAKEN):
                _wait(line, since)
            back += number(line, _BACK)
            set_number(line, _BACK, 0)
            set_number(line, _JOB, 0)
            if not compare_swap(line, DONE, IDLE) and not compare_swap(line, RESTING, ASLEEP):
                store(line, IDLE)
    return back


@inline
def _wait(line, since):
    """Wait until a thread is done: from some time on asleep, so that it may have this processor."""
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


@stored
@njit(nogil=True)
def _deal(function, held, dealt, tasks, takes, pool):
    start, workers = now(), workers_of(dealt)
    job = on_stack((function, held, dealt, tasks, takes))
    posted, waking = _post(pool, job, workers, start)
    work(function, held, dealt, tasks, takes, 0)
    if posted or waking:
        end = now()
        back = _collect(pool, job, end)
        late = max(now() - end, waking)
        note_wait(pool, workers, 0 if waking else end - start, late, back > 0)


@inner
def _await(line, since):
    """Wait for a job, in a loop or asleep; the last one was done at a time."""
    looks, spin = 0, _SPIN if number(line, _FAST) else _SHORT_SPIN
    while load(line) != POSTED:
        looks += 1
        pause()
        if looks % _PAUSES == 0 and now() - since > spin:
            _rest(line)
            since = now()


@inline
def _rest(line):
    """Sleep until woken, also if the last job's caller has not seen yet that it is done."""
    if compare_swap(line, IDLE, ASLEEP) or compare_swap(line, DONE, RESTING):
        state = load(line)
        while state == ASLEEP or state == RESTING:
            sleep_at(line, state)
            state = load(line)
        waking = now() - number(line, _WOKEN)
        if waking > _LATE:
            set_number(line, _WAKING, waking)


@inline
def _step_back(line):
    """Sleep while the caller of a job is on this processor: if all are busy, Linux may wake a thread there, and one
    would wait for the other."""
    nap = _NAP
    while load(line) == POSTED and number(line, _PROCESSOR) == processor():
        set_number(line, _BACK, 1)
        nap_at(line, POSTED, nap)
        nap = min(2 * nap, _LONGEST_NAP)


@stored
@njit(nogil=True)
def _serve(line):
    since = now()
    while True:
        _await(line, since)
        _step_back(line)
        if compare_swap(line, POSTED, BUSY):
            set_number(line, _BACK, 0)
            fast = number(line, _TIME) - since < _SPIN
            set_number(line, _FAST, _FORGOTTEN if fast else max(0, number(line, _FAST) - 1))
            _work(number(line, _JOB), number(line, _SHARE))
            since = now()
            if swap(line, DONE) == AWAITED:
                wake(line)


@inline
def _work(job, share):
    work(number(job, 0), number(job, 1), number(job, 2), number(job, 3), number(job, 4), share)


class ThreadPool:
    """A pool of this process's threads, at most one fewer than Numba may use. They start when a call first needs them.

    `address` is that of the memory shared with callers: a line for the pool, then one for each thread.
    """

    def __init__(self):
        self._most = numba.config.NUMBA_NUM_THREADS - 1
        self._memory = np.zeros((self._most + 2) * _LINE, np.int64)
        first = -self._memory.ctypes.data % 128 // 8
        self._lines = self._memory[first : first + (self._most + 1) * _LINE].reshape(-1, _LINE)
        self.address = self._lines.ctypes.data
        self._lines[0, _FUNCTION] = address_of(_deal, (types.int64,) * 6)
        self._serve = address_of(_serve, (types.int64,))
        self.workers, self._process = 1, os.getpid()
        atexit.register(self._settle)

    def grow(self, workers):
        """Start threads for so many workers, of which the caller is one; fewer where the system starts no more."""
        if self.workers >= workers:
            return
        with no_fork:
            while self.workers < min(workers, self._most + 1) and self._start(self.workers):
                self._lines[0, _THREADS] = self.workers
                self.workers += 1
            self.workers = workers

    def _start(self, i):
        """Start a thread that gets no signals, which are for Python's threads: True if there is one."""
        libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
        others = [one for one in signal.valid_signals() if getattr(one, "name", None) not in _FAULTS]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, others)
        try:
            line = ctypes.c_void_p(self.address + i * _LINE * 8)
            if libc.pthread_create(ctypes.byref(thread), None, ctypes.c_void_p(self._serve), line):
                return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        libc.pthread_setname_np(thread, f"quantarray-{i}".encode())
        libc.pthread_detach(thread)
        return True

    def _settle(self):
        """Let all threads fall asleep before the interpreter frees what they run."""
        if os.getpid() != self._process:
            return  # a fork, which has no such threads
        states = self._lines[1 : self._lines[0, _THREADS] + 1].view(np.int32)[:, 0]
        self._lines[0, _THREADS] = 0
        end = time.monotonic() + 1
        while not np.isin(states, (ASLEEP, RESTING)).all() and time.monotonic() < end:
            time.sleep(0.0001)


@cache
def pool():
    """Return the thread pool of this process, or None where there can be none."""
    return None if WHY_NOT else ThreadPool()
