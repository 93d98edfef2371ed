"""Kernels called from many threads, forked children and worker pools: right results, no abort, no deadlock."""

import ctypes
import gc
import importlib.util
import multiprocessing
import os
import platform
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from paths import ROOT

import quantarray as qa
from quantarray.cpu.llvm.vectors import I64
from quantarray.cpu.popcount.tile_tasks import cut, starts
from quantarray.cpu.runtime import threads
from quantarray.cpu.runtime.atomics import WHY_NOT, load, now
from quantarray.cpu.runtime.driver import Driver
from quantarray.cpu.runtime.launch import Launch
from quantarray.cpu.runtime.schedule import NOTHING, Held, Kernel, dealer
from quantarray.cpu.runtime.team import Team
from quantarray.cpu.runtime.thread_pool import LIMIT, UNTIL, pool

WORK = """
import sys, threading
import numpy as np
import quantarray as qa

rng = np.random.default_rng(0)
xv = rng.integers(0, 2, (4, 14, 14, 256)) * 2 - 1
wv = rng.integers(0, 2, (64, 3, 3, 256)) * 2 - 1
x, w = qa.encode(xv, (-1, 1)), qa.encode(wv, (-1, 1))
real = qa.quantize(wv, qa.Sign(scale=True), scale_axis=0)
windows = np.lib.stride_tricks.sliding_window_view(xv.astype(float), (3, 3), (1, 2))
exact = np.einsum("nijcab,oabc->nijo", windows, wv.astype(float), optimize=True).astype(np.int32)


def right():
    y = qa.conv2d(x, w)
    f = qa.conv2d(x, real)
    packed = qa.conv2d(x, w, requantize=qa.Thresholds([0]))
    pooled = qa.max_pool2d(x, 2)
    return (
        np.array_equal(y, exact)
        and np.array_equal(f, exact.astype(np.float32))
        and np.array_equal(packed.dequantize(), np.where(exact > 0, 1, -1))
        and np.array_equal(pooled.dequantize(), xv.reshape(4, 7, 2, 7, 2, 256).max((2, 4)))
        and np.array_equal(x.dequantize(), xv)
        and qa.encode(xv, (-1, 1)).digest() == x.digest()
    )
"""

THREADS = """
import numba
wrong, barrier = [], threading.Barrier(8)


def work():
    barrier.wait()
    for _ in range(5):
        try:
            if not right():
                wrong.append("wrong")
        except BaseException as error:
            wrong.append(repr(error))


threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(numba.threading_layer() if numba.get_num_threads() > 1 else LAYER)
sys.exit(str(wrong) if wrong else 0)
"""

FORK = """
import multiprocessing
if __name__ == "__main__":
    first()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        results = [pool.apply_async(right) for _ in range(4)]
        assert all(r.get(timeout=300) for r in results)
    assert right()
"""


BEFORE_FORKS = {
    "kernels": "first = right",
    "number": "def first(): qa.set_num_threads(2)",  # which starts threads: Numba's loops end children of that
    "others": """
        import numba
        @numba.njit(parallel=True)
        def sums(x):
            total = 0
            for i in numba.prange(x.size):
                total += x[i]
            return total
        def first(): assert sums(np.arange(1000)) == 499500
        """,
}


def python(code, layer):
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_eight_python_threads(layer):
    """Eight threads call at once, on the same arrays, with nothing compiled or cached before."""
    done = python(f"LAYER = {layer!r}\n" + WORK + THREADS, layer)
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"this machine has no {layer}")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [layer]


@pytest.mark.full
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.parametrize("before", BEFORE_FORKS)
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
def test_forked_children(layer, before):
    """Fork a process that ran kernels, or asked for threads, or ran loops of others on Numba's."""
    done = python(WORK + textwrap.dedent(BEFORE_FORKS[before]) + FORK, layer)
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"this machine has no {layer}")
    assert done.returncode == 0, done.stderr[-2000:]


JOBLIB = """
import joblib
if __name__ == "__main__":
    assert right()
    for backend in ("loky", "threading", "multiprocessing"):
        assert all(joblib.Parallel(2, backend=backend)(joblib.delayed(right)() for _ in range(4))), backend
"""

LOADER = """
import torch


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        assert right()
        return torch.from_numpy(qa.conv2d(x[i % 4 : i % 4 + 1], w))


if __name__ == "__main__":
    assert right()  # torch's threads and this package's have run before the workers are forked
    made = torch.cat(list(torch.utils.data.DataLoader(Images(), num_workers=2, batch_size=4)))
    assert np.array_equal(made[:, 0].numpy(), exact[[0, 1, 2, 3] * 2])
"""


@pytest.mark.full
@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.parametrize(("package", "code"), [("joblib", JOBLIB), ("torch", LOADER)])
def test_worker_pools(package, code, layer, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    script = tmp_path / "pool.py"  # newly started workers import it
    script.write_text(WORK + code)
    done = python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", layer)
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"this machine has no {layer}")
    assert done.returncode == 0, done.stderr[-2000:]


def test_number_of_threads():
    before = qa.get_num_threads()
    try:
        qa.set_num_threads(1)
        assert qa.get_num_threads() == numba.get_num_threads() == 1
    finally:
        qa.set_num_threads(before)
    assert qa.get_num_threads() == before


@pytest.mark.parametrize(
    ("n", "error", "said"),
    [
        (0, ValueError, "n must be at least 1"),
        (10**6, ValueError, "set NUMBA_NUM_THREADS before the first import"),
        (1.5, TypeError, "n must be an integer"),
    ],
)
def test_numbers_of_threads_that_cannot_be(n, error, said):
    with pytest.raises(error) as caught:
        qa.set_num_threads(n)
    assert str(caught.value).startswith("set_num_threads: ") and said in str(caught.value), caught.value


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_compilation_is_announced_once(tmp_path):
    import pty

    code = "import quantarray as qa; q = qa.encode([[[[1, 0]]]], range(2)); q.codes(); qa.conv2d(q, q)"
    said = []
    for _ in range(2):
        ours, theirs = pty.openpty()
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "QUANTARRAY_QUIET": ""}
        subprocess.run([sys.executable, "-c", code], stderr=theirs, env=environment, check=True)
        os.write(theirs, b".")
        said.append(os.read(ours, 10_000).decode())
        os.close(theirs)
        os.close(ours)
    assert said[0].count("compiling kernels") == 1 and said[1] == "."


def by_numba():
    """A loop on Numba's threads."""
    return dealer().ctypes.data


def by_pool():
    if pool() is None:
        pytest.skip(f"no thread pool: {WHY_NOT}")
    pool().grow(4)
    return pool().address


@cache
def openmp():
    """A `Team` of the OpenMP that Numba was linked to, or None."""
    numba.get_num_threads()  # from here on there is a threading layer
    if pool() is None or threads.layer() != "omp":
        return None
    from numba.np.ufunc import omppool

    return Team(ctypes.CDLL(omppool.__file__), pool())


def by_team():
    return openmp().dealing.deal if openmp() else pytest.skip("Numba's threads are not GNU OpenMP's")


WAYS = by_numba, by_pool, by_team


@pytest.fixture(params=WAYS)
def deal(request):
    """Return what deals pieces out, as `Kernel` takes it."""
    numba.get_num_threads()  # there are threads from here on
    by_pool()
    return request.param()


@intrinsic
def _thread(typingctx):
    """A number that no other thread has: the address of its stack."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(cgutils.alloca_once(builder, I64), I64)

    return types.int64(), codegen


@Kernel
def take(slow, times, takers, sums, first, last):
    """times[piece] counts how often a piece is taken, takers[piece] says by whom.

    Piece `slow` waits, for a second or so at most, until all pieces are taken.
    """
    for piece in range(first, last):
        times[piece] += 1
        takers[piece] = _thread() >> 12
        for i in range(5_000):
            sums[piece] += np.sqrt(i)
        for _ in range(5_000_000 if piece == slow else 0):
            if load(times.ctypes.data) and times.sum() == times.size:  # `load` has the sum read memory again
                break


@contextmanager
def pinned():
    """Keep this thread on one processor and the pool's threads on others.

    Where all are busy, Linux may wake a thread on its caller's, and then it does not begin.
    """
    tasks = [int(task.name) for task in Path("/proc/self/task").glob("*")]
    ours = [task for task in tasks if Path(f"/proc/self/task/{task}/comm").read_text().startswith("quantarray-")]
    before = os.sched_getaffinity(0)
    here, *others = before
    for task in ours:
        os.sched_setaffinity(task, others)
    os.sched_setaffinity(0, {here})
    try:
        yield
    finally:
        for task in (0, *ours):
            os.sched_setaffinity(task, before)


on_two_processors = pytest.mark.skipif(
    bool(WHY_NOT) or numba.config.NUMBA_NUM_THREADS < 2 or len(os.sched_getaffinity(0)) < 2,
    reason="no two threads that can be pinned to processors",
)


@on_two_processors
def test_pieces_go_to_who_is_free(deal):
    """Each piece once; the thread with the long one gets no other, where `prange` would give it half of them."""
    workers, pieces = min(2, numba.get_num_threads()), 1000
    times, takers, sums = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64), np.zeros(pieces)
    for _ in range(20):  # the system may give a second thread no processor for a while
        times[...] = 0
        with pinned():
            take((0, times, takers, sums), None, pieces, pieces, workers, deal)
        assert (times == 1).all()
        if workers < 2 or (takers == takers[0]).sum() < pieces // 4:
            return
        time.sleep(0.05)
    pytest.fail("the thread with the long piece took others as well")


@Kernel
def wait_until(times, first, last):
    while now() < times[0]:
        pass


@on_two_processors
def test_a_row_of_kernels_asks_for_threads_before_each(monkeypatch):
    """Fewer are used while the pool says so, and not for all of a network that begins then."""
    monkeypatch.setattr(threads, "_dealing", threads._alone)
    by_pool()
    pieces, until = 1000, np.zeros(1, np.int64)
    times, takers, sums = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64), np.zeros(pieces)
    waiting, taking = Launch(wait_until, (until,), NOTHING), Launch(take, (0, times, takers, sums), NOTHING)
    row = Driver([(waiting, 1, 1, 1, False), (taking, pieces, pieces, 2, take.takes)])
    state = pool()._lines[0]
    assert row.run()  # compiles what it asks by
    for _ in range(20):
        times[...], state[LIMIT] = 0, 1
        with pinned():
            state[UNTIL] = until[0] = time.monotonic_ns() + 5_000_000
            assert row.run()
        assert (times == 1).all()
        if (takers == takers[0]).sum() < pieces // 4:
            break
    else:
        pytest.fail("a limit that had run out was kept")
    times[...], state[UNTIL] = 0, time.monotonic_ns() + 10**10
    assert row.run() and (times == 1).all() and (takers == takers[0]).all()
    state[UNTIL] = 0


@given(tasks=st.integers(0, 100), pieces=st.integers(1, 20), workers=st.integers(1, 4))
def test_every_task_is_done_once(tasks, pieces, workers):
    numba.get_num_threads()
    ways = by_numba, *([by_pool] if pool() else []), *([by_team] if openmp() else [])
    for way in ways:
        times, takers, sums = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), np.zeros(tasks)
        take((-1, times, takers, sums), None, tasks, pieces, workers, way())
        assert (times == 1).all()


@Kernel
def fail(at, first, last):
    if first <= at < last:
        raise MemoryError


@pytest.mark.parametrize("pieces", [1, 10])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_fails_in_a_kernel_is_raised(workers, pieces, deal):
    fail((100,), None, 100, pieces, workers, deal)
    with pytest.raises(MemoryError, match="no memory for a kernel's buffers"):
        fail((57,), None, 100, pieces, workers, deal)


@Kernel
def weigh(weights, rest, flag, unit, x, out, first, last):
    columns, (offsets, shift) = rest
    for i in range(first, last):
        out[i] += weights[i] * x[i] + columns[i, 1] + offsets.size + shift
        if flag and unit is None:
            out[i] += 1000


@pytest.mark.parametrize("pieces", [1, 10])
@pytest.mark.parametrize("workers", [1, 2])
def test_held_arguments(workers, pieces, deal):
    """Arrays with strides and of no elements, tuples in tuples, flags and None; others' memory is neither kept nor
    freed, but what is held lives as long as it is."""
    n = 100
    weights, columns = np.arange(n), np.arange(4 * n).reshape(n, 4)[:, ::2]
    held = Held((weights, (columns, (np.zeros((0, 3)), 7)), True, None))
    owned, x, before = sys.getrefcount(weights), np.arange(n) % 5, sys.getrefcount(held)
    for _ in range(3):
        out = np.zeros(n, np.int64)
        weigh((x, out), "of integers", n, pieces, workers, deal, held)
        np.testing.assert_array_equal(out, weights * x + columns[:, 1] + 7 + 1000)
        assert sys.getrefcount(out) == 2
    assert (sys.getrefcount(weights), sys.getrefcount(held)) == (owned, before)
    del weights, columns
    gc.collect()
    again = np.zeros(n, np.int64)
    weigh((x, again), "of integers", n, pieces, workers, deal, held)
    np.testing.assert_array_equal(again, out)


@given(
    workers=st.integers(1, 64), split=st.integers(1, 20), tiles=st.integers(1, 5000), bands=st.integers(1, 50),
    work=st.floats(1, 1e8), weights=st.floats(0, 1e6), pixels=st.floats(0, 1e6), shared=st.floats(0, 1e6),
)  # fmt: skip
def test_cutting_tiles_and_channels(workers, split, tiles, bands, work, weights, pixels, shared):
    chunks, parts = cut(workers, split, tiles, work, weights, pixels, bands, shared)
    assert 1 <= chunks <= split and 1 <= parts <= tiles
    assert chunks * parts >= min(workers, tiles)


def test_where_products_are_cut():
    """Few pieces where each prepares all weights; whole bands where weights are prepared for each band anyway."""
    chunks, parts = cut(2, 8, 1000, 1e6, 0, 0, 1, 0)
    assert chunks * parts >= 8  # pieces are free: a late thread holds up little
    assert cut(2, 8, 1000, 1e5, 1e5, 0, 1, 0)[1] == 1  # weights are dear: channels are split
    assert cut(2, 8, 1000, 1e5, 0, 1e5, 1, 0)[0] == 1
    assert cut(2, 8, 256, 1e6, 1e5, 1e5, 4, 0)[0] == 1
    assert cut(2, 8, 1000, 1e5, 1e4, 0, 1, 1e5)[1] % 2 == 0  # words of a cache line are, and tiles would be split


@given(
    costs=st.lists(st.integers(1, 100), min_size=1, max_size=50), images=st.integers(1, 20), chunks=st.integers(1, 9),
    parts=st.integers(1, 40),
)  # fmt: skip
def test_stretches_of_equal_cost(costs, images, chunks, parts):
    """All tiles, in order; and the same stretches of all chunks together no dearer than an equal share and a tile."""
    tiles = starts(np.array(costs, float), images, chunks, parts)
    assert tiles.shape == (chunks, parts + 1) and tiles.dtype == np.int64
    assert (tiles[:, 0] == 0).all() and (tiles[:, -1] == len(costs) * images).all()
    assert (np.diff(tiles) >= 0).all()
    every = np.append(0, np.cumsum(np.tile(costs, images)))
    assert np.diff(every[tiles].sum(axis=0)).max() <= chunks * every[-1] / parts + max(costs)


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="a system without the pool")
@pytest.mark.parametrize("first", ["cpu.runtime.atomics", "cpu.popcount.conv", "cpu.runtime.thread_pool"])
def test_the_clock_is_found_whatever_is_imported_first(first):
    """LLVM knows no symbol of the process before Numba's target is there: without the clock there would be no pool."""
    code = f"import quantarray.{first}; from quantarray.cpu.runtime.atomics import WHY_NOT; print(repr(WHY_NOT))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "''"
