"""Real constants folded into thresholds of exact sums, against the real kernel."""

import numpy as np
import pytest
from results import assert_bits
from strategies import products_by

import quantarray as qa
from quantarray.cpu.int8.amx_unit import DOTS
from quantarray.ops.products import folded_thresholds, scaled_sums


def folding_case(bias_scale=1.0, scale=0.37, rows=3):
    rng = np.random.default_rng(5)
    x = qa.encode(rng.integers(0, 16, (rows, 5, 5, 40)), range(16)) * np.float32(scale)
    w = qa.encode(rng.integers(-7, 8, (33, 3, 3, 40)), range(-7, 8)) * rng.uniform(0.1, 2, (33, 1, 1, 1)).astype("f4")
    bias = (rng.standard_normal(33) * bias_scale).astype(np.float32)
    return x, w, bias


def folded_calls(monkeypatch):
    """Every answer of a fold: None where the real kernel has to do it."""
    found, original = [], folded_thresholds.Exact.for_scale

    def noted(self, x):
        found.append(original(self, x))
        return found[-1]

    monkeypatch.setattr(folded_thresholds.Exact, "for_scale", noted)
    return found


@pytest.mark.parametrize("scale", [0.37, 1e-30, 3e30, 0.0])
def test_folded_thresholds_lie_where_results_round(scale, monkeypatch):
    """Thresholds at results themselves, next to them, and at no number."""
    x, w, bias = folding_case(scale=scale)
    dense = qa.conv2d(x, w, bias=bias, padding=1)
    near = np.sort(dense.reshape(-1, 33)[[3, 40, 60]].T, axis=1)
    for values in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
        for law in (qa.Thresholds(values), qa.Thresholds(values, strict=False), qa.Thresholds(values, greater=False)):
            calls = folded_calls(monkeypatch)
            got = qa.conv2d(x, w, bias=bias, padding=1, requantize=law)
            np.testing.assert_array_equal(got.words, law(dense).words)
            assert len(calls) == 1 and calls[0] is not None


@pytest.mark.parametrize("edge", [np.inf, -np.inf, 1e30, -1e30])
def test_folded_thresholds_beyond_all_results(edge):
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([[edge]] * 33))
    dense = qa.conv2d(x, w, bias=bias)
    np.testing.assert_array_equal(qa.conv2d(x, w, bias=bias, requantize=law).words, law(dense).words)


def test_what_is_not_folded(monkeypatch):
    """A factor below zero, scales by image and offsets: the real kernel's, and equal too."""
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([-3, 2, 9]))
    per_image = x * np.float32([1, 2, 0.5]).reshape(3, 1, 1, 1)
    for p, q in ((x, w * np.float32(-1)), (per_image, w), (x + np.float32(0.25), w)):
        calls = folded_calls(monkeypatch)
        got = qa.conv2d(p, q, bias=bias, padding=1, requantize=law)
        np.testing.assert_array_equal(got.words, law(qa.conv2d(p, q, bias=bias, padding=1)).words)
        assert calls in ([], [None])


def test_a_fold_is_kept_for_each_scale(monkeypatch):
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([-3, 2, 9]))
    for scale in (0.5, 2, 0.5, *range(1, 12)):
        q = x * np.float32(scale)
        got = qa.conv2d(q, w, bias=bias, requantize=law)
        np.testing.assert_array_equal(got.words, law(qa.conv2d(q, w, bias=bias)).words)
    calls = folded_calls(monkeypatch)
    for _ in range(2):
        qa.conv2d(x, w, bias=bias, requantize=law)
    assert calls[0] is calls[1]


@pytest.mark.parametrize("name", ["conv", pytest.param("dot", marks=pytest.mark.skipif(not DOTS, reason="no dots"))])
@pytest.mark.parametrize("w_offset", [0, 0.25])
def test_exact_sums_become_what_the_real_kernel_makes(w_offset, name, monkeypatch):
    """Scales and offsets by image, border classes, a padding value and a bias."""
    x, w, bias = folding_case()
    x = x * np.float32([1, 0.3, 7]).reshape(3, 1, 1, 1) + np.float32(0.7)
    w = w + np.float32(w_offset) if w_offset else w
    with products_by(name):
        got = qa.conv2d(x, w, bias=bias, padding=1, pad_value=0.5)
        monkeypatch.setattr(scaled_sums, "refusal", lambda *operands: "not asked for")
        assert_bits(got, qa.conv2d(x, w.copy(), bias=bias, padding=1, pad_value=0.5))


@pytest.mark.parametrize("pad_value", [1, -2.5])
def test_padding_values_under_thresholds(pad_value):
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([-30, 20, 90]))
    dense = qa.conv2d(x, w, bias=bias, padding=1, pad_value=pad_value)
    got = qa.conv2d(x, w, bias=bias, padding=1, pad_value=pad_value, requantize=law)
    np.testing.assert_array_equal(got.words, law(dense).words)
