"""Arrays of bools as operands: their values are 0 and 1, whatever else they meet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import CHANNELS, arrays, seeds

import quantarray as qa


def flags(rng, *shape):
    """Bools of any strides."""
    return (rng.random(shape[::-1]) < 0.5).T[::-1]


@given(arrays(least=2, most=2, axis=1, groups=(None,), vary=False), st.integers(1, 5), seeds())
def test_left_operands_are_their_values(w, rows, seed):
    x = flags(np.random.default_rng(seed), rows, w.values.shape[1])
    packed = qa.encode(x, values=qa.uint1)
    expected = qa.linear(packed, w.q)
    np.testing.assert_allclose(qa.linear(x, w.q), expected, rtol=1e-6, atol=1e-6)
    for product in (x @ w.q.T, qa.matmul(x, w.q.T), qa.inner(x, w.q), qa.einsum("ik,jk->ij", x, w.q)):
        np.testing.assert_allclose(product, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("k", CHANNELS)
def test_both_operands(k):
    rng = np.random.default_rng(k)
    x, w = flags(rng, 5, k), flags(rng, 4, k)
    p, q = (qa.encode(a, values=qa.uint1) for a in (x, w))
    expected = x.astype(np.int64) @ w.T.astype(np.int64)
    for a, b in ((x, w), (p, w), (x, q)):
        np.testing.assert_array_equal(qa.linear(a, b), expected)
        for got, right in zip(qa.top_k(a, b, 3), qa.top_k(p, q, 3), strict=True):
            np.testing.assert_array_equal(got, right)
        np.testing.assert_array_equal(qa.hamming(a[:, None], b[None]), (x[:, None] != w[None]).sum(axis=-1))
    one = qa.top_k(x[0], w, 2)
    np.testing.assert_array_equal(one.distances, np.sort((x[0] != w).sum(axis=1))[:2])


def test_images():
    rng = np.random.default_rng(0)
    x, w = flags(rng, 2, 6, 5, 3), qa.encode(rng.choice([-1, 1], (4, 3, 3, 3)), values=(-1, 1))
    np.testing.assert_array_equal(qa.conv2d(x, w, padding=1), qa.conv2d(x.astype(np.uint8), w, padding=1))


X, W = flags(np.random.default_rng(1), 2, 64), qa.encode(np.ones((3, 64), int), values=(-1, 1))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: qa.top_k(X, W, 1), TypeError, "top_k: .* one dtype, .* got uint1 and bipolar"),
        (lambda: qa.linear(X[:, :3], W), ValueError, r"linear: x \(2, 3\) and w \(3, 64\)"),
        (lambda: qa.conv2d(X, np.ones((1, 3, 3, 64), bool)), TypeError, r"conv2d: w .* encode\(x, values=uint1\)"),
        (lambda: qa.vecdot(X, W), TypeError, r"vecdot: a .* got bool array \(2, 64\); .* encode\(x, values=uint1\)"),
        (lambda: qa.top_k(np.True_, W, 1), ValueError, "top_k: queries must have at least one axis"),
        (lambda: qa.linear(np.True_, W), TypeError, "linear: x must be a QuantArray"),
        (lambda: qa.linear(np.ma.masked_array(X), W), TypeError, "masked bool array"),
        (lambda: qa.top_k(np.ma.masked_array(X), X, 1), TypeError, "masked array"),
        (lambda: qa.matmul(X, X.T), TypeError, "matmul: at least one operand must be a QuantArray"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
