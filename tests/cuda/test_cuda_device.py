"""CUDA kernels by name: their arguments, what is missing, and what is moved to the device."""

import gc
import inspect
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_backend import both, twins
from numba import cuda

import quantarray as qa
from quantarray import DeviceError
from quantarray.backends.registry import KERNELS, kernel
from quantarray.cuda import costs
from quantarray.kernels import contract


def all_twins():
    twins = {}
    for name in KERNELS:
        try:
            twins[name] = kernel("cuda:0", name)
        except DeviceError as error:
            assert "no kernel for device 'cuda:0'" in str(error) and ".to_device('cpu')" in str(error)
    return twins


def test_twins_have_the_arguments_of_their_stubs():
    twins = all_twins()
    assert set(KERNELS) - set(twins) == {
        "add_candidates",
        "add_planes",
        "add_products",
        "byte_row_product",
        "conv_words",
        "decode_mixed",
        "decode_spaced",
        "depthwise_bytes",
        "depthwise_codes",
        "divide_rows",
        "dot_words",
        "encode_grid",
        "encode_grid_small",
        "encode_mixed",
        "encode_range",
        "encode_rows",
        "encode_runs",
        "encode_small",
        "framed",
        "group_constants",
        "group_ends",
        "hadamard",
        "least_candidates",
        "look_up",
        "map_reduce",
        "nearest_products",
        "nearest_sets",
        "pack_compared",
        "pack_seen",
        "pack_signed",
        "range_constants",
        "rescale",
        "rms_norm",
        "round_values",
        "row_product_levels",
        "row_product_scaled",
        "row_product_spaced",
        "scaled_product",
        "unroll",
        "winograd",
        "within_distance",
        "within_sets",
    }
    for name, twin in twins.items():
        stub = inspect.signature(getattr(contract, name))
        assert list(inspect.signature(twin).parameters) == list(stub.parameters), name


@pytest.mark.parametrize("planes", range(1, 9))
def test_kernels_that_have_no_twin_are_never_chosen(planes, monkeypatch):
    terms = np.array([[0, planes, 0, 1]])
    for capability, of_bytes in (((7, 5), "conv"), ((8, 0), "dot"), ((12, 0), "dot")):
        monkeypatch.setattr("quantarray.cuda.runtime.launch.capability", lambda capability=capability: capability)
        assert {costs.integer_kernel(terms, terms, n, n, n, n) for n in (1, 32, 4096)} == {"conv"}
        assert {costs.integer_kernel(terms, terms, n, n, n, n, True) for n in (1, 32, 4096)} == {of_bytes}


def test_small_arrays_are_moved_once_and_dropped_with_their_owner():
    from quantarray.cuda.runtime import launch

    calls = []

    def make(*arrays):
        calls.append(arrays[0].sum())
        return len(calls)

    a, b = np.arange(3), np.arange(4)
    gc.collect()  # what other tests have left
    before = len(launch._kept)
    assert [launch.cached(make, (a, b)), launch.cached(make, (a, b)), launch.cached(make, (b, a))] == [1, 1, 2]
    del b, calls[:]
    gc.collect()
    assert len(launch._kept) == before
    assert launch.cached(make, (a,)) == 1


def test_arrays_of_other_memory_are_refused(monkeypatch):
    from quantarray.cuda.runtime import launch

    codes = np.arange(5, dtype=np.uint8)[None]
    cpu, cuda = both("pack", codes, out=np.zeros((3, 1, 1), np.uint64))
    np.testing.assert_array_equal(cuda, cpu)
    monkeypatch.setattr(launch.config, "ENABLE_CUDASIM", False)
    with pytest.raises(DeviceError, match=r"NumPy array uint64 \(3, 1, 1\); move it with"):
        kernel("cuda", "pack")(codes, np.zeros((3, 1, 1), np.uint64))


def test_scratch_is_cupys(monkeypatch):
    """Scratch memory of CuPy belongs to a graph that is captured, and names the stream of the kernels that use it."""
    from quantarray.cuda.runtime import launch

    reserved = []
    monkeypatch.setattr(launch.config, "ENABLE_CUDASIM", False)
    monkeypatch.setattr(launch, "_gpu", lambda: 1)
    monkeypatch.setattr(launch, "empty", lambda *args: reserved.append(args))
    launch.scratch((3, 4), np.int64)
    assert reserved == [("cuda:1", (3, 4), np.int64)]


def test_constants_have_arrived_before_a_kernel_is_launched(monkeypatch):
    """A stream that does not wait for the default one would read data that have not arrived."""
    from quantarray.cuda.runtime import launch

    done = []
    monkeypatch.setattr(launch.config, "ENABLE_CUDASIM", False)
    monkeypatch.setattr(launch.cuda, "to_device", lambda a: done.append("begun") or a)
    stream = SimpleNamespace(synchronize=lambda: done.append("arrived"))
    monkeypatch.setattr(launch.cuda, "default_stream", lambda: stream)
    launch._move(np.arange(3))
    assert done == ["begun", "arrived"]


EMPTY = {
    "linear": lambda q: qa.linear(q, qa.encode(np.ones((3, 70), int), range(3))),
    "conv2d": lambda q: qa.conv2d(q.reshape(-1, 1, 5, 70), qa.encode(np.ones((2, 1, 1, 70), int), (-1, 1))),
    "max_pool2d": lambda q: qa.max_pool2d(q.reshape(-1, 1, 5, 70), 1).words,
    "repack": lambda q: q.repack(1).words,
    "roll": lambda q: qa.roll(q, 3, 2).words,
    "take": lambda q: qa.take(q, [5, 3], 2).words,
    "map": lambda q: qa.map(np.cbrt, q).words,
    "sum": lambda q: qa.sum(q, 2),
    "sum of nothing": lambda q: qa.sum(q, 0),
    "argmax": lambda q: qa.argmax(q, 2),
    "argsort": lambda q: qa.argsort(q),
    "sort": lambda q: qa.sort(q).words,
    "cumulative_sum": lambda q: qa.cumulative_sum(q, axis=2),
    "dequantize": lambda q: q.dequantize(),
    "quantize": lambda q: qa.quantize(q.dequantize().astype(np.float32), qa.Sign()).words,
    "encode": lambda q: qa.encode(q.dequantize(), range(3), 0).words,
}


@pytest.mark.parametrize("name", EMPTY)
def test_nothing_is_launched_on_nothing(name):
    """Empty arrays launch nothing: the simulator refuses grids without blocks, as a GPU does."""
    q = qa.from_codes(np.zeros((0, 5, 70), int), qa.ternary)
    expected = EMPTY[name](q)
    with twins():
        np.testing.assert_array_equal(EMPTY[name](q), expected)


def test_threads_that_miss_a_barrier_are_seen():
    @cuda.jit
    def early(out):
        if cuda.threadIdx.x == 3:
            return
        out[0] = cuda.ballot_sync(0xFFFFFFFF, 1)

    with pytest.raises(RuntimeError, match="different barriers"):
        early[1, 32](np.zeros(1, np.int64))
