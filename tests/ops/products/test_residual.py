"""Shortcuts that are added to results before thresholds: every form of them, on every path of a convolution."""

import naive
import numpy as np
import pytest
from conv_cases import INTEGER, REAL, cases
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits, thresholds
from strategies import PRODUCTS, laws, products_by, samples, seeds, threads

import quantarray as qa

LAST = (0, 2, 3, 1)
DENSE = ("int8", "uint8", "int16", "int32", "float32")


@st.composite
def shortcuts(draw, shape):
    """(values of a shortcut in int64 or float64, the shortcut with channels last)."""
    kind = draw(st.sampled_from([*DENSE, "packed", "packed", "scaled"]))
    if kind in ("packed", "scaled"):
        law = INTEGER if kind == "packed" else laws(4, ["scaled", "uniform", "basis", "table"])
        x = draw(samples(shape, -1, law, (0, len(shape) - 1), (None, None, 5, 64)))
        values = x.q.dequantize()
        return values.astype(np.float64 if values.dtype.kind == "f" else np.int64), x.q
    rng = np.random.default_rng(draw(seeds()))
    if kind == "float32":
        values = (rng.normal(size=shape) * 9).astype(np.float32)
        return values.astype(np.float64), values
    low = 0 if kind[0] == "u" else -100
    values = rng.integers(low, 100, shape).astype(kind)
    return values.astype(np.int64), values


def summed(values, other):
    """The sums as documented: exact integers, or float64 rounded once to float32."""
    if values.dtype == np.float32 or other.dtype == np.float64:
        return (values.astype(np.float64) + other).astype(np.float32)
    return (values.astype(np.int64) + other).astype(values.dtype)


@pytest.mark.parametrize("real", [False, True])
@given(st.data(), cases())
def test_convolutions(real, data, case):
    """Equal to the oracle's sums, whichever kernel convolves; the sum and its codes, or one of them."""
    draw = data.draw
    x = draw(samples(case.image, -1, laws(3, ["scaled", "basis"]) if real else INTEGER, (0,)))
    w = draw(samples(case.kernel, -1, REAL if real else INTEGER, (0,)))
    first = case.data_format == "NCHW"
    a, b = (x.transpose(0, 3, 1, 2).q, w.transpose(0, 3, 1, 2).q) if first else (x.q, w.q)
    if real:
        values = qa.conv2d(a, b, **case.ours())
        values = values.transpose(LAST) if first else values
    else:
        values = naive.conv2d(x.values, w.values, **case.naive()).astype(np.int32)
    other, shortcut = draw(shortcuts(values.shape))
    expected = summed(values, other)
    law, codes = draw(thresholds(expected))
    order = (0, 3, 1, 2) if first else (0, 1, 2, 3)
    r = shortcut.transpose(*order) if isinstance(shortcut, qa.QuantArray) else shortcut.transpose(order)
    how = {"residual": r, **case.ours()}
    with threads(draw(st.booleans())), products_by(draw(st.sampled_from(PRODUCTS))):
        assert_bits(qa.conv2d(a, b, **how), expected.transpose(order))
        total, packed = qa.conv2d(a, b, requantize=law, return_sum=True, **how)
        alone = qa.conv2d(a, b, requantize=law, **how)
        out = np.empty(expected.transpose(order).shape, expected.dtype, order=draw(st.sampled_from("CF")))
        assert qa.conv2d(a, b, out=out, **how) is out
    assert_bits(total, expected.transpose(order))
    np.testing.assert_array_equal(out, total)
    np.testing.assert_array_equal(packed.dequantize(), codes.transpose(order))
    np.testing.assert_array_equal(alone.words, packed.words)


@given(st.data(), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 130))
def test_sums(data, lead, channels):
    """Shortcuts of dense values and of codes, along any axis."""
    draw, shape = data.draw, (*lead, channels)
    other, shortcut = draw(shortcuts(shape))
    kind = draw(st.sampled_from(["int32", "int64", "int8", "float32", "packed"]))
    if kind == "packed":
        q = draw(samples(shape, -1, laws(4), ()))
        x, values = q.q, q.q.dequantize()
    else:
        rng = np.random.default_rng(draw(seeds()))
        x = rng.integers(-100, 100, shape).astype(kind)
        values = x.astype(np.int32) if kind == "int8" else x
    expected = summed(values, other)
    at = draw(st.integers(0, len(shape) - 1))
    order = [*range(at), len(shape) - 1, *range(at, len(shape) - 1)]
    x, shortcut = (a.transpose(*order) for a in (x, shortcut))
    got = qa.add_residual(x, shortcut, axis=at)
    assert_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected.transpose(order)))
    law, codes = draw(thresholds(expected))
    total, packed = qa.add_residual(x, shortcut, axis=at, requantize=law, return_sum=True)
    np.testing.assert_array_equal(total, got)
    np.testing.assert_array_equal(packed.dequantize(), codes.transpose(order))


def test_sums_that_do_not_fit():
    x = np.array([[2**31 - 2, 5]], np.int32)
    assert qa.add_residual(x, np.int8([[1, 1]])).tolist() == [[2**31 - 1, 6]]
    with pytest.raises(OverflowError, match=r"a sum with residual does not fit int32; convert x with .astype"):
        qa.add_residual(x, np.int8([[2, 1]]), requantize=qa.Thresholds([[0], [1]]))
    assert qa.add_residual(x.astype(np.int64), np.int8([[2, 1]])).tolist() == [[2**31, 6]]
    a, w = (qa.encode(np.ones(s, int), (-1, 1)) for s in ((1, 1, 1, 64), (2, 1, 1, 64)))
    r = np.full((1, 1, 1, 2), 2**31 - 1, np.int32)
    with pytest.raises(OverflowError, match=r"conv2d: a sum .* pass out_dtype=np.int64"):
        qa.conv2d(a, w, residual=r)
    assert qa.conv2d(a, w, residual=r, out_dtype=np.int64).ravel().tolist() == [2**31 + 63] * 2


def test_lines_and_volumes():
    rng = np.random.default_rng(0)
    for axes, conv in ((1, qa.conv1d), (3, qa.conv3d)):
        shape = (2, *(3, 4, 5)[:axes], 65)
        x, w = (qa.encode(rng.choice([-1, 1], s), (-1, 1)) for s in (shape, (65, *(1,) * axes, 65)))
        law = qa.Thresholds(rng.integers(-9, 9, (65, 1)))
        total, codes = conv(x, w, residual=x, requantize=law, return_sum=True)
        np.testing.assert_array_equal(total, conv(x, w) + x.dequantize())
        np.testing.assert_array_equal(codes.words, law(total).words)


def test_errors():
    x, w = (qa.encode(np.ones(s, int), (-1, 1)) for s in ((1, 2, 2, 64), (64, 1, 1, 64)))
    law = qa.Thresholds([0])
    with pytest.raises(TypeError, match=r"conv2d: residual must be packed or one of int8, .*, got"):
        qa.conv2d(x, w, residual=np.zeros((1, 2, 2, 64)))
    with pytest.raises(ValueError, match=r"conv2d: residual must have the shape of the result, \(1, 2, 2, 64\), got"):
        qa.conv2d(x, w, residual=np.zeros((1, 2, 1, 64), np.int8))
    with pytest.raises(ValueError, match="conv2d: residual must be packed on its channels, axis 3, got axis 1"):
        qa.conv2d(x, w, residual=x.repack(1))
    with pytest.raises(TypeError, match="conv2d: return_sum=True needs requantize="):
        qa.conv2d(x, w, residual=x, return_sum=True)
    with pytest.raises(TypeError, match="conv2d: return_sum=True needs residual="):
        qa.conv2d(x, w, requantize=law, return_sum=True)
    with pytest.raises(TypeError, match="add_residual: x must be packed or one of"):
        qa.add_residual(np.zeros((1, 2)), np.zeros((1, 2), np.int8))
