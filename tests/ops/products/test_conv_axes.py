"""Convolutions over one and three axes, and transposed ones over one to three, against the oracle."""

import naive
import numpy as np
import pytest
from conv_cases import INTEGER, REAL
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits, assert_packed, thresholds
from strategies import PRODUCTS, channels, laws, products_by, samples, threads

import quantarray as qa

CONV = {1: qa.conv1d, 2: qa.conv2d, 3: qa.conv3d}
TRANSPOSED = {1: qa.conv_transpose1d, 2: qa.conv_transpose2d, 3: qa.conv_transpose3d}
FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def order(axes):
    """The axes of an image with channels last in the order of channels first."""
    return 0, axes + 1, *range(1, axes + 1)


def in_format(y, ours):
    return y.transpose(order(y.ndim - 2)) if ours["data_format"] in FIRST.values() else y


def sizes(draw, axes, depthwise):
    """(channels of x, groups, outputs, taps, stride, dilation)."""
    if depthwise:
        groups, each, outputs = draw(channels(65)), 1, draw(st.integers(1, 2))
    else:
        groups = draw(st.sampled_from([1, 1, 2, 3]))
        each, outputs = draw(channels(65)), draw(channels(65))
    lengths = [draw(st.lists(st.integers(1, n), min_size=axes, max_size=axes)) for n in (3, 3, 2)]
    return groups * each, groups, groups * outputs, *lengths


@st.composite
def cases(draw, axes, depthwise=False):
    """Draw shapes of x and w, the geometry for the oracle, and that as functions take it."""
    c, groups, outputs, taps, stride, dilation = sizes(draw, axes, depthwise)
    padding = draw(st.sampled_from(["same", "valid", "pairs", "pairs"]))
    pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes))
    spans = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    lack = [span - sum(p) * (padding == "pairs") for span, p in zip(spans, pads, strict=True)]
    image = [max(draw(st.integers(1, 5)), n) for n in lack]
    how = {"stride": tuple(stride), "dilation": tuple(dilation), "groups": groups, "flip_kernel": draw(st.booleans())}
    how |= {"padding": pads if padding == "pairs" else padding, "pad_value": draw(st.integers(-3, 3))}
    ours = {**how, "data_format": draw(st.sampled_from([FIRST, LAST]))[axes]}
    return (draw(st.integers(0, 2)), *image, c), (outputs, *taps, c // groups), how, ours


def operands(draw, shapes, x_law, w_law, ours, w_axis=-1):
    """Draw x and w, channels last for the oracle, and as functions take them."""
    axes = len(shapes[0]) - 2
    x = draw(samples(shapes[0], -1, x_law, (0,)))
    w = draw(samples(shapes[1], w_axis, w_law, (0,) if w_axis else ()))
    if ours["data_format"] == LAST[axes]:
        return x, w, x.q, w.q
    return x, w, x.transpose(*order(axes)).q, w.transpose(*order(axes)).q


def check(draw, function, x, w, ours, expected, bias):
    with threads(draw(st.booleans())), products_by(draw(st.sampled_from(PRODUCTS))):
        got = function(x, w, bias=bias, **ours)
        assert_bits(got, in_format(expected, ours))
        law, values = draw(thresholds(expected))
        packed = function(x, w, bias=bias, requantize=law, **ours)
        out = np.empty_like(got, order=draw(st.sampled_from("CF")))
        assert function(x, w, bias=bias, out=out, **ours) is out
    assert_packed(packed, in_format(values, ours))
    assert_bits(np.ascontiguousarray(out), in_format(expected, ours))


@pytest.mark.parametrize("axes", [1, 3])
@given(st.data())
def test_integers(axes, data):
    x_shape, w_shape, how, ours = data.draw(cases(axes))
    x, w, *q = operands(data.draw, (x_shape, w_shape), INTEGER, INTEGER, ours)
    bias = data.draw(st.sampled_from([None, np.arange(w_shape[0]) - 5]))
    exact = naive.conv2d(x.values, w.values, **how) + (0 if bias is None else bias)
    check(data.draw, CONV[axes], *q, ours, exact.astype(np.int32), bias)


@pytest.mark.parametrize("axes", [1, 3])
@given(st.data())
def test_depthwise(axes, data):
    x_shape, w_shape, how, ours = data.draw(cases(axes, depthwise=True))
    x, w, *q = operands(data.draw, (x_shape, w_shape), laws(3, ["integer"]), laws(3, ["integer"]), ours, w_axis=0)
    check(data.draw, CONV[axes], *q, ours, naive.conv2d(x.values, w.values, **how).astype(np.int32), None)


def parts(x):
    """The constants of a sample of convolution as `conv2d_affine` takes them."""
    last = (0,) * (x.codes.ndim - 1)
    return x.terms, x.scale[(slice(None), slice(None), *last)], x.offset[(slice(None), *last)]


@pytest.mark.parametrize("axes", [1, 3])
@given(st.data())
def test_real(axes, data):
    x_shape, w_shape, how, ours = data.draw(cases(axes))
    x, w, *q = operands(data.draw, (x_shape, w_shape), laws(3, ["scaled", "basis"]), REAL, ours)
    bias = data.draw(st.sampled_from([None, np.float32(np.arange(w_shape[0]) / 3)]))
    shift = None if bias is None else bias.astype(np.float64)
    check(data.draw, CONV[axes], *q, ours, naive.conv2d_affine(*parts(x), *parts(w), bias=shift, **how), bias)


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("c", [3, 16, 70])
def test_bytes(axes, c):
    rng = np.random.default_rng(c)
    x = rng.integers(0, 256, (2, *(5, 4, 6)[:axes], c), np.uint8)
    w = rng.integers(-2, 2, (33, *(3, 2, 3)[:axes], c))
    expected = naive.conv2d(x, w, padding=1)
    got = CONV[axes](x, qa.encode(w, range(-2, 2)), padding=1)
    assert_bits(got, expected.astype(np.int32))


# transposed


@st.composite
def transposed(draw, axes, depthwise=False):
    """Draw shapes of x and w and arguments for which outputs are left."""
    c, groups, outputs, taps, stride, dilation = sizes(draw, axes, depthwise)
    image = [draw(st.integers(1, 4)) for _ in range(axes)]
    more, pads = [], []
    for n, k, s, d in zip(image, taps, stride, dilation, strict=True):
        more.append(draw(st.integers(0, max(s, d) - 1)))
        length = (n - 1) * s + (k - 1) * d + 1 + more[-1]
        before = draw(st.integers(0, min(4, length - 1)))
        pads.append((before, draw(st.integers(0, min(4, length - 1 - before)))))
    how = {"stride": tuple(stride), "dilation": tuple(dilation), "groups": groups}
    how |= {"padding": tuple(pads), "output_padding": tuple(more)}
    ours = {**how, "data_format": draw(st.sampled_from([FIRST, LAST]))[axes]}
    return (draw(st.integers(0, 2)), *image, c), (outputs, *taps, c // groups), how, ours


def plain(how, flip=False):
    """The arguments of the convolution of a spread image at stride 1."""
    return {"dilation": how["dilation"], "groups": how["groups"], "flip_kernel": not flip}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("depthwise", [False, True])
@given(st.data())
def test_transposed_integers(axes, depthwise, data):
    x_shape, w_shape, how, ours = data.draw(transposed(axes, depthwise))
    law = laws(3, ["integer"]) if depthwise else INTEGER
    x, w, *q = operands(data.draw, (x_shape, w_shape), law, law, ours, w_axis=0 if depthwise else -1)
    bias = data.draw(st.sampled_from([None, np.arange(w_shape[0]) - 5]))
    ours |= {"flip_kernel": data.draw(st.booleans())}
    sums = naive.conv2d(naive.spread(x.values, how, w_shape), w.values, **plain(how, ours["flip_kernel"]))
    exact = sums + (0 if bias is None else bias)
    check(data.draw, TRANSPOSED[axes], *q, ours, exact.astype(np.int32), bias)


@pytest.mark.parametrize("axes", [1, 2, 3])
@given(st.data())
def test_transposed_real(axes, data):
    """Offsets add nothing where no pixel is seen."""
    x_shape, w_shape, how, ours = data.draw(transposed(axes))
    x, w, *q = operands(data.draw, (x_shape, w_shape), laws(3, ["scaled", "basis"]), REAL, ours)
    (x_terms, x_scale, x_offset), (w_terms, w_scale, w_offset) = parts(x), parts(w)
    options, wide = plain(how), [naive.spread(t, how, w_shape) for t in x_terms]
    inside = naive.spread(np.ones((1, *x_shape[1:]), int), how, w_shape)
    ones = np.ones(w_shape, int)
    U = [[naive.conv2d(u, v, **options) for v in w_terms] for u in wide]
    A, B = [naive.conv2d(u, ones, **options) for u in wide], [naive.conv2d(inside, v, **options) for v in w_terms]
    by_image = (-1, *(1,) * (axes + 1))
    sx, ox = [s.astype(float).reshape(by_image) for s in x_scale], x_offset.astype(float).reshape(by_image)
    bias = data.draw(st.sampled_from([None, np.float32(np.arange(w_shape[0]) / 3)]))
    n, shift = naive.conv2d(inside, ones, **options), 0.0 if bias is None else bias.astype(np.float64)
    sums = [U], [A], [B], [n]
    expected = naive.affine_dot([sx], [ox], [w_scale.astype(float)], [w_offset.astype(float)], *sums, 0.0, shift)
    check(data.draw, TRANSPOSED[axes], *q, ours, expected, bias)


@pytest.mark.parametrize(("size", "stride"), [(1, 2), (2, 2), (3, 2), (4, 2), (5, 3), (2, 5)])
def test_same_gives_stride_outputs_a_pixel(size, stride):
    rng = np.random.default_rng(size)
    x, w = rng.choice([-1, 1], (2, 4, 3, 65)), rng.choice([-1, 1], (5, size, size, 65))
    y = qa.conv_transpose2d(qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1)), stride=stride, padding="same")
    outputs = [(n - 1) * stride + max(size, stride) if size >= stride else (n - 1) * stride + size for n in (4, 3)]
    if size >= stride:
        outputs = [4 * stride, 3 * stride]
    assert y.shape == (2, *outputs, 5)


@pytest.mark.parametrize("axes", [1, 3])
def test_errors_name_the_function_and_the_fix(axes):
    x = qa.encode(np.ones((1, *(4,) * axes, 64), int), (-1, 1))
    w = qa.encode(np.ones((2, *(3,) * axes, 64), int), (-1, 1))
    with pytest.raises(ValueError, match=rf"conv{axes}d: needs x \[n .*c\] and w \[o k.* c/groups\], got .*x\[None\]"):
        CONV[axes](x[0], w)
    with pytest.raises(ValueError, match=rf"conv{axes}d: .*: pack w.transpose"):
        CONV[axes](x, w.transpose(*range(1, axes + 2), 0).repack(axes))
    with pytest.raises(ValueError, match=rf"conv{axes}d: a window of .* does not fit"):
        CONV[axes](x, w, dilation=3)
    with pytest.raises(ValueError, match=rf"conv_transpose{axes}d: output_padding .* must be less"):
        TRANSPOSED[axes](x, w, output_padding=1)
    with pytest.raises(ValueError, match=rf"conv_transpose{axes}d: padding .* leaves no outputs"):
        TRANSPOSED[axes](x, w, padding=9)
    with pytest.raises(ValueError, match="data_format must be one of"):
        TRANSPOSED[axes](x, w, data_format="NXC")
