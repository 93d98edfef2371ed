"""Convolutions of drawn shapes, laws and geometries, and what says that the results are the oracle's."""

from contextlib import contextmanager
from dataclasses import dataclass

import naive
import numpy as np
import pytest
from hypothesis import strategies as st
from results import assert_bits, assert_packed, thresholds
from strategies import PRODUCTS, channels, laws, products_by, samples, seeds, threads

import quantarray as qa
from quantarray.ops.products import bit_sliced_groups, unrolling
from quantarray.ops.products import merged_groups as merging

NCHW = (0, 3, 1, 2)
PAD_INTEGERS = st.integers(-9, 9)
PAD_REALS = st.sampled_from([0, 0, -1, 3, 0.5]) | st.floats(-4, 4, width=32)
INTEGER = laws(kinds=["integer"])
REAL = laws(3, ["integer", "scaled", "uniform", "basis", "basis", "table"])


@dataclass(frozen=True)
class Case:
    """A convolution: shapes channels last, and the geometry as conv2d and as the oracle name it."""

    image: tuple
    kernel: tuple
    options: dict
    padding: object
    data_format: str

    def ours(self):
        return {**self.options, "padding": self.padding, "data_format": self.data_format}

    def naive(self):
        pair = {"stride": self.options["stride"], "dilation": self.options["dilation"]}
        pairs = {name: v if isinstance(v, tuple) else (v, v) for name, v in pair.items()}
        return {**self.options, **pairs, "padding": self.padding}


@st.composite
def cases(draw, depthwise=False, pad_values=PAD_INTEGERS, squares=False, few=False, framed=False):
    """Draw sizes that fit: a window larger than the padded image takes more padding. `squares`: 3x3 at stride 1.
    `few`: groups of few channels with an output each. `framed`: one group at stride 1, many images.
    """
    if depthwise:
        groups, per_group, outputs = draw(channels()), 1, draw(st.integers(1, 3))
    elif few:
        per_group = outputs = draw(st.sampled_from([1, 2, 4, 8, 16, 32, 64, 3]))
        groups = draw(st.integers(1, 130 // per_group + 3))
    else:
        groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
        per_group, outputs = draw(channels()), draw(channels())
    kernel, image = ([draw(st.integers(1, n)) for _ in range(2)] for n in (4, 6))
    stride, dilation = (draw(st.integers(1, 3) | st.tuples(*[st.integers(1, 3)] * 2)) for _ in range(2))
    if squares:
        kernel, image, stride, dilation = [3, 3], [draw(st.integers(1, 9)) for _ in range(2)], 1, 1
    if framed:
        groups, stride, image[1] = 1, 1, draw(st.integers(1, 40))
    spread = dilation if isinstance(dilation, tuple) else (dilation, dilation)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, spread, strict=True)]
    padding = draw(st.sampled_from(["same", "valid", "one", "pairs", "pairs", "pairs"]))
    pads = [[draw(st.integers(0, 3)) for _ in range(2)] for _ in range(2)]
    for i in range(2):
        lack = spans[i] - image[i] - sum(pads[i]) * (padding == "pairs")
        pads[i][draw(st.integers(0, 1))] += max(0, lack) if padding == "pairs" else 0
        image[i] += max(0, lack) if padding in ("valid", "one") else 0
    padding = {"pairs": tuple(map(tuple, pads)), "one": pads[0][0]}.get(padding, padding)
    options = {"stride": stride, "dilation": dilation, "groups": groups, "pad_value": draw(pad_values)}
    options["flip_kernel"] = draw(st.booleans())
    x = (draw(st.integers(0, 20 if framed else 3)), *image, groups * per_group)
    return Case(x, (groups * outputs, *kernel, per_group), options, padding, draw(st.sampled_from(["NHWC", "NCHW"])))


def arrays(draw, case, x_law, w_law, x_vary=(0,), w_axis=-1, cancel=None):
    """Draw operands, channels last for the oracle and as conv2d takes them."""
    one, runs = (None,), (None, 1, 5, 64)
    x = draw(samples(case.image, -1, x_law, x_vary, runs if 3 in x_vary else one, cancel))
    w = draw(samples(case.kernel, w_axis, w_law, (0,) if w_axis else (), runs if w_axis == 0 else one, cancel))
    if case.data_format == "NHWC":
        return x, w, x.q, w.q
    return x, w, x.transpose(*NCHW).q, w.transpose(*NCHW).q


def layout(y, case):
    return y.transpose(NCHW) if case.data_format == "NCHW" else y


@contextmanager
def merged_groups(how):
    """Merge groups of few channels as the cost model chooses, or none, or as many as possible."""
    with pytest.MonkeyPatch.context() as patch:
        if how == "none":
            patch.setattr(merging, "_MOST", 0)
        if how == "all":
            patch.setattr(merging, "_cost", lambda costs, job, terms, times: -times)
        yield


@contextmanager
def windows_unrolled(how):
    """Turn windows of few channels into rows of bits as the cost model chooses, never, or wherever possible: whole,
    or row by row."""
    with pytest.MonkeyPatch.context() as patch:
        if how != "chosen":
            costs = {"none": (np.inf, np.inf), "all": (-1, -2), "rows": (-2, -1)}[how]
            patch.setattr(unrolling, "sure_cost", lambda job, axes: costs[axes - 1])
        yield


@contextmanager
def bits_in_slices(how):
    """Count groups of few channels of single bits bit by bit where possible, or as others are."""
    with pytest.MonkeyPatch.context() as patch:
        if how == "none":
            patch.setattr(bit_sliced_groups, "_SIZES", ())
        yield


WAYS = st.sampled_from(["chosen", "none", "all"])


def check(draw, case, x, w, expected, bias=None, by=PRODUCTS, **more):
    """Compare the dense result with the oracle's, and the law of `requantize` with both."""
    with (
        threads(draw(st.booleans())),
        products_by(draw(st.sampled_from(by))),
        merged_groups(draw(WAYS)),
        windows_unrolled(draw(st.sampled_from(["chosen", "none", "all", "rows"]))),
        bits_in_slices(draw(WAYS)),
    ):
        got = qa.conv2d(x, w, bias=bias, **case.ours(), **more)
        assert_bits(got, layout(expected, case))
        law, values = draw(thresholds(expected))
        packed = qa.conv2d(x, w, bias=bias, requantize=law, **case.ours(), **more)
    assert_packed(packed, layout(values, case))
    dense = law(got, axis=packed.axis)
    assert packed.axis == (1 if case.data_format == "NCHW" else 3) and packed.dtype == dense.dtype
    np.testing.assert_array_equal(packed.words, dense.words)


def integer_bias(draw, outputs):
    rng = np.random.default_rng(draw(seeds()))
    return draw(st.sampled_from([None, rng.integers(-999, 999, outputs)]))


def real(case, x_terms, x_scale, x_offset, w, bias):
    """Compute the float32 result by the oracle; x's constants vary by image only."""
    return naive.conv2d_affine(
        x_terms, x_scale[:, :, 0, 0, 0], x_offset[:, 0, 0, 0], w.terms, w.scale[:, :, 0, 0, 0], w.offset[:, 0, 0, 0],
        bias=bias, **case.naive(),
    )  # fmt: skip


def real_depthwise(case, x, w, bias):
    """Compute the same where x's constants vary by channel too: `affine_dot` with channels repeated for each output."""
    repeat = case.kernel[0] // case.image[3]

    def conv(a, b, **pad):
        return naive.conv2d(a, b, **{**case.naive(), "pad_value": 0, **pad})

    image, ones = np.ones((1, *case.image[1:]), int), np.ones(case.kernel, int)
    U = [[conv(u, v) for v in w.terms] for u in x.terms]
    A, B = [conv(u, ones) for u in x.terms], [conv(image, v) for v in w.terms]
    out, n_out = [conv(0 * image, v, pad_value=1) for v in w.terms], conv(0 * image, ones, pad_value=1)
    sx, ox = (a.repeat(repeat, -1) if a.shape[-1] > 1 else a for a in (x.scale, x.offset))
    sw, ow = w.scale[:, :, 0, 0, 0], w.offset[:, 0, 0, 0]
    pad = ow * n_out
    for s in range(len(sw)):
        pad = pad + sw[s] * out[s]
    pad = np.float64(case.options["pad_value"]) * pad
    return naive.affine_dot([sx], [ox], [sw], [ow], [U], [A], [B], [conv(image, ones)], pad, np.float64(bias))


def real_bias(draw, make):
    """Draw no bias, a random one, or one that cancels the first pixel but for a rounding error."""
    kind = draw(st.sampled_from(["none", "none", "cancel", "cancel", "random"]))
    plain = make(0.0)
    if kind == "none" or not plain.size:
        return None, plain
    bias = -plain[0, 0, 0]
    if kind == "random":
        bias = np.random.default_rng(draw(seeds())).normal(size=bias.size).astype(np.float32)
    return bias, make(bias.astype(np.float64))
