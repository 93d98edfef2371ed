"""flip, roll, tile, split and unstack against NumPy on the values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import arrays, channels, threads

import quantarray as qa
from quantarray.ops.manipulation import flattening


def may_refuse(call, q):
    """The result, or None where groups of the packed axis would be cut."""
    try:
        return call()
    except IndexError as error:
        assert "through a group" in str(error) and q.group is not None
        return None


@given(st.data(), arrays(), st.booleans())
def test_flip(data, x, many):
    q = x.q
    axis = data.draw(
        st.none() | st.integers(-q.ndim, q.ndim - 1) | st.lists(st.integers(0, q.ndim - 1), unique=True).map(tuple)
    )
    with threads(many):
        got = may_refuse(lambda: qa.flip(q, axis), q)
    if got is not None:
        assert_packed(got, np.flip(x.values, axis))
        unpacked = axis is not None and q.axis not in np.atleast_1d(np.array(axis, int)) % q.ndim
        assert not unpacked or np.shares_memory(got.words, q.words) == (q.words.size > 0)


@given(st.data(), arrays(), st.booleans())
def test_roll(data, x, many):
    q = x.q
    shift = st.sampled_from([0, 1, -1, 5, 63, 64, 65, -64, 1000])
    several = data.draw(st.lists(st.integers(0, q.ndim - 1), min_size=1, max_size=3))
    shifts = [data.draw(shift) for _ in several]
    with threads(many):
        for by, axis in ((shifts[0], several[0]), (tuple(shifts), tuple(several)), (shifts[0], tuple(several))):
            got = may_refuse(lambda by=by, axis=axis: qa.roll(q, by, axis), q)
            assert got is None or assert_packed(got, np.roll(x.values, by, axis)) is None


@given(st.data(), arrays())
def test_roll_of_all_elements(data, x):
    by = data.draw(st.sampled_from([0, 1, -1, 5, 63, 64, 1000]))
    got = may_refuse(lambda: qa.roll(x.q, by), x.q)
    assert got is None or assert_packed(got, np.roll(x.values, by)) is None


@pytest.mark.parametrize("at_once", [64, 200])
@pytest.mark.parametrize("shape", [(130, 1), (200, 2, 5), (64, 3, 4), (7, 70, 2), (7, 5, 9, 1)])
def test_flattening_in_parts(shape, at_once, monkeypatch):
    """Words are those of all rows at once, wherever parts begin, and back."""
    codes = np.random.default_rng(0).integers(0, 8, shape)
    for axis in range(len(shape)):
        q = qa.from_codes(codes, qa.uint3, axis)
        at_a_time = qa.ravel(qa.repack(q))
        monkeypatch.setattr(flattening, "_AT_ONCE", at_once)
        flat = flattening.flattened(q)
        back = flattening.unflattened(flat, shape, axis)
        monkeypatch.undo()
        assert_packed(flat, codes.reshape(-1))
        np.testing.assert_array_equal(flat.words, at_a_time.words)
        assert_packed(back, codes)
        np.testing.assert_array_equal(back.words, q.words)


def test_roll_keeps_periodic_constants_small():
    q = qa.from_codes(np.arange(24).reshape(2, 3, 4) % 8, qa.uint3, 1, scale=np.float32([[[1, 2, 3, 4]]]))
    rolled = qa.roll(q, 5)
    assert rolled.constants.scale.tolist() == [[[4, 1, 2, 3]]]
    np.testing.assert_array_equal(rolled.dequantize(), np.roll(q.dequantize(), 5))


@given(st.data(), arrays(), st.booleans())
def test_tile(data, x, many):
    q = x.q
    reps = tuple(data.draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4)))
    with threads(many):
        got = may_refuse(lambda: qa.tile(q, reps), q)
        assert got is None or assert_packed(got, np.tile(x.values, reps)) is None
        got = may_refuse(lambda: qa.tile(q, 3), q)
        assert got is None or assert_packed(got, np.tile(x.values, 3)) is None


@given(st.data(), arrays())
def test_split(data, x):
    q, d = x.q, data.draw(st.integers(0, x.values.ndim - 1))
    n = x.values.shape[d]
    parts = data.draw(st.integers(1, 5) | st.lists(st.integers(-n - 1, n + 1), max_size=3))
    got = may_refuse(lambda: qa.array_split(q, parts, d), q)
    expected = np.array_split(x.values, parts, d)
    if got is not None:
        assert len(got) == len(expected)
        for g, e in zip(got, expected, strict=True):
            assert_packed(g, e)
    if isinstance(parts, int) and n % parts:
        with pytest.raises(ValueError, match=r"split: .* elements do not make"):
            qa.split(q, parts, d)
    elif got is not None:
        assert [g.shape for g in qa.split(q, parts, d)] == [e.shape for e in np.split(x.values, parts, d)]


@given(st.data(), arrays(least=2, length=lambda: channels(65)))
def test_unstack(data, x):
    q, d = x.q, data.draw(st.integers(0, x.values.ndim - 1))
    for got, expected in zip(qa.unstack(q, d), np.moveaxis(x.values, d, 0), strict=True):
        assert_packed(got, expected)


@given(st.data(), arrays(least=2), st.integers(-5, 5))
def test_rot90(data, x, k):
    axes = data.draw(st.permutations(range(-x.values.ndim, 0)))[:2]
    got = may_refuse(lambda: qa.rot90(x.q, k, axes), x.q)
    if got is not None:
        assert_packed(got, np.rot90(x.values, k, axes))


def test_what_these_refuse():
    q = qa.from_codes([0, 1, 2], qa.ternary)
    refused = [
        (lambda: qa.unstack(q), ValueError, "none would be left; iterate over it"),
        (lambda: qa.split(q, 0), ValueError, "indices_or_sections must be at least 1"),
        (lambda: qa.tile(q, -1), ValueError, "tile: a repeat must be at least 0"),
        (lambda: qa.flip(q, (0, -1)), ValueError, "flip: an axis is named twice"),
        (lambda: qa.flip(q, 1), IndexError, "flip: axis 1 is out of bounds"),
        (lambda: qa.roll(q, 0.5, 0), TypeError, "roll: shift must be an integer"),
        (lambda: qa.rot90(q, 1, (0,)), ValueError, "rot90: axes must be two"),
        (lambda: qa.roll([1], 1), TypeError, "roll: q must be a QuantArray"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()
