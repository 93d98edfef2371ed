"""The assertions fail where they should, and say where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import any_samples

import quantarray as qa
from quantarray.arrays import blocks
from quantarray.testing import assert_allclose, assert_array_equal


@given(any_samples(), st.data())
def test_equal_and_one_place_off(x, data):
    q = x.q
    assert_array_equal(q, x.values)
    assert_array_equal(x.values, q)
    assert_allclose(q, x.values, rtol=0)
    assert qa.array_equal(q, q.copy())
    if not x.values.size:
        return
    at = tuple(data.draw(st.integers(0, n - 1)) for n in x.codes.shape)
    wrong = x.values.astype(np.float64)
    wrong[at] += 1
    for check in (assert_array_equal, assert_allclose):
        with pytest.raises(AssertionError) as caught:
            check(q, wrong)
        assert f"1 of {x.values.size} elements differ" in str(caught.value) and f"at {at}:" in str(caught.value)


def test_message():
    q = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    with pytest.raises(AssertionError) as caught:
        assert_array_equal(-q * 0.5, q)
    assert str(caught.value).splitlines() == [
        "arrays are not equal: 6 of 6 elements differ (100%)",
        "  actual: QuantArray (2, 3) integers(1, -1) with a scale",
        "  desired: QuantArray (2, 3) bipolar",
        "  at (0, 0): -0.5, desired 1",
        "  at (0, 1): 0.5, desired -1",
        "  at (0, 2): -0.5, desired 1",
        "  at (1, 0): -0.5, desired 1",
        "  at (1, 1): -0.5, desired 1",
        "  and 1 more",
    ]


def test_shapes_and_kinds():
    q = qa.encode([1, -1], values=(-1, 1))
    with pytest.raises(AssertionError, match=r"shapes \(2,\) and \(1, 2\) differ"):
        assert_array_equal(q, [[1, -1]])
    with pytest.raises(AssertionError, match=r"shapes \(2,\) and \(\) differ"):
        assert_array_equal(q, 1)
    with pytest.raises(TypeError, match="assert_array_equal: desired must be an array"):
        assert_array_equal(q, ["a", "b"])
    assert_array_equal(np.array([np.nan, 1]), np.array([np.nan, 1]))
    assert_allclose([np.inf, 1.0], [np.inf, 1.1], atol=0.2)
    with pytest.raises(AssertionError, match=r"atol=0\.05"):
        assert_allclose([1.0], [1.1], atol=0.05)
    assert_array_equal(qa.encode([[1, -1]], (-1, 1), axis=0), qa.encode([[1, -1]], (-1, 0, 1)))


def test_block_by_block(monkeypatch):
    """Places are those of the whole array, packed differently or cut at groups."""
    x = np.random.default_rng(0).integers(0, 4, (3, 5, 200))
    p, q = qa.encode(x, range(4)), qa.encode(x, range(4), axis=1)
    wrong = x.copy()
    wrong[2, 4, 199] += 1
    monkeypatch.setattr(blocks.blocks, "__kwdefaults__", {"size": 64})
    assert_array_equal(p, q)
    assert qa.array_equal(p, q)
    with pytest.raises(AssertionError, match=r"1 of 3000 elements.*\n.*\n.*\n  at \(2, 4, 199\): "):
        assert_array_equal(p, wrong)


NUMPYS = {
    "assert_array_equal": np.testing.assert_array_equal,
    "assert_allclose": lambda a, b: np.testing.assert_allclose(a, b, rtol=0),
    "assert_array_almost_equal": lambda a, b: np.testing.assert_array_almost_equal(a, b, 12),
    "assert_array_max_ulp": lambda a, b: np.testing.assert_array_max_ulp(a, b, 0, dtype=np.float64),
    "strict": lambda a, b: np.testing.assert_array_equal(a, b, strict=True),
}


@pytest.mark.parametrize("name", NUMPYS)
@given(x=any_samples(), data=st.data())
def test_numpys_assertions_compare_values(name, x, data):
    """Packed arrays on one side or both; one place off fails."""
    check, q = NUMPYS[name], x.q
    values = q.dequantize()
    for a, b in ((q, q), (q, values), (values, q), (q, q.copy())):
        check(a, b)
    if not values.size:
        return
    at = tuple(data.draw(st.integers(0, n - 1)) for n in values.shape)
    wrong = values.astype(np.float64)
    wrong[at] += 1 + abs(wrong[at])
    for a, b in ((q, wrong), (wrong, q)):
        with pytest.raises(AssertionError):
            check(a, b)
    with pytest.raises(TypeError, match="by accident"):  # nothing else turns into an array
        np.asarray(q)


def test_numpys_assert_equal_takes_one_packed_side():
    q = qa.encode([[1, -1, 1]], values=(-1, 1))
    np.testing.assert_equal(q, q.dequantize())
    np.testing.assert_almost_equal(q.dequantize(), q)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(q, np.ones((1, 3)))
    with pytest.raises(AssertionError, match="shapes"):
        np.testing.assert_array_equal(q, q[:, :2])
    assert np.isrealobj(q) and not np.iscomplexobj(q)
