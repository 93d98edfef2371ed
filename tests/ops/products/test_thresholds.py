"""Thresholds against plain counting; how they are spelled, kept and refused."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed, thresholds
from strategies import channels, seeds

import quantarray as qa

INTEGERS = [0, 1, -1, 2, -2, 2**24 - 1, 2**24, 2**24 + 1, -(2**24) - 1, 2**31 - 1, -(2**31), 2**40 + 1, 2**53]
TOP = np.finfo(np.float32).max
TINY = np.float32(1e-45)
FLOATS = np.float32([0, -0.0, TINY, -TINY, 1, np.nextafter(np.float32(1), 2), -1, 0.1, TOP, -TOP, np.inf, -np.inf])
THRESHOLDS = [*INTEGERS, 2**60, -(2**61)]
REALS = [*FLOATS.tolist(), 0.5, -0.5, 1 + 1e-12, 1 - 1e-12, 0.1, 1e300, -1e300, 1e-300, -1e-300, 2**24 + 1, 1e19, -1e19]


def shapes():
    return st.tuples(st.integers(0, 3), st.integers(0, 4)).flatmap(lambda s: channels().map(lambda c: (*s, c)))


@given(st.data(), shapes(), st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.float32]), st.integers(-3, 2))
def test_codes_count_thresholds(data, shape, dtype, axis):
    rng = np.random.default_rng(data.draw(seeds()))
    values = (rng.integers(0, 100, shape) if dtype != np.float32 else rng.normal(size=shape) * 10).astype(dtype)
    law, expected = data.draw(thresholds(values.astype(np.int64) if dtype != np.float32 else values))
    got = law(np.moveaxis(values, -1, axis), axis=axis)
    assert got.axis == axis % 3
    assert_packed(got, np.moveaxis(expected, -1, axis))


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_values_may_be_read_only(dtype):
    values = np.frombuffer(np.arange(6, dtype=dtype).tobytes(), dtype).reshape(2, 3)
    for cuts in ([2], [1, 3, 4], [1, 3]):
        law = qa.Thresholds(cuts, per_channel=False)
        np.testing.assert_array_equal(law(values).codes(), (values[..., None] > cuts).sum(-1))


@pytest.mark.parametrize("greater", [True, False])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("values", [np.array(INTEGERS)[:, None], FLOATS[:, None]], ids=["integers", "floats"])
def test_every_tie(values, strict, greater):
    """Each threshold alone, integer or float, against integer and float32 values that are, or round to, the same."""
    for t in (*THRESHOLDS, *map(float, REALS)):
        row = np.array([t])
        expected = naive.thresholds(values, row[None], greater, strict)
        got = qa.Thresholds(row, greater=greater, strict=strict, into=qa.uint1)(values)
        np.testing.assert_array_equal(got.dequantize(), expected, err_msg=f"{t!r}")
    t = np.sort(np.array(REALS))
    got = qa.Thresholds(t, per_channel=False, greater=greater, strict=strict)(values)
    np.testing.assert_array_equal(got.dequantize(), naive.thresholds(values, t[None], greater, strict))


def test_what_is_refused():
    law = qa.Thresholds([[0], [1]])
    with pytest.raises(ValueError, match="2 channels"):
        law(np.zeros((4, 3), np.int32))
    with pytest.raises(TypeError, match="float32"):
        law(np.zeros((4, 2)))
    with pytest.raises(ValueError, match="NaN"):
        law(np.full((4, 2), np.float32(np.nan)))
    with pytest.raises(ValueError, match="NaN"):
        qa.Thresholds([np.nan])


DIFFERENT = [
    lambda: qa.Thresholds([0]),
    lambda: qa.Thresholds([0.0]),
    lambda: qa.Thresholds([[0], [0]]),
    lambda: qa.Thresholds([0, 1]),
    lambda: qa.Thresholds([0, 1], per_channel=True),
    lambda: qa.Thresholds([0, 1], per_channel=False),
    lambda: qa.Thresholds([0], greater=False),
    lambda: qa.Thresholds([0], strict=False),
    lambda: qa.Thresholds([0], strict=[False, True]),
    lambda: qa.Thresholds([0], into=qa.uint1),
    lambda: qa.Thresholds([0], into=qa.uniform(1), scale=0.5),
    lambda: qa.Thresholds([0], into=qa.uniform(1), scale=0.25),
    lambda: qa.Thresholds([0], into=qa.uniform(1), scale=0.5, offset=0.5),
    lambda: qa.Thresholds([0], into=qa.encode([1, -1], values=[1, -1]).dtype),
    lambda: qa.Thresholds([0], into=qa.encode([1, -1], values=[1, -1]).dtype, by_rank=False),
]


def test_equal_where_made_of_the_same():
    for i, one in enumerate(DIFFERENT):
        assert one() == one() and hash(one()) == hash(one())
        assert [one() == other() for other in DIFFERENT] == [i == j for j in range(len(DIFFERENT))]
    assert qa.Thresholds([0]) != 0


def test_never_change():
    scale = np.array(0.5)
    law = qa.Thresholds([0], into=qa.uniform(1), scale=scale)
    scale[...] = 2
    assert law._law(3).scale.item() == 0.5
    greater = np.array([True, False])
    law = qa.Thresholds([[0], [1]], greater=greater)
    greater[:] = False
    assert law.greater.tolist() == [True, False]
    for a in (law.values, law.greater, law.strict, law._codes):
        with pytest.raises(ValueError, match="read-only"):
            a[...] = 0


def test_equal_thresholds_are_prepared_once():
    x, w = (qa.encode(np.ones((1, 3, 3, 64), int), values=(-1, 1)) for _ in range(2))
    first = qa.conv2d(x, w, requantize=qa.Thresholds([600]))
    kept = set(w._cache)
    assert (qa.conv2d(x, w, requantize=qa.Thresholds([600])) == first).all() and set(w._cache) == kept
    assert (qa.conv2d(x, w, requantize=qa.Thresholds([500])) != first).all()


# one axis of thresholds: one a channel, or all in every channel

BIAS = np.arange(-16, 16)


def test_one_a_channel():
    values = np.random.default_rng(0).integers(-20, 20, (50, 32))
    law = qa.Thresholds(BIAS, per_channel=True)
    assert law == qa.Thresholds(BIAS[:, None]) and law.channels == 32 and law.into is qa.bipolar
    assert_packed(law(values), np.where(values > BIAS, 1, -1))
    law = qa.Thresholds(np.zeros(32), per_channel=True, greater=BIAS > 0)
    assert_packed(law(values), np.where(BIAS > 0, np.where(values > 0, 1, -1), np.where(values < 0, 1, -1)))
    assert qa.Thresholds([[0, 1], [2, 3]], per_channel=True) == qa.Thresholds([[0, 1], [2, 3]])
    assert qa.Thresholds([7], per_channel=True).channels == 1


def test_all_in_every_channel():
    values = np.random.default_rng(0).integers(-20, 20, (50, 32))
    for count, cuts in ((31, BIAS[1:]), (32, BIAS)):
        law = qa.Thresholds(cuts, per_channel=False)
        assert law.channels is None and law.into.n_levels == count + 1
        np.testing.assert_array_equal(law(values).codes(), (values[..., None] > cuts).sum(-1))
    np.testing.assert_array_equal(qa.Thresholds([0, 5])(values).codes(), 0 + (values > 0) + (values > 5))


BOTH = r"Thresholds\(values, per_channel=True\)(.|\n)*per_channel=False"


@pytest.mark.parametrize("values", [np.zeros(32), [3, 1, 3], np.float32([0.0, -0.0]), [np.inf, np.inf]])
def test_equal_ones_in_one_axis_are_asked_about(values):
    with pytest.raises(ValueError, match=BOTH):
        qa.Thresholds(values)
    assert qa.Thresholds(values, per_channel=True).into is qa.bipolar
    assert qa.Thresholds(values, per_channel=False).into.n_levels == len(values) + 1


def signs(*shape, axis=-1):
    return qa.encode(np.random.default_rng(0).choice([-1, 1], shape), (-1, 1), axis)


IMAGE, ROWS = signs(1, 4, 4, 64), signs(6, 64)
AMBIGUOUS = {
    "Thresholds": lambda law: law(np.zeros((2, 32), np.int32)),
    "conv2d": lambda law: qa.conv2d(IMAGE, signs(32, 3, 3, 64), requantize=law),
    "linear": lambda law: qa.linear(ROWS, signs(32, 64), requantize=law),
    "matmul": lambda law: qa.matmul(ROWS, signs(64, 32, axis=0), requantize=law),
    "avg_pool2d": lambda law: qa.avg_pool2d(IMAGE[..., :32].copy(), 2, requantize=law),
}


@pytest.mark.parametrize("op", AMBIGUOUS)
def test_as_many_as_channels_are_asked_about(op):
    call = AMBIGUOUS[op]
    for law in (True, False):  # a call that is prepared for one of them does not serve the next
        call(qa.Thresholds(BIAS, per_channel=law))
        with pytest.raises(ValueError, match=f"^{op}: 32 thresholds in one axis for 32 channels(.|\n)*{BOTH}"):
            call(qa.Thresholds(BIAS))
    assert call(qa.Thresholds(BIAS[1:])).dtype.n_levels == 32


def test_flags_say_how_many_channels_there_are():
    with pytest.raises(ValueError, match="3 thresholds in one axis for 3 channels"):
        qa.Thresholds([0, 1, 2], greater=[True, False, True])
    assert qa.Thresholds([0, 1], greater=[True, False, True]).channels == 3
    with pytest.raises(ValueError, match=r"are per channel, got \(2, 1\) and per_channel=False"):
        qa.Thresholds([[0], [1]], per_channel=False)
    with pytest.raises(TypeError, match="per_channel must be True or False, got 1"):
        qa.Thresholds([0, 1], per_channel=1)
