"""Convolutions channel by channel and in groups of few channels, against the oracle and against slower kernels."""

import naive
import numpy as np
import pytest
from conv_cases import (
    INTEGER,
    PAD_REALS,
    arrays,
    cases,
    check,
    integer_bias,
    real_bias,
    real_depthwise,
)
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits
from strategies import Law, laws, threads
from test_folded import folded_calls

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.ops.products import bit_sliced, conv_prepare, depthwise_plan


@given(st.data(), cases(depthwise=True))
def test_integers_depthwise(data, case):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER, w_axis=data.draw(st.sampled_from([0, 0, 0, -1])))
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias)


@given(st.data(), cases(depthwise=True))
def test_two_levels_depthwise(data, case):
    """Weights of plus and minus a number and thresholds: what is counted bit by bit, and what is next to it."""
    low, step, size = (data.draw(st.sampled_from(n)) for n in ([-1, 0, 3, -7], [1, 2, -5], [1, 1, 3]))
    x_law, w_law = Law(qa.integers((low, low + step))), Law(qa.integers(data.draw(st.permutations((-size, size)))))
    x, w, *ours = arrays(data.draw, case, x_law, w_law, w_axis=0)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias)


@given(st.data(), cases(few=True))
def test_two_levels_in_groups(data, case):
    """In groups of few channels, each with as many outputs, every output's channels are rotated to its place."""
    low, step, size = (data.draw(st.sampled_from(n)) for n in ([-1, 0, 3, -7], [1, 2, -5], [1, 1, 3]))
    x_law, w_law = Law(qa.integers((low, low + step))), Law(qa.integers(data.draw(st.permutations((-size, size)))))
    x, w, *ours = arrays(data.draw, case, x_law, w_law)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias)


@pytest.mark.parametrize(
    ("n", "size", "planes"), [(2, 2, 4), (4, 3, 6), (16, 3, 8), (32, 1, 6), (16, 4, None), (64, 1, None)]
)
@pytest.mark.parametrize("channels", [64, 192, 320])
def test_groups_are_counted_in_slices(n, size, planes, channels, monkeypatch):
    """Groups are counted for every number of differing bits, with as few planes as possible."""
    made, prepare = [], bit_sliced.prepare
    monkeypatch.setattr(bit_sliced, "prepare", lambda *args: made.append(prepare(*args)) or made[-1])
    rng = np.random.default_rng(size)
    x = rng.choice((-1, 1), (2, size + 2, size + 9, channels))
    w, groups = rng.choice((-1, 1), (channels, size, size, n)), channels // n
    x[0, :size, :size] = w.reshape(groups, n, size, size, n)[:, 0].transpose(1, 2, 0, 3).reshape(size, size, channels)
    x[1, :size, :size] = -x[0, :size, :size]
    sums = naive.conv2d(x, w, groups=groups).astype(np.int32)
    taps = n * size**2
    for limit in (-taps, -1, 0, taps - 1, taps):
        law = qa.Thresholds([limit], strict=bool(limit % 2))
        got = qa.conv2d(qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1)), groups=groups, requantize=law)
        np.testing.assert_array_equal(got.codes(), law(sums).codes())
    assert [run.slices.limits.shape[1] for run in made] == [planes] * (5 if planes else 0)


@pytest.mark.parametrize(("size", "planes"), [(1, 4), (3, 4), (4, 6), (7, 6), (8, 8), (15, 8), (16, None)])
@pytest.mark.parametrize("channels", [1, 65, 577])
def test_bits_are_counted_in_slices(size, planes, channels, monkeypatch):
    """Up to 254 taps, for every possible number of differing bits."""
    made, prepare = [], bit_sliced.prepare
    monkeypatch.setattr(bit_sliced, "prepare", lambda *args: made.append(prepare(*args)) or made[-1])
    rng = np.random.default_rng(size)
    x, w = rng.choice((-1, 1), (2, size + 2, size + 9, channels)), rng.choice((-1, 1), (channels, size, size, 1))
    x[0, :size, :size] = np.where(rng.integers(0, 2, channels), 1, -1) * w[..., 0].transpose(1, 2, 0)
    sums = naive.conv2d(x, w, groups=channels).astype(np.int32)
    for limit in (-(size**2), -1, 0, size**2 - 1, size**2):
        law = qa.Thresholds([limit], strict=bool(limit % 2))
        got = qa.conv2d(qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1), axis=0), groups=channels, requantize=law)
        np.testing.assert_array_equal(got.codes(), law(sums).codes())
    assert [run.slices.limits.shape[1] for run in made] == [planes] * (5 if planes else 0)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize(("levels", "value"), [((0, 1), 0), ((0, 1), 1), ((-1, 0, 1), -1), ((3,), 3), ((0,), 0)])
def test_weights_that_are_all_one_number(levels, value, n):
    """0 among them, which no bit tells from another's absence."""
    rng = np.random.default_rng(n)
    x, w = rng.choice((-1, 1), (1, 5, 9, 64)), np.full((64, 3, 3, n), value)
    sums = naive.conv2d(x, w, padding=((1, 1), (1, 1)), groups=64 // n)
    a, b = qa.encode(x, (-1, 1)), qa.encode(w, levels, axis=0 if n == 1 else 3)
    for limit in (-1, 0, 2):
        got = qa.conv2d(a, b, padding=1, groups=64 // n, requantize=qa.Thresholds([limit]))
        np.testing.assert_array_equal(got.dequantize() > 0, sums > limit)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize(("levels", "used"), [((-1, 0, 5), (-1, 5)), ((-1, 3, 1), (-1, 1)), ((2, 7, -2, -9), (2, -2))])
def test_codes_are_not_values(levels, used, n):
    """Levels that are no even steps, of which only two are there."""
    rng = np.random.default_rng(n)
    x, w = rng.choice((-1, 1), (1, 5, 9, 64)), rng.choice(used, (64, 3, 3, n))
    sums = naive.conv2d(x, w, padding=((1, 1), (1, 1)), groups=64 // n)
    a, b = qa.encode(x, (-1, 1)), qa.encode(w, levels, axis=0 if n == 1 else 3)
    got = qa.conv2d(a, b, padding=1, groups=64 // n, requantize=qa.Thresholds([0]))
    np.testing.assert_array_equal(got.dequantize() > 0, sums > 0)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 9])
def test_where_runs_of_pixels_end(width, stride):
    """Runs end with their border class: of two columns, the left one's pixel is followed by the right one's in the plan
    too. They also end if the next pixel's words are not the next words."""
    rng = np.random.default_rng(width)
    x, w = rng.choice((-1, 1), (3, 4, width, 70)), rng.choice((-1, 1), (70, 3, 3, 1))
    law, b = qa.Thresholds(rng.integers(-2, 3, (70, 1))), qa.encode(w, (-1, 1), axis=0)
    sums = naive.conv2d(x, w, padding=((1, 1), (1, 1)), stride=(stride, stride), groups=70).astype(np.int32)
    for levels in ((-1, 1), (1, -1)):  # results fall with the number of differing bits, or rise
        got = qa.conv2d(qa.encode(x, levels), b, padding=1, stride=stride, groups=70, requantize=law)
        validate(got)
        np.testing.assert_array_equal(got.codes(), law(sums).codes())


@pytest.mark.parametrize("large, small", [(2**26, 255), (2**30, 15)])
def test_large_levels_depthwise(large, small):
    """Large weight levels under the high bits of x pass 2**31 in each addend already."""
    rng = np.random.default_rng(large)
    x = rng.integers(0, small + 1, (2, 4, 5, 70))
    w = rng.choice([-large, large - 1, 1], (70, 3, 3, 1))
    ours = qa.encode(x, range(small + 1)), qa.encode(w, (-large, 1, large - 1), axis=0)
    found = qa.conv2d(*ours, groups=70, padding=1)
    assert_bits(found, naive.conv2d(x, w, groups=70, padding=1))
    cuts = qa.Thresholds([0, large, 2 * large])
    assert np.array_equal(qa.conv2d(*ours, groups=70, padding=1, requantize=cuts).codes(), cuts(found).codes())


@given(st.data(), cases(depthwise=True, pad_values=PAD_REALS))
def test_real_depthwise(data, case):
    """Constants vary by image and channel on the left and by channel on the right, also in groups."""
    law = laws(2, ["scaled", "uniform", "basis", "table"])
    x, w, *ours = arrays(data.draw, case, law, law, x_vary=(0, 3), w_axis=0)
    bias, expected = real_bias(data.draw, lambda b: real_depthwise(case, x, w, b))
    check(data.draw, case, *ours, expected, bias)


def exact_sums(monkeypatch):
    """The calls for exact sums that are prepared."""
    found, original = [], depthwise_plan._sums

    def noted(job, *law):
        found.append(original(job, *law))
        return found[-1]

    monkeypatch.setattr(depthwise_plan, "_sums", noted)
    return found


@pytest.mark.parametrize(
    ("x_levels", "w_levels", "dtype"),
    [
        (range(256), (-128, 0, 14), "i2"),
        (range(256), (-14, 0, 14), "i1"),  # 9 * 255 * 14 is 637 below 2**15
        (range(32), (-117, 0, 117), "i1"),  # 125 below
        (range(32), (118, 0, -118), "i2"),  # above
        ((-5, -4, -3, -2), (-127, 0, 127), "i1"),
        ((7, 5, 3, 1), (-128, 0, 127), "i2"),  # x's step is negative, and 128 has 9 bits
        ((0, 1), (-32767, 5, 32767), "i2"),
        ((0, 1), (-32768, 5), None),
        (range(-128, 128), (-(2**20), 1), None),
        ((-(2**20), 2**20), (-3000, 1), None),  # int64
    ],
)
@pytest.mark.parametrize("copies", [1, 3])
def test_depthwise_sums_of_16_and_32_bits(x_levels, w_levels, dtype, copies, monkeypatch):
    """In some places all taps give the largest possible sum, of either sign."""
    rng, calls = np.random.default_rng(3), exact_sums(monkeypatch)
    x, w = rng.choice(x_levels, (2, 9, 70, 65)), rng.choice(w_levels, (65 * copies, 3, 3, 1))
    x[0, :6, :40], w[:40], w[40 : 2 * 40] = x_levels[-1], max(w_levels), min(w_levels)
    w[-1] = w_levels[1]
    x[1, :6, :40] = x_levels[0]
    exact = naive.conv2d(x, w, padding=((1, 1), (1, 1)), groups=65)
    a, b = qa.encode(x, x_levels), qa.encode(w, w_levels, axis=0)
    got = qa.conv2d(a, b, padding=1, groups=65)
    np.testing.assert_array_equal(got, exact)
    downwards = np.arange(65 * copies) % 3 == 0
    for limits in ([exact.max() - 1], [0], [exact.min(), 0, exact.max() - 1]):
        law = qa.Thresholds(np.tile(limits, (65 * copies, 1)), greater=~downwards)
        np.testing.assert_array_equal(qa.conv2d(a, b, padding=1, groups=65, requantize=law).words, law(got).words)
    assert [hasattr(call, "right") for call in calls] == [dtype is not None] * 4
    assert dtype is None or {call.right.values.dtype for call in calls} == {np.dtype(dtype)}


@pytest.mark.parametrize("most", [5, 100])  # sums of 16 and of 32 bits
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 15, 16, 31, 32])
def test_depthwise_codes_of_any_law(count, most):
    """Codes are ranks, in any order or fewer than their bits hold, and some channels count downwards."""
    rng = np.random.default_rng(count)
    x, w = rng.integers(0, 16, (2, 6, 7, 70)), rng.integers(-most, most + 1, (70, 3, 3, 1))
    a, b = qa.encode(x, range(16)), qa.encode(w, range(-128, 128), axis=0)
    sums = naive.conv2d(x, w, groups=70)
    spread = np.quantile(sums, np.linspace(0.05, 0.95, count)).astype(int)
    for values in (np.tile(spread, (70, 1)), rng.choice(sums.ravel(), (70, count))):
        for levels in (range(count + 1), rng.permutation(count + 1).tolist()):
            for by_rank in (True, False):
                law = qa.Thresholds(
                    values, greater=rng.random(70) < 0.7, into=qa.integers(levels), by_rank=by_rank, strict=by_rank
                )
                got = qa.conv2d(a, b, groups=70, requantize=law)
                np.testing.assert_array_equal(got.words, law(sums).words)


@pytest.mark.parametrize("size", [(1, 3), (3, 1), (1, 1)])
def test_a_dilation_of_one_tap_may_be_anything(size):
    rng = np.random.default_rng(7)
    x, w = rng.integers(0, 4, (1, 6, 7, 70)), rng.integers(-2, 2, (70, *size, 1))
    dilation = tuple(2 if taps > 1 else 2**31 - 1 for taps in size)
    a, b = qa.encode(x, range(4)), qa.encode(w, range(-2, 2), axis=0)
    expected = naive.conv2d(x, w, dilation=tuple(2 if taps > 1 else 1 for taps in size), groups=70)
    np.testing.assert_array_equal(qa.conv2d(a, b, groups=70, dilation=dilation), expected)


@pytest.mark.parametrize("levels", [range(4), range(256), (3, 2, 1, 0)])
def test_thresholds_that_no_sum_reaches(levels):
    """Thresholds beyond 16 or 32 bits of sums, before and after those that some sums reach."""
    rng, far = np.random.default_rng(5), [2**16 + 3, 2**31 - 1, 2**40]
    x, w = rng.choice(levels, (1, 5, 9, 70)), rng.integers(-99, 99, (70, 3, 3, 1))
    a, b = qa.encode(x, levels), qa.encode(w, range(-128, 128), axis=0)
    sums = naive.conv2d(x, w, groups=70).astype(np.int64)
    for limits in ([far[0]], [-far[0]], [far[1]], [-far[2]], [-far[2], -far[0], 0], [0, *far], [-far[1], 0, far[2]]):
        law = qa.Thresholds(np.tile(limits, (70, 1)), greater=np.arange(70) % 2 == 0)
        got = qa.conv2d(a, b, groups=70, requantize=law)
        np.testing.assert_array_equal(got.codes(), law(sums).codes())


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"stride": 2, "padding": 1},
        {"stride": (3, 1), "dilation": (1, 4), "padding": (0, 9)},
        {"stride": (5, 19)},  # columns after the last window
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_depthwise_rows_that_are_not_bytes_all_at_once(how, many):
    """More rows than are done for one word of channels, two images of them, and few long ones."""
    rng = np.random.default_rng(4)
    geometry = {name: v if isinstance(v, tuple) else (v, v) for name, v in how.items()}
    for shape in ((2, 60, 45, 100), (1, 3, 1500, 130)):
        x, w = rng.integers(0, 4, shape), rng.integers(-2, 2, (shape[3], 3, 3, 1))
        pads = tuple((p, p) for p in geometry.get("padding", (0, 0)))
        exact = naive.conv2d(x, w, **{**geometry, "padding": pads}, groups=shape[3])
        with threads(many):
            got = qa.conv2d(qa.encode(x, range(4)), qa.encode(w, range(-2, 2), axis=0), groups=shape[3], **how)
        np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize("x_levels", [(-1, 1), (0, 1), range(4)])
@pytest.mark.parametrize("w_levels", [(-1, 1), (-2, 0, 1, 3)])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("law", [None, [0.5], [-1.5, 0.25, 3]])
@pytest.mark.parametrize("bias", [None, 0.125])
@pytest.mark.parametrize("pad_value", [0, 2.5])
def test_depthwise_exact_sums_become_what_the_real_kernel_makes(
    x_levels, w_levels, copies, law, bias, pad_value, monkeypatch
):
    """Thresholds at results themselves too. Constants by channel of x, and offsets, are the real kernel's as before."""
    rng, channels = np.random.default_rng(6), 70
    x = qa.encode(rng.choice(x_levels, (3, 5, 6, channels)), x_levels)
    scale = rng.choice([0.25, 0.3, 1.75], (copies * channels, 1, 1, 1)).astype(np.float32)
    w = qa.encode(rng.choice(w_levels, (copies * channels, 3, 3, 1)), w_levels, axis=0) * scale
    more = {
        "padding": 1,
        "pad_value": pad_value,
        "groups": channels,
        "bias": None if bias is None else rng.normal(size=len(scale)).astype("f4"),
    }
    by_channel = rng.uniform(0.5, 2, channels).astype(np.float32)
    for q in (x, x * np.float32(0.37), x * by_channel, x + np.float32(0.5)):
        laws = [None] if law is None else [qa.Thresholds(np.float32(law) * 0.37)]
        if law == [0.5]:
            laws.append(qa.Thresholds(np.sort(qa.conv2d(q, w, **more)[1, 2, 3:4], axis=0).T, strict=False))
        for how in laws:
            got = qa.conv2d(q, w, requantize=how, **more)
            with monkeypatch.context() as patch:
                patch.setattr(conv_prepare, "inexact", lambda *operands: "not asked for")
                expected = qa.conv2d(q, w.copy(), requantize=how, **more)
            if how is None:
                assert_bits(got, expected)
            else:
                np.testing.assert_array_equal(got.words, expected.words)


def test_scaled_depthwise_weights_are_counted_in_slices(monkeypatch):
    rng, calls = np.random.default_rng(7), folded_calls(monkeypatch)
    x = qa.quantize(rng.standard_normal((1, 9, 9, 70), np.float32), qa.Sign(scale=True))
    w = qa.quantize(rng.standard_normal((70, 3, 3, 1), np.float32), qa.XNOR(), axis=0)
    qa.conv2d(x, w, padding=1, groups=70, requantize=qa.Thresholds([0.5]))
    assert [type(call) for call in calls] == [bit_sliced.Sliced]


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("bias", [None, 0.125])
@pytest.mark.parametrize("x_scale", [None, 0.37, -1.5, "by image"])
def test_scaled_groups_are_counted_in_slices(n, bias, x_scale, monkeypatch):
    """Thresholds are folded where x has one scale and each output one, none negative; else the real kernel is used.

    The call of merged groups asks for folded thresholds too, but where its integer kernel has its own layout (AMX).
    """
    rng, calls = np.random.default_rng(n), folded_calls(monkeypatch)
    x = qa.encode(rng.choice((-1, 1), (2, 5, 9, 96)), (-1, 1))
    if x_scale is not None:
        x = x * (np.float32([1, 2]).reshape(2, 1, 1, 1) if x_scale == "by image" else np.float32(x_scale))
    scale = rng.choice([0.25, 0.3, 1.75], (96, 1, 1, 1)).astype(np.float32)
    w = qa.encode(rng.choice((-1, 1), (96, 3, 3, n)), (-1, 1)) * scale
    more = {"padding": 1, "groups": 96 // n, "bias": None if bias is None else rng.normal(size=96).astype("f4")}
    dense = qa.conv2d(x, w, **more)
    values = np.sort(dense.reshape(-1, 96)[[3, 40, 60]].T, axis=1)
    for law in (
        qa.Thresholds(values[:, :1]),
        qa.Thresholds(values[:, 1:2], greater=np.arange(96) % 2 == 0, strict=False),
    ):
        got = qa.conv2d(x, w, requantize=law, **more)
        np.testing.assert_array_equal(got.words, law(dense).words)
    if x_scale in (None, 0.37):
        assert [type(call) for call in calls] == [bit_sliced.Sliced] * 2
    else:
        assert len(calls) >= 2 and not any(calls)
