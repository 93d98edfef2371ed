"""Batch norm folded into thresholds, and into an affine of the last layer, against batch norm itself."""

from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import seeds

import quantarray as qa

TOP = np.finfo(np.float32).max
TINY = np.float32(1e-45)
FLOATS = np.float32([0, -0.0, TINY, -TINY, 1, np.nextafter(np.float32(1), 2), -1, 0.1, TOP, -TOP, np.inf, -np.inf])
GAMMAS = [1.0, -1.0, 0.0, 0.37, -2.5, 1e-30, -1e-30, 1e-6, -1e30, 1e30]
QUANTIZERS = [
    qa.Sign(),
    qa.Sign(scale=0.5),
    qa.Uniform(2, signed=False, step=0.5),
    qa.Uniform(3, step=0.25),
    qa.Uniform(4, symmetric=False, step=0.1, offset=-0.7),
    qa.Uniform(8, signed=False, step=2**-6),
    qa.Uniform(2, step=1.0),
    qa.Uniform(4, symmetric=False, step=1.0, offset=-7),
]


@st.composite
def norms(draw):
    """gamma, beta, mean, var of a channel for each kind of gamma."""
    rng = np.random.default_rng(draw(seeds()))
    n = len(GAMMAS)
    gamma = np.array(GAMMAS) * draw(st.sampled_from([1.0, 0.1, 3.0]))
    mean = rng.normal(size=n) * 50 if draw(st.booleans()) else rng.integers(-50, 50, n).astype(float)
    beta = draw(st.sampled_from([0.0, 1.0, 0.25])) * rng.normal(size=n) + draw(st.sampled_from([0.0, 0.5]))
    return gamma, beta, mean, draw(st.sampled_from([1.0, 1e-3, 400.0])) * rng.random(n)


def direct(v, norm, eps, precision, into, input_scale=1.0):
    """into's values of gamma * ((input_scale * v - mean) / sqrt(var + eps)) + beta for v [.. channels]."""
    gamma, beta, mean, var = (np.asarray(a, precision) for a in norm)
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.asarray(input_scale, precision) * v.astype(precision)
        y = gamma * ((x - mean) / np.sqrt(var + precision(eps))) + beta
    y = np.where(gamma == 0, beta, y)  # where the division overflows too
    return qa.quantize(y, into).dequantize()


N = len(GAMMAS)
SCALES = [1.0, 0.37, -0.25, 2.0**-20, 0, 1e30, np.linspace(-2, 2, N), np.where(np.arange(N) % 3, 0.01, -30.0)]


@given(
    norms(),
    st.sampled_from(QUANTIZERS),
    st.sampled_from([1e-5, 1e-3]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(SCALES),
)
def test_fold_is_exact_for_integers(norm, into, eps, precision, scale):
    law = qa.fold_batchnorm(*norm, into=into, eps=eps, precision=precision, input_scale=scale)
    near = np.arange(-300, 301)
    far = np.concatenate([2**k + np.arange(-2, 3) for k in range(9, 31)])
    v = np.concatenate([near, far, -far, [-(2**31), 2**31 - 1]])[:, None].repeat(len(GAMMAS), 1)
    steps = np.clip(law.values.astype(float), -(2.0**31), 2.0**31 - 2).astype(int).T  # on each threshold, and beside
    v = np.concatenate([v, steps, np.clip(steps + 1, None, 2**31 - 1), np.clip(steps - 1, -(2**31), None)])
    assert_packed(law(v.astype(np.int32)), direct(v, norm, eps, precision, into, scale))
    wide = qa.fold_batchnorm(*norm, into=into, eps=eps, precision=precision, of=np.int64, input_scale=scale)
    assert_packed(wide(v), direct(v, norm, eps, precision, into, scale))


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


IN_INTEGERS = {
    qa.Uniform(2, step=1.0): qa.ternary,
    qa.Uniform(2, signed=False, step=1.0): qa.uint2,
    qa.Uniform(2, step=4.0): qa.integers(-4, 0, 4),
    qa.Uniform(4, symmetric=False, step=1.0, offset=-7): qa.integers(range(-7, 9)),
    qa.Uniform(3, midrise=True, step=2.0): qa.integers(range(-7, 9, 2)),
    qa.Uniform(1, signed=False, step=1.0): qa.uint1,
    qa.PACT(2, 3.0): qa.uint2,
    qa.LQ(3, basis=[1.0, 4.0, 2.0]): qa.integers(-7, -5, 1, 3, -3, -1, 5, 7),
    qa.Sign(): qa.bipolar,
}


@pytest.mark.parametrize("into", IN_INTEGERS, ids=str)
def test_integer_levels_have_no_scale(into):
    law = qa.fold_batchnorm([0.02, -0.3], [0.1, 0.4], [3.0, 1.0], [1.0, 2.0], into=into)
    v = np.arange(-400, 400, dtype=np.int32)[:, None] + np.zeros(2, np.int32)
    codes = law(v)
    assert codes.dtype == law.into == IN_INTEGERS[into] and codes.scale is None and codes.offset is None
    assert codes.dequantize().dtype == np.int32
    norm = np.array([[0.02, -0.3], [0.1, 0.4], [3.0, 1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(codes.dequantize(), direct(v, norm, 1e-5, np.float64, into))
    w = qa.encode(np.ones((1, 2), int), (-1, 1))
    scores = qa.linear(codes, w)
    assert scores.dtype == np.int32
    np.testing.assert_array_equal(scores[:, 0], codes.dequantize().sum(axis=1))


@pytest.mark.parametrize("into", [qa.Uniform(2, step=0.5), qa.Uniform(2, step=2.0**24), qa.Sign(scale=0.5)], ids=str)
def test_other_levels_keep_their_scale(into):
    law = qa.fold_batchnorm([0.02], [0.1], [3.0], [1.0], into=into)
    assert law.into == into.dtype and law([[5]]).scale.item() == (into.step if isinstance(into, qa.Uniform) else 0.5)


# the scores of a last layer


def exactly(v, norm, eps, scale):
    """gamma * (scale * v - mean) / sqrt(var + eps) + beta in 60 digits, and the magnitudes that it is made of."""
    getcontext().prec = 60
    gamma, beta, mean, var, scale = (Decimal(float(a)) for a in (*norm, scale))
    deviation = (var + Decimal(eps)).sqrt()
    parts = gamma * scale * Decimal(int(v)) / deviation, -gamma * mean / deviation, beta
    return sum(parts), sum(map(abs, parts))


@given(seeds(), st.sampled_from([1.0, 0.37, -0.02]), st.booleans())
def test_affine_scores_lie_within_their_bound(seed, scale, by_channel):
    rng = np.random.default_rng(seed)
    gamma, beta, mean = rng.normal(size=(3, 7)) * 10.0 ** rng.integers(-6, 7, (3, 7))
    var, v = rng.random(7) * 100, rng.integers(-(2**31), 2**31, (5, 7)).astype(np.int32)
    scale = scale * rng.random(7) if by_channel else scale
    affine = qa.fold_batchnorm(gamma, beta, mean, var, into=None, eps=1e-5, input_scale=scale)
    scores = affine(v)
    assert scores.dtype == np.float64 and scores.shape == v.shape and affine.channels == 7
    np.testing.assert_array_equal(scores, affine.scale * v + affine.offset)
    for (i, o), score in np.ndenumerate(scores):
        norm = gamma[o], beta[o], mean[o], var[o]
        value, size = exactly(v[i, o], norm, 1e-5, np.broadcast_to(scale, 7)[o])
        assert abs(Decimal(float(score)) - value) <= size * Decimal(2) ** -50


def test_affine_scores_of_any_axis_and_dtype():
    affine = qa.Affine([2.0, 0.5, -1.0], [0.0, 1.0, 2.0])
    v = np.arange(24).reshape(2, 3, 4)
    expected = v * np.array([2, 0.5, -1])[:, None] + np.array([0, 1, 2])[:, None]
    for a in (v, v.astype(np.int32), v.astype(np.float32), v.astype(np.uint8)):
        np.testing.assert_array_equal(affine(a, axis=1), expected, strict=True)
    np.testing.assert_array_equal(affine(v.swapaxes(1, 2)), expected.swapaxes(1, 2))
    assert repr(affine) == "Affine(3 channels)"
    with pytest.raises(ValueError, match="read-only"):
        affine.scale[0] = 1


def test_a_network_ends_with_an_affine():
    """Packed layers against the float network that they are: conv, norm, quantiser, pool, dense, norm; and argmax."""
    rng = np.random.default_rng(0)
    x, step = rng.integers(0, 4, (32, 6, 6, 64)), 0.3
    w, v = rng.choice([-1, 1], (16, 3, 3, 64)), rng.choice([-1, 0, 1], (10, 2 * 2 * 16))
    size = rng.random(16) + 0.5  # of the weights, a number a channel
    first = (rng.random(16) + 0.5, rng.normal(size=16), rng.normal(size=16), rng.random(16) * 900 + 1)
    last = (rng.normal(size=10), rng.normal(size=10), rng.normal(size=10), rng.random(10) * 90 + 1)
    cut = qa.fold_batchnorm(*first, into=qa.Uniform(2, step=1.0), input_scale=step * size)
    net = qa.nn.Sequential(
        [
            qa.nn.Conv2d(qa.encode(w, (-1, 1)), requantize=cut),
            qa.nn.MaxPool2d(2),
            qa.nn.Dense(qa.encode(v, (-1, 0, 1))),
            qa.fold_batchnorm(*last, into=None),
        ]
    )
    scores = net(qa.encode(x, range(4)))

    def norm(a, gamma, beta, mean, var):
        return gamma * ((a - mean) / np.sqrt(var + 1e-5)) + beta

    a = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    y = np.einsum("nijcab,oabc->nijo", a, w) * (step * size)
    y = np.clip(np.rint(norm(y, *first)), -1, 1).reshape(32, 2, 2, 2, 2, 16).max(axis=(2, 4))
    expected = norm(y.reshape(32, -1) @ v.T, *last)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    np.testing.assert_array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    assert [r.output.dtype for r in net.trace(qa.encode(x, range(4)))] == [qa.ternary, qa.ternary, np.int32, np.float64]
    assert "Affine" in repr(net)
