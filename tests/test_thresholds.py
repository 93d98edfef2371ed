"""Thresholds against plain counting, and batch norm folded into them against batch norm itself."""

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


# batch norm

GAMMAS = [1.0, -1.0, 0.0, 0.37, -2.5, 1e-30, -1e-30, 1e-6, -1e30, 1e30]
QUANTIZERS = [
    qa.Sign(),
    qa.Sign(scale=0.5),
    qa.Uniform(2, signed=False, step=0.5),
    qa.Uniform(3, step=0.25),
    qa.Uniform(4, symmetric=False, step=0.1, offset=-0.7),
    qa.Uniform(8, signed=False, step=2**-6),
]


DIFFERENT = [
    lambda: qa.Thresholds([0]),
    lambda: qa.Thresholds([0.0]),
    lambda: qa.Thresholds([[0], [0]]),
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


@st.composite
def norms(draw):
    """gamma, beta, mean, var of a channel for each kind of gamma."""
    rng = np.random.default_rng(draw(seeds()))
    n = len(GAMMAS)
    gamma = np.array(GAMMAS) * draw(st.sampled_from([1.0, 0.1, 3.0]))
    mean = rng.normal(size=n) * 50 if draw(st.booleans()) else rng.integers(-50, 50, n).astype(float)
    beta = draw(st.sampled_from([0.0, 1.0, 0.25])) * rng.normal(size=n) + draw(st.sampled_from([0.0, 0.5]))
    return gamma, beta, mean, draw(st.sampled_from([1.0, 1e-3, 400.0])) * rng.random(n)


def direct(v, norm, eps, precision, into):
    """into's values of gamma * ((v - mean) / sqrt(var + eps)) + beta for v [.. channels]."""
    gamma, beta, mean, var = (np.asarray(a, precision) for a in norm)
    with np.errstate(over="ignore", invalid="ignore"):
        y = gamma * ((v.astype(precision) - mean) / np.sqrt(var + precision(eps))) + beta
    y = np.where(gamma == 0, beta, y)  # where the division overflows too
    return qa.quantize(y, into).dequantize()


@given(norms(), st.sampled_from(QUANTIZERS), st.sampled_from([1e-5, 1e-3]), st.sampled_from([np.float32, np.float64]))
def test_fold_is_exact_for_integers(norm, into, eps, precision):
    law = qa.fold_batchnorm(*norm, into=into, eps=eps, precision=precision)
    near = np.arange(-300, 301)
    far = np.concatenate([2**k + np.arange(-2, 3) for k in range(9, 31)])
    v = np.concatenate([near, far, -far, [-(2**31), 2**31 - 1]])[:, None].repeat(len(GAMMAS), 1)
    steps = np.clip(law.values.astype(float), -(2.0**31), 2.0**31 - 2).astype(int).T  # on each threshold, and beside
    v = np.concatenate([v, steps, np.clip(steps + 1, None, 2**31 - 1), np.clip(steps - 1, -(2**31), None)])
    assert_packed(law(v.astype(np.int32)), direct(v, norm, eps, precision, into))
    wide = qa.fold_batchnorm(*norm, into=into, eps=eps, precision=precision, of=np.int64)
    assert_packed(wide(v), direct(v, norm, eps, precision, into))


@given(norms(), st.sampled_from(QUANTIZERS), st.sampled_from([np.float32, np.float64]), seeds())
def test_fold_is_exact_for_floats(norm, into, precision, seed):
    law = qa.fold_batchnorm(*norm, into=into, eps=1e-5, precision=precision, of=np.float32)
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(200, len(GAMMAS))) * 10.0 ** rng.integers(-40, 39, (200, 1))
    with np.errstate(over="ignore"):
        v = np.clip(v.astype(np.float32), -TOP, TOP)
    steps = np.clip(law.values.astype(np.float32).T, -TOP, TOP)
    beside = [np.nextafter(steps, to) for to in (-TOP, TOP)]
    v = np.concatenate([v, steps, *beside, np.broadcast_to(FLOATS[:-2, None], (len(FLOATS) - 2, len(GAMMAS)))])
    assert_packed(law(v), direct(v, norm, 1e-5, precision, into))


@pytest.mark.parametrize(
    "into",
    [
        qa.LQ(2, basis=[0.5, 0.98]),
        qa.LQ(3, basis=[1.0, 2.0, 0.5]),  # the order of its levels is not its own inverse
        qa.ABCActivations([-0.5, 0.5], [1.0, 1.0]),
        qa.PACT(2, 1.5),
    ],
    ids=str,
)
def test_batch_norm_folds_into_published_schemes(into):
    gamma, beta, mean, var = np.array([[0.01, -0.02, 0.0], [0.1, 0.2, 0.3], [3.0, 1.0, 0.0], [1.0, 2.0, 3.0]])
    made = qa.fold_batchnorm(gamma, beta, mean, var, into=into)
    v = np.arange(-400, 400)[:, None] + np.zeros(3, int)
    y = gamma * ((v - mean) / np.sqrt(var + 1e-5)) + beta
    expected = qa.from_codes(
        into.encode(y, into.fit(y, (0, 1))),
        into.dtype,
        scale=made._constants["scale"],
        offset=made._constants["offset"],
    )
    assert np.array_equal(made(v).dequantize(), expected.dequantize())


def test_batch_norm_refuses_codes_that_fall():
    with pytest.raises(ValueError, match=r"codes of .* do not rise with the value"):
        qa.fold_batchnorm([1.0], [0.0], [0.0], [1.0], into=qa.ABCActivations([-0.5, 0.5], [1.0, -1.0]))
