"""Places, orders, running sums and sets of values against NumPy on the values."""

from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reductions import INTEGER, LAWS, arrays, assert_rounded, assert_same, integer_type, largest, small_blocks
from results import assert_packed
from strategies import laws

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.ops.statistical import searching


@st.composite
def cases(draw, **kwargs):
    """An array, and one of its axes counted from either end."""
    x = draw(arrays(**kwargs))
    return x, draw(st.integers(-x.values.ndim, x.values.ndim - 1))


def dense(x):
    """The values as `dequantize` gives them."""
    return x.values.astype(np.int32) if x.exact else x.values


@given(cases(), st.booleans(), st.booleans(), st.booleans())
def test_argmax_and_argmin(case, whole, keep, small):
    x, axis = case
    axis = None if whole else axis
    for name in ("argmax", "argmin"):
        if 0 in (x.values.shape if whole else (x.values.shape[axis],)):
            with pytest.raises(ValueError, match=f"{name}: no elements"):
                getattr(qa, name)(x.q, axis)
            continue
        with small_blocks(small):
            got = getattr(qa, name)(x.q, axis, keepdims=keep)
        assert_same(got, getattr(x.values, name)(axis, keepdims=keep))
        np.testing.assert_array_equal(getattr(x.q, name)(axis, keepdims=keep), got)


@given(cases(), st.booleans())
def test_cumulative_sum(case, initial):
    x, axis = case
    got = qa.cumulative_sum(x.q, axis=axis, include_initial=initial)
    exact = x.values.astype(np.int64 if x.exact else np.longdouble)
    expected = np.cumulative_sum(exact, axis=axis, include_initial=initial)
    if x.exact:
        assert_same(got, expected.astype(integer_type(largest(x) * x.values.shape[axis])))
    else:
        assert_rounded(got, expected, 2.0**-44 * np.cumulative_sum(np.abs(exact), axis=axis, include_initial=initial))


@given(cases(law=laws(8, ["scaled", "uniform", "basis", "table"])), st.booleans())
def test_cumulative_products_of_floats(case, initial):
    """Products in float64, one after the other, each rounded once, also if a line is cut into blocks."""
    x, axis = case
    with np.errstate(over="ignore"), patch.object(searching, "blocks", partial(searching.blocks, size=37)):
        got = qa.cumulative_prod(x.q, axis=axis, include_initial=initial)
        expected = np.cumulative_prod(x.values.astype(np.float64), axis=axis, include_initial=initial)
        assert_same(got, expected.astype(np.float32))


def test_cumulative_products_of_integers():
    q = qa.encode(np.resize([1, -2, 0, 3], (3, 62)), values=range(-2, 4))
    with pytest.raises(OverflowError, match="cumulative_prod: the product of 62 levels up to 3"):
        qa.cumulative_prod(q, axis=1)
    for part in (q[:, 4:10], q[:, 3:33], q[:, :2]):
        values = part.dequantize().astype(np.int64)
        expected = np.cumulative_prod(values, axis=1).astype(integer_type(3 ** values.shape[1]))
        assert_same(qa.cumulative_prod(part, axis=1), expected)
        assert_same(qa.cumulative_prod(part, axis=0), np.cumulative_prod(values, axis=0).astype(np.int32))


def test_differences_of_differences():
    """int64 where 2**n * max|level| asks for it; floats round at each step."""
    q = qa.encode([2**29, -(2**29), 2**29, 0], values=(-(2**29), 0, 2**29))
    assert_same(qa.diff(q, n=2), np.array([2**31, -(3 * 2**29)]))
    assert_same(qa.diff(q, prepend=q[:1], append=q[-1:]), np.array([0, -(2**30), 2**30, -(2**29), 0], np.int32))
    assert qa.diff(q[:2], n=2).shape == (0,) and qa.diff(q * 0.5, n=3).dtype == np.float32
    assert_same(qa.diff(q, n=0), q.dequantize())
    with pytest.raises(ValueError, match="diff: n must be"):
        qa.diff(q, n=-1)


@given(cases(), st.booleans())
def test_diff(case, small):
    x, axis = case
    with small_blocks(small):
        got = qa.diff(x.q, axis=axis)
    values = x.values.astype(np.int64) if x.exact else x.values
    expected = np.diff(values, axis=axis)
    assert_same(got, expected.astype(integer_type(2 * largest(x))) if x.exact else expected)


@given(cases(), st.booleans())
def test_argsort(case, descending):
    x, axis = case
    got = qa.argsort(x.q, axis=axis, descending=descending)
    keys = np.float64(x.values)
    assert_same(got, np.argsort(-keys if descending else keys, axis=axis, kind="stable"))
    np.testing.assert_array_equal(x.q.argsort(axis=axis, descending=descending), got)


@given(cases(), st.booleans())
def test_sort(case, descending):
    x, axis = case
    if any(a.shape[a.ndim - x.values.ndim + axis % x.values.ndim] > 1 for a in x.constants.values()):
        with pytest.raises(ValueError, match=r"sort: .*np\.sort takes"):
            qa.sort(x.q, axis=axis)
        return
    got = qa.sort(x.q, axis=axis, descending=descending)
    expected = np.sort(x.values, axis=axis)
    assert_packed(got, np.flip(expected, axis) if descending else expected)
    assert got.dtype == x.law.dtype and got.axis == x.axis and got.group == x.q.group


@given(arrays(), st.booleans())
def test_unique(x, small):
    values, first, inverse, counts = np.unique(dense(x), return_index=True, return_inverse=True, return_counts=True)
    with small_blocks(small):
        assert_same(qa.unique_values(x.q), values)
        got = qa.unique_all(x.q)
        for made, expected in zip(got, (values, first, inverse.reshape(x.values.shape), counts), strict=True):
            assert_same(made, expected)
        pair = qa.unique_counts(x.q)
        assert_same(pair.values, values)
        assert_same(pair.counts, counts)
        pair = qa.unique_inverse(x.q)
        assert_same(pair.values[pair.inverse_indices], dense(x))


@given(arrays(law=LAWS, most=1), st.data())
def test_searchsorted(x, data):
    assume(not x.constants or all(a.shape[-1] <= 1 for a in x.constants.values()))
    ordered = np.sort(x.values)
    between = (ordered[:-1].astype(np.float64) + ordered[1:]) / 2
    wanted = np.concatenate([[-1e9, 1e9], ordered[:5], between[:5]]).reshape(-1, 1)
    q = qa.sort(x.q)
    for side in ("left", "right"):
        assert_same(qa.searchsorted(q, wanted, side=side), np.searchsorted(ordered.astype(np.float64), wanted, side))
    assert_same(qa.searchsorted(q, wanted[0, 0]), np.searchsorted(ordered, wanted[0, 0]))


@given(arrays(), st.booleans(), st.booleans())
def test_isin_and_nonzero(x, invert, small):
    few = np.append(x.values.ravel()[::3], [0, 1, 0.5])
    got = qa.isin(x.q, few, invert=invert)
    assert got.dtype == qa.uint1 and got.axis == x.axis
    assert_packed(got, np.isin(x.values.astype(np.float64), few, invert=invert))
    with small_blocks(small):
        places = qa.nonzero(x.q)
    expected = np.nonzero(x.values)
    assert len(places) == len(expected) == len(x.q.nonzero())
    for made, right in zip(places, expected, strict=True):
        assert_same(made, right)


@given(cases(law=INTEGER, least_length=1))
def test_views(case):
    x, axis = case
    q, values = x.q.T, x.values.T
    validate(q)
    np.testing.assert_array_equal(qa.argmax(q, axis), values.argmax(axis))
    np.testing.assert_array_equal(qa.argsort(q, axis=axis), np.argsort(values, axis=axis, kind="stable"))
    np.testing.assert_array_equal(qa.cumulative_sum(q, axis=axis), values.cumsum(axis))
    assert_packed(qa.sort(q, axis=axis), np.sort(values, axis=axis))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: qa.argmax(q, 2), np.exceptions.AxisError, "argmax: axis 2"),
        (lambda q: qa.argmin(np.ones(3)), TypeError, "argmin: q must be a QuantArray"),
        (lambda q: qa.cumulative_sum(q), ValueError, "cumulative_sum: needs axis="),
        (lambda q: qa.sort(q, descending=1), TypeError, "sort: descending must be True or False"),
        (lambda q: qa.searchsorted(q, [1]), ValueError, "searchsorted: needs an array of one axis"),
        (lambda q: qa.searchsorted(q[0], [1], side="middle"), ValueError, "searchsorted: side must be one of"),
        (lambda q: qa.isin(q, q), TypeError, "isin: values is packed already"),
        (lambda q: qa.unique_all([1]), TypeError, "unique_all: q must be a QuantArray"),
        (lambda q: qa.diff(q, prepend=0), TypeError, "diff: prepend must be a QuantArray, got int"),
        (lambda q: qa.diff(q, axis=0, append=q[:, :1]), ValueError, "diff: needs shapes that are equal but for axis 0"),
        (lambda q: qa.diff(q, axis=-3), np.exceptions.AxisError, "diff: axis -3"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(qa.encode(np.ones((2, 70), int), (-1, 1)))
