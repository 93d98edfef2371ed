"""Images of few channels that are bytes less a zero point are convolved as bytes."""

import numpy as np
import pytest

import quantarray as qa
from quantarray.nn.operators import OPERATORS

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("zero", [1, 128, 255, -7])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(1, 1, 0), (3, 2, 1), (7, 2, 3)])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_products_of_differences(zero, kernel, stride, padding, dtype):
    x = RNG.integers(0, 256, (3, 4, 14, 15), np.uint8).view(dtype)
    levels = RNG.integers(-128, 128, (20, 4, kernel, kernel))
    w = qa.encode(levels, values=range(-128, 128), axis=1)
    a = {"stride": (stride,) * 2, "padding": ((padding,) * 2,) * 2, "dilation": (1, 1), "groups": 1}
    wide = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    expected = np.einsum("ncijab,ocab->noij", windows, levels)
    run = OPERATORS["conv2d"].run
    np.testing.assert_array_equal(run({**a, "zero": zero}, x, w), expected)
    cut = qa.Thresholds(np.quantile(expected, [0.2, 0.5, 0.8]).round(), into=qa.integers(*range(4)))
    codes = run({**a, "zero": zero}, x, w, cut).codes()
    np.testing.assert_array_equal(codes, (expected[..., None] > cut.values).sum(axis=-1))
