"""Arguments of launches: arrays of GPU memory only, in the order that Numba's kernels have them.

The twins' own host code runs here, on the stand-in for CuPy, and no kernel does.
"""

import threading
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba_cuda")

import fake_cupy
from device_calls import STAY, operands

import quantarray as qa


@pytest.fixture(params=[(7, 0), (8, 0)], ids=["sm_70", "sm_80"])
def launches(request, monkeypatch):
    """List kernels and arguments of each launch of a twin; device arrays are the stand-in's, all of zeros."""
    from quantarray.cuda.runtime import driver, launch

    listed = []

    def run(kernel, grid, block, *args, shared=0, tiled=False):
        listed.append((kernel.py_func.__name__, *args))
        for a in args:
            _check(a)

    def _check(a):
        if isinstance(a, tuple):
            for member in a:
                _check(member)
        elif not isinstance(a, driver.NUMBERS):
            assert isinstance(a, fake_cupy.ndarray), f"a launch got {type(a).__name__} {a.dtype} {a.shape}"

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setattr(launch, "capability", lambda: request.param)
    monkeypatch.setattr(launch, "array", lambda a: a)
    monkeypatch.setattr(launch, "address", lambda a: a.held.ctypes.data)
    monkeypatch.setattr(launch, "_move", lambda a: fake_cupy.ndarray(a.copy()))
    monkeypatch.setattr(launch, "scratch", lambda shape, dtype: fake_cupy.ndarray(np.zeros(shape, dtype)))
    monkeypatch.setattr(launch, "_equal", {})
    monkeypatch.setattr(fake_cupy, "empty", fake_cupy.zeros, raising=False)  # results that no kernel writes are codes 0
    return listed


@pytest.mark.parametrize("name", STAY)
def test_no_host_array_reaches_a_launch(name, launches):
    with fake_cupy.arrays():
        STAY[name](*(q.to_device("cuda") for q in operands()))


def test_launches_and_memory_of_a_search(launches):
    """On tensor cores: queries laid out, bounds, products, order; for candidates there is a fixed room."""
    from quantarray.cuda.runtime import launch

    if launch.capability() < (8, 0):
        pytest.skip("has no tensor cores for bits")
    with fake_cupy.arrays():
        codes = qa.from_codes(np.zeros((3000, 130), np.uint8), qa.uint1).to_device("cuda")
        for asked, room in ((1, 1 << 14), (3000, (1 << 23) // 3000)):
            del launches[:]
            qa.top_k(codes[:asked], codes, 10)
            assert [name for name, *_ in launches] == ["_lay_out", "_count", "bmma_tile", "_settle"]
            assert launches[2][-1].shape == (asked, room)


@pytest.mark.parametrize("name", ["depthwise", "avg_pool2d"])
def test_launches_of_depthwise_products(name, launches):
    from quantarray.cuda.runtime import launch

    with fake_cupy.arrays():
        STAY[name](*(q.to_device("cuda") for q in operands()))
    kernel = "depthwise_tile" if launch.capability() >= (8, 0) else "lane_a_channel"
    assert [name for name, *_ in launches if name not in ("pack_codes", "repack")][-1] == kernel


def test_parameters_of_a_launch():
    """An array's are two zeros, elements, bytes of one, address, lengths and strides; numbers are themselves."""
    driver = import_module("quantarray.cuda.runtime.driver")
    cupys = SimpleNamespace(
        size=6, dtype=np.dtype(np.int32), data=SimpleNamespace(ptr=1 << 40), shape=(2, 3), strides=(12, 4)
    )
    numbas = SimpleNamespace(
        size=0, dtype=np.dtype(np.uint64), device_ctypes_pointer=SimpleNamespace(value=None), shape=(0,), strides=(8,)
    )
    of_cupys, of_numbas = [0, 0, 6, 4, 1 << 40, 2, 3, 12, 4], [0, 0, 0, 8, 0, 0, 8]
    assert driver.numbers((5, cupys, (np.int32(7), (numbas, 2.5)), True)) == [5, *of_cupys, 7, *of_numbas, 2.5, True]


def test_kernels_run_on_cupys_current_stream(monkeypatch):
    """The default stream is named by its own number: 0 may be another one in this process."""
    core, driver = import_module("cuda.core"), import_module("quantarray.cuda.runtime.driver")
    started, stream = [], SimpleNamespace(ptr=0)
    monkeypatch.setattr(core, "launch", lambda *how: started.append(how))
    monkeypatch.setattr(driver, "_stream", lambda *which: which)
    monkeypatch.setattr(driver, "_runtime", lambda: (None, lambda: stream))
    driver.start("kernel", 2, (3, 4), 32, 99, (5, np.float32(6)))
    stream.ptr = 1 << 40
    driver.start("kernel", 2, 3, (32, 2), 0, ())
    monkeypatch.setattr(driver, "_runtime", lambda: None)
    driver.start("kernel", 2, 3, 32, 0, ())
    assert [(where, *rest) for where, _, *rest in started] == [
        ((2, 1), "kernel", 5, 6), ((2, 1 << 40), "kernel"), ((2, 0), "kernel"),
    ]  # fmt: skip
    grids = [(config.grid, config.block, config.shmem_size) for _, config, *_ in started]
    assert grids == [((3, 4, 1), (32, 1, 1), 99), ((3, 1, 1), (32, 2, 1), 0), ((3, 1, 1), (32, 1, 1), 0)]


def test_a_thread_enters_a_gpu_once(monkeypatch):
    driver, entered = import_module("quantarray.cuda.runtime.driver"), []
    monkeypatch.setattr(driver, "_entered", threading.local())
    monkeypatch.setattr(driver.cuda, "current_context", lambda: entered.append(threading.current_thread()))
    for gpu in (0, 1, 0):
        driver.enter(gpu)
    thread = threading.Thread(target=driver.enter, args=(1,))
    thread.start()
    thread.join()
    assert entered == [threading.current_thread()] * 2 + [thread]
