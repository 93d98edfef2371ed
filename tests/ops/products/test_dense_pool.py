"""`pool_values`, the kernel of dense pools, against NumPy's passes, to the bit: any geometry, NaN and infinities."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds, threads

from quantarray.kernels.windows import Window
from quantarray.nn.operators import pooling
from quantarray.nn.operators.windows import grid
from quantarray.ops.products import dense_pooling

CHANNELS = st.sampled_from([1, 5, 16, 17, 63, 64, 65, 130])


@st.composite
def windows(draw):
    axes = draw(st.integers(1, 3))
    size, stride, dilation = ([draw(st.integers(1, n)) for _ in range(axes)] for n in (3, 3, 2))
    pads = [tuple(draw(st.integers(0, k)) for _ in range(2)) for k in size]
    spans = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    image = [max(draw(st.integers(1, 6)), span - sum(p)) for span, p in zip(spans, pads, strict=True)]
    return Window(tuple(image), tuple(size), tuple(stride), tuple(pads), tuple(dilation))


def values(seed, shape, special):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(np.float32)
    if special:
        x[rng.random(shape) < 0.1] = np.nan
        x[rng.random(shape) < 0.1] = -np.inf
    return x


@given(windows(), CHANNELS, seeds(), st.sampled_from(["values", "special", "integers"]), st.booleans())
def test_largest(window, channels, seed, kind, many):
    """The largest value of each window, or in some channels the smallest, of floats and of all int32."""
    rng, x = np.random.default_rng(seed), values(seed, (2, *window.image, channels), kind == "special")
    if kind == "integers":
        x = rng.integers(-(2**31), 2**31, x.shape).astype(np.int32)
    turned = rng.random(channels) < 0.5
    assert dense_pooling.takes(x)
    with threads(many):
        got, both = dense_pooling.largest(x, window), dense_pooling.largest(x, window, turned)
    least, most = (-(2**31), 2**31 - 1) if kind == "integers" else (-np.inf, np.inf)
    with np.errstate(invalid="ignore"):
        expected = dense_pooling._reduced(x, window, np.maximum, least, x.dtype)
        smallest = dense_pooling._reduced(x, window, np.minimum, most, x.dtype)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(both, np.where(turned, smallest, expected))


@given(windows(), CHANNELS, seeds(), st.booleans(), st.booleans())
def test_mean(window, channels, seed, padding_too, many):
    """Sums in float32, taps in order, divided once: as NumPy makes them of an image with channels first."""
    x = values(seed, (2, *window.image, channels), False)
    a = {
        "kernel_shape": window.size, "strides": window.stride, "dilations": window.dilation,
        "pads": [p[0] for p in window.pads] + [p[1] for p in window.pads], "count_include_pad": int(padding_too),
    }  # fmt: skip
    first = x.transpose(0, -1, *range(1, x.ndim - 1))
    assert dense_pooling.takes(x) and not dense_pooling.takes(x.astype(np.float64))
    divisors = pooling.counts(a, window.image).astype(np.float32)
    assert grid(a, window.image, window.size).output == window.output
    with threads(many), np.errstate(invalid="ignore", divide="ignore"):
        got = pooling.OPERATORS["AveragePool"].run(a, first)
        expected = pooling.OPERATORS["sum_pool"].run(a, first) / divisors
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == np.float32


def test_a_window_without_taps():
    x = np.ones((1, 2, 3), np.float32)
    out = dense_pooling.pooled(x, (2,), (1,), (1,), (3,), (4,))
    np.testing.assert_array_equal(out[0, :, 0], [-np.inf, -np.inf, 1, 1])


@given(st.integers(1, 3), CHANNELS, seeds(), st.booleans(), st.booleans())
def test_mean_of_whole_images(axes, channels, seed, last, many):
    """Sums in float64, in order, rounded once: 2**24 + 1 is no float32."""
    x = values(seed, (2, *range(4, 4 + axes), channels), False)
    x[0, ..., 0], x[0].reshape(-1, channels)[-1, 0] = 0, 1
    x[0].reshape(-1, channels)[:3, 0] = 2**24, 1, -(2**24)
    first = np.moveaxis(x, -1, 1)
    with threads(many):
        got = pooling.OPERATORS["GlobalAveragePool"].run({}, first if last else np.ascontiguousarray(first))
    pixels = x.reshape(2, -1, channels).astype(np.float64)
    expected = (np.add.accumulate(pixels, axis=1)[:, -1] / pixels.shape[1]).astype(np.float32)
    np.testing.assert_array_equal(got.reshape(2, channels), expected)
    assert got.shape == (2, channels, *(1,) * axes) and got[0, 0].item() == np.float32(2 / pixels.shape[1])
