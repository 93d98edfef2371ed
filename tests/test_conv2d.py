"""conv2d against the oracle, bit for bit: every pair of laws, all geometry, thresholds."""

import math
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace

import naive
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from results import assert_bits, assert_packed, thresholds
from strategies import PRODUCTS, Law, channels, laws, products_by, samples, seeds, threads

import quantarray as qa
from quantarray import kernel_choice
from quantarray.array import validate
from quantarray.cpu import conv, conv_real, dot, drive, framed, winograd
from quantarray.cpu import threads as cpu_threads
from quantarray.cpu.matrix_unit import MOST_PRODUCT, UNIT
from quantarray.ops import contraction, folded, merging, scaled, slicing, unrolling

NCHW = (0, 3, 1, 2)
DOTS = MOST_PRODUCT > 0
PAD_INTEGERS = st.integers(-9, 9)
PAD_REALS = st.sampled_from([0, 0, -1, 3, 0.5]) | st.floats(-4, 4, width=32)
INTEGER = laws(kinds=["integer"])
REAL = laws(3, ["integer", "scaled", "uniform", "basis", "basis", "table"])
LARGE = st.sampled_from([(-(2**20), 5, 2**20 - 1), (2**16, -(2**16)), (2**9 - 1, 0)]).map(lambda v: Law(qa.integers(v)))


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
    """Sizes that fit: a window that is larger than the padded image takes more padding. `squares`: 3x3 at stride 1.
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
    """Operands channels last, for the oracle, and as conv2d takes them."""
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
    """Groups of few channels are merged as the cost model has it, or none, or as many as may be."""
    with pytest.MonkeyPatch.context() as patch:
        if how == "none":
            patch.setattr(merging, "_MOST", 0)
        if how == "all":
            patch.setattr(merging, "_cost", lambda costs, job, terms, times: -times)
        yield


@contextmanager
def windows_unrolled(how):
    """Windows of few channels are made rows of bits as the cost model has it, or never, or wherever that can be: whole,
    or row by row."""
    with pytest.MonkeyPatch.context() as patch:
        if how != "chosen":
            patch.setattr(unrolling, "_fastest", lambda job, ways: {"none": job, "all": ways[-1]}.get(how, ways[0]))
        yield


@contextmanager
def bits_in_slices(how):
    """Groups of few channels of single bits are counted bit by bit where that can be, or as others are."""
    with pytest.MonkeyPatch.context() as patch:
        if how == "none":
            patch.setattr(slicing, "_SIZES", ())
        yield


WAYS = st.sampled_from(["chosen", "none", "all"])


def check(draw, case, x, w, expected, bias=None, by=PRODUCTS, **more):
    """The dense result, and the law of `requantize` against itself and against the oracle."""
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


@given(st.data(), cases())
def test_integers(data, case):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    reach = max(ours[0].dtype.max_abs, abs(case.options["pad_value"])) * ours[1].dtype.max_abs
    wide = math.prod(case.kernel[1:]) * reach >= 2**31  # by dtypes and shapes alone, as conv2d documents it
    check(data.draw, case, *ours, expected.astype(np.int64 if wide else np.int32), bias)


@pytest.mark.parametrize("outputs", [1, 8, 15, 16, 17, 31, 48, 49, 80])
@pytest.mark.parametrize("bits", [1, 2])
def test_outputs_that_leave_lanes_of_a_block(outputs, bits):
    """No more than half of a block of 32, or more."""
    rng = np.random.default_rng(outputs)
    x, w = rng.integers(0, 2**bits, (2, 7, 9, 20)), rng.choice((-1, 1), (outputs, 3, 3, 20))
    sums = naive.conv2d(x, w, padding=((1, 1), (1, 1))).astype(np.int32)
    a, b = qa.encode(x, range(2**bits)), qa.encode(w, (-1, 1))
    assert_bits(qa.conv2d(a, b, padding=1), sums)
    for limits in ([0], [-3, 0, 5]):
        law = qa.Thresholds(limits)
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=1, requantize=law).codes(), law(sums).codes())


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("bias", [None, -0.0, 0.0])
def test_no_real_sum_is_a_negative_zero(depthwise, bias):
    """A sum of 0 by a negative scale, and a bias of -0.0: in the documented order all begins with 0.0."""
    values = np.tile([[-1], [1]], (1, 4, 2, 18))  # of neighbours in a row
    x, w = qa.encode(values, (-1, 1)), qa.encode(np.ones((18, 1, 2, 1 if depthwise else 18), int), (-1, 1), axis=0)
    w = w if depthwise else w.repack(3)
    shift = None if bias is None else np.full(18, bias, np.float32)
    made = qa.conv2d(x, w * np.float32(-0.5), bias=shift, groups=18 if depthwise else 1)
    assert made.size and made.dtype == np.float32
    np.testing.assert_array_equal(made.view(np.uint32), 0)


def few_bits(draw):
    """A law of codes and one of levels that the kernel of squares takes, if only in terms of codes."""
    low, step, bits = draw(st.integers(-40, 40)), draw(st.sampled_from([-3, -1, 1, 2, 5])), draw(st.integers(1, 4))
    count = draw(st.integers(2 ** (bits - 1) + 1, 2**bits))
    w = draw(laws(4, ["integer"]) | st.just(Law(qa.integers(range(low, low + count * step, step)))))
    return draw(laws(6, ["integer"])), w


@given(st.data(), cases(squares=True))
def test_integers_by_squares(data, case):
    x_law, w_law = few_bits(data.draw)
    x, w, *ours = arrays(data.draw, case, x_law, w_law)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias, by=["winograd"])


def test_squares_that_see_padding_only():
    """A thread may get no others, and no pixel that it could bring."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 16, (2, 1, 2, 65)), rng.integers(-8, 8, (33, 3, 3, 65))
    a, b = qa.encode(x, range(16)), qa.encode(w, range(-8, 8))
    expected = naive.conv2d(x, w, padding=((9, 9), (9, 9)), pad_value=-3)
    dirt = [np.full(n, 255, np.uint8) for n in (64, 128, 256, 4096) for _ in range(99)]  # what empty buffers lie among
    dirt.clear()
    with threads(True), products_by("winograd"):
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=9, pad_value=-3), expected)


@pytest.mark.skipif(UNIT is None, reason="no matrix unit, not even an emulated one")
@settings(max_examples=60)
@given(st.data(), cases(framed=True))
def test_integers_between_zeros(data, case):
    w_law = data.draw(laws(8, ["integer"]).filter(lambda law: max(map(abs, law.dtype.levels)) < 128))
    x, w, *ours = arrays(data.draw, case, INTEGER, w_law)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias, by=["framed"])


@pytest.mark.skipif(UNIT is None, reason="no matrix unit, not even an emulated one")
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("images", "size", "channels", "outputs"),
    [
        (20, (7, 7), 130, 200),  # 7 together at most: the last are fewer; weights that are not kept
        (3, (30, 40), 70, 33),  # rows in bands
        (2, (3, 600), 65, 64),  # a row is more than a band
        (2, (9, 30), 640, 40),  # more words than a band has, in stretches of the contraction
    ],
)
def test_bands_between_zeros(images, size, channels, outputs, many):
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 4, (images, *size, channels)), rng.integers(-2, 2, (outputs, 3, 3, channels))
    a, b = qa.encode(x, range(4)), qa.encode(w, range(-2, 2))
    expected = naive.conv2d(x, w, padding=((1, 1), (1, 1))).astype(np.int32)
    with kernel_choice.heard() as asked, products_by("framed"), threads(many):
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=1), expected)
        for planes in range(1, 6):
            law = qa.Thresholds(np.sort(rng.integers(-300, 300, (outputs, 2**planes - 1))))
            bits = qa.conv2d(a, b, padding=1, requantize=law)
            np.testing.assert_array_equal(bits.codes(), law(expected).codes())
    assert asked and all("framed" in question.candidates for question in asked)


@pytest.mark.parametrize("x_levels", [(0, 1), (-1, 1), range(4), range(-8, 8)])
@pytest.mark.parametrize(
    "w_levels", [(-1, 1), (1, -1), (0, 1), (-3, -1, 1, 3), (5, 2), (-7,), range(-128, 128), range(1, 257)]
)
@pytest.mark.parametrize("groups, per_group, outputs", [(32, 4, 4), (6, 1, 40), (12, 33, 1)])
def test_groups_of_few_channels_are_merged(x_levels, w_levels, groups, per_group, outputs, monkeypatch):
    rng, seen = np.random.default_rng(0), []
    monkeypatch.setattr(merging, "replace", lambda job, **to: seen.append(to["groups"]) or replace(job, **to))
    x = rng.choice(x_levels, (2, 5, 6, groups * per_group))
    w = rng.choice(w_levels, (groups * outputs, 3, 3, per_group))
    bias, options = rng.integers(-99, 99, len(w)), {"padding": 1, "pad_value": 3, "groups": groups}
    x_packed, w_packed = qa.encode(x, x_levels), qa.encode(w, w_levels)
    exact = naive.conv2d(x, w, padding=1, pad_value=3, groups=groups) + bias
    with merged_groups("all"), bits_in_slices("none"):
        got = qa.conv2d(x_packed, w_packed, bias=bias, **options)
        law = qa.Thresholds(np.median(exact, axis=(0, 1, 2))[:, None])
        bits = qa.conv2d(x_packed, w_packed, bias=bias, requantize=law, **options)
    np.testing.assert_array_equal(got, exact)
    np.testing.assert_array_equal(bits.dequantize(), law(got).dequantize())
    fits = 0 in w_levels or len(w_levels) < 256
    most = max(t for t in range(1, groups + 1) if groups % t == 0 and max(per_group, outputs) * t <= 128)
    assert seen == ([groups // most] * 2 if fits else [])


@pytest.mark.parametrize("bias", [None, 0.25])
@pytest.mark.parametrize("bits_out", [False, True])
def test_merged_groups_of_scaled_weights(bias, bits_out):
    """Sums are exact, and the constants of an output are its own."""
    rng = np.random.default_rng(1)
    x = qa.quantize(rng.standard_normal((3, 9, 7, 24), np.float32), qa.Sign(scale=True))
    w = qa.quantize(rng.standard_normal((18, 3, 3, 4), np.float32), qa.XNOR(), scale_axis=0)
    more = {"padding": (1, 2), "groups": 6, "requantize": qa.Thresholds([0.5]) if bits_out else None}
    more["bias"] = None if bias is None else np.linspace(-1, bias, 18, dtype=np.float32)
    results = []
    for how in ("none", "all"):
        with merged_groups(how):
            results.append(qa.conv2d(x, w[::1], **more))
    if bits_out:
        assert qa.array_equal(*results)
    else:
        assert_bits(*results)


def test_groups_are_merged_where_that_is_faster():
    rng = np.random.default_rng(2)
    layouts = []
    for groups in (32, 2):
        x = qa.encode(rng.choice((-1, 1), (1, 28, 28, 256)), (-1, 1))
        w = qa.encode(rng.choice((-1, 1), (256, 3, 3, 256 // groups)), (-1, 1))
        qa.conv2d(x, w, padding=1, groups=groups)
        layouts.append(any(isinstance(key, tuple) and key[0] == "merged" for key in w._cache))
    assert layouts == [True, False]


@pytest.mark.parametrize("rows", ["all", "rows"])
@pytest.mark.parametrize("x_levels, w_levels", [((-1, 1), (-1, 1)), ((0, 1), (-1, 1)), (range(4), (-2, -1, 0, 1))])
@pytest.mark.parametrize("channels", [1, 3, 13, 16, 21, 32, 63])
@pytest.mark.parametrize(
    "size, how",
    [
        ((9, 8), {"padding": 1}),
        ((3, 21), {"padding": 1}),
        ((3, 2), {"padding": ((2, 0), (1, 3)), "stride": (1, 2)}),
        ((12, 7), {"dilation": 2, "padding": (2, 0), "stride": 3}),
    ],
)
def test_windows_of_few_channels_are_rows_of_bits(x_levels, w_levels, channels, size, how, rows, monkeypatch):
    """Borders, bits that lie over two words, rows of which a thread begins with any one, and of which vectors leave
    some. Nine taps of 63 channels are nine words either way."""
    rng, seen = np.random.default_rng(3), []
    unroll = contraction.UnrolledBits.__call__
    monkeypatch.setattr(contraction.UnrolledBits, "__call__", lambda *given: seen.append(1) or unroll(*given))
    x, w = rng.choice(x_levels, (3, *size, channels)), rng.choice(w_levels, (35, 3, 3, channels))
    geometry = {name: v if isinstance(v, tuple) else (v, v) for name, v in how.items() if name != "padding"}
    exact = naive.conv2d(x, w, padding=how["padding"], pad_value=2, **geometry)
    x, w = qa.encode(x, x_levels), qa.encode(w, w_levels)
    law = qa.Thresholds(np.quantile(exact, [0.3, 0.6, 0.8], axis=(0, 1, 2)).T, into=qa.uint2)
    with windows_unrolled(rows), threads(True):
        got = qa.conv2d(x, w, pad_value=2, **how)
        codes = qa.conv2d(x, w, pad_value=2, requantize=law, **how)
        scaled_by = qa.conv2d(x, w * np.float32(0.5), pad_value=2, **how)
    np.testing.assert_array_equal(got, exact)
    np.testing.assert_array_equal(codes.codes(), law(exact.astype(np.int32)).codes())
    np.testing.assert_array_equal(scaled_by, exact * np.float32(0.5))
    assert len(seen) == (0 if channels == 63 else 3)


@given(st.data(), st.booleans(), st.sampled_from([np.int8, np.uint8]))
def test_dense_bytes(data, depthwise, dtype):
    """Images of plain bytes; with few channels and no padding value they are unrolled into rows."""
    case = data.draw(cases(depthwise, pad_values=st.sampled_from([0, 0, 3])))
    axis = data.draw(st.sampled_from([0, -1])) if depthwise else -1
    _, w, _, ours = arrays(data.draw, case, INTEGER, laws(4), w_axis=axis)
    info = np.iinfo(dtype)
    x = np.random.default_rng(data.draw(seeds())).integers(info.min, info.max + 1, case.image).astype(dtype)
    if w.exact:
        expected = naive.conv2d(x, w.values, **case.naive()).astype(np.int32)
    else:
        expected = real(case, x[None].astype(int), np.ones((1, 1, 1, 1, 1)), np.zeros((1,) * 4), w, None)
    check(data.draw, case, layout(x, case), ours, expected)


@given(st.data(), cases(), st.sampled_from([np.int64, np.float32]))
def test_out_dtype(data, case, dtype):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    expected = naive.conv2d(x.values, w.values, **case.naive()).astype(dtype)
    check(data.draw, case, *ours, expected, out_dtype=dtype)


@given(st.data(), cases(pad_values=st.integers(-2, 2)))
def test_large_integers(data, case):
    """The result is int64 exactly where n * |x|max * |w|max asks for it."""
    x, w, *ours = arrays(data.draw, case, LARGE, LARGE)
    n = int(np.prod(case.kernel[1:]))
    bound = n * max(x.law.dtype.max_abs, abs(case.options["pad_value"])) * w.law.dtype.max_abs
    if bound >= 2**53:
        with pytest.raises(OverflowError, match="2\\*\\*53"):
            qa.conv2d(*ours, **case.ours())
        return
    expected = naive.conv2d(x.values, w.values, **case.naive())
    check(data.draw, case, *ours, expected.astype(np.int32 if bound < 2**31 else np.int64))


# float constants


def real(case, x_terms, x_scale, x_offset, w, bias):
    """The oracle's float32 result; x's constants vary by image only."""
    return naive.conv2d_affine(
        x_terms, x_scale[:, :, 0, 0, 0], x_offset[:, 0, 0, 0], w.terms, w.scale[:, :, 0, 0, 0], w.offset[:, 0, 0, 0],
        bias=bias, **case.naive(),
    )  # fmt: skip


def real_depthwise(case, x, w, bias):
    """The same where x's constants vary by channel too: `affine_dot` with channels repeated for each output."""
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
    """No bias, a random one, or one that cancels the first pixel but for a rounding error."""
    kind = draw(st.sampled_from(["none", "none", "cancel", "cancel", "random"]))
    plain = make(0.0)
    if kind == "none" or not plain.size:
        return None, plain
    bias = -plain[0, 0, 0]
    if kind == "random":
        bias = np.random.default_rng(draw(seeds())).normal(size=bias.size).astype(np.float32)
    return bias, make(bias.astype(np.float64))


@given(st.data(), cases(pad_values=PAD_REALS))
def test_real(data, case):
    x, w, *ours = arrays(data.draw, case, REAL, REAL)
    if x.exact and w.exact:
        x, w, *ours = arrays(data.draw, case, laws(3, ["scaled", "basis"]), REAL)
    bias, expected = real_bias(data.draw, lambda b: real(case, x.terms, x.scale, x.offset, w, b))
    check(data.draw, case, *ours, expected, bias)


@pytest.mark.parametrize(("channels", "outputs"), [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("law", [{}, {"scale": 0.5}])
def test_of_no_channels(channels, outputs, law):
    """Sums of nothing are the bias, and padding adds nothing to pixels of no channels."""
    x = qa.from_codes(np.ones((2, 4, 5, channels), int), qa.bipolar, **law)
    w = qa.from_codes(np.ones((outputs, 3, 2, channels), int), qa.bipolar)
    bias = np.arange(outputs)
    expected = np.zeros((2, 4, 6, outputs)) + bias
    how = {"padding": 1, "pad_value": 3, "bias": bias}
    assert_bits(qa.conv2d(x, w, **how), expected.astype(np.float32 if law else np.int32))
    assert_packed(qa.conv2d(x, w, **how, requantize=qa.Thresholds([1])), np.where(expected > 1, 1, -1))
    turned = qa.conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), **how, data_format="NCHW")
    assert turned.shape == (2, outputs, 4, 6)


@given(st.data(), cases())
def test_integers_with_a_real_bias(data, case):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    bias = np.random.default_rng(data.draw(seeds())).normal(size=len(w.codes)).astype(np.float32)
    exact = naive.conv2d(x.values, w.values, **case.naive()).astype(np.float64)
    check(data.draw, case, *ours, (exact + bias).astype(np.float32), bias)


def on_two_threads(run):
    """What `drive` takes for `threads`: two of them for any work, and `run`."""
    return SimpleNamespace(run=run, count=lambda: 2, workers=lambda work, least: 2)


@cache
def called_by_python(kernel):
    return numba.njit(error_model="numpy")(kernel.compiled.py_func)


@pytest.mark.parametrize(
    "module, name, scale",
    [
        (conv, "conv", None),
        (dot, "dot", None),
        (winograd, "winograd", None),
        (framed, "framed", None),
        (conv_real, "real", 2.0),
    ],
)
@pytest.mark.parametrize("groups, outputs", [(1, 400), (2, 200), (3, 129)])
def test_no_two_tasks_write_the_same_word(groups, outputs, module, name, scale, monkeypatch):
    """Threads set bits without atomic operations. All bits are ones here, so that every word written shows."""
    unit = {winograd: UNIT is None, framed: UNIT is not None and groups == 1}.get(module, True)
    if (module in (dot, winograd) and not DOTS) or not unit:
        pytest.skip("no dot products, or others")
    pieces = []

    def one_by_one(kernel, arguments, tasks, workers, dealt, kind, held):
        x, values, words = arguments
        written = np.zeros(words.shape, bool)
        for task in range(tasks):
            alone = np.zeros_like(words)
            dealt = np.zeros(16, np.int64)  # this task to one worker, as `deal.next_task` has it
            dealt[0], dealt[1], dealt[8] = 1, task + 1, task
            called_by_python(kernel)(*held.arguments, x, values, alone, dealt.ctypes.data, 0)
            assert not (written & (alone != 0)).any()
            written |= alone != 0
            words |= alone
        pieces.append(tasks)

    monkeypatch.setattr(drive, "threads", on_two_threads(one_by_one))
    monkeypatch.setattr(folded, "possible", lambda *operands: False)
    x = qa.from_codes(np.ones((1, 1, 1, 2 * groups), int), qa.bipolar)
    w = qa.from_codes(np.ones((groups * outputs, 3, 3, 2), int), qa.bipolar, scale=scale)
    with products_by(name):
        got = qa.conv2d(x, w, padding=1, groups=groups, requantize=qa.Thresholds([0]))
    assert (got.dequantize() == 1).all() and len(pieces) == 1
    assert groups > 1 or pieces[0] > 1  # the channels of one group are split


@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("levels", [(-1, 1), (0, 1, 2, 3)])
def test_one_thread_takes_all_chunks_of_channels_and_stretches_of_tiles(levels, name, scale, monkeypatch):
    """What a kernel makes ready for a chunk's channels it makes anew for the next chunk's."""
    rng = np.random.default_rng(0)
    x, w = rng.choice(levels, (2, 9, 7, 70)), rng.choice((-1, 1), (400, 3, 3, 70))
    limits = rng.integers(-9, 9, (400, 1))
    exact = naive.conv2d(x, w, padding=((1, 1), (1, 1)))
    taken = []

    def run(kernel, arguments, tasks, workers, dealt, kind, held):
        taken.append(tasks)
        cpu_threads.run(kernel, arguments, tasks, 1, dealt, kind, held)

    monkeypatch.setattr(drive, "threads", on_two_threads(run))
    monkeypatch.setattr(drive, "cut", lambda *given: (3, 3))
    for real_constants in (folded, scaled):  # so that they are summed
        monkeypatch.setattr(real_constants, "possible", lambda *operands: False)
    a, b = qa.encode(x, levels), qa.encode(w, (-1, 1))
    real = qa.from_codes(b.codes(), b.dtype, axis=3, scale=scale) if scale else b
    with products_by(name):
        sums = qa.conv2d(a, real, padding=1)
        bits = qa.conv2d(a, real, padding=1, requantize=qa.Thresholds((scale or 1) * limits))
    np.testing.assert_array_equal(sums, exact * (scale or 1))
    np.testing.assert_array_equal(bits.dequantize() > 0, exact > limits[:, 0])
    assert taken == [9, 9]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("images", [5, 6, 8])  # of which 1, 2 and 4 share tiles
@pytest.mark.parametrize(
    ("levels", "bits_out"), [((-1, 1), True), ((-1, 1), False), ((0, 1, 2), False), (range(256), True)]
)
def test_more_tiles_than_a_band(levels, bits_out, images, name, threads):
    """Kernels walk 64 tiles, or 128 squares, with one block of weights, from inside one image into another."""
    rng = np.random.default_rng(0)
    x, w = rng.choice(levels, (images, 13, 19, 70)), rng.choice((-1, 1), (100, 3, 3, 35))
    a, b = qa.encode(x, levels), qa.encode(w, (-1, 1))
    expected = naive.conv2d(x, w, padding=((1, 1), (1, 1)), groups=2)
    limit = qa.Thresholds(rng.integers(-9, 9, (100, 1))) if bits_out else None
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(min(threads, before))
        with products_by(name):
            got = qa.conv2d(a, b, padding=1, groups=2, requantize=limit)
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(
        got if limit is None else got.codes(), expected if limit is None else limit(expected.astype(np.int32)).codes()
    )


TWO_LEVELS = [(-1, 1), (1, -1), (0, 1), (0, -2), (0, 3), (-4, 4), (5, 1)]


@pytest.mark.parametrize(
    "groups, channels, outputs", [(1, 70, 70), (1, 32, 6), (1, 64, 60), (1, 64, 210), (2, 64, 64), (3, 96, 180)]
)
@pytest.mark.parametrize("w_levels", TWO_LEVELS)
@pytest.mark.parametrize("x_levels", TWO_LEVELS)
def test_counts_against_one_threshold(x_levels, w_levels, groups, channels, outputs):
    """Steps that are powers of two or not, of either sign; thresholds at results and next to them; and the results."""
    rng = np.random.default_rng(0)
    x, w = rng.choice(x_levels, (2, 5, 6, channels)), rng.choice(w_levels, (outputs, 3, 3, channels // groups))
    bias, a, b = rng.integers(-9, 9, outputs), qa.encode(x, x_levels), qa.encode(w, w_levels)
    geometry = {"padding": ((1, 1), (1, 1)), "groups": groups}
    expected = naive.conv2d(x, w, stride=(1, 1), dilation=(1, 1), **geometry) + bias
    some = np.array([rng.choice(expected[..., o].ravel()) for o in range(outputs)])[:, None]
    greater, strict = rng.random((2, outputs)) < 0.5
    limits = some - rng.integers(0, 2, some.shape)
    law = qa.Thresholds(limits, greater=greater, strict=strict)
    above = np.where(strict == greater, expected > limits[:, 0], expected >= limits[:, 0])
    got = qa.conv2d(a, b, bias=bias, requantize=law, padding=1, groups=groups)
    validate(got)
    np.testing.assert_array_equal(got.codes(), np.where(greater, above, ~above))
    for dtype in (np.int32, np.int64):
        got = qa.conv2d(a, b, bias=bias, padding=1, groups=groups, out_dtype=dtype)
        np.testing.assert_array_equal(got, expected.astype(dtype), strict=True)


@pytest.mark.parametrize("outputs", [1, 40])
def test_steps_beyond_int32(outputs):
    """Results of int32 are summed modulo 2**32; here the product of two steps is 2**32, and thresholds are larger."""
    levels = (-32767, 32769)
    rng = np.random.default_rng(0)
    x, w = rng.choice(levels, (1, 6, 7, 1)), rng.choice(levels, (outputs, 1, 1, 1))
    a, b, expected = qa.encode(x, levels), qa.encode(w, levels), naive.conv2d(x, w)
    got = qa.conv2d(a, b)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, expected)
    for limits in [-(2**40)], [2**40], [levels[0] * levels[1]], [-(2**40), -(2**31), 0, 2**31 - 1, 2**40]:
        made = qa.conv2d(a, b, requantize=qa.Thresholds(limits))
        np.testing.assert_array_equal(made.codes(), np.searchsorted(limits, expected))


@pytest.mark.parametrize("elements", [1, 576, 577, 3000, 4608, 4609, 10000])
@pytest.mark.parametrize(("x_levels", "w_levels"), [((0, 255), (-128, 127)), ((0, 255), (0, 255)), ((7, -8), (-7, 8))])
def test_largest_sums_of_bytes(elements, x_levels, w_levels):
    """Contractions of one stretch and of several, where every product is as large as it can be."""
    (low, high), (first, last) = map(sorted, (x_levels, w_levels))
    rng = np.random.default_rng(elements)
    x, w = rng.choice(x_levels, (9, elements)), rng.choice(w_levels, (70, elements))
    x[0], w[0], w[1] = x_levels[1], w_levels[1], w_levels[0]
    with products_by("dot"):
        got = qa.linear(qa.encode(x, range(low, high + 1)), qa.encode(w, range(first, last + 1)))
    assert_bits(got, (x @ w.T).astype(np.int32))


def results_to_write():
    rng = np.random.default_rng(0)
    x, w = (
        qa.encode(rng.choice([-1, 1], (2, 6, 5, 40)), (-1, 1)),
        qa.encode(rng.choice([-1, 1], (35, 3, 3, 40)), (-1, 1)),
    )
    first, real = (
        qa.encode(x.dequantize().transpose(0, 3, 1, 2), (-1, 1), axis=1),
        qa.from_codes(w.codes(), w.dtype, scale=0.5),
    )
    deep = qa.encode(rng.choice([-1, 1], (40, 3, 3, 1)), (-1, 1), axis=0)
    image = rng.integers(0, 256, (2, 6, 5, 3)).astype(np.uint8)
    of_image = qa.encode(rng.choice([-1, 1], (35, 3, 3, 3)), (-1, 1))
    rows, table = qa.encode(rng.choice([-1, 1], (2, 4, 70)), (-1, 1)), qa.encode(rng.choice([-1, 1], (9, 70)), (-1, 1))
    return {
        "integers": lambda **how: qa.conv2d(x, w, padding=1, **how),
        "bias": lambda **how: qa.conv2d(x, w, bias=np.arange(35), **how),
        "channels first": lambda **how: qa.conv2d(first, w.transpose(0, 3, 1, 2), data_format="NCHW", **how),
        "floats": lambda **how: qa.conv2d(x, real, padding=1, **how),
        "depthwise": lambda **how: qa.conv2d(x, deep, groups=40, **how),
        "image": lambda **how: qa.conv2d(image, of_image, padding=1, **how),
        "no channels": lambda **how: qa.conv2d(x[..., :0], w[..., :0], bias=np.arange(35), **how),
        "linear": lambda **how: qa.linear(rows, table, **how),
        "linear of floats": lambda **how: qa.linear(rows, table * 0.5, **how),
        "linear of nothing": lambda **how: qa.linear(rows[..., :0], table[..., :0], **how),
    }


@pytest.mark.parametrize("name", results_to_write())
def test_results_are_written_where_the_caller_says(name):
    call = results_to_write()[name]
    expected = call()
    for out in (np.full_like(expected, 7), np.full((*expected.shape, 2), 7, expected.dtype)[..., 1]):
        assert call(out=out) is out
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", ["integers", "channels first", "linear"])
def test_arrays_that_cannot_take_the_result(name):
    call = results_to_write()[name]
    right = call()
    fixed = right.copy()
    fixed.flags.writeable = False
    for out in (right.astype(np.int64), right[..., 1:].copy(), fixed, right.tolist()):
        with pytest.raises(ValueError, match=r"(conv2d|linear): out must be a writable NumPy array of int32 \("):
            call(out=out)
    with pytest.raises(TypeError, match="out takes dense results"):
        call(out=right, requantize=qa.Thresholds([0]))


# preparations kept on the weights


def test_a_second_call_is_prepared_by_its_own_arguments():
    """Each argument that changes the result changes what is kept: calls in any order give what a fresh w gives."""
    rng = np.random.default_rng(0)
    images = [qa.encode(rng.choice([-1, 1], (n, h, 5, 6)), (-1, 1)) for n, h in ((1, 5), (3, 5), (2, 6))]
    images += [
        qa.encode(rng.integers(0, 4, (1, 5, 5, 6)), range(4)),
        qa.from_codes(rng.integers(0, 2, (1, 5, 5, 6)), qa.bipolar, scale=0.5),
        qa.from_codes(rng.integers(0, 2, (2, 5, 5, 6)), qa.bipolar, scale=rng.random((2, 1, 1, 1))),
        qa.from_codes(rng.integers(0, 2, (2, 5, 5, 6)), qa.bipolar, scale=3.0),
        rng.integers(0, 256, (1, 5, 5, 6)).astype(np.uint8),
        rng.integers(-9, 9, (1, 5, 5, 6)).astype(np.int8),
    ]
    options = [{}, {"padding": 1}, {"padding": [1, 1]}, {"padding": 1, "pad_value": 2}, {"stride": 2}, {"dilation": 2}]
    options += [{"bias": np.arange(4) + b} for b in (0, 1)] + [{"bias": np.arange(4.0)}, {"out_dtype": np.int64}]
    options += [{"requantize": qa.Thresholds([t])} for t in (0, 9)] + [{"flip_kernel": True}]
    codes = rng.choice([-1, 1], (4, 3, 3, 6))
    w = qa.encode(codes, (-1, 1))
    for _ in range(2):
        for x in images:
            for how in options:
                if "out_dtype" in how and getattr(x, "scale", None) is not None:
                    continue
                got, expected = (qa.conv2d(x, v, **how) for v in (w, qa.encode(codes, (-1, 1))))
                if "requantize" in how:
                    assert qa.array_equal(got, expected)
                else:
                    assert_bits(got, expected)
    assert w.nbytes_cached > 0
    w.drop_cache()
    assert w.nbytes_cached == 0


def test_the_latest_call_again():
    """The same options with another x, lists and biases that were changed since, and another device."""
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 1], (4, 3, 3, 6))
    w, pads, bias = qa.encode(codes, (-1, 1)), [0, 0], np.arange(4)
    for n, height, pad in ((1, 5, 1), (1, 5, 0), (3, 5, 0), (3, 6, 1)):
        pads[:] = pad, pad
        x = rng.choice([-1, 1], (n, height, 5, 6))
        for _ in range(2):
            got = qa.conv2d(qa.encode(x, (-1, 1)), w, padding=pads)
            assert_bits(got, naive.conv2d(x, codes, padding=pad).astype(np.int32))
    for _ in range(2):
        bias += 1
        got = qa.conv2d(qa.encode(x, (-1, 1)), w, bias=bias)
        assert_bits(got, (naive.conv2d(x, codes) + bias).astype(np.int32))
    for scale in (0.5, 0.5, 2.0):
        got = qa.conv2d(qa.encode(x, (-1, 1)) * np.float32(scale), w)
        assert_bits(got, (naive.conv2d(x, codes) * scale).astype(np.float32))

    class Elsewhere(qa.QuantArray):
        device = "cuda:0"

    x = qa.encode(x, (-1, 1))
    qa.conv2d(x, w)
    with pytest.raises(qa.DeviceError, match="x on cuda:0, w on cpu"):
        qa.conv2d(Elsewhere(x.words, x.dtype, x.shape, x.axis), w)


def test_equal_is_not_the_same_to_checks():
    x, w = qa.encode(np.ones((1, 3, 3, 4), int), (-1, 1)), qa.encode(np.ones((1, 1, 1, 4), int), (-1, 1))
    for name in ("stride", "dilation", "groups"):
        qa.conv2d(x, w, **{name: 1})
        with pytest.raises(TypeError, match=f"conv2d: {name} must be an integer, got True"):
            qa.conv2d(x, w, **{name: True})


def test_images_of_ever_new_sizes_do_not_pile_up():
    rng = np.random.default_rng(0)
    codes = rng.choice([-1, 1], (2, 1, 2, 3))
    w = qa.encode(codes, (-1, 1))
    for width in range(2, 150):
        x = rng.choice([-1, 1], (1, 1, width, 3))
        assert_bits(qa.conv2d(qa.encode(x, (-1, 1)), w), naive.conv2d(x, codes).astype(np.int32))
    assert len(w._cache) <= 128


# constants folded into thresholds


def folding_case(bias_scale=1.0, scale=0.37, rows=3):
    rng = np.random.default_rng(5)
    x = qa.encode(rng.integers(0, 16, (rows, 5, 5, 40)), range(16)) * np.float32(scale)
    w = qa.encode(rng.integers(-7, 8, (33, 3, 3, 40)), range(-7, 8)) * rng.uniform(0.1, 2, (33, 1, 1, 1)).astype("f4")
    bias = (rng.standard_normal(33) * bias_scale).astype(np.float32)
    return x, w, bias


def folded_calls(monkeypatch):
    """Every answer of a fold: None where the real kernel has to do it."""
    found, original = [], folded.Exact.found

    def noted(self, x):
        found.append(original(self, x))
        return found[-1]

    monkeypatch.setattr(folded.Exact, "found", noted)
    return found


@pytest.mark.parametrize("scale", [0.37, 1e-30, 3e30, 0.0])
def test_folded_thresholds_lie_where_results_round(scale, monkeypatch):
    """Thresholds at results themselves, next to them, and at no number."""
    x, w, bias = folding_case(scale=scale)
    dense = qa.conv2d(x, w, bias=bias, padding=1)
    near = np.sort(dense.reshape(-1, 33)[[3, 40, 60]].T, axis=1)
    for values in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
        for law in (qa.Thresholds(values), qa.Thresholds(values, strict=False), qa.Thresholds(values, greater=False)):
            calls = folded_calls(monkeypatch)
            got = qa.conv2d(x, w, bias=bias, padding=1, requantize=law)
            np.testing.assert_array_equal(got.words, law(dense).words)
            assert len(calls) == 1 and calls[0] is not None


@pytest.mark.parametrize("edge", [np.inf, -np.inf, 1e30, -1e30])
def test_folded_thresholds_beyond_all_results(edge):
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([[edge]] * 33))
    dense = qa.conv2d(x, w, bias=bias)
    np.testing.assert_array_equal(qa.conv2d(x, w, bias=bias, requantize=law).words, law(dense).words)


def test_what_is_not_folded(monkeypatch):
    """A factor below zero, scales by image and offsets: the real kernel's, and equal too."""
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([-3, 2, 9]))
    per_image = x * np.float32([1, 2, 0.5]).reshape(3, 1, 1, 1)
    for p, q in ((x, w * np.float32(-1)), (per_image, w), (x + np.float32(0.25), w)):
        calls = folded_calls(monkeypatch)
        got = qa.conv2d(p, q, bias=bias, padding=1, requantize=law)
        np.testing.assert_array_equal(got.words, law(qa.conv2d(p, q, bias=bias, padding=1)).words)
        assert calls in ([], [None])


def test_a_fold_is_kept_for_each_scale(monkeypatch):
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([-3, 2, 9]))
    for scale in (0.5, 2, 0.5, *range(1, 12)):
        q = x * np.float32(scale)
        got = qa.conv2d(q, w, bias=bias, requantize=law)
        np.testing.assert_array_equal(got.words, law(qa.conv2d(q, w, bias=bias)).words)
    calls = folded_calls(monkeypatch)
    for _ in range(2):
        qa.conv2d(x, w, bias=bias, requantize=law)
    assert calls[0] is calls[1]


@pytest.mark.parametrize("name", ["conv", pytest.param("dot", marks=pytest.mark.skipif(not DOTS, reason="no dots"))])
@pytest.mark.parametrize("w_offset", [0, 0.25])
def test_exact_sums_become_what_the_real_kernel_makes(w_offset, name, monkeypatch):
    """Scales and offsets by image, border classes, a padding value and a bias."""
    x, w, bias = folding_case()
    x = x * np.float32([1, 0.3, 7]).reshape(3, 1, 1, 1) + np.float32(0.7)
    w = w + np.float32(w_offset) if w_offset else w
    with products_by(name):
        got = qa.conv2d(x, w, bias=bias, padding=1, pad_value=0.5)
        monkeypatch.setattr(scaled, "possible", lambda *operands: False)
        assert_bits(got, qa.conv2d(x, w.copy(), bias=bias, padding=1, pad_value=0.5))


@pytest.mark.parametrize("pad_value", [1, -2.5])
def test_padding_values_under_thresholds(pad_value):
    x, w, bias = folding_case()
    law = qa.Thresholds(np.float32([-30, 20, 90]))
    dense = qa.conv2d(x, w, bias=bias, padding=1, pad_value=pad_value)
    got = qa.conv2d(x, w, bias=bias, padding=1, pad_value=pad_value, requantize=law)
    np.testing.assert_array_equal(got.words, law(dense).words)


@pytest.mark.parametrize("sign", [1, -1])
def test_thresholds_of_sums_that_int32_just_holds(sign):
    """What is fixed where bits differ stands for a pixel of code 3, which these levels do not have: 3000 * 2**20."""
    rng, levels, k = np.random.default_rng(0), np.array([0, 2**20, 2**21]), 1000
    x, w = rng.choice(levels, (1, 3, 3, k)), rng.choice([-1, 1], (40, 1, 1, k))
    x[0, 0, 0], w[0], w[1] = levels[-1], sign, -sign
    expected = naive.conv2d(x, w, (1, 1), ((0, 0), (0, 0)), (1, 1))
    ours = qa.encode(x, levels.tolist()), qa.encode(w, (-1, 1))
    assert qa.conv2d(*ours).dtype == np.int32 and expected.max() == k * 2**21
    np.testing.assert_array_equal(qa.conv2d(*ours), expected)
    for threshold in (-(2**30), 0, 2**30, k * 2**21 - 2**19):
        law = qa.Thresholds([threshold])
        np.testing.assert_array_equal(qa.conv2d(*ours, requantize=law).codes(), law(expected).codes())


def test_a_band_of_squares_is_whole_tiles():
    """The rows of a tile are read, and what they name, if one of its squares is there."""
    for length in range(1, 5000):
        assert winograd.band_of(length) % 4 == 0 < winograd.band_of(length)
