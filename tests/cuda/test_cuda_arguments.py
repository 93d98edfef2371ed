"""Arguments of launches: arrays of GPU memory only, in the order that Numba's kernels have them.

The twins' own host code runs here, on the stand-in for CuPy, and no kernel does.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba_cuda")

import fake_cupy
from device_calls import STAY, operands
from paths import ROOT

import quantarray as qa
from quantarray.arrays import launched


@pytest.fixture(params=[(7, 0), (8, 0)], ids=["sm_70", "sm_80"])
def launches(request, monkeypatch):
    """List kernels and arguments of each launch of a twin; device arrays are the stand-in's, all of zeros."""
    from quantarray.cuda.runtime import driver, launch

    listed = []

    def run(kernel, grid, block, *args, shared=0, tiled=False):
        listed.append((kernel.py_func.__name__, *args))
        fake_cupy.launches.append(kernel.py_func.__name__)
        for a in args:
            _check(a)

    def _check(a):
        if isinstance(a, tuple):
            for member in a:
                _check(member)
        elif not isinstance(a, driver.NUMBERS):
            assert isinstance(a, fake_cupy.ndarray), f"a launch got {type(a).__name__} {a.dtype} {a.shape}"

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setattr(launched, "call_class", lambda: None)  # nothing is recorded
    monkeypatch.setattr(launch, "capability", lambda: request.param)
    monkeypatch.setattr(launch, "array", lambda a: a)
    monkeypatch.setattr(launch, "address", lambda a: a.held.ctypes.data)
    monkeypatch.setattr(launch, "_move", lambda a: fake_cupy.ndarray(a.copy()))
    monkeypatch.setattr(launch, "scratch", lambda shape, dtype: fake_cupy.ndarray(np.zeros(shape, dtype)))
    monkeypatch.setattr(launch, "arrivals", lambda count: fake_cupy.ndarray(np.zeros(count, np.uint32)))
    monkeypatch.setattr(launch, "_equal", {})
    blank = lambda *args: fake_cupy.ndarray(np.zeros(*args))  # noqa: E731  # results that no kernel writes are codes 0
    monkeypatch.setattr(fake_cupy, "empty", blank, raising=False)
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
            assert launches[2][-2].shape == (asked, room)


@pytest.mark.parametrize("name", ["depthwise", "avg_pool2d"])
def test_launches_of_depthwise_products(name, launches):
    from quantarray.cuda.runtime import launch

    with fake_cupy.arrays():
        STAY[name](*(q.to_device("cuda") for q in operands()))
    kernel = "depthwise_tile" if launch.capability() >= (8, 0) else "lane_a_channel"
    assert [name for name, *_ in launches if name not in ("pack_codes", "repack")][-1] == kernel


X = np.random.default_rng(0).normal(size=(4, 320)).astype(np.float32)
ONE = {
    "quantize to 1 bit": lambda x, q, b: qa.quantize(x, qa.Sign()),
    "quantize to 4 bits": lambda x, q, b: qa.quantize(x, qa.Uniform(4, step=0.1)),
    "quantize along an axis in front": lambda x, q, b: qa.quantize(x, qa.Uniform(8, step=0.1), axis=0),
    "codes": lambda x, q, b: q.codes(),
    "dequantize integers": lambda x, q, b: q.dequantize(),
    "dequantize a table": lambda x, q, b: qa.map(np.tanh, q).dequantize(),
    "dequantize a law of each row": lambda x, q, b: (q * np.arange(1.0, 5).reshape(4, 1, 1)).dequantize(),
    "dequantize to float16": lambda x, q, b: q.dequantize(out=fake_cupy.ndarray(OUT)),
    "sum": lambda x, q, b: qa.sum(q),
    "sum of rows": lambda x, q, b: qa.sum(q * 0.3, axis=2),
    "mean": lambda x, q, b: qa.mean(q),
    "mean of images": lambda x, q, b: qa.mean(q * np.arange(1.0, 5).reshape(4, 1, 1), axis=(1, 2)),
    "argmax": lambda x, q, b: qa.argmax(q, 2),
    "argmin along an axis in front": lambda x, q, b: qa.argmin(q, 1),
    "cumulative_sum": lambda x, q, b: qa.cumulative_sum(q, axis=2),
    "cumulative_sum of floats": lambda x, q, b: qa.cumulative_sum(q * 0.3, axis=1),
    "q + p": lambda x, q, b: q + b,
    "q * p of floats": lambda x, q, b: (q * 0.3) * b,
    "q > c": lambda x, q, b: q > 0,
    "q > vector": lambda x, q, b: q > np.arange(-2.0, 3).reshape(5, 1),
    "q == p": lambda x, q, b: q == q,
}  # fmt: skip
OUT = np.zeros((4, 5, 130), np.float16)


@pytest.mark.parametrize("name", ONE)
def test_one_launch(name, launches):
    """A second call is one launch, without a memset, and copies nothing but the flag that quantize waits for."""
    with fake_cupy.arrays() as xp:
        operands_there = xp.asarray(X), *(q.to_device("cuda") for q in operands())
        ONE[name](*operands_there)
        for noted in (launches, fake_cupy.launches, fake_cupy.waits):
            noted.clear()
        ONE[name](*operands_there)
    assert len(launches) == len(fake_cupy.launches) == 1, fake_cupy.launches
    assert fake_cupy.waits == ["an array is moved to the CPU"] * name.startswith("quantize")


PASSES = {
    "Uniform(4)": ["extremes_of_parts", "encode_along"],
    "Uniform(2, symmetric=False)": ["extremes_of_parts", "encode_along"],
    "PACT(4)": ["extremes_of_parts", "encode_along"],
    "NormalFloat(4)": ["extremes_of_parts", "encode_along"],
    "PowerOfTwo(2)": ["extremes_of_parts", "encode_short"],
    "XNOR()": ["sums_of_blocks", "encode_short"],
    "Ternary()": ["extremes_of_parts", *["sums_of_blocks"] * 3, "encode_short"],
    "ABC(2)": ["extremes_of_parts", *["sums_of_blocks"] * 5, "encode_short"],
    "DoReFa(4)": ["extremes_of_parts"] * 2 + ["encode_along"],
}


@pytest.mark.parametrize("along", [None, 0])
@pytest.mark.parametrize("name", PASSES)
def test_passes_of_a_fit(name, along, launches):
    """Range and mean schemes read x twice: to fit, and to encode. Nothing but their launches touches x."""
    with fake_cupy.arrays() as xp:
        x, scheme = xp.asarray(X), eval(name, vars(qa))
        qa.quantize(x, scheme, scale_axis=along)  # the first makes the flag of NaN
        launches.clear()
        fake_cupy.launches.clear()
        qa.quantize(x, scheme, scale_axis=along)
    found = [name for name, *_ in launches]
    assert found[:-1] == PASSES[name][:-1] and found[-1].startswith("encode") and fake_cupy.launches == found


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


def test_parameters_as_the_driver_reads_them():
    """From the address of each its own bytes: integers of 64 bits, bools, and floats of 32 and 64."""
    driver = import_module("quantarray.cuda.runtime.driver")
    listed = [-5, 1 << 63, True, 2.5, np.float32(0.1), np.int32(-7), np.uint8(200), np.bool_(True)]
    block = driver.parameters((listed[0], tuple(listed[1:])))
    for at, value in zip(block[: len(listed)], listed, strict=True):
        kind = np.asarray(value).dtype
        assert np.frombuffer(ctypes.string_at(at, kind.itemsize), kind)[0] == value


def test_kernels_run_on_cupys_current_stream(monkeypatch):
    """The default stream is named by its own number: 0 may be another one in this process."""
    driver = import_module("quantarray.cuda.runtime.driver")
    started, stream = [], SimpleNamespace(ptr=0)
    monkeypatch.setattr(driver, "_launcher", lambda: lambda *how: started.append(how[:9]) or (0,))
    monkeypatch.setattr(driver, "_stream", lambda handle: handle)
    monkeypatch.setattr(driver, "_runtime", lambda: (None, lambda: stream))
    driver.start("kernel", (3, 4), 32, 99, (5,))
    stream.ptr = 1 << 40
    driver.start("kernel", 3, (32, 2), 0, (5,))
    monkeypatch.setattr(driver, "_runtime", lambda: None)
    driver.start("kernel", 3, 32, 0, (5,))
    assert started == [
        ("kernel", 3, 4, 1, 32, 1, 1, 99, 1), ("kernel", 3, 1, 1, 32, 2, 1, 0, 1 << 40),
        ("kernel", 3, 1, 1, 32, 1, 1, 0, 0),
    ]  # fmt: skip


def test_a_kernel_that_the_driver_does_not_start(monkeypatch):
    driver = import_module("quantarray.cuda.runtime.driver")
    monkeypatch.setattr(driver, "_launcher", lambda: lambda *how: (700,))
    monkeypatch.setattr(driver, "stream", lambda: 1)
    with pytest.raises(RuntimeError, match="700"):
        driver.start("kernel", 1, 32, 0, (5,))


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


def test_counters_of_a_graph_are_those_of_the_call_before_its_capture(monkeypatch):
    """A graph has counters of its own, which no launch of it sets to zero; outside `holding` each launch does."""
    from quantarray.cuda.runtime import driver, launch

    made, at = [], {"stream": (1, False)}
    monkeypatch.setattr(launch, "zeros", lambda device, shape, dtype: made.append(shape) or np.zeros(shape, dtype))
    monkeypatch.setattr(launch, "_gpu", lambda: 0)
    monkeypatch.setattr(launch, "_arrivals", {})
    monkeypatch.setattr(driver, "current_stream", lambda: at["stream"])
    outside = launch.arrivals(5)
    assert launch.arrivals(5) is outside and len(made) == 1
    with launch.holding() as first, launch.holding() as second:
        before = launch.arrivals(5)
        at["stream"] = (1, True)
        assert launch.arrivals(5) is before is not outside and len(made) == 2
        assert launch.arrivals(1 << 20) is not before and len(made) == 3, "more than the call before asked for"
        assert second.arrivals[0, 1] is before and not first.arrivals
    assert launch.arrivals(5) is not outside and len(made) == 4
    at["stream"] = (1, False)
    assert launch.arrivals(5) is outside


DRIVER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
typedef unsigned u;
int cuLaunchKernel(void *f, u gx, u gy, u gz, u bx, u by, u bz, u shared, void *stream, void **parameters,
                   void **extra) {
  printf("%p %u %u %u %u %u %u %u %p %p", f, gx, gy, gz, bx, by, bz, shared, stream, (void *)extra);
  for (int i = 0; i < 4; i++) printf(" %llx", (unsigned long long)*(uint64_t *)parameters[i]);
  return puts("") < 0;
}
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetProcAddress_v2(const char *name, void **p, int version, uint64_t flags, void *status) {
  void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *p = self ? dlsym(self, name) : 0;
  return 0;
}
"""
ENQUEUE = """
from types import SimpleNamespace
import numpy as np
from quantarray.cuda.runtime import driver
kernel = driver.handle_of(SimpleNamespace(handle=0x1234))
parameters = driver.parameters((-1, (np.float32(1.5), 7), True))
driver.enqueue(kernel, driver.sizes((3, 2)), driver.sizes(32), 99, driver._stream(1), parameters)
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler")
def test_what_the_driver_is_called_with(tmp_path):
    """A library in place of the driver's prints what comes through NVIDIA's own bindings."""
    (tmp_path / "driver.c").write_text(DRIVER)
    library = str(tmp_path / "libcuda.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(tmp_path / "driver.c"), "-ldl"], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ENQUEUE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == "0x1234 3 2 1 32 1 1 99 0x1 (nil) ffffffffffffffff 3fc00000 7 1".split()
