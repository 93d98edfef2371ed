"""Pooling against the oracle: the largest value of any law, and the mean to the bit."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits, assert_packed, thresholds
from strategies import channels, laws, samples, seeds, threads

import quantarray as qa

NCHW = (0, 3, 1, 2)


@st.composite
def cases(draw):
    """An image's shape, and a window every place of which sees at least one element."""
    size = [draw(st.integers(1, 4)) for _ in range(2)]
    pads = [[draw(st.integers(0, k - 1)) for _ in range(2)] for k in size]
    image = [max(draw(st.integers(1, 6)), k - sum(p)) for k, p in zip(size, pads, strict=True)]
    stride = draw(st.none() | st.integers(1, 3) | st.tuples(*[st.integers(1, 4)] * 2))
    padding = draw(st.sampled_from([0, "valid", "same", "pairs", "pairs"]))
    if padding == "pairs":
        padding = tuple(map(tuple, pads))
    elif padding != "same":
        image = [max(n, k) for n, k in zip(image, size, strict=True)]
    size = draw(st.sampled_from([tuple(size), size[0]])) if size[0] == size[1] else tuple(size)
    options = {"stride": stride, "padding": padding, "data_format": draw(st.sampled_from(["NHWC", "NCHW"]))}
    return (draw(st.integers(0, 3)), *image, draw(channels())), size, options


def geometry(size, options):
    """The oracle's window, stride and padding."""
    window = size if isinstance(size, tuple) else (size, size)
    stride = options["stride"] or window
    return window, stride if isinstance(stride, tuple) else (stride, stride), options["padding"]


def arrays(draw, shape, law, options):
    """An image channels last for the oracle, and as the pools take it; constants vary by image and channel."""
    x = draw(samples(shape, -1, law, (0, 3), (None, None, 5, 64)))
    return x, x.transpose(*NCHW).q if options["data_format"] == "NCHW" else x.q


def sees_everywhere(shape, window, stride, padding):
    return naive.avg_pool2d_sum(np.ones(shape, int)[:1], window, stride, padding)[1].min(initial=1) > 0


@given(st.data(), cases(), laws(8), st.booleans())
def test_max_of_any_law(data, case, law, many):
    shape, size, options = case
    x, q = arrays(data.draw, shape, law, options)
    window = geometry(size, options)
    with threads(many):
        if not sees_everywhere((1, *shape[1:]), *window):
            with pytest.raises(ValueError, match="without a single element"):
                qa.max_pool2d(q, size, **options)
            return
        got = qa.max_pool2d(q, size, **options)
    expected = naive.max_pool2d(x.values, *window)
    assert got.dtype == q.dtype and got.axis == q.axis and got.group == q.group
    assert_packed(got, expected.transpose(NCHW) if options["data_format"] == "NCHW" else expected)


@given(st.data(), cases(), laws(4))
def test_mean_of_any_law(data, case, law):
    """float32((sum_t scale_t * S_t + offset * n) / n), in float64 and in this order, S_t the sums of the terms."""
    shape, size, options = case
    x, q = arrays(data.draw, shape, law, options)
    window = geometry(size, options)
    if not sees_everywhere((1, *shape[1:]), *window):
        return
    value = 0.0
    for scale, term in zip(x.scale, x.terms, strict=True):
        total, count = naive.avg_pool2d_sum(term, *window)
        value = value + scale * total
    value = value + x.offset * count
    expected = (value / count).astype(np.float32)
    if options["data_format"] == "NCHW":
        expected = expected.transpose(NCHW)
    channel_last = expected.transpose(0, 2, 3, 1) if options["data_format"] == "NCHW" else expected
    law, values = data.draw(thresholds(channel_last))
    with threads(data.draw(st.booleans())):
        assert_bits(qa.avg_pool2d(q, size, **options), expected)
        packed = qa.avg_pool2d(q, size, requantize=law, **options)
    assert_packed(packed, values.transpose(NCHW) if options["data_format"] == "NCHW" else values)
    np.testing.assert_array_equal(packed.words, law(expected, axis=packed.axis).words)


def test_mean_divides_before_it_rounds():
    """(2**24 + 1 + 1) / 3 in float64: rounding the sum to float32 first would give 5592405.5."""
    x = qa.from_codes(np.array([1, 0, 0]).reshape(1, 1, 3, 1), qa.integers(1, 2**24))
    assert qa.avg_pool2d(x, (1, 3)).item() == np.float32((2**24 + 2) / 3)


@pytest.mark.parametrize(("size", "depth"), [(40, 5), (23, 64), (17, 130), (9, 700), (4, 2047), (4, 2100), (3, 4200)])
@pytest.mark.parametrize("bits", [1, 3])
def test_max_of_more_words_than_lie_side_by_side(size, depth, bits):
    """32 words are compared at once: of many pixels, some, or a part of one."""
    codes = np.random.default_rng(0).integers(0, 2**bits, (2, size, size, depth))
    x = qa.encode(codes, range(2**bits))
    for window, stride, padding in (((2, 2), (2, 2), ((0, 0), (0, 0))), ((3, 2), (1, 2), ((1, 1), (0, 1)))):
        expected = naive.max_pool2d(codes, window, stride, padding)
        np.testing.assert_array_equal(qa.max_pool2d(x, window, stride=stride, padding=padding).codes(), expected)


# dense arrays

DTYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool float16 float32 float64".split()


def dense(rng, shape, dtype):
    """Values over the dtype's range; of floats some infinities and no NaN."""
    if np.dtype(dtype).kind == "f":
        return np.where(rng.random(shape) < 0.1, rng.choice([-np.inf, np.inf], shape), rng.normal(size=shape)).astype(
            dtype
        )
    ends = np.iinfo(dtype) if dtype != "bool" else np.iinfo(np.int8)
    return rng.choice(np.array([ends.min, ends.max, 0, 1, 5, *range(100, 120)], ends.dtype), shape).astype(dtype)


def in_format(x, options, copied):
    """x [n h w c] as the pools take it, as a view or in memory of that order."""
    view = x.transpose(NCHW) if options["data_format"] == "NCHW" else x
    return view.copy() if copied else view


@given(st.data(), cases(), st.sampled_from(DTYPES), st.booleans(), seeds())
def test_max_of_dense_arrays(data, case, dtype, copied, seed):
    """Dense arrays of every dtype are pooled like packed ones; comparisons keep all bits."""
    shape, size, options = case
    x = dense(np.random.default_rng(seed), shape, dtype)
    q, window = in_format(x, options, copied), geometry(size, options)
    if not sees_everywhere((1, *shape[1:]), *window):
        with pytest.raises(ValueError, match="without a single element"):
            qa.max_pool2d(q, size, **options)
        return
    wide = x.view(np.int64) ^ np.int64(-(2**63)) if dtype == "uint64" else x  # the oracle's in the same order
    with np.errstate(invalid="ignore"):  # the oracle adds infinities, to see which windows have elements
        expected = naive.max_pool2d(wide, *window)
    expected = (expected ^ np.int64(-(2**63))).view(np.uint64) if dtype == "uint64" else expected.astype(dtype)
    expected = expected.transpose(NCHW) if options["data_format"] == "NCHW" else expected
    np.testing.assert_array_equal(qa.max_pool2d(q, size, **options), expected, strict=True)


@given(st.data(), cases(), st.sampled_from(DTYPES), st.booleans(), seeds())
def test_mean_of_dense_arrays(data, case, dtype, copied, seed):
    shape, size, options = case
    x = dense(np.random.default_rng(seed), shape, dtype)
    x = x // 2**12 if dtype in ("int64", "uint64") else np.where(np.isinf(x), x.dtype.type(3), x)
    q, window = in_format(x, options, copied), geometry(size, options)
    if not sees_everywhere((1, *shape[1:]), *window):
        return
    total, count = naive.avg_pool2d_sum(x, *window)
    expected = (total / count).astype(np.float64 if dtype == "float64" else np.float32)
    expected = expected.transpose(NCHW) if options["data_format"] == "NCHW" else expected
    try:
        got = qa.avg_pool2d(q, size, **options)
    except OverflowError as error:
        assert dtype in ("int64", "uint64") and "2**53" in str(error)
        return
    if x.dtype.kind != "f":
        assert_bits(got, expected)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6, strict=True)
    if dtype != "float64":
        law, values = data.draw(thresholds(got.transpose(0, 2, 3, 1) if options["data_format"] == "NCHW" else got))
        packed = qa.avg_pool2d(q, size, requantize=law, **options)
        assert_packed(packed, values.transpose(NCHW) if options["data_format"] == "NCHW" else values)


def values_of(y):
    return y.dequantize() if isinstance(y, qa.QuantArray) else y


def test_dense_and_packed_agree():
    """The int32 result of a convolution, pooled as it is and pooled as codes of the same values."""
    rng = np.random.default_rng(0)
    x, w = (qa.encode(rng.choice([-1, 1], s), (-1, 1)) for s in ((2, 9, 9, 64), (5, 3, 3, 64)))
    y = qa.conv2d(x, w)
    codes = qa.encode(y // 8, range(y.min() // 8, y.max() // 8 + 1))
    for op in (qa.max_pool2d, qa.avg_pool2d):
        np.testing.assert_array_equal(op(y // 8, 3, stride=2), values_of(op(codes, 3, stride=2)))


def test_a_window_with_a_nan_is_nan():
    x = np.float32([[1, np.nan, 3, 4], [5, 6, -np.inf, np.inf]]).reshape(1, 2, 4, 1)
    assert str(qa.max_pool2d(x, 2).ravel()) == "[nan inf]" and np.isnan(qa.avg_pool2d(x, 2)).all()
    assert qa.max_pool2d(x, 2).dtype == np.float32
