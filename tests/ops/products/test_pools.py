"""Pools over one to three axes against windows taken one by one: every argument, law and dtype."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits, assert_packed, thresholds
from strategies import channels, laws, samples, seeds, threads

import quantarray as qa

MAX = {1: qa.max_pool1d, 2: qa.max_pool2d, 3: qa.max_pool3d}
AVG = {1: qa.avg_pool1d, 2: qa.avg_pool2d, 3: qa.avg_pool3d}
FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


@st.composite
def cases(draw):
    """Draw the shape of an image that windows fit into, and their arguments, as the oracle and as pools take them."""
    axes = draw(st.integers(1, 3))
    size, stride, dilation = ([draw(st.integers(1, n)) for _ in range(axes)] for n in (3, 3, 2))
    spans = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    pads = [[draw(st.integers(0, k // 2 + 1)) for _ in range(2)] for k in size]
    image = [max(draw(st.integers(1, 5)), span - sum(p)) for span, p in zip(spans, pads, strict=True)]
    oracle = {"stride": stride, "padding": pads, "dilation": dilation, "ceil_mode": draw(st.booleans())}
    ours = {**oracle, "stride": tuple(stride), "dilation": tuple(dilation), "padding": tuple(map(tuple, pads))}
    ours["data_format"] = draw(st.sampled_from([FIRST, LAST]))[axes]
    return (draw(st.integers(1, 2)), *image, draw(channels(65))), tuple(size), oracle, ours


def order(axes):
    """The axes of a result with channels last in the order of channels first."""
    return 0, axes + 1, *range(1, axes + 1)


def in_format(a, ours):
    return a.transpose(order(a.ndim - 2)) if ours["data_format"] in FIRST.values() else a


def is_refused(call, inside):
    """True where a window sees nothing, which the call then says."""
    if inside.min():
        return False
    with pytest.raises(ValueError, match="without a single element"):
        call()
    return True


@given(st.data(), cases(), laws(8), st.booleans())
def test_max_of_codes(data, case, law, many):
    shape, size, oracle, ours = case
    axes = len(size)
    x = data.draw(samples(shape, -1, law, (0, axes + 1), (None, None, 5, 64)))
    q = x.transpose(*order(axes)).q if ours["data_format"] == FIRST[axes] else x.q
    largest, place, _, inside, _ = naive.pool(x.values, size, **oracle)
    with threads(many):
        if is_refused(lambda: MAX[axes](q, size, **ours), inside):
            return
        got, where = MAX[axes](q, size, return_indices=True, **ours)
        alone = MAX[axes](q, size, **ours)
    assert got.dtype == alone.dtype == q.dtype and got.axis == q.axis and got.group == q.group
    assert_packed(got, in_format(largest, ours))
    assert_packed(alone, in_format(largest, ours))
    np.testing.assert_array_equal(where, in_format(place, ours), strict=True)


@given(st.data(), cases(), laws(4), st.booleans())
def test_mean_of_codes(data, case, law, counts):
    """float32((sum_t scale_t * S_t + offset * inside) / count), in float64 and in this order."""
    shape, size, oracle, ours = case
    axes = len(size)
    x = data.draw(samples(shape, -1, law, (0, axes + 1), (None, None, 5, 64)))
    q = x.transpose(*order(axes)).q if ours["data_format"] == FIRST[axes] else x.q
    value = 0.0
    for scale, term in zip(x.scale, x.terms, strict=True):
        _, _, total, inside, counted = naive.pool(term, size, **oracle)
        value = value + scale * total
    value = value + x.offset * inside[..., None]
    if not counts and is_refused(lambda: AVG[axes](q, size, **ours), inside):
        return
    expected = (value / (counted if counts else inside)[..., None]).astype(np.float32)
    law, values = data.draw(thresholds(expected))
    with threads(data.draw(st.booleans())):
        assert_bits(AVG[axes](q, size, count_include_pad=counts, **ours), in_format(expected, ours))
        packed = AVG[axes](q, size, count_include_pad=counts, requantize=law, **ours)
    assert_packed(packed, in_format(values, ours))


DTYPES = "int8 int16 int32 int64 uint8 uint16 uint32 bool float16 float32 float64".split()


@given(cases(), st.sampled_from(DTYPES), seeds(), st.booleans())
def test_dense_arrays(case, dtype, seed, counts):
    """Few values, so that many are equal; of floats some are NaN or infinite."""
    shape, size, oracle, ours = case
    axes, rng = len(size), np.random.default_rng(seed)
    values = [0, 1, 2] if dtype[0] in "ub" else [-2, -1, 0, 3]
    if dtype[0] == "f":
        values = [-np.inf, -1.5, 0.25, 2, np.nan]
    x = rng.choice(values, shape).astype(dtype)
    with np.errstate(invalid="ignore"):
        largest, place, total, inside, counted = naive.pool(x, size, **oracle)
    q = in_format(x, ours)
    if is_refused(lambda: MAX[axes](q, size, **ours), inside):
        return
    got, where = MAX[axes](q, size, return_indices=True, **ours)
    np.testing.assert_array_equal(got, in_format(largest, ours).astype(dtype), strict=True)
    np.testing.assert_array_equal(got, MAX[axes](q, size, **ours), strict=True)
    np.testing.assert_array_equal(where, in_format(place, ours), strict=True)
    with np.errstate(invalid="ignore"):
        mean = total / (counted if counts else inside)[..., None]
    mean = in_format(mean, ours).astype(np.float64 if dtype == "float64" else np.float32)
    np.testing.assert_array_equal(AVG[axes](q, size, count_include_pad=counts, **ours), mean, strict=True)


def test_windows_by_hand():
    """PyTorch's and ONNX' rules: a last window of `ceil_mode` begins in the image, and its places after the padding
    count in no mean."""
    x = np.arange(1.0, 6, dtype=np.float32).reshape(1, 5, 1)
    assert qa.max_pool1d(x, 2).ravel().tolist() == [2, 4]
    assert qa.max_pool1d(x, 2, ceil_mode=True).ravel().tolist() == [2, 4, 5]
    assert qa.max_pool1d(x, 2, stride=3, ceil_mode=True).ravel().tolist() == [2, 5]
    assert qa.max_pool1d(x, 1, stride=3, ceil_mode=True).ravel().tolist() == [1, 4]  # a third would begin after the end
    assert qa.max_pool1d(x, 2, dilation=3).ravel().tolist() == [4]
    assert qa.max_pool1d(x, 2, stride=1, dilation=3).ravel().tolist() == [4, 5]
    mean = {"padding": 1, "ceil_mode": True}
    assert qa.avg_pool1d(x, 3, **mean).ravel().tolist() == [1.5, 4]
    assert qa.avg_pool1d(x, 3, count_include_pad=True, **mean).ravel().tolist() == [1, 4]
    counted = qa.avg_pool1d(x, 4, stride=3, count_include_pad=True, padding=(0, 1), ceil_mode=True)
    assert counted.ravel().tolist() == [2.5, 3]  # (4 + 5 + 0) / 3


def test_the_first_of_equal_values_wins():
    """Two codes of a table have one value; the other dtype has them as one code."""
    q = qa.from_codes(np.array([2, 1, 2, 3]).reshape(1, 4, 1), qa.table(2), table=[0, 5, 5, 1])
    assert qa.max_pool1d(q, 2, return_indices=True)[1].ravel().tolist() == [0, 2]
    assert qa.max_pool1d(q, 4, return_indices=True)[1].ravel().tolist() == [0]
    x = np.float32([1, np.nan, 2, np.nan]).reshape(1, 4, 1)
    assert qa.max_pool1d(x, 4, return_indices=True)[1].item() == 1


def test_many_taps_have_numbers():
    """Windows of 17x19 taps, whose numbers have 9 bits, in images of few and of many words."""
    rng = np.random.default_rng(0)
    for depth in (3, 70, 2100):
        codes = rng.integers(0, 8, (1, 17, 20, depth))
        got, where = qa.max_pool2d(qa.encode(codes, range(8)), (17, 19), stride=1, return_indices=True)
        for j in range(2):
            seen = codes[0, :, j : j + 19].reshape(-1, depth)
            first = seen.argmax(axis=0)
            np.testing.assert_array_equal(where[0, 0, j], first // 19 * 20 + j + first % 19)
            np.testing.assert_array_equal(got.codes()[0, 0, j], seen.max(axis=0))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_errors_name_the_layout(axes):
    x = np.zeros((1,) * (axes + 1), np.int32)
    with pytest.raises(ValueError, match=rf"max_pool{axes}d: {LAST[axes]} needs x \[n .*c\], got .*x\[None\]"):
        MAX[axes](x, 1)
    x = x[None]
    with pytest.raises(ValueError, match="data_format must be one of"):
        MAX[axes](x, 1, data_format="NXC")
    with pytest.raises(ValueError, match="size must be an integer or"):
        MAX[axes](x, (1,) * (axes + 1))
    with pytest.raises(TypeError, match="ceil_mode must be True or False"):
        MAX[axes](x, 1, ceil_mode=1)
    with pytest.raises(TypeError, match="return_indices must be True or False"):
        MAX[axes](x, 1, return_indices=None)
    with pytest.raises(TypeError, match="count_include_pad must be True or False"):
        AVG[axes](x, 1, count_include_pad=1)
    with pytest.raises(ValueError, match="does not fit into the image"):
        AVG[axes](x, 2, dilation=2)


@given(st.data(), cases(), laws(8), st.booleans())
def test_the_smallest_of_some_channels(data, case, law, dense):
    """Minima of codes and dense arrays, with places, are maxima of negated values."""
    shape, size, oracle, ours = case
    axes, c = len(size), shape[-1]
    x = data.draw(samples(shape, -1, law, (0, axes + 1), (None, None, 5, 64)))
    falling = np.random.default_rng(data.draw(seeds())).random(c) < 0.5
    sign = np.where(falling, -1, 1)
    largest, place, _, inside, _ = naive.pool(x.values * sign, size, **oracle)
    q = x.transpose(*order(axes)).q if ours["data_format"] == FIRST[axes] else x.q
    q = q.dequantize() if dense else q
    if is_refused(lambda: MAX[axes](q, size, falling=falling, **ours), inside):
        return
    got, where = MAX[axes](q, size, falling=falling, return_indices=True, **ours)
    expected = in_format(largest * sign, ours)
    np.testing.assert_array_equal(got if dense else got.dequantize(), expected)
    np.testing.assert_array_equal(where, in_format(place, ours), strict=True)
    if not dense:
        assert_packed(MAX[axes](q, size, falling=falling, **ours), expected)


KINDS = {"integers": np.int32, "wide": np.int64, "floats": np.float32}


@given(st.data(), cases(), st.sampled_from(list(KINDS)), seeds(), st.booleans())
def test_thresholds_before_the_pool(data, case, kind, seed, by_rank):
    """Codes of the pooled values, whether channels count up or down or both."""
    shape, size, oracle, ours = case
    axes, rng = len(size), np.random.default_rng(seed)
    x = rng.integers(-9, 10, shape).astype(KINDS[kind])
    channels, count = shape[-1], data.draw(st.integers(1, 4))
    turned = rng.random(channels) < data.draw(st.sampled_from([0, 0.5]))
    levels = rng.permutation(np.arange(count + 1)) if data.draw(st.booleans()) else np.arange(count + 1)
    law = qa.Thresholds(
        np.sort(rng.integers(-9, 10, (channels, count)), axis=1), greater=rng.random(channels) < 0.5,
        strict=rng.random(channels) < 0.5, into=qa.integers(levels.tolist()), by_rank=by_rank,
    )  # fmt: skip
    sign = np.where(turned, -1, 1)
    largest, _, _, inside, _ = naive.pool(x * sign, size, **oracle)
    axis = 1 if ours["data_format"] == FIRST[axes] else -1
    more = {"falling": turned, "requantize": law}
    if is_refused(lambda: MAX[axes](in_format(x, ours), size, **more, **ours), inside):
        return
    got = MAX[axes](in_format(x, ours), size, **more, **ours)
    expected = law(in_format((largest * sign).astype(x.dtype), ours), axis=axis)
    assert got.dtype == expected.dtype and got.axis == expected.axis
    np.testing.assert_array_equal(got.codes(), expected.codes())


@pytest.mark.parametrize("outputs", [5, 67])
@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("sign", [-1, 0, 1, None])
def test_batch_norm_behind_a_pool(bits, sign, outputs):
    """gamma < 0, = 0, > 0 and all of them: a convolution's codes pooled, and its integers, are the network's."""
    rng = np.random.default_rng(bits)
    x, w = rng.choice([-1, 1], (2, 9, 10, 70)), rng.choice([-1, 1], (outputs, 3, 3, 70))
    gamma = rng.choice([-1.5, -0.0, 0.0, 0.75], outputs) if sign is None else np.full(outputs, sign * 1.25)
    beta, mean, var = rng.normal(size=outputs), rng.normal(0, 9, outputs), rng.uniform(0.5, 2, outputs)
    into = qa.Sign() if bits == 1 else qa.Uniform(2, step=0.5)
    law = qa.fold_batchnorm(gamma, beta, mean, var, into=into)
    sums = naive.conv2d(x, w, padding=1)
    expected = law(naive.pool(sums, (2, 2), (2, 2), (0, 0))[0]).dequantize()
    a, b = qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1))
    codes = qa.conv2d(a, b, padding=1, requantize=law)
    assert_packed(qa.max_pool2d(codes, 2, falling=~np.broadcast_to(law.greater, outputs)), expected)
    assert_packed(qa.max_pool2d(sums.astype(np.int32), 2, requantize=law), expected)


def test_errors_of_thresholds_and_falling():
    x, q = np.zeros((1, 2, 2, 3), np.int32), qa.encode(np.zeros((1, 2, 2, 3), int), range(4))
    law = qa.Thresholds([0])
    with pytest.raises(TypeError, match=r"max_pool2d: requantize takes dense x .*, got x is packed"):
        qa.max_pool2d(q, 2, requantize=law)
    with pytest.raises(TypeError, match="got return_indices=True"):
        qa.max_pool2d(x, 2, requantize=law, return_indices=True)
    with pytest.raises(ValueError, match="falling must be a bool, or one for each of 3 channels"):
        qa.max_pool2d(x, 2, falling=[True, False])
    with pytest.raises(ValueError, match="requantize has thresholds for 2 channels, the result has 3"):
        qa.max_pool2d(x, 2, requantize=qa.Thresholds([[0], [1]]))
