"""Convolutions of few channels: groups that are merged, windows that become rows of bits."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from conv_cases import bits_in_slices, merged_groups, windows_unrolled
from results import assert_bits
from strategies import threads

import quantarray as qa
from quantarray.cpu.runtime import isa
from quantarray.ops.products import conv_plan
from quantarray.ops.products import merged_groups as merging


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


@pytest.mark.skipif(isa.NAME == isa.EMULATED, reason="tiles in memory have the costs of a matrix unit")
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
    """Borders, bits that span two words, threads that begin with any row, and rows of which vectors leave
    some. Nine taps of 63 channels are nine words in both forms."""
    rng, seen = np.random.default_rng(3), []
    unroll = conv_plan.UnrolledBits.__call__
    monkeypatch.setattr(conv_plan.UnrolledBits, "__call__", lambda *given: seen.append(1) or unroll(*given))
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
