"""Rows divided by their root mean square, compared with NumPy in the documented order."""

import fake_cupy
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import quantarray as qa


def normalised(x, weight, eps):
    """Add squares in 16 sums, and those by halves, in float64."""
    squares = np.zeros((len(x), -(-x.shape[1] // 16) * 16))
    squares[:, : x.shape[1]] = x.astype(np.float64) ** 2
    sums = np.zeros((len(x), 16))
    for part in np.moveaxis(squares.reshape(len(x), squares.shape[1] // 16, 16), 1, 0):
        sums = sums + part
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    factor = 1 / np.sqrt(sums / x.shape[1] + eps)
    return (x.astype(np.float64) * factor * np.asarray(weight, np.float32).astype(np.float64)).astype(np.float32)


@given(st.integers(0, 5), st.integers(1, 300), st.sampled_from([1e-30, 1.0, 1e30]), st.booleans(), seeds())
def test_values(rows, k, size, weighted, seed):
    rng = np.random.default_rng(seed)
    x, weight = (rng.normal(size=(rows, k)) * size).astype(np.float32), rng.normal(1, 1, k).astype(np.float32)
    norm = qa.RMSNorm(weight, eps=1e-6) if weighted else qa.RMSNorm(eps=1e-6)
    y = norm(x)
    np.testing.assert_array_equal(y, normalised(x, weight if weighted else np.ones(k), 1e-6))
    assert y.dtype == np.float32


def test_many_rows_by_any_number_of_threads():
    x, before, results = np.random.default_rng(0).normal(size=(200, 500)).astype(np.float32), qa.get_num_threads(), []
    try:
        for threads in (1, 2):
            qa.set_num_threads(threads)
            results.append(qa.RMSNorm()(x.reshape(10, 20, 500)))
    finally:
        qa.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0].reshape(200, 500), normalised(x, np.ones(500), 1e-5))


@pytest.mark.parametrize("quantize_x", [None, "row", 32])
def test_inside_of_linear(quantize_x):
    """The norm comes first, the rotation after it."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(3, 512)).astype(np.float16), qa.quantize(rng.normal(size=(7, 512)), qa.Uniform(4))
    norm, rotate = qa.RMSNorm(rng.normal(1, 0.3, 512)), qa.Hadamard(64)
    y = qa.linear(x, w, quantize_x=quantize_x, rotate=rotate, normalize=norm)
    np.testing.assert_array_equal(y, qa.linear(rotate(norm(x)), w, quantize_x=quantize_x))
    assert np.abs(y - rotate(norm(x)) @ w.dequantize().T).max() < 2


def test_rows_of_zeros_and_what_is_not_finite():
    assert not qa.RMSNorm()(np.zeros((2, 9), np.float32)).any()
    with np.errstate(invalid="ignore"):
        assert np.isnan(qa.RMSNorm()(np.float32([[1, np.nan]]))).all()
    w = qa.from_codes(np.zeros((1, 2), np.uint8), qa.ternary)
    with pytest.raises(ValueError, match="must be finite where it is quantised"):
        qa.linear(np.float32([[1, np.inf]]), w, quantize_x="row", normalize=qa.RMSNorm())


W = qa.from_codes(np.zeros((2, 8), np.uint8), qa.ternary)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: qa.RMSNorm(np.ones((2, 2))), ValueError, "weight must be a vector"),
        (lambda: qa.RMSNorm([1, np.nan]), ValueError, "weight"),
        (lambda: qa.RMSNorm(eps=-1), ValueError, "eps must be a finite number of at least 0, got -1"),
        (lambda: qa.RMSNorm([1, 2])(np.zeros((1, 3), np.float32)), ValueError, "rows of 2 elements, as weight"),
        (lambda: qa.RMSNorm()(np.zeros((1, 3), np.int32)), TypeError, "must be an array of float32"),
        (lambda: qa.linear(np.zeros((1, 8), np.float32), W, normalize=1), TypeError, "normalize must be a RMSNorm"),
        (lambda: qa.linear(np.zeros((1, 8), np.int8), W, normalize=qa.RMSNorm()), TypeError, "normalize is for x of"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_gpu_is_refused():
    with fake_cupy.gpu() as xp, pytest.raises(qa.DeviceError, match="rms_norm"):
        qa.RMSNorm()(xp.asarray(np.ones((1, 8), np.float32)))


def test_its_text():
    assert repr(qa.RMSNorm([1, 2], eps=0.5)) == "RMSNorm(weight=[2], eps=0.5)"
    assert repr(qa.RMSNorm()) == "RMSNorm(eps=1e-05)"
