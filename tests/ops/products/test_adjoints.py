"""Adjoints of convolutions: the sums themselves in NumPy, and <g, conv(x, w)> = <data, x> = <filter, w>."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import laws, samples, seeds

import quantarray as qa

FORMATS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}
DENSE = (np.int8, np.uint8, np.bool_, np.float32, np.float64)


@st.composite
def geometries(draw):
    """Draw a convolution: shapes channels last, and its options."""
    axes = draw(st.integers(1, 3))
    most = {1: 9, 2: 6, 3: 4}[axes]
    size = [draw(st.integers(1, 3)) for _ in range(axes)]
    stride = [draw(st.integers(1, 3)) for _ in range(axes)]
    dilation = [draw(st.integers(1, 2)) for _ in range(axes)]
    pads = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(axes)]
    image = [
        max(1, (k - 1) * d + 1 - sum(p)) + draw(st.integers(0, most))
        for k, d, p in zip(size, dilation, pads, strict=True)
    ]
    padding = draw(st.sampled_from(["pads", "same", "valid"]))
    if padding == "valid":
        image = [max(n, (k - 1) * d + 1) for n, k, d in zip(image, size, dilation, strict=True)]
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    channels, outputs = groups * draw(st.sampled_from([1, 2, 33])), groups * draw(st.sampled_from([1, 2, 3]))
    options = {
        "stride": tuple(stride), "dilation": tuple(dilation), "groups": groups,
        "padding": tuple(pads) if padding == "pads" else padding,
    }  # fmt: skip
    n = draw(st.sampled_from([1, 2, 65]))
    return axes, (n, *image, channels), (outputs, *size, channels // groups), options


def flipped(w):
    return w[(slice(None), *(slice(None, None, -1),) * (w.ndim - 2))]


def first(a):
    """Put channels in front."""
    return np.moveaxis(a, -1, 1)


def windows(x, w, y, options):
    """Yield each tap, and the slices of the padded x that it reads; x and w by their shapes, and pads."""
    pads = []
    for n, k, s, d, o in zip(x[1:-1], w[1:-1], options["stride"], options["dilation"], y[1:-1], strict=True):
        pad = options["padding"]
        if pad == "same":
            total = max(0, (o - 1) * s + (k - 1) * d + 1 - n)
            pads.append((total // 2, total - total // 2))
        else:
            pads.append((0, 0) if pad == "valid" else pad[len(pads)])
    taps = []
    for tap in product(*map(range, w[1:-1])):
        steps = zip(tap, options["stride"], options["dilation"], y[1:-1], strict=True)
        taps.append((tap, tuple(slice(a * d, a * d + (o - 1) * s + 1, s) for a, s, d, o in steps)))
    return pads, taps


def naive(g, x, w, options):
    """Return the gradients of x and w, in the type of the values."""
    groups, (_, *image, c), o = options["groups"], x.shape, w.shape[0]
    pads, taps = windows(x.shape, w.shape, g.shape, options)
    padded = np.pad(x, ((0, 0), *pads, (0, 0)))
    dx, dw = np.zeros(padded.shape, np.result_type(g, w)), np.zeros(w.shape, np.result_type(g, x))
    for tap, place in taps:
        for group in range(groups):
            cs, os = (slice(group * m // groups, (group + 1) * m // groups) for m in (c, o))
            at, of_g = (slice(None), *place, cs), g[..., os]
            dx[at] += np.tensordot(of_g, w[(os, *tap)], 1)
            axes = range(g.ndim - 1)
            dw[(os, *tap)] = np.tensordot(of_g, padded[at], (axes, axes))
    inside = (slice(b, b + m) for m, (b, _) in zip(image, pads, strict=True))
    return dx[(slice(None), *inside)], dw


@given(geometries(), st.data())
def test_adjoints_of_integers(geometry, data):
    axes, x_shape, w_shape, options = geometry
    law = laws(4, ["integer"])
    depthwise = w_shape[-1] == 1 and data.draw(st.booleans())
    x = data.draw(samples(x_shape, -1, law))
    w = data.draw(samples(w_shape, 0 if depthwise else -1, law))
    flip, channels_first = data.draw(st.booleans()), data.draw(st.booleans())
    conv = getattr(qa, f"conv{axes}d")
    y = conv(x.q, w.q, flip_kernel=flip, **options)
    g = data.draw(samples(y.shape, -1, law))
    kind = data.draw(st.sampled_from(["packed", np.int8, np.uint8, np.bool_]))
    values = g.values if kind == "packed" else (np.abs(g.values) % 7).astype(kind)
    of_w = flipped(w.values) if flip else w.values
    dx, dw = naive(values.astype(np.int64), x.values, of_w, options)
    dw = flipped(dw) if flip else dw
    given_g, given_x, given_w = g.q if kind == "packed" else values, x.q, w.q
    if channels_first:
        order = (0, axes + 1, *range(1, axes + 1))
        given_g, given_x, given_w, dx, dw = (a.transpose(*order) for a in (given_g, given_x, given_w, dx, dw))
    options |= {"data_format": FORMATS[axes][channels_first], "flip_kernel": flip}
    got_x = getattr(qa, f"conv{axes}d_data_adjoint")(given_g, given_w, size=x_shape[1:-1], **options)
    np.testing.assert_array_equal(got_x, dx)
    got_w = getattr(qa, f"conv{axes}d_filter_adjoint")(given_x, given_g, size=w_shape[1:-1], **options)
    np.testing.assert_array_equal(got_w, dw)
    assert got_x.dtype.kind == got_w.dtype.kind == "i"
    inner = int((values.astype(np.int64) * y).sum())
    assert inner == int((dx * (first(x.values) if channels_first else x.values)).sum())
    assert inner == int((dw * (first(w.values) if channels_first else w.values)).sum())


@given(geometries(), st.data(), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_adjoints_of_floats(geometry, data, kind, scaled):
    axes, x_shape, w_shape, options = geometry
    law = laws(4, ["scaled"] if scaled else ["integer", "uniform", "table"])
    x, w = data.draw(samples(x_shape, -1, law)), data.draw(samples(w_shape, -1, law))
    rng = np.random.default_rng(data.draw(seeds()))
    g = rng.normal(size=getattr(qa, f"conv{axes}d")(x.q, w.q, **options).shape).astype(kind)
    got_x = getattr(qa, f"conv{axes}d_data_adjoint")(g, w.q, size=x_shape[1:-1], **options)
    got_w = getattr(qa, f"conv{axes}d_filter_adjoint")(x.q, g, size=w_shape[1:-1], **options)
    wide = [a.astype(np.float64) for a in (g, x.values, w.values)]
    magnitude = naive(*map(np.abs, wide), options)
    for got, expected, most in zip((got_x, got_w), naive(*wide, options), magnitude, strict=True):
        assert got.dtype == kind and got.shape == expected.shape
        assert (np.abs(got - expected) <= most * (2e-6 if kind == np.float32 else 1e-14)).all()


def test_scales_of_one_number_stay_with_codes():
    rng = np.random.default_rng(0)
    x = qa.quantize(rng.normal(size=(3, 5, 5, 8)), qa.Sign(scale=True))
    w = qa.encode(rng.integers(-1, 2, (4, 3, 3, 8)), (-1, 0, 1))
    g = qa.quantize(rng.normal(size=(3, 3, 3, 4)), qa.Uniform(4))
    dx, dw = naive(*(a.dequantize().astype(np.float64) for a in (g, x, w)),
                   {"stride": (1, 1), "dilation": (1, 1), "groups": 1, "padding": "valid"})  # fmt: skip
    np.testing.assert_allclose(qa.conv2d_data_adjoint(g, w), dx, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(qa.conv2d_filter_adjoint(x, g, size=3), dw, rtol=1e-5, atol=1e-5)


X = qa.encode(np.ones((2, 6, 6, 4), int), (-1, 1))
W = qa.encode(np.ones((3, 3, 3, 4), int), (-1, 1))
G = qa.encode(np.ones((2, 4, 4, 3), int), (-1, 1))


def test_the_least_image_is_the_default():
    assert qa.conv2d_data_adjoint(G, W).shape == (2, 6, 6, 4)
    assert qa.conv2d_data_adjoint(G, W, stride=2, padding=1).shape == (2, 7, 7, 4)
    assert qa.conv2d_data_adjoint(G, W, stride=2, padding=1, size=8).shape == (2, 8, 8, 4)
    assert qa.conv2d_data_adjoint(G, W, stride=2, padding="same").shape == (2, 8, 8, 4)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: qa.conv2d_data_adjoint(G, W[:2]), ValueError, "conv2d_data_adjoint: g must have the 2 outputs of w"),
        (lambda: qa.conv2d_data_adjoint(G, W, size=9), ValueError, "conv2d_data_adjoint: g must have the outputs"),
        (lambda: qa.conv2d_data_adjoint(G[0], W), ValueError, "conv2d_data_adjoint: g must have 4 axes"),
        (lambda: qa.conv2d_data_adjoint(G, np.ones((3, 3, 3, 4))), TypeError, "conv2d_data_adjoint: w must be a Qu"),
        (lambda: qa.conv2d_data_adjoint(np.ones((2, 4, 4, 3), np.int32), W), TypeError, "g must be packed, or dense"),
        (lambda: qa.conv2d_filter_adjoint(X, G[:1], size=3), ValueError, "x and g must have one batch"),
        (lambda: qa.conv2d_filter_adjoint(X, G, size=2), ValueError, "conv2d_filter_adjoint: g must have the outputs"),
        (lambda: qa.conv2d_filter_adjoint(X, G, size=3, groups=2), ValueError, "multiples of groups 2"),
        (lambda: qa.conv2d_filter_adjoint(np.ones((2, 6, 6, 4)), np.ones((2, 4, 4, 3)), size=3), TypeError,
         "x or g must be a QuantArray"),
    ],
)  # fmt: skip
def test_refusals(call, error, said):
    with pytest.raises(error, match=said):
        call()
