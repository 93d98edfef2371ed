"""Bit logic and shifts against NumPy on bools."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import any_samples, few_bit_pairs, shapes
from results import assert_packed
from strategies import seeds

import quantarray as qa


@st.composite
def bools(draw):
    """Bools of any shape, and the array of them."""
    shape, axis = draw(shapes())
    x = np.random.default_rng(draw(seeds())).integers(0, 2, shape).astype(bool)
    return x, qa.encode(x, axis=axis)


@given(bools(), st.data())
def test_bitwise(one, data):
    x, p = one
    keep = data.draw(st.integers(0, p.axis))
    dims = [1 if data.draw(st.integers(0, 4)) == 0 else n for n in x.shape][keep:]
    y = np.random.default_rng(data.draw(seeds())).integers(0, 2, dims).astype(bool)
    q = qa.encode(y, axis=p.axis - keep)
    for got, expected in ((p & q, x & y), (q | p, x | y), (p ^ q, x ^ y), (~q, ~y), (qa.bitwise_invert(~p), x)):
        assert_packed(got, expected.astype(np.int32))
        assert got.dtype is qa.uint1


@given(bools(), st.sampled_from([True, False, np.bool_(True)]))
def test_bitwise_beside_a_bool(one, t):
    x, q = one
    for got, expected in ((q & t, x & t), (t | q, x | t), (q ^ t, x ^ t), (np.bitwise_xor(t, q), x ^ t)):
        assert_packed(got, expected.astype(np.int32))


@given(few_bit_pairs())
def test_logical(pair):
    p, q = pair
    for name in ("logical_and", "logical_or", "logical_xor"):
        assert_packed(getattr(qa, name)(p.q, q.q), getattr(np, name)(p.values, q.values).astype(np.int32))


@given(any_samples(), st.sampled_from([True, False, 0, 2, np.bool_(True), np.float32(0), 0.5]))
def test_logical_beside_a_number(x, t):
    for name in ("logical_and", "logical_or", "logical_xor"):
        for call in (lambda f, v: f(v, t), lambda f, v: f(t, v)):
            assert_packed(call(getattr(qa, name), x.q), call(getattr(np, name), x.values).astype(np.int32))


@given(any_samples())
def test_logical_not(x):
    assert_packed(qa.logical_not(x.q), np.logical_not(x.values).astype(np.int32))


@given(bools(), st.integers(-300, 300), st.data())
def test_shift(one, n, data):
    x, q = one
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    expected = np.zeros(x.shape, np.int32)
    first, moved = np.moveaxis(x, axis, 0), np.moveaxis(expected, axis, 0)
    for i in range(len(first)):
        if 0 <= i + n < len(first):
            moved[i + n] = first[i]
    assert_packed(qa.shift(q, n, axis), expected)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 128, 191, 192, 193, -1, -63, -64, -65, -128, -192, 2**70, -(2**62)])
def test_shift_across_words(n):
    x = np.random.default_rng(0).integers(0, 2, (2, 193))
    expected = [[row[i - n] if 0 <= i - n < 193 else 0 for i in range(193)] for row in x]
    if abs(n) > 2**62:
        n = 2**62
    assert_packed(qa.shift(qa.encode(x.astype(bool)), n), expected)


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda q: q & (q == 1), TypeError, ["bitwise_and: a must be a uint1 array", "got bipolar", "q > 0"]),
        (lambda q: (q == 1) | 1, TypeError, ["bitwise_or: b must be a QuantArray"]),
        (lambda q: ~q, TypeError, ["bitwise_invert: q must be a uint1 array"]),
        (lambda q: ~((q == 1) * 0.5), TypeError, ["bitwise_invert: q must be a uint1 array without a scale"]),
        (lambda q: qa.logical_not(1), TypeError, ["logical_not: q must be a QuantArray"]),
        (lambda q: (q == 1) ^ (q[:2] == 1), ValueError, ["bitwise_xor: a and b", "(3,) and (2,)"]),
        (lambda q: qa.shift(q, 1), TypeError, ["shift: q must be a uint1 array"]),
        (lambda q: qa.shift(q == 1, 1.0), TypeError, ["shift: n must be an integer"]),
        (lambda q: qa.shift(q == 1, 1, 1), np.exceptions.AxisError, ["shift: axis 1 is out of bounds"]),
    ],
)
def test_messages(call, error, parts):
    q = qa.encode([1, -1, 1], values=(-1, 1))
    with pytest.raises(error) as caught:
        call(q)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)
