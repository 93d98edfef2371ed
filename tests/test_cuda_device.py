"""CUDA kernels by name: their arguments, what is missing, and what is moved to the device."""

import gc
import inspect

import numpy as np
import pytest
from cuda_backend import both
from numba import cuda

from quantarray import DeviceError, kernels
from quantarray.cuda import costs
from quantarray.device import KERNELS, kernel


def twins():
    found = {}
    for name in KERNELS:
        try:
            found[name] = kernel("cuda:0", name)
        except DeviceError as error:
            assert "no kernel for device 'cuda:0'" in str(error) and ".to_device('cpu')" in str(error)
    return found


def test_twins_have_the_arguments_of_their_stubs():
    found = twins()
    assert set(KERNELS) - set(found) == {"dot", "dot_weights", "rescale"}
    for name, twin in found.items():
        stub = inspect.signature(getattr(kernels, name))
        assert list(inspect.signature(twin).parameters) == list(stub.parameters), name


@pytest.mark.parametrize("planes", range(1, 9))
def test_the_kernel_that_has_no_twin_is_never_chosen(planes):
    terms = np.array([[0, planes, 0, 1]])
    assert {costs.integer_kernel(terms, terms, n, n, n) for n in (1, 32, 4096)} == {"conv"}


def test_small_arrays_are_moved_once_and_dropped_with_their_owner():
    from quantarray.cuda import launch

    calls = []

    def make(*arrays):
        calls.append(arrays[0].sum())
        return len(calls)

    a, b = np.arange(3), np.arange(4)
    before = len(launch._kept)
    assert [launch.kept(make, (a, b)), launch.kept(make, (a, b)), launch.kept(make, (b, a))] == [1, 1, 2]
    del b, calls[:]
    gc.collect()
    assert len(launch._kept) == before
    assert launch.kept(make, (a,)) == 1


def test_arrays_of_other_memory_are_refused(monkeypatch):
    from quantarray.cuda import launch

    codes = np.arange(5, dtype=np.uint8)[None]
    cpu, cuda = both("pack", codes, out=np.zeros((3, 1, 1), np.uint64))
    np.testing.assert_array_equal(cuda, cpu)
    monkeypatch.setattr(launch.config, "ENABLE_CUDASIM", False)
    with pytest.raises(DeviceError, match=r"NumPy array uint64 \(3, 1, 1\); move it with"):
        kernel("cuda", "pack")(codes, np.zeros((3, 1, 1), np.uint64))


def test_kernels_run_on_the_stream_that_their_arrays_name(monkeypatch):
    from quantarray.cuda import launch

    class Named(np.ndarray):
        stream = 0

    launched = {}

    class Kernel:
        def __getitem__(self, where):
            launched["where"] = where
            return lambda *args: None

    one, two = np.zeros(3).view(Named), np.zeros(3).view(Named)
    launch.run(Kernel(), 1, 32, one, 5, two)
    assert launched["where"] == (1, 32, 0, 0)
    two.stream = "a stream"
    launch.run(Kernel(), 1, 32, one, 5, two)
    assert launched["where"] == (1, 32, "a stream", 0)


def test_scratch_names_the_stream_of_what_it_is_for(monkeypatch):
    """Or a kernel that takes nothing else would run beside those that it belongs to."""
    from quantarray.cuda import launch

    class Named(np.ndarray):
        stream = "a stream"

    made = []
    monkeypatch.setattr(launch.config, "ENABLE_CUDASIM", False)
    monkeypatch.setattr(launch.cuda, "device_array", lambda *args, stream: made.append((*args, stream)), raising=False)
    monkeypatch.setattr(launch, "array", lambda a: a)
    launch.scratch((3, 4), np.int64, like=np.zeros(3).view(Named))
    assert made == [((3, 4), np.int64, "a stream")]


def test_threads_that_miss_a_barrier_are_seen():
    @cuda.jit
    def early(out):
        if cuda.threadIdx.x == 3:
            return
        out[0] = cuda.ballot_sync(0xFFFFFFFF, 1)

    with pytest.raises(RuntimeError, match="different barriers"):
        early[1, 32](np.zeros(1, np.int64))
