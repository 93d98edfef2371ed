"""map_reduce: functions of levels, summed over axes, against NumPy on the values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reductions import arrays, axes, shapes, small_blocks
from strategies import laws, samples

import quantarray as qa

ONE = {
    "square": lambda x: x * x,
    "positive": lambda x: x > 0,
    "half": lambda x: x * 0.5 + 1,
    "exp": lambda x: np.exp(-np.abs(x)),
}
TWO = {
    "product": lambda x, y: x * y,
    "distance": lambda x, y: np.abs(x - y),
    "equal": lambda x, y: x == y,
    "ratio": lambda x, y: x / (np.abs(y) + 1),
}
REDUCE = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max}


def wide(x):
    return x.values.astype(np.int64 if x.exact else np.float64)


def check(got, values, reduce, axis, keep):
    """`values` of f, element by element, reduced."""
    integers = values.dtype.kind in "bi"
    values = values.astype(np.int64 if integers else np.float64)
    expected = REDUCE[reduce](values, axis, keepdims=keep)
    assert got.dtype == (np.int64 if integers and reduce != "mean" else np.float64) and np.shape(got) == expected.shape
    if integers or reduce in ("min", "max"):
        np.testing.assert_array_equal(got, expected)
    else:
        room = 2.0**-44 * np.abs(values).sum(axis, keepdims=keep)
        np.testing.assert_array_less(np.abs(got - expected), room + 1e-300)


def length_of(shape, axis):
    over = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape[d] for d in over)


@given(st.data(), arrays(), st.sampled_from(sorted(ONE)), st.sampled_from(sorted(REDUCE)), st.booleans())
def test_of_one_array(data, x, name, reduce, small):
    axis, keep = data.draw(axes(x.values.ndim)), data.draw(st.booleans())
    if reduce != "sum" and not length_of(x.values.shape, axis):
        with pytest.raises(ValueError, match=f"map_reduce: no elements have no {reduce}"):
            qa.map_reduce(ONE[name], x.q, axis=axis, reduce=reduce)
        return
    with small_blocks(small):
        got = qa.map_reduce(ONE[name], x.q, axis=axis, reduce=reduce, keepdims=keep)
    check(got, ONE[name](wide(x)), reduce, axis, keep)


@given(st.data(), shapes(), st.sampled_from(sorted(TWO)), st.sampled_from(sorted(REDUCE)), st.booleans())
def test_of_two_arrays(data, shape_axis, name, reduce, small):
    shape, at = shape_axis
    made = []
    for _ in range(2):
        own = tuple(n if d == at or data.draw(st.booleans()) else 1 for d, n in enumerate(shape))
        cut = data.draw(st.integers(0, at))
        along = range(len(shape) - cut)
        made.append(data.draw(samples(own[cut:], at - cut, laws(4), along, (None, 5, 64))))
    x, y = made
    values = TWO[name](wide(x), wide(y))
    axis = data.draw(axes(values.ndim))
    if reduce != "sum" and not length_of(values.shape, axis):
        return
    with small_blocks(small):
        got = qa.map_reduce(TWO[name], x.q, y.q, axis=axis, reduce=reduce)
    check(got, values, reduce, axis, False)


@given(st.data(), arrays(least_length=1))
def test_mean_and_variance_of_a_batch_in_one_call(data, x):
    axis = data.draw(axes(x.values.ndim))
    calls = []

    def moments(v):
        calls.append(v.size)
        return v, v * v

    mean, square = qa.map_reduce(moments, x.q, axis=axis, reduce="mean")
    assert len(calls) == 1 and calls[0] <= x.q.levels.size
    values = wide(x)
    check(np.float64(mean) if np.ndim(mean) == 0 else mean, values.astype(np.float64), "mean", axis, False)
    np.testing.assert_allclose(
        square - mean**2, values.var(axis), rtol=1e-9, atol=1e-9 * np.square(np.float64(values)).max()
    )


def test_a_tuple_of_one_stays_a_tuple():
    q = qa.encode([0, 1, 2], range(4))
    assert qa.map_reduce(lambda x: (x,), q) == (np.int64(3),)


Q = qa.encode(np.ones((2, 70), int), (-1, 1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: qa.map_reduce(lambda x: np.ones(3), Q), ValueError, "map_reduce: f must return arrays of the shape"),
        (lambda: qa.map_reduce(lambda x: "?", Q), TypeError, "map_reduce: the result of f"),
        (lambda: qa.map_reduce(lambda x: x * 2**62, Q), OverflowError, "map_reduce: .*let f return floats"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
