"""The plan's first products on a GPU: public functions on CUDA kernels, whose arrays Numba moves, without CuPy."""

import numpy as np
import pytest
from cuda_backend import cuda_simulator  # noqa: F401  # installs the simulator

import quantarray as qa
from benchmarks.gpu import numba_arrays


@pytest.fixture
def small(monkeypatch):
    rng = np.random.default_rng(0)
    x, w = rng.choice((-1, 1), (5, 70)), rng.choice((-1, 1), (3, 70))
    image, kernels = rng.choice((-1, 1), (1, 4, 4, 33)), rng.choice((-1, 1), (3, 3, 3, 33))
    values, bits = rng.normal(size=(3, 70)).astype(np.float32), numba_arrays._bits
    cases = {
        "product": (numba_arrays._PRODUCT, lambda: qa.linear(bits(x), bits(w))),
        "convolution": (numba_arrays._PRODUCT, lambda: qa.conv2d(bits(image), bits(kernels), padding=1)),
        "packing": (("encode",), lambda: qa.quantize(values, qa.Sign()).words),
    }
    monkeypatch.setattr(numba_arrays, "cases", lambda: cases)
    monkeypatch.setattr(numba_arrays, "_TURNS", 2)


def test_each_case_is_compared_and_timed_with_and_without_transfers(small):
    rows = numba_arrays.compared(60)
    assert [row["case"] for row in rows] == ["product", "convolution", "packing"]
    for row in rows:
        assert row["equal"] is True
        for times in row["seconds"]:
            assert times["called"] > 0 and times["moved"] > 0


def test_a_case_that_asks_no_kernel_is_an_error(small, monkeypatch):
    monkeypatch.setattr(numba_arrays, "cases", lambda: {"nothing": (("conv",), lambda: np.zeros(1))})
    with pytest.raises(RuntimeError, match="wrong or failed: nothing"):
        numba_arrays.compared(60)
