"""Signal handlers that call the package: during its first call, and while it holds any of its locks."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")]

# `handler` makes calls that compile, import and fill caches, and checks their results; `check` makes the main ones
PRELUDE = """
import faulthandler, os, signal, sys, threading, time
faulthandler.dump_traceback_later(500, exit=True)
import numpy as np
import quantarray as qa

rng = np.random.default_rng(0)
image, weight = rng.choice([-1, 1], (1, 5, 5, 64)), rng.choice([-1, 1], (8, 3, 3, 64))
rows, codes = rng.choice([-1, 1], (300, 256)), rng.integers(0, 8, (3, 100))
values, calls = rng.standard_normal((3, 70), np.float32), []

def handler(number, frame):
    if "busy" not in calls:
        calls.append("busy")
        x, w = qa.encode(image, (-1, 1)), qa.encode(weight, (-1, 1))
        assert qa.conv2d(x, w)[0, 1, 2, 3] == (image[0, 1:4, 2:5] * weight[3]).sum()
        step = 1 + len(calls) / 8192
        q = qa.quantize(values, qa.Uniform(3, step=step, signed=True, symmetric=True))
        assert (q.dequantize() == np.float32(step) * np.clip(np.rint(values / np.float32(step)), -3, 3)).all()
        calls[-1] = "done"

def check():
    a, q = qa.encode(rows, (-1, 1)), qa.encode(codes, range(8))
    assert (qa.linear(a, a) == rows @ rows.T).all()
    assert (qa.linear(q, q) == codes @ codes.T).all()
"""


@pytest.fixture
def run(tmp_path):
    """Run a program, from a file: Numba keeps what it compiles beside it."""
    return lambda code: _run(tmp_path / "program.py", PRELUDE + textwrap.dedent(code))


def _run(file, code):
    file.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", file], env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("milliseconds", [1, 30, 300])
def test_handlers_during_a_first_call(run, milliseconds):
    """Handlers that ran while Numba was being imported once raised ImportError in the call."""
    run(f"""
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, {milliseconds / 1000}, {milliseconds / 1000})
        check()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.raise_signal(signal.SIGALRM)
        assert "done" in calls
    """)


def test_handlers_while_a_function_is_compiled(run):
    """Numba refused a call of the function that was being compiled: "compiler re-entrant to the same .. signature"."""
    run("""
        from numba.core import event
        from quantarray.cpu.runtime.jit import entry

        @entry
        def half(x):
            return x / 2

        @entry
        def twice(x):
            return half(x) * 4

        def handler(number, frame):
            calls.append("begun")
            calls[-1] = twice(2), twice(0.5), twice(np.ones(3)).sum()

        class Listener(event.Listener):
            def on_start(self, started):
                if started.data["dispatcher"] is half and not calls:
                    signal.raise_signal(signal.SIGUSR1)

            def on_end(self, _):
                pass

        signal.signal(signal.SIGUSR1, handler)
        event.register("numba:compile", listener := Listener())
        assert twice(3) == 6
        event.unregister("numba:compile", listener)
        assert calls == [(4, 1.0, 6.0)], calls
    """)


def test_handlers_while_a_lock_is_held(run):
    run("""
        from quantarray.arrays import layouts
        from quantarray.core import forks
        from quantarray.cpu.runtime import inspection, threads

        check()
        signal.signal(signal.SIGUSR1, handler)
        locks = forks.no_fork, forks.brief, layouts._lock, inspection._lock, threads._lock
        for i, lock in enumerate(locks):
            with lock:
                signal.raise_signal(signal.SIGUSR1)
                check()
            assert calls == ["done"] * (i + 1), (lock, calls)
    """)


def test_handlers_at_any_step_of_a_call(run):
    """A signal comes before each of some steps, of Python's bytecode, that change what calls share."""
    run("""
        files = "bounded_cache.py", "layouts.py", "notes.py", "recording.py"
        left, raised = [0], []

        def trace(frame, event, argument):
            frame.f_trace_opcodes = frame.f_code.co_filename.endswith(files)
            if event == "opcode":
                left[0] -= 1
                if left[0] == 0:
                    raised.append(frame.f_code.co_name)
                    signal.raise_signal(signal.SIGUSR1)
            return trace

        def traced(step):
            left[0] = step
            net = qa.nn.Sequential([qa.nn.Dense(qa.encode(rows[:9], (-1, 1)))]).prepared()
            x = qa.encode(rows[:2], (-1, 1))
            sys.settrace(trace)
            try:
                qa.quantize(values, qa.Uniform(3, step=1 + step / 1e5))
                check()
                results = [net(x) for _ in range(3)]
            finally:
                sys.settrace(None)
            assert all((r == rows[:2] @ rows[:9].T).all() for r in results)
            return -left[0]

        check(), handler(0, None), traced(0)
        signal.signal(signal.SIGUSR1, handler)
        steps = traced(0)
        calls.clear()
        for step in range(1, steps, steps // 40):
            traced(step)
        assert len(calls) > 30 and len(set(raised)) > 5 and calls == ["done"] * len(raised), (calls, raised)
    """)


def test_handlers_at_any_step_of_a_lock(run):
    """Each of three signals is handled once, and the handlers are as before, whenever they come."""
    run("""
        from quantarray.core import forks

        numbers, seen, left = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM), [], [0]

        def handler(number, frame):
            with forks.no_fork:
                seen.append(number)

        def trace(frame, event, argument):
            frame.f_trace_opcodes = frame.f_code.co_filename.endswith("forks.py")
            if event == "opcode":
                left[0] -= 1
                for number in {0: numbers[:2], -5: numbers[2:]}.get(left[0], ()):
                    signal.raise_signal(number)
            return trace

        def traced(step):
            seen.clear()
            left[0] = step
            sys.settrace(trace)
            with forks.no_fork, forks.brief:
                pass
            sys.settrace(None)
            return -left[0]

        for number in numbers:
            signal.signal(number, handler)
        steps = traced(0)
        assert steps > 500
        for step in range(1, steps - 5, 4):
            traced(step)
            assert sorted(seen) == sorted(numbers), (step, seen)
            assert all(signal.getsignal(number) is handler for number in numbers)
    """)


def test_a_handler_that_raises_leaves_no_lock_behind(run):
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


def test_a_forked_child_does_not_run_the_handlers_of_its_parent(run):
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


def test_handlers_that_are_set_while_a_lock_is_held(run):
    """One that calls the handler before it, as set by an import, once was called without end; put back, it was lost."""
    run("""
        from quantarray.core import forks

        def first(number, frame):
            calls.append("first")

        def second(number, frame):
            calls.append("second")
            before(number, frame)

        signal.signal(signal.SIGUSR1, first)
        with forks.no_fork:
            before = signal.getsignal(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, second)
        signal.raise_signal(signal.SIGUSR1)
        assert calls == ["second", "first"], calls
        signal.signal(signal.SIGUSR1, before)
        signal.raise_signal(signal.SIGUSR1)
        with forks.brief:
            signal.raise_signal(signal.SIGUSR1)
            assert calls == ["second", "first", "first"], calls
        assert calls == ["second", "first", "first", "first"] and signal.getsignal(signal.SIGUSR1) is first, calls
    """)


def test_handlers_that_raise_at_any_step_of_a_lock(run):
    """Whenever Python asks for signals, after a call or as a function begins, the lock is free again afterwards."""
    run("""
        import dis
        from functools import cache
        from quantarray.core import forks

        left, checks = [0], ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD")

        def handler(number, frame):
            raise TimeoutError

        @cache
        def places(code):
            steps = list(dis.get_instructions(code))
            return {after.offset for one, after in zip(steps, steps[1:]) if one.opname in checks}

        def trace(frame, event, argument):
            frame.f_trace_opcodes = frame.f_code.co_filename.endswith("forks.py")
            if event == "opcode" and frame.f_lasti in places(frame.f_code):
                left[0] -= 1
                if left[0] == 0:
                    signal.raise_signal(signal.SIGUSR1)
            return trace

        def traced(step):
            left[0] = step
            sys.settrace(trace)
            try:
                with forks.brief:
                    pass
            except TimeoutError:
                return 0
            finally:
                sys.settrace(None)
            return -left[0]

        signal.signal(signal.SIGUSR1, handler)
        steps = traced(0)
        assert steps > 50
        for step in range(1, steps):
            traced(step)
            taken = []
            thread = threading.Thread(target=lambda: taken.append(forks.brief.acquire(False)) or forks.brief.release())
            thread.start()
            thread.join()
            assert taken == [True], step
            assert forks._signals._depth == 0 and signal.getsignal(signal.SIGUSR1) is handler, step
    """)
