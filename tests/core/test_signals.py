"""Signal handlers that call the package: during its first call, and while it holds any of its locks."""

import signal
import subprocess
import sys
import textwrap

import pytest
from paths import ROOT

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")

# `handler` makes calls that compile, import and fill caches, and checks their results; `check` makes the main ones
PRELUDE = """
import faulthandler, os, signal, sys, threading, time
faulthandler.dump_traceback_later(500, exit=True)
import numpy as np
import quantarray as qa

rng = np.random.default_rng(0)
image, weight = rng.choice([-1, 1], (1, 5, 5, 64)), rng.choice([-1, 1], (8, 3, 3, 64))
rows, codes = rng.choice([-1, 1], (300, 256)), rng.integers(0, 8, (3, 100))
calls = []

def handler(number, frame):
    if "busy" not in calls:
        calls.append("busy")
        x, w = qa.encode(image, (-1, 1)), qa.encode(weight, (-1, 1))
        assert qa.conv2d(x, w)[0, 1, 2, 3] == (image[0, 1:4, 2:5] * weight[3]).sum()
        q = qa.quantize(codes, qa.Uniform(3, step=1.0 + len(calls) / 7))
        assert (qa.linear(q, q) == qa.linear(q, q)).all() and q.codes().max() < 8
        calls[-1] = "done"

def check():
    a, q = qa.encode(rows, (-1, 1)), qa.encode(codes, range(8))
    assert (qa.linear(a, a) == rows @ rows.T).all()
    assert (qa.linear(q, q) == codes @ codes.T).all()
"""


def run(code, **options):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(code)],
        cwd=ROOT, capture_output=True, text=True, timeout=600, **options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("milliseconds", [1, 30, 300])
def test_handlers_during_a_first_call(milliseconds):
    """Those that came while Numba was being imported raised ImportError in the call."""
    run(f"""
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, {milliseconds / 1000}, {milliseconds / 1000})
        check()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.raise_signal(signal.SIGALRM)
        assert "done" in calls
    """)


def test_handlers_while_a_function_is_compiled():
    """The handler calls the function that is being compiled, and others."""
    run("""
        from numba.core import event
        from quantarray.cpu.runtime.jit import entry

        @entry
        def twice(x):
            return x * 2

        def handler(number, frame):
            calls.append((twice(2), twice(0.5), twice(np.ones(3)).sum()))

        class Listener(event.Listener):
            def on_start(self, _):
                signal.raise_signal(signal.SIGUSR1)
                assert not calls
            on_end = on_start

        signal.signal(signal.SIGUSR1, handler)
        twice(1j)  # imports what compilations need
        event.register("numba:compile", listener := Listener())
        twice._cache._cache_path, calls[:] = None, []
        assert twice(3) == 6
        event.unregister("numba:compile", listener)
        assert calls == [(4, 1.0, 6.0)], calls
    """)


def test_handlers_while_a_lock_is_held():
    run("""
        from quantarray.arrays import layouts
        from quantarray.core import forks
        from quantarray.cpu.runtime import inspection, threads
        from quantarray.tuning import autotune

        check()
        signal.signal(signal.SIGUSR1, handler)
        locks = forks.no_fork, forks.brief, layouts._lock, inspection._lock, threads._lock, autotune.state.lock
        for i, lock in enumerate(locks):
            with lock:
                signal.raise_signal(signal.SIGUSR1)
                check()
            assert calls == ["done"] * (i + 1), (lock, calls)
    """)


def test_handlers_at_any_step_of_a_call():
    """A signal comes before each of the steps, of Python's bytecode, that take locks and change what calls share."""
    run("""
        files = "forks.py", "bounded_cache.py", "layouts.py", "notes.py", "recording.py", "schedule.py", "threads.py"
        left = [0]

        def trace(frame, event, argument):
            frame.f_trace_opcodes = frame.f_code.co_filename.endswith(files)
            if event == "opcode":
                left[0] -= 1
                if left[0] == 0:
                    signal.raise_signal(signal.SIGUSR1)
            return trace

        def traced(step):
            left[0] = step
            net = qa.nn.Sequential([qa.nn.Dense(qa.encode(rows[:9], (-1, 1)))]).prepared()
            x = qa.encode(rows[:2], (-1, 1))
            sys.settrace(trace)
            try:
                qa.quantize(codes, qa.Uniform(3, step=1 + step / 1e5))
                check()
                results = [net(x) for _ in range(3)]
            finally:
                sys.settrace(None)
            assert all((r == rows[:2] @ rows[:9].T).all() for r in results)
            return -left[0]

        check(), handler(0, None)
        signal.signal(signal.SIGUSR1, handler)
        steps = traced(0)
        assert steps > 1000, steps
        calls.clear()
        chosen = [*range(1, 400), *range(400, steps, max(1, steps // 400))]
        for step in chosen:
            traced(step)
            assert signal.getsignal(signal.SIGUSR1) is handler
        assert calls == ["done"] * len(chosen), (calls.count("done"), len(chosen), calls[-1])
    """)


def test_a_handler_that_raises_leaves_no_lock_behind():
    run("""
        from quantarray.core import forks

        class Late(Exception):
            pass

        def handler(number, frame):
            raise Late(number)

        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, handler)
        try:
            with forks.no_fork, forks.brief:
                signal.raise_signal(signal.SIGUSR1), signal.raise_signal(signal.SIGUSR2)
                inside = True
        except Late as error:
            assert inside and error.__context__ is not None  # both handlers ran
        else:
            raise AssertionError("no handler ran")
        thread = threading.Thread(target=check, daemon=True)
        thread.start(), thread.join(300)
        assert not thread.is_alive() and signal.getsignal(signal.SIGUSR1) is handler
    """)


def test_a_forked_child_does_not_run_the_handlers_of_its_parent():
    run("""
        from quantarray.core import forks

        signal.signal(signal.SIGUSR1, lambda *_: calls.append(os.getpid()))
        with forks.no_fork:
            signal.raise_signal(signal.SIGUSR1)
            child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGUSR1)
            os._exit(0 if calls == [os.getpid()] else 1)
        assert os.waitpid(child, 0)[1] == 0 and calls == [os.getpid()]
        handled = []
        threading.Thread(target=lambda: handled.append(os.waitpid(os.fork() or os._exit(0), 0)[1])).start()
        time.sleep(0.2)
        assert handled == [0]
    """)
