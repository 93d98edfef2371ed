"""Quantise packed arrays, which is quantising their values; and constants by the importance of inputs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import arrays

import quantarray as qa
from quantarray.ops.quantize import importance

FIXED = qa.Sign(), qa.Uniform(2, step=0.5), qa.Uniform(3, step=0.3, symmetric=False), qa.Uniform(8, step=0.01)
FITTED = (
    qa.Sign(scale=True), qa.Uniform(2), qa.Uniform(3, symmetric=False), qa.Uniform(4, mse=True), qa.NormalFloat(4),
    qa.LQ(2), qa.Greedy(2), qa.LloydMax(3), qa.PowerOfTwo(3),
)  # fmt: skip
RNG = np.random.default_rng(0)
W, H = RNG.normal(size=(16, 256)).astype(np.float32), RNG.gamma(0.3, size=256)


@given(st.data(), arrays(), st.sampled_from(FIXED))
def test_by_levels(data, sample, scheme):
    q = sample.q
    axis = data.draw(st.integers(0, q.ndim - 1))
    got, expected = qa.quantize(q, scheme, axis), qa.quantize(q.dequantize(), scheme, axis)
    assert (got.dtype, got.axis, got.scheme) == (expected.dtype, expected.axis, expected.scheme)
    np.testing.assert_array_equal(got.words, expected.words)
    np.testing.assert_array_equal(got.dequantize(), expected.dequantize())


def test_no_value_is_made(monkeypatch):
    q = qa.quantize(W, qa.Uniform(4), scale_axis=0)
    monkeypatch.setattr(qa.QuantArray, "dequantize", None)
    assert qa.quantize(q, qa.Sign()).dtype == qa.bipolar


@pytest.mark.parametrize("scheme", FITTED, ids=repr)
def test_fitted_schemes_see_the_values(scheme):
    q = qa.quantize(W, qa.Uniform(8), scale_axis=0)
    for keywords in ({}, {"scale_axis": 0}, {"group": 64}):
        got, expected = (qa.quantize(x, scheme, **keywords) for x in (q, q.dequantize()))
        np.testing.assert_array_equal(got.dequantize(), expected.dequantize())


def error(q, by):
    """sum of h * (w - values)**2 of each entry of the constants."""
    squares = (W - q.dequantize().astype(np.float64)) ** 2 * H
    return squares.reshape(by).sum(-1)


@pytest.mark.parametrize("keywords, by", [({}, (1, -1)), ({"scale_axis": 0}, (16, -1)), ({"group": 64}, (16, 4, -1))])
@pytest.mark.parametrize("scheme", FITTED, ids=repr)
def test_importance_lessens_the_weighted_error(scheme, keywords, by):
    plain, weighted = qa.quantize(W, scheme, **keywords), qa.quantize(W, scheme, importance=H, **keywords)
    assert weighted.dtype == plain.dtype and weighted.constants.shapes == plain.constants.shapes
    assert (error(weighted, by) <= error(plain, by)).all() and error(weighted, by).sum() < error(plain, by).sum() + 1e-9


def test_the_scale_of_signs_is_the_weighted_mean():
    q = qa.quantize(W, qa.Sign(scale=True), scale_axis=0, importance=H)
    np.testing.assert_allclose(q.scale[:, 0], (np.abs(W) * H).sum(1) / H.sum(), rtol=1e-6)


def test_near_the_best_of_all_scales():
    """Against the least error over 4,000 scales of each row."""
    q, best = qa.quantize(W, qa.Uniform(2), scale_axis=0, importance=H), np.full(16, np.inf)
    for scale in np.linspace(0.01, 4, 4000):
        codes = qa.quantize(W, qa.Uniform(2, step=float(scale)))
        best = np.minimum(best, error(codes, (16, -1)))
    assert (error(q, (16, -1)) <= 1.05 * best).all() and error(q, (16, -1)).sum() <= 1.01 * best.sum()


def test_inputs_without_importance_do_not_count():
    h = np.zeros(256)
    h[:3] = 1
    q = qa.quantize(W, qa.Uniform(8), scale_axis=0, importance=h)
    assert np.abs(q.dequantize() - W)[:, :3].max() < np.abs(q.dequantize() - W).max() / 50


@pytest.mark.parametrize("axis", [0, 1])
def test_along_any_axis(axis):
    h = H[: W.shape[axis]]
    q = qa.quantize(W, qa.Uniform(3), axis, 1 - axis, importance=h)
    other = qa.quantize(W.T, qa.Uniform(3), 1 - axis, axis, importance=h)
    np.testing.assert_array_equal(q.dequantize(), other.dequantize().T)


@pytest.mark.parametrize(
    "h, scheme, message",
    [
        (H[:5], qa.Uniform(2), r"importance must be finite numbers \[256\]"),
        (-H, qa.Uniform(2), "none negative"),
        (H * 0, qa.Uniform(2), "not all 0"),
        (H * np.nan, qa.Uniform(2), "finite"),
        (H, qa.Sign(), "are not fitted"),
    ],
)
def test_errors(h, scheme, message):
    with pytest.raises(ValueError, match=message):
        qa.quantize(W, scheme, importance=h)


def test_a_start_may_be_left(monkeypatch):
    """Fewer starts find worse scales, so the test above would see one that is never tried."""
    monkeypatch.setattr(importance, "_STARTS", (1.0,))
    monkeypatch.setattr(importance, "_ROUNDS", 0)
    q = qa.quantize(W, qa.Uniform(2), scale_axis=0, importance=H)
    np.testing.assert_array_equal(q.dequantize(), qa.quantize(W, qa.Uniform(2), scale_axis=0).dequantize())
