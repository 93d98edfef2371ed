"""Rotations by Hadamard matrices: the matrix in float64, which is SciPy's, and steps of float32."""

import fake_cupy
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds

import quantarray as qa

RNG = np.random.default_rng(0)
BLOCKS = [32, 64, 128, 256, 512, 1024, 2048, 4096]
X = RNG.normal(size=(3, 256)).astype(np.float32)
SIGNS = RNG.choice([-1, 1], 256)


def hadamard(size):
    """Return the matrix by its formula."""
    both = np.arange(size)[:, None] & np.arange(size)
    return 1.0 - 2 * (np.bitwise_count(both) % 2)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_matrix(block):
    linalg = pytest.importorskip("scipy.linalg", reason="SciPy has the same matrices")
    np.testing.assert_array_equal(hadamard(block), linalg.hadamard(block))


def in_steps(x, signs, block):
    """x times signs / sqrt(block), rounded once, then steps of pairs."""
    y = (x * (np.resize(signs, x.shape[-1]) / np.sqrt(block)).astype(np.float32)).reshape(-1, block)
    for apart in 2 ** np.arange(int(np.log2(block))):
        place = np.arange(block)
        second = (place & apart) > 0
        y = np.where(second, y[:, place ^ apart] - y, y + y[:, place ^ apart])
    return y.reshape(x.shape)


@given(st.sampled_from(BLOCKS), st.integers(1, 4), st.sampled_from(["none", "block", "row"]), seeds())
def test_rows(block, blocks, signed, seed):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(rng.integers(0, 4), blocks * block)) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
    signs = rng.choice([-1, 1], {"none": 0, "block": block, "row": blocks * block}[signed])
    rotate, of_row = (qa.Hadamard(block, signs), signs) if signs.size else (qa.Hadamard(block), np.ones(block))
    y = rotate(x)
    np.testing.assert_array_equal(y, in_steps(x, of_row, block))
    exact = (x.astype(np.float64) * np.resize(of_row, x.shape[1])).reshape(-1, block) @ hadamard(block) / block**0.5
    np.testing.assert_allclose(y.reshape(exact.shape), exact, atol=1e-6 * np.abs(x).max(initial=0), rtol=1e-5)


def test_integers_are_exact():
    """1 / sqrt(block) is a power of 2 where block is one of 4."""
    x = RNG.integers(-999, 999, (5, 4096)).astype(np.float32)
    for block in (64, 256, 1024, 4096):
        np.testing.assert_array_equal(qa.Hadamard(block)(qa.Hadamard(block)(x)), x)


def test_types_and_shapes():
    rotate = qa.Hadamard(64, SIGNS)
    y = rotate(X)
    np.testing.assert_array_equal(rotate(X.reshape(3, 1, 256)), y.reshape(3, 1, 256))
    np.testing.assert_array_equal(rotate(X[1]), y[1])
    np.testing.assert_array_equal(rotate(np.asfortranarray(X)), y)
    for kind in (np.float16, ml_dtypes.bfloat16):
        np.testing.assert_array_equal(rotate(X.astype(kind)), rotate(X.astype(kind).astype(np.float32)))
    assert repr(rotate) == "Hadamard(64, signs=[256])" and repr(qa.Hadamard(64)) == "Hadamard(64)"


@pytest.mark.parametrize("quantize_x", [None, "row", 32, 64])
def test_linear(quantize_x):
    rotate = qa.Hadamard(128, SIGNS)
    w = RNG.normal(size=(40, 256)).astype(np.float32)
    q = qa.quantize(rotate(w), qa.Uniform(8), group=64)
    y = qa.linear(X, q, quantize_x=quantize_x, rotate=rotate)
    np.testing.assert_array_equal(y, qa.linear(rotate(X), q, quantize_x=quantize_x))
    assert np.abs(y - X @ w.T).max() < 0.03 * np.abs(X @ w.T).max()
    with fake_cupy.gpu() as xp:
        got = qa.linear(xp.asarray(X), q.to_device("cuda"), quantize_x=quantize_x, rotate=rotate)
        np.testing.assert_array_equal(xp.asnumpy(got), y)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: qa.Hadamard(48), ValueError, "Hadamard: block must be a power of 2, got 48"),
        (lambda: qa.Hadamard(16), ValueError, "Hadamard: block must be at least 32"),
        (lambda: qa.Hadamard(8192), ValueError, "Hadamard: block must be at most 4096"),
        (lambda: qa.Hadamard(64.0), TypeError, "Hadamard: block must be an integer"),
        (lambda: qa.Hadamard(64, np.ones(32)), ValueError, "signs must be a vector of a multiple of 64 elements"),
        (lambda: qa.Hadamard(64, np.zeros(64)), ValueError, "signs must be 1 and -1"),
        (lambda: qa.Hadamard(512)(X), ValueError, r"rows of x must have multiples of 512, got \(3, 256\)"),
        (lambda: qa.Hadamard(64, np.ones(128))(X), ValueError, "rows of x must have 128 elements, as signs"),
        (
            lambda: qa.Hadamard(64)(X.astype(np.float64)),
            TypeError,
            "x must be an array of float32, float16 or bfloat16",
        ),
        (lambda: qa.linear(X, qa.zeros((3, 256), axis=1), rotate=64), TypeError, "rotate must be a Hadamard or None"),
        (
            lambda: qa.linear(np.ones((3, 256), np.int8), qa.zeros((3, 256), axis=1), rotate=qa.Hadamard(64)),
            TypeError,
            "rotate is for x of float32, float16 or bfloat16",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
