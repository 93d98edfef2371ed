"""Functions folded into thresholds, against the function and the quantiser themselves on every value of a range."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import seeds

import quantarray as qa

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # in the functions that are folded

QUANTIZERS = [
    qa.Sign(),
    qa.Sign(scale=0.5),
    qa.Uniform(2, signed=False, step=0.5),
    qa.Uniform(4, symmetric=False, step=0.1, offset=-0.7),
    qa.Uniform(8, signed=False, step=2**-6),
    qa.Uniform(3, step=1.0),
    qa.LQ(3, basis=[1.0, 2.0, 0.5]),  # the order of its levels is not its own inverse
]
RANGE = range(-700, 433)
VALUES = np.arange(RANGE.start, RANGE.stop)[:, None]


def functions(rng, n):
    """Monotone functions of n channels; some channels fall, some are flat."""
    slope, shift = rng.random(n) * (rng.random(n) < 0.8), rng.normal(size=n) * 30
    gain = rng.choice([-1, 1], n) * 10.0 ** rng.uniform(-3, 1, n)
    norms = rng.normal(size=(2, 4, n)) * (rng.random((2, 4, n)) < 0.9)
    norms[:, 3] = np.abs(norms[:, 3])

    def norm(y, gamma, beta, mean, var):
        return gamma * ((y - mean) / np.sqrt(var + 1e-3)) + beta

    return {
        "PReLU": lambda v: np.where(gain * v + shift < 0, slope, 1) * (gain * v + shift),
        "PReLU in float32": lambda v: np.where(v < 0, np.float32(slope), np.float32(1)) * v.astype(np.float32) * 0.01,
        "Hardtanh": lambda v: np.clip(gain * v + shift, -1, 1),
        "sigmoid": lambda v: 1 / (1 + np.exp(-(gain * (v + shift)))),
        "two batch norms": lambda v: norm(norm(v, *norms[0]), *norms[1]),
        "integers": lambda v: 3 * v - np.arange(n),
        "bools": lambda v: v > shift,
        "steps in half precision": lambda v: (np.floor(v / 7) + 0 * shift).astype(np.float16),
    }


def quantized(f, into, v):
    y = np.asarray(f(v))
    return qa.quantize(y if y.dtype in (np.float32, np.float64) else y.astype(np.float64), into).dequantize()


@given(seeds(), st.sampled_from(sorted(functions(np.random.default_rng(0), 2))), st.sampled_from(QUANTIZERS))
def test_thresholds_give_the_codes_of_every_integer(seed, name, into):
    f = functions(np.random.default_rng(seed), 5)[name]
    v = VALUES.repeat(5, 1)
    assert_packed(qa.fold(f, into=into, of=RANGE)(v), quantized(f, into, v))


@given(seeds(), st.sampled_from(["PReLU", "Hardtanh", "sigmoid", "two batch norms"]), st.sampled_from(QUANTIZERS))
def test_wide_types_at_their_thresholds_and_ends(seed, name, into):
    f = functions(np.random.default_rng(seed), 4)[name]
    for of, ends in ((np.int32, (-(2**31), 2**31 - 1)), (np.int64, (-(2**53), 2**53))):
        law = qa.fold(f, into=into, of=of)
        steps = np.clip(law.values.astype(float), ends[0] + 1, ends[1] - 1).astype(np.int64).T
        v = np.concatenate([VALUES.repeat(4, 1), steps - 1, steps, steps + 1, np.full((1, 4), ends[0])])
        v = np.concatenate([v, np.full((1, 4), ends[1])]).astype(of)
        assert_packed(law(v), quantized(f, into, v.astype(np.int64)))


@given(seeds(), st.sampled_from(["PReLU in float32", "Hardtanh", "sigmoid"]), st.sampled_from(QUANTIZERS))
def test_floats(seed, name, into):
    rng = np.random.default_rng(seed)
    f = functions(rng, 4)[name]
    law = qa.fold(f, into=into, of=np.float32)
    top = np.finfo(np.float32).max
    steps = np.clip(law.values.astype(np.float32).T, -top, top)
    wide = (rng.normal(size=(200, 4)) * 10.0 ** rng.integers(-30, 30, (200, 1))).astype(np.float32)
    v = np.concatenate([VALUES.repeat(4, 1), steps, *(np.nextafter(steps, to) for to in (-top, top)), wide])
    with np.errstate(all="ignore"):
        assert_packed(law(v.astype(np.float32)), quantized(f, into, v.astype(np.float32)))


def test_a_batch_norm_folds_alike_by_both():
    rng = np.random.default_rng(1)
    gamma, beta, mean, var = rng.normal(size=(4, 9))
    gamma[3], var = 0, var**2
    into = qa.Uniform(3, step=0.5)
    by_name = qa.fold_batchnorm(gamma, beta, mean, var, into=into, eps=1e-3)
    by_hand = qa.fold(lambda v: gamma * ((v - mean) / np.sqrt(var + 1e-3)) + beta, into=into)
    v = np.arange(-500, 500)[:, None].repeat(9, 1)
    assert_packed(by_hand(v), by_name(v).dequantize())
    narrow = qa.fold_batchnorm(gamma, beta, mean, var, into=into, eps=1e-3, of=range(-500, 500))
    assert_packed(narrow(v), by_name(v).dequantize())


TURNING = {
    "abs": np.abs,
    "a dip that both ends hide": lambda v: np.where(v == 37, -10, v),
    "a late turn": lambda v: np.minimum(v, 400 - v),
    "a parabola that falls first": lambda v: (v - 100.0) ** 2,
    "a PReLU of slope below 0": lambda v: np.where(v < 0, -0.25 * v, v),
    "a sine": lambda v: 3 * np.sin(v / 100),
}


@pytest.mark.parametrize("of", [RANGE, np.int32, np.int64, np.float32], ids=str)
@pytest.mark.parametrize("name", TURNING)
def test_functions_that_turn_are_refused(name, of):
    """The message names the channel, and three values whose levels rise and fall, by f and by the quantiser."""
    turning, into = TURNING[name], qa.Uniform(3, step=1.0)

    def channelwise(v):
        return np.stack([v[:, 0] + 0.0, -v[:, 1] + 0.0, turning(v[:, 2]) + 0.0], axis=1)

    with pytest.raises(ValueError, match="f must rise or fall in each channel, but in channel 2") as caught:
        qa.fold(channelwise, into=into, of=of, channels=3)
    shown = [(float(a), float(b)) for a, b in re.findall(r"(-?[\d.]+) for (-?[\d.]+(?:e[+-]?\d+)?)", str(caught.value))]
    levels, values = np.array(shown).T
    assert len(values) == 3 and (np.diff(values) > 0).all() and np.diff(levels)[0] * np.diff(levels)[1] < 0
    values = values.astype(np.float32 if of is np.float32 else np.int64)
    np.testing.assert_array_equal(qa.quantize(turning(values) + 0.0, into).dequantize(), levels)


def test_turns_inside_a_code_do_no_harm():
    f = lambda v: np.where(np.abs(v) < 20, 0.1 * np.cos(v), v / 10)  # noqa: E731
    v = VALUES.repeat(1, 1)
    assert_packed(qa.fold(f, into=qa.Uniform(2, step=1.0), of=RANGE)(v), quantized(f, qa.Uniform(2, step=1.0), v))


def test_a_function_that_needs_all_channels():
    gain = np.array([2.0, -1.0, 0.5])
    flat = np.zeros((1, 3), bool)

    def f(v):
        y = gain * v
        y[:, flat[0]] = 0
        return y[:, [0, 1, 2]] if v.shape[1] == 3 else v[:, [0, 1, 2]]

    with pytest.raises(ValueError, match="pass channels="):
        qa.fold(f, into=qa.Sign(), of=RANGE)
    v = VALUES.repeat(3, 1)
    assert_packed(qa.fold(f, into=qa.Sign(), of=RANGE, channels=3)(v), quantized(f, qa.Sign(), v))


def test_one_value_and_one_level():
    law = qa.fold(lambda v: v * 1.0, into=qa.Sign(), of=range(5, 6))
    np.testing.assert_array_equal(law([[5]]).dequantize(), [[1]])


def test_folded_thresholds_in_a_convolution():
    rng = np.random.default_rng(2)
    x, w = rng.integers(0, 4, (2, 6, 6, 64)), rng.choice([-1, 1], (16, 3, 3, 64))
    slope, size = rng.random(16), rng.random(16)
    f = lambda v: np.where(v < 0, slope * size * v, size * v) / 9  # noqa: E731
    into = qa.Uniform(3, step=1.0)
    reach = 3 * 9 * 64
    packed_x, packed_w = qa.encode(x, range(4)), qa.encode(w, (-1, 1))
    law = qa.fold(f, into=into, of=range(-reach, reach + 1))
    sums = qa.conv2d(packed_x, packed_w)
    assert_packed(qa.conv2d(packed_x, packed_w, requantize=law), quantized(f, into, sums.astype(np.int64)))
