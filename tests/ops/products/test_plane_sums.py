"""Real products added up from sums of planes, against `conv_real` and the oracle, to the bit."""

import naive
import numpy as np
import pytest

import quantarray as qa
from quantarray.ops.products import plane_sums, select

RNG = np.random.default_rng(0)
LAWS = {
    "basis": (qa.basis(2), {"scale": np.float32([0.3, 0.7]), "offset": 0.0}),
    "basis with offset": (qa.basis(3), {"scale": np.float32([0.3, 0.7, 1.1]), "offset": -0.9}),
    "table": (qa.table(2), {"table": np.float32([-1, 0.3, 0.7, 1.5])}),
    "table of three": (qa.table(2, 3), {"table": np.float32([-1, 0.3, 1.5])}),
    "even": (qa.integers(-3, -1, 1, 3), {"scale": 0.37}),
}


def images(law, n, side, channels):
    dtype, constants = LAWS[law]
    codes = RNG.integers(0, dtype.n_levels, (n, side, side, channels), dtype=np.uint8)
    return qa.from_codes(codes, dtype, **constants)


def weights(planes, outputs, taps, channels):
    shape = outputs, taps, taps, channels
    each = outputs, 1, 1, 1
    if not planes:
        return qa.from_codes(RNG.integers(0, 2, shape, dtype=np.uint8), qa.bipolar, scale=RNG.random(each, np.float32))
    codes = RNG.integers(0, 2**planes, shape, dtype=np.uint8)
    scale, offset = RNG.random((planes, *each), np.float32), -RNG.random(each, np.float32)
    return qa.from_codes(codes, qa.basis(planes), scale=scale, offset=offset)


def in_the_kernel(monkeypatch, call):
    """Return what `conv_real` computes."""
    with monkeypatch.context() as patch:
        ways = tuple(way for way in select.CONSTANTS.ways if way.name != select.PLANES)
        patch.setattr(select, "CONSTANTS", select.Stage("constants", ways))
        patch.setattr(select, "not_planes", lambda job: "another way is tested")
        return call()


@pytest.mark.parametrize(("law", "planes"), [(law, n) for law in LAWS for n in (0, 1, 3) if law != "even" or n > 1])
@pytest.mark.parametrize(("n", "side", "channels", "outputs"), [(3, 7, 70, 33), (2, 5, 5, 64), (4, 4, 64, 100)])
def test_convolutions(law, planes, n, side, channels, outputs, monkeypatch):
    x, w = images(law, n, side, channels), weights(planes, outputs, 3, channels)
    bias = RNG.random(outputs, np.float32)
    T = qa.Thresholds(RNG.random((outputs, 3)) * 20 - 10, greater=RNG.random(outputs) < 0.5)
    assert {c.taken for c in qa.explain(qa.conv2d, x, w).choices if c.stage == "constants"} >= {"sums of planes"}
    for options in ({}, {"padding": 1, "bias": bias}, {"padding": 2, "pad_value": 0.5, "stride": 2}):
        got, codes = qa.conv2d(x, w, **options), qa.conv2d(x, w, requantize=T, **options)
        other = in_the_kernel(monkeypatch, lambda: qa.conv2d(x, w._view(), **options))  # noqa: B023
        np.testing.assert_array_equal(got, other)
        np.testing.assert_array_equal(codes.codes(), T(other).codes())


@pytest.mark.parametrize("law", LAWS)
def test_matrix_products(law, monkeypatch):
    x, w = images(law, 7, 1, 130).reshape(7, 130), weights(3, 40, 1, 130).reshape(40, 130)
    T = qa.Thresholds(RNG.random((40, 3)) * 20 - 10)
    got, out = qa.linear(x, w), np.empty((7, 40), np.float32)
    other = in_the_kernel(monkeypatch, lambda: qa.linear(x, w._view()))
    np.testing.assert_array_equal(got, other)
    np.testing.assert_array_equal(qa.linear(x, w, requantize=T).codes(), T(other).codes())
    assert qa.linear(x, w, out=out) is out and (out == other).all()


def test_an_oracle_agrees():
    x, w = images("basis with offset", 2, 5, 6), weights(3, 9, 3, 6)
    expected = naive.conv2d(*(q.dequantize().astype(np.float64) for q in (x, w)), padding=1)
    np.testing.assert_allclose(qa.conv2d(x, w, padding=1), expected, rtol=1e-6, atol=1e-5)


def test_images_are_added_up_in_parts(monkeypatch):
    x, w = images("basis", 6, 5, 64), weights(3, 32, 3, 64)
    whole = qa.conv2d(x, w)
    monkeypatch.setattr(plane_sums, "_AT_ONCE", 1 << 15)
    np.testing.assert_array_equal(qa.conv2d(x, w._view()), whole)


def test_refusals():
    x = images("basis", 2, 5, 64)
    grouped = weights(2, 32, 3, 32)
    choices = {c.stage: c for c in qa.explain(qa.conv2d, x, grouped, groups=2).choices}
    assert choices["constants"].taken == "in the kernel"
    assert any(way.refused == "w has groups, or x is bytes" for way in choices["constants"].asked)


def test_uneven_integers_of_many_planes():
    """Levels that only a grid of more than 8 bits holds are brought to more planes than an array has."""
    x = qa.from_codes(RNG.integers(0, 3, (5, 70), dtype=np.uint8), qa.integers(0, 1, 4095), scale=0.5)
    w = qa.quantize(RNG.standard_normal((6, 70)), qa.ABC(2))
    np.testing.assert_allclose(qa.linear(x, w), x.dequantize() @ w.dequantize().T, rtol=1e-4, atol=1e-2)
