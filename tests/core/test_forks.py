"""Forks while other threads hold what a child will need: imports, compilations, short updates, locks of files."""

import os
import subprocess
import sys
import textwrap

import pytest
from paths import ROOT

from tests.long import fork_cases

pytestmark = [pytest.mark.full, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")]

# `forked(work)` forks and says how the child ended: 0 where `work` was done, 14 where it hung
PRELUDE = """
import os, signal, sys, threading, time, warnings
import numpy as np
import quantarray as qa
from quantarray.core import forks

def forked(work, seconds=60):
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]

def call():
    q = qa.encode(np.arange(300).reshape(3, 100) % 4, range(4))
    assert np.array_equal(qa.linear(q, q), q.dequantize() @ q.dequantize().T)

def begin(work, *args):
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(code)],
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("milliseconds", [0, 5, 20, 50, 200, 600])
def test_fork_during_a_first_call(milliseconds):
    """The child once hung on the lock of a module that the other thread was importing."""
    run(f"""
        thread = begin(call)
        time.sleep({milliseconds / 1000})
        assert forked(call, 200) == 0
        thread.join()
    """)


def test_fork_during_an_update_of_a_cache():
    """Threads that drop and fill caches of one array without a pause; its lock was copied in whatever state it was."""
    run("""
        q = qa.encode(np.arange(300).reshape(3, 100) % 4, range(4))
        stop = threading.Event()

        def work():
            while not stop.is_set():
                q._cached("x", np.ones, 1), q.drop_cache(), q.nbytes_cached

        threads = [begin(work) for _ in range(3)]
        ended = [forked(lambda: q._cached("y", np.ones, 2), 20) for _ in range(150)]
        stop.set()
        assert ended == [0] * 150, ended
    """)


def test_fork_during_a_cached_property():
    """Python 3.11 locks a cached property of a class while its value is computed."""
    run("""
        computing = threading.Event()

        class Slow:
            @forks.cached_property
            def value(self):
                computing.set()
                time.sleep(1)
                return 3

        begin(lambda: Slow().value)
        computing.wait()
        assert forked(lambda: Slow().value, 20) == 0
        assert Slow.value.__class__ is forks.cached_property
    """)


def test_fork_during_the_lock_of_a_file(tmp_path):
    """A child has the descriptors of its parent, and a lock of a file belongs to all copies of one."""
    run(f"""
        from pathlib import Path
        from quantarray.cli.usual_calls import alone

        folder, inside, leave = Path({str(tmp_path)!r}), threading.Event(), threading.Event()

        def hold():
            with alone(folder):
                inside.set()
                leave.wait()

        def late():
            with alone(folder):
                pass

        thread = begin(hold)
        inside.wait()
        begin(lambda: (time.sleep(0.5), leave.set()))
        assert forked(late, 20) == 0
        thread.join()
        late()
    """)


def test_a_lock_that_a_first_call_and_the_fork_both_want():
    """Numba asks for the lock of `logging`, which that module's own hook of `os.fork` takes too."""
    run("""
        import logging

        imports, forking = threading.Event(), threading.Event()

        def importing():
            with forks.no_fork:
                imports.set()
                time.sleep(1)  # by now the other thread is in `os.fork`
                logging.getLogger("any").isEnabledFor(10)

        thread = begin(importing)
        imports.wait()
        assert forked(lambda: None, 20) == 0
        thread.join(20)
        assert not thread.is_alive()
    """)


def test_a_fork_waits_no_longer_than_it_says():
    run("""
        forks.MOST_SECONDS = 0.2
        held = threading.Event()

        def hold():
            with forks.no_fork:
                held.set()
                time.sleep(2)

        begin(hold)
        held.wait()
        began = time.monotonic()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert forked(lambda: None) == 0
        assert time.monotonic() - began < 1.5
        assert any("another thread's first call" in str(w.message) for w in seen), seen
        time.sleep(2)
        assert forked(call, 200) == 0  # all locks were given back
    """)


def test_a_fork_inside_a_first_call():
    """The thread that makes the first call forks during it."""
    run("""
        with forks.no_fork:
            assert forked(call, 200) == 0
        call()
    """)


@pytest.mark.parametrize("call", fork_cases.CALLS, ids=lambda call: call.__name__)
def test_the_calls_of_the_long_proof(call):
    assert call()
