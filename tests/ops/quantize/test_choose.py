"""The quantiser that an array gets for a number of bits, and the note of it that arrays carry."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import quantarray as qa
from quantarray.ops.quantize import scheme_choice

N = 1 << 14


def draw(name, n=N, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "normal": lambda: rng.normal(size=n),
        "laplace": lambda: rng.laplace(size=n),
        "uniform": lambda: rng.uniform(-1, 1, n),
        "relu": lambda: np.maximum(rng.normal(size=n), 0),
        "minus relu": lambda: np.minimum(rng.normal(size=n), 0),
        "sparse": lambda: rng.normal(size=n) * (rng.uniform(size=n) < 0.2),
        "far": lambda: rng.normal(size=n) / 10 + 5,
        "skew": lambda: rng.exponential(size=n) - 0.2,
    }[name]()


NAMES = ["normal", "laplace", "uniform", "relu", "minus relu", "sparse", "far", "skew"]
UNSIGNED, MIDRISE = "Uniform({}, signed=False, mse=True)", "Uniform({}, mse=True, midrise=True)"
AFFINE = "Uniform({}, symmetric=False, mse=True)"


def relative(x, q):
    return float(((x - q.dequantize()) ** 2).sum() / ((x - x.mean()) ** 2).sum())


# the rule


@pytest.mark.parametrize(
    ("name", "one", "two", "four", "eight"),
    [
        ("normal", "XNOR()", MIDRISE, MIDRISE, MIDRISE),
        ("laplace", "XNOR()", MIDRISE, "LQ({}, starts=3)", MIDRISE),
        ("uniform", "XNOR()", MIDRISE, MIDRISE, MIDRISE),
        ("relu", UNSIGNED, UNSIGNED, UNSIGNED, UNSIGNED),
        ("minus relu", AFFINE, AFFINE, AFFINE, AFFINE),
        ("far", AFFINE, AFFINE, AFFINE, AFFINE),
        ("skew", AFFINE, AFFINE, AFFINE, AFFINE),
    ],
)
def test_what_distributions_get(name, one, two, four, eight):
    x = draw(name)
    for bits, want in ((1, one), (2, two), (4, four), (8, eight)):
        assert repr(qa.choose(x, bits)) == want.format(bits)


def test_sparse_weights_keep_their_zeros():
    assert repr(qa.choose(draw("sparse"), 3)) == "Uniform(3, mse=True)"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bits", range(1, 9))
def test_within_a_decibel_of_all_candidates_and_never_a_table(name, bits):
    """The sample is all of x here. The list of candidates is repeated in this test."""
    x = draw(name)
    candidates = [qa.Uniform(bits, symmetric=False, mse=True)]
    if x.min() >= 0:
        candidates += [qa.Uniform(bits, signed=False, mse=True)]
    else:
        candidates += [qa.XNOR()] if bits == 1 else [qa.Uniform(bits, midrise=m, mse=True) for m in (True, False)]
        candidates += [qa.LQ(bits, starts=3)] if 2 <= bits <= 4 else []
    least = min(relative(x, qa.quantize(x, q)) for q in candidates)
    made = qa.quantize(x, bits=bits)
    assert relative(x, made) <= 1.26 * least
    assert made.dtype.kind != "table" and made.bits == bits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_distance_to_the_best_levels_there_are(name, bits):
    """Lloyd-Max levels are free. The promise of docs/decisions/0005 for data without heavy tails."""
    x = draw(name)
    assert relative(x, qa.quantize(x, bits=bits)) <= 1.9 * relative(x, qa.quantize(x, qa.LloydMax(bits))) + 1e-9


@given(
    hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6, width=32)),
    st.integers(1, 8),
    st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_the_size_of_the_unit_does_not_matter_much(x, bits, unit):
    """Scaling by a power of two changes no rounding, so it changes no choice."""
    unit = 2.0 ** round(np.log2(unit))
    if 0 < np.abs(x[x != 0]).min(initial=1) < 1e-20:
        return  # constants would be subnormal
    assert repr(qa.choose(x * unit, bits)) == repr(qa.choose(x, bits))


def test_the_same_answer_for_the_same_array():
    x = draw("laplace", 1_000_003)
    assert repr(qa.choose(x, 3)) == repr(qa.choose(x.copy(), 3)) == repr(qa.choose(x[::-1][::-1], 3))


@pytest.mark.parametrize(
    ("x", "bits", "want"),
    [
        (np.array([0, 1, 2, 3]), 2, "Uniform(2, signed=False, step=1.0)"),
        (np.array([[True, False]]), 1, "Uniform(1, signed=False, step=1.0)"),
        (np.arange(256, dtype=np.uint8), 8, "Uniform(8, signed=False, step=1.0)"),
        (np.array([-1, 0, 1], np.int8), 2, "Uniform(2, step=1.0)"),
        (np.array([-8, 7], np.int8), 4, "Uniform(4, symmetric=False, step=1.0, offset=-8.0)"),
        (np.array([100, 101, 103]), 2, "Uniform(2, symmetric=False, step=1.0, offset=100.0)"),
        (np.array([2**24 - 1, 2**24]), 1, f"Uniform(1, symmetric=False, step=1.0, offset={2.0**24 - 1})"),
    ],
)
def test_integers_with_a_code_each_are_kept(x, bits, want):
    q = qa.quantize(x, bits=bits)
    assert q.scheme == want
    np.testing.assert_array_equal(q.dequantize(), x)


def test_integers_with_too_few_codes_or_beyond_float32_are_rounded():
    assert "mse" in repr(qa.choose(np.arange(5), 2))
    assert "mse" in repr(qa.choose(np.arange(2**24, 2**24 + 2), 1))
    assert repr(qa.choose(np.array([-1, 1]), 1)) == "XNOR()"


@given(hnp.arrays(hnp.integer_dtypes(sizes=(8, 16)) | hnp.unsigned_integer_dtypes(sizes=(8, 16)), st.integers(1, 20)))
def test_integers_are_exact_where_they_can_be(x):
    if int(x.max()) - int(x.min()) < 16:
        np.testing.assert_array_equal(qa.quantize(x, bits=4).dequantize(), x)


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 0.1, -1e30, 1e-40])
@pytest.mark.parametrize("bits", [1, 2, 5, 8])
def test_constants_decode_to_themselves(value, bits):
    x = np.full(10, value, np.float32)
    np.testing.assert_allclose(qa.quantize(x, bits=bits).dequantize(), x, rtol=2**-22, atol=1e-44)


def test_nothing_at_all():
    assert qa.quantize(np.zeros((0, 3)), bits=2).shape == (0, 3)
    assert repr(qa.choose([], 3)) == "Uniform(3, signed=False, mse=True)"


# the sample


@pytest.mark.parametrize("shape", [(1000, 64), (2**20,), (300, 300, 3), (128, 3, 3, 128), (99991,), (5, 7)])
def test_the_sample_is_small_and_runs_through_every_axis(shape):
    for axis in range(len(shape)):
        places = np.indices(shape)[axis]
        seen = scheme_choice._sample(places)
        assert (seen.size <= scheme_choice.SAMPLE and set(range(shape[axis])) <= {*seen.astype(int)}) or shape[
            axis
        ] > 10_000
    whole = np.arange(5 * 7).reshape(5, 7)
    np.testing.assert_array_equal(scheme_choice._sample(whole), whole.ravel())


def test_one_negative_value_among_millions_is_seen():
    """The sign comes from all values: a scheme without negative levels would lose it."""
    x = np.abs(draw("normal", 1_000_000))
    x[1] = -5
    assert "signed=False" not in repr(qa.choose(x, 4))


def test_channels_of_their_own_size():
    w = draw("normal").reshape(64, -1) * np.geomspace(1, 100, 64)[:, None]
    q = qa.quantize(w, bits=4, scale_axis=0)
    assert q.scheme == repr(qa.choose(w, 4)) and relative(w, q) < relative(w, qa.quantize(w, bits=4))


def test_a_calibration_array_chooses_too():
    x = draw("normal", 100)
    q = qa.quantize(x, bits=2, calibration=draw("relu"))
    assert "signed=False" in q.scheme
    np.testing.assert_array_equal(q.scale, qa.quantize(draw("relu"), bits=2).scale)


@pytest.mark.parametrize("bits", [2, 4])
def test_the_result_is_convolved_as_it_is(bits):
    rng = np.random.default_rng(0)
    x = qa.quantize(np.maximum(rng.normal(size=(1, 6, 6, 64)), 0), bits=bits)
    w = qa.quantize(rng.laplace(size=(8, 3, 3, 64)), bits=bits, scale_axis=0)
    want = qa.conv2d(x, w, padding=1)
    assert want.shape == (1, 6, 6, 8) and want.dtype == np.float32


# errors


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: qa.choose([1.0], 9), ValueError, "choose: bits must be at most 8, got 9"),
        (lambda: qa.choose([1.0], 0), ValueError, "choose: bits must be at least 1, got 0"),
        (lambda: qa.choose([1.0], 2.0), TypeError, "choose: bits must be an integer, got 2.0"),
        (lambda: qa.choose([1.0], None), TypeError, "choose: bits must be an integer, got None"),
        (lambda: qa.choose([1, np.nan], 2), ValueError, r"choose: x must be finite, got nan at \(1,\)"),
        (lambda: qa.choose([[np.inf]], 2), ValueError, r"choose: x must be finite, got inf at \(0, 0\)"),
        (lambda: qa.choose(3.0, 2), ValueError, "choose: x must have at least one axis"),
        (lambda: qa.choose([1j], 2), TypeError, "choose: x must be an array of bool, integers or floats"),
        (lambda: qa.choose([1e300, -1e299], 2), ValueError, "beyond float32"),
        (lambda: qa.quantize([1.0]), TypeError, "quantize: needs a quantiser .* or bits= .*, got neither"),
        (lambda: qa.quantize([1.0], None, bits=None), TypeError, "got neither"),
        (lambda: qa.quantize([1.0], qa.Sign(), bits=2), TypeError, r"got both Sign\(\) and bits=2"),
        (lambda: qa.quantize([1.0], qa.Sign, bits=2), TypeError, "got both the class Sign: call it and bits=2"),
        (lambda: qa.quantize([1.0], 2), TypeError, "quantizer must be a quantiser such as .*, got 2"),
        (lambda: qa.quantize([1.0], bits=9), ValueError, "quantize: bits must be at most 8, got 9"),
        (lambda: qa.quantize([np.nan], bits=2), ValueError, "quantize: x must be finite, got nan"),
        (lambda: qa.quantize([1.0], bits=2, calibration=[np.inf]), ValueError, "quantize: calibration must be finite"),
    ],
)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


# the note that arrays carry


@pytest.fixture
def q():
    return qa.quantize(np.random.default_rng(0).normal(size=(4, 3, 128)), qa.LQ(2))


def test_the_scheme_is_the_quantisers_repr(q):
    assert q.scheme == "LQ(2)"
    assert "scheme=LQ(2), " in repr(q)


@pytest.mark.parametrize(
    "view",
    [
        lambda q: q[1:, 0],
        lambda q: q[..., 64:],
        lambda q: q[..., 3:70],
        lambda q: q.T,
        lambda q: q.transpose(2, 0, 1),
        lambda q: q.reshape(12, 128),
        lambda q: q.reshape(-1),
        lambda q: q.reshape(4, 3, 32, 4),
        lambda q: q.copy(),
        lambda q: copy.copy(q),
        lambda q: copy.deepcopy(q),
        lambda q: pickle.loads(pickle.dumps(q)),
        lambda q: q.to_device("cpu"),
        lambda q: next(iter(q)),
    ],
)
def test_views_copies_and_pickles_keep_it(q, view):
    assert view(q).scheme == "LQ(2)"


def test_arrays_from_elsewhere_have_none():
    for made in (qa.encode([1, -1], values=(-1, 1)), qa.from_codes([0, 1], qa.uint1), qa.relu_mask([1.0, -1.0])):
        assert made.scheme is None and "scheme" not in repr(made)


def test_it_is_no_part_of_equality_and_digest(q):
    bare = qa.from_codes(q.codes(), q.dtype, q.axis, scale=q.scale, offset=q.offset)
    assert bare.scheme is None and qa.array_equal(q, bare) and q.digest() == bare.digest()


def test_pickles_without_it_still_load(q):
    build, state = q.__reduce__()
    assert build(*state[:-1]).scheme is None


def test_it_cannot_be_set(q):
    with pytest.raises(AttributeError):
        q.scheme = "another"
