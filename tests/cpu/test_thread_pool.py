"""The thread pool: threads that come late, sleep, and end with the process; and PyTorch's team in its place."""

import ctypes
import os
import subprocess
import sys
import textwrap
import threading

import numba
import numpy as np
import pytest
from paths import ROOT

import quantarray as qa
from quantarray.cpu.runtime import threads
from quantarray.cpu.runtime.atomics import WHY_NOT
from quantarray.cpu.runtime.schedule import Kernel
from quantarray.cpu.runtime.team import library_of
from quantarray.cpu.runtime.thread_pool import ASLEEP, UNTIL, ThreadPool

pytestmark = [pytest.mark.full, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]

# Of a process with two threads: `call()` is divided, and `right(y)` says whether its result is as by one thread
PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
import quantarray as qa
from quantarray.cpu.runtime import threads

qa.set_num_threads(1)
rng = np.random.default_rng(0)
x = qa.encode(rng.integers(0, 2, (1, 28, 28, 128)) * 2 - 1, (-1, 1))
w = qa.encode(rng.integers(0, 2, (128, 3, 3, 128)) * 2 - 1, (-1, 1))
call = lambda: qa.conv2d(x, w, padding=1)
exact = call()
qa.set_num_threads(2)
right = lambda y: np.array_equal(y, exact)

def names():
    found = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as f:
            found.append(f.read().strip())
    return sorted(name for name in found if name.startswith("quantarray"))
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + textwrap.dedent(code)],
        env=os.environ | {"NUMBA_NUM_THREADS": "2"} | environment,
        cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def lines(monkeypatch):
    """A pool of one thread's memory, but no thread: states are what a test makes them."""
    monkeypatch.setattr(ThreadPool, "_start", lambda pool, i: True)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", max(2, numba.config.NUMBA_NUM_THREADS))
    pool = ThreadPool()
    pool.grow(2)
    monkeypatch.setattr(pool, "_process", 0)  # nothing to settle
    return pool


@Kernel
def count_up(sums, first, last):
    for i in range(first, last):
        sums[i] += 1


def states(pool):
    return pool._lines[1:2].view(np.int32)[:, 0]


def test_a_call_does_not_wait_for_a_thread_that_never_begins(lines):
    """All pieces are done, and the job is taken back: the thread's line is free for the next call."""
    states(lines)[:] = ASLEEP
    for _ in range(3):
        sums = np.zeros(100, np.int64)
        count_up((sums,), None, 100, 10, 2, lines.address)
        assert (sums == 1).all()
        assert states(lines)[0] == 0 and lines._lines[1, 1] == 0  # idle, and no job
    assert lines._lines[0, UNTIL] == 0  # nobody was late


def test_a_thread_that_another_call_has_is_left_alone(lines):
    states(lines)[:] = 4  # busy
    sums = np.zeros(100, np.int64)
    count_up((sums,), None, 100, 10, 2, lines.address)
    assert (sums == 1).all() and states(lines)[0] == 4


def test_fewer_threads_after_a_stall():
    """Fewer threads are used for twice as long as the stall, and for longer if another one follows soon."""
    run("""
        import numba
        from quantarray.cpu.runtime.thread_pool import LIMIT, UNTIL, note_wait, pool

        @numba.njit
        def note(at, workers, own, late, refused, times):
            for _ in range(times):
                note_wait(at, workers, own, late, refused)

        call()
        header, at, length, ms = pool()._lines[0], pool().address, 4, 1_000_000
        header[UNTIL] = header[length] = 0  # a stall of the call itself, on a busy machine
        note(at, 2, 10_000, 90_000, False, 1)
        note(at, 2, 5 * ms, 4 * ms, False, 1)
        assert header[UNTIL] == 0 and threads.count() == 2  # shorter than the caller's work, or than a stall
        note(at, 2, 50_000, 20 * ms, False, 1)
        assert header[length] == 40 * ms and header[UNTIL] >= time.monotonic_ns() - 5000 * ms
        header[UNTIL] = 0
        for times, lasts in ((1, 40), (2, 80), (3, 100), (9, 100)):
            note(at, 2, 50_000, 20 * ms, False, times)
            assert header[length] == lasts * ms, header[length]
            header[UNTIL] = 0  # long ago
        note(at, 16, 50_000, 0, True, 1)
        assert header[length] == 200_000 and header[LIMIT] == 8
        header[UNTIL], header[LIMIT] = time.monotonic_ns() + 10**12, 1
        assert threads.count() == 1 and qa.get_num_threads() == 2 and right(call())
        header[UNTIL] = 0
        assert threads.count() == 2
    """)


def test_stalls_that_take_little_of_the_time():
    """Work of all threads makes up for a quarter of its time in stalls, of 5 ms at most."""
    run("""
        import numba
        from quantarray.cpu.runtime.thread_pool import UNTIL, note_wait, pool

        @numba.njit
        def note(at, own, late):
            note_wait(at, 2, own, late, False)

        call()
        header, at, credit, ms = pool()._lines[0], pool().address, 5, 1_000_000
        header[UNTIL] = header[credit] = 0
        note(at, 8 * ms, 0)
        note(at, 9 * ms, 8 * ms)  # no stall, but time for which a thread did nothing
        assert header[credit] == 9 * ms // 4
        note(at, 50_000, 1 * ms)
        assert header[UNTIL] == 0 and header[credit] == 5 * ms // 4
        note(at, 0, 2 * ms)  # a thread that was woken late
        assert header[UNTIL] > time.monotonic_ns() and header[credit] == 0
        for _ in range(9):
            note(at, 40 * ms, 0)
        assert header[credit] == 5 * ms
    """)


def test_threads_sleep_after_a_call():
    """100 us after it the process uses no processor, whatever its threads did before."""
    run("""
        used = []
        for _ in range(100):
            for _ in range(5):
                assert right(call())
            end = time.perf_counter() + 1e-4
            while time.perf_counter() < end:
                pass
            before = time.process_time()
            time.sleep(0.005)
            used.append(time.process_time() - before)
        assert names() == ["quantarray-1"]
        assert np.median(used) < 0.0005, np.median(used)  # a sleep takes some of it
    """)


def test_signals_are_for_the_main_thread():
    run("""
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread() is threading.main_thread()))
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert right(call())
        assert seen and all(seen)
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/status") as f:
                status = dict(line.rstrip().split(":", 1) for line in f)
            if status["Name"].strip().startswith("quantarray"):
                blocked = int(status["SigBlk"], 16)
                assert blocked >> signal.SIGUSR1 - 1 & 1 and not blocked >> signal.SIGSEGV - 1 & 1
    """)


def test_a_process_ends_right_after_a_call():
    """The process ends while its threads may still run compiled code: 20 times, each after another pause."""
    for pause in range(20):
        run(f"""
            call()
            end = time.perf_counter() + {pause * 5e-6}
            while time.perf_counter() < end:
                pass
        """)


def test_more_threads_than_processors():
    run(
        """
        assert names() == []
        qa.set_num_threads(8)
        for _ in range(200):
            assert right(call())
        assert len(names()) == 7 or threads.count() < 8, names()
        """,
        NUMBA_NUM_THREADS="8",
    )


def test_a_system_that_starts_no_more_threads():
    """If no thread can be started, the caller does all pieces."""
    run("""
        from quantarray.cpu.runtime.thread_pool import ThreadPool
        ThreadPool._start = lambda pool, i: False
        assert all(right(call()) for _ in range(5)) and names() == []
    """)


def test_numba_loops_on_demand():
    run("assert right(call()) and names() == []", QUANTARRAY_THREADS="numba")
    said = run("assert right(call()); print(threads.described())", QUANTARRAY_THREADS="numba")
    assert said.startswith("numba: a loop on Numba's threads (") and "QUANTARRAY_THREADS asks for it" in said
    assert run("call(); print(threads.described())").startswith("own: ")
    with pytest.raises(AssertionError, match="QUANTARRAY_THREADS must be own or numba, got 'omp'"):
        run("call()", QUANTARRAY_THREADS="omp")


# A package named torch whose library is the system's GNU OpenMP, linked to nothing else
STUB = """
import importlib.util, pathlib, shutil, tempfile, ctypes.util, types
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "torch" / "lib").mkdir(parents=True)
(folder / "torch" / "__init__.py").write_text(
    "import ctypes, pathlib\\n"
    "ctypes.CDLL(str(pathlib.Path(__file__).parent / 'lib' / 'libtorch_cpu.so'), ctypes.RTLD_LOCAL)\\n"
)
shutil.copy(OPENMP, folder / "torch" / "lib" / "libtorch_cpu.so")
sys.path.insert(0, str(folder))
"""


def openmp():
    """The path of GNU OpenMP's library, or None where there is none that loads."""
    from ctypes.util import find_library

    name = find_library("gomp")
    if name is None:
        return None
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    with open("/proc/self/maps") as f:
        return next((line.split()[-1] for line in f if "libgomp" in line), None)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_threads_of_pytorch_are_shared(first):
    """Whichever is imported first, by the thread that calls first; other threads have the pool."""
    path = openmp() or pytest.skip("this machine has no GNU OpenMP")
    stub = STUB.replace("OPENMP", repr(path))
    begin = ["assert right(call())", "import torch"][:: 1 if first == "ours" else -1]
    said = run(
        stub
        + "\n".join(begin)
        + textwrap.dedent("""
        assert all(right(call()) for _ in range(20))
        print(threads.described())
        wrong = []
        def work():
            wrong.extend(not right(call()) for _ in range(20))
            wrong.append(not threads.described().startswith("own: "))
        other = threading.Thread(target=work)
        other.start(), other.join()
        assert not any(wrong)
        team = threads._state["team"]
        library = __import__("ctypes").CDLL(str(folder / "torch" / "lib" / "libtorch_cpu.so"))
        library.omp_set_num_threads(3)  # more than ours: the pool does it
        assert all(right(call()) for _ in range(20))
        library.omp_set_num_threads(1)
        assert all(right(call()) for _ in range(20))
        child = os.fork()
        if child == 0:
            os._exit(0 if right(call()) else 1)
        assert os.waitpid(child, 0)[1] == 0
        shutil.rmtree(folder)
        """),
        NUMBA_THREADING_LAYER="omp",
    )
    assert said.startswith("shared: PyTorch's")


def test_a_package_that_only_looks_like_pytorch(monkeypatch):
    """One without a library, or with a library that has no OpenMP."""
    for found in (type(os)("torch"), type("torch", (), {"__file__": os.__file__})):
        assert library_of(found) is None


def test_a_number_of_threads_of_each_python_thread():
    qa.set_num_threads(1)
    try:
        seen = []
        other = threading.Thread(target=lambda: seen.append(threads.count()))
        other.start(), other.join()
        assert threads.count() == 1 and seen[0] >= 1
    finally:
        qa.set_num_threads(numba.config.NUMBA_NUM_THREADS)
