"""Views of whole axes: the same words in another order, against NumPy on the values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import arrays, channels

import quantarray as qa


def assert_view(got, q, expected):
    """A valid array of the expected values that shares the words."""
    assert_packed(got, expected)
    assert np.shares_memory(got.words, q.words) == (q.words.size > 0 and got.words.size > 0)
    assert got.dtype == q.dtype


@given(st.data(), arrays())
def test_axes_in_another_order(data, x):
    q, n = x.q, x.values.ndim
    order = data.draw(st.permutations(range(n)))
    assert_view(qa.permute_dims(q, order), q, x.values.transpose(order))
    assert_view(qa.transpose(q, tuple(order)), q, x.values.transpose(order))
    assert_view(qa.transpose(q), q, x.values.T)
    a, b = (data.draw(st.integers(-n, n - 1)) for _ in range(2))
    assert_view(qa.swapaxes(q, a, b), q, x.values.swapaxes(a, b))
    assert_view(q.swapaxes(a, b), q, x.values.swapaxes(a, b))
    if n > 1:
        for got in (qa.matrix_transpose(q), q.mT):
            assert_view(got, q, x.values.swapaxes(-1, -2))


@given(st.data(), arrays())
def test_moveaxis(data, x):
    q, n = x.q, x.values.ndim
    count = data.draw(st.integers(1, n))
    old, new = (data.draw(st.permutations(range(n)))[:count] for _ in range(2))
    old = [d - n * data.draw(st.booleans()) for d in old]
    assert_view(qa.moveaxis(q, old, new), q, np.moveaxis(x.values, old, new))
    assert_view(qa.moveaxis(q, old[0], new[0]), q, np.moveaxis(x.values, old[0], new[0]))


@given(st.data(), arrays())
def test_expand_dims_and_back(data, x):
    q, n = x.q, x.values.ndim
    more = data.draw(st.integers(1, 3))
    new = data.draw(st.permutations(range(n + more)))[:more]
    got = qa.expand_dims(q, new)
    assert_view(got, q, np.expand_dims(x.values, tuple(new)))
    assert_view(qa.squeeze(got, new), q, x.values)
    assert_view(qa.expand_dims(q, -1), q, x.values[..., None])


@given(arrays(length=lambda: st.sampled_from([1, 1, 2, 65])))
def test_squeeze(x):
    q, ones = x.q, [d for d, n in enumerate(x.values.shape) if n == 1]
    for axis in (None, *ones):
        expected = x.values.squeeze(axis)
        if expected.ndim:
            assert_packed(qa.squeeze(q, axis), expected)
            assert_packed(q.squeeze(axis), expected)
        else:
            with pytest.raises(ValueError, match="squeeze: a packed array needs an axis"):
                qa.squeeze(q, axis)


@given(st.data(), arrays(length=lambda: channels() | st.just(1)))
def test_broadcast_to(data, x):
    q, shape = x.q, x.values.shape
    new = [data.draw(st.sampled_from([0, 1, 3, 70])) if n == 1 else n for n in shape]
    new = [data.draw(st.integers(0, 3)) for _ in range(data.draw(st.integers(0, 2)))] + new
    got = qa.broadcast_to(q, tuple(new))
    expected = np.broadcast_to(x.values, new)
    assert_packed(got, expected)
    if new[len(new) - len(shape) + q.axis] == shape[q.axis] and got.size:
        assert np.shares_memory(got.words, q.words)
    assert_packed(got.copy(), expected)
    if q.group is None:
        assert_packed(got[..., ::-1], expected[..., ::-1])


@given(arrays(), st.data())
def test_broadcast_arrays(x, data):
    q = x.q
    column = q[tuple(slice(0, 1) if data.draw(st.booleans()) and q.group is None else slice(None) for _ in q.shape)]
    expected = np.broadcast_arrays(x.values, column.dequantize())
    for got, values in zip(qa.broadcast_arrays(q, column), expected, strict=True):
        assert_packed(got, values)


def test_broadcast_shapes():
    assert qa.broadcast_shapes((3, 1), (4,), 1) == (3, 4) and qa.broadcast_shapes() == ()
    with pytest.raises(ValueError, match=r"broadcast_shapes: the shapes \(2,\), \(3,\) do not broadcast"):
        qa.broadcast_shapes(2, 3)


def test_what_views_refuse():
    q = qa.from_codes(np.zeros((2, 1, 3), int), qa.ternary)
    refused = [
        (lambda: qa.permute_dims(q, (0, 1)), ValueError, "permute_dims: needs each of the 3 axes once"),
        (lambda: qa.permute_dims(q, (0, 0, 1)), ValueError, "an axis is named twice"),
        (lambda: qa.moveaxis(q, (0, 1), 2), ValueError, "moveaxis: needs as many places as axes"),
        (lambda: qa.swapaxes(q, 0, 3), IndexError, "swapaxes: axis2 3 is out of bounds"),
        (lambda: q[0, 0].mT, ValueError, "matrix_transpose: needs at least two axes"),
        (lambda: qa.squeeze(q, 0), ValueError, "squeeze: only axes of length 1 can go"),
        (lambda: qa.broadcast_to(q, (2, 3)), ValueError, "does not broadcast to"),
        (lambda: qa.broadcast_to(q, (10**19, 2, 1, 3)), ValueError, "broadcast_to: a length of shape must be below"),
        (lambda: qa.broadcast_to(q, (1,) * 70), ValueError, "broadcast_to: a packed array has at most 63 axes, got 70"),
        (lambda: qa.expand_dims(q, tuple(range(70))), ValueError, "expand_dims: a packed array has at most 63 axes"),
        (lambda: q.reshape((1,) * 70), ValueError, "reshape: a packed array has at most 63 axes, got 70"),
        (lambda: qa.broadcast_arrays(q, q[:, :, :2]), ValueError, "broadcast_arrays: the shapes"),
        (lambda: qa.expand_dims(q, 5), IndexError, "expand_dims: axis 5 is out of bounds"),
        (lambda: qa.transpose(np.ones(3)), TypeError, "transpose: q must be a QuantArray"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()


def test_ravel():
    q = qa.from_codes(np.arange(12).reshape(3, 4) % 3, qa.ternary)
    assert_packed(q.ravel(), q.dequantize().ravel())
    assert_packed(qa.ravel(q[:0]), np.zeros(0, np.int32))
    wide = qa.from_codes(np.ones((2, 64), int), qa.bipolar)
    assert np.shares_memory(wide.ravel().words, wide.words) and not np.shares_memory(wide.flatten().words, wide.words)
    with pytest.raises(ValueError, match="pack the last axis first, with repack"):
        q.T.ravel()


@given(arrays())
def test_planes(x):
    q = x.q
    planes = q.planes()
    assert len(planes) == q.bits and all(np.shares_memory(p.words, q.words) or not p.words.size for p in planes)
    for k, plane in enumerate(planes):
        assert_packed(plane, x.codes >> k & 1)
        assert plane.dtype == qa.uint1 and plane.axis == q.axis
