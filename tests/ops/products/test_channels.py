"""Images with their channels first, brought to C order by `put_channels_last` or NumPy: equal elements."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds, threads

import quantarray as qa
from quantarray.ops.products.channels import channels_last

IMAGES = st.lists(st.integers(0, 5), max_size=3).map(tuple) | st.sampled_from([(63,), (64,), (65,), (97, 131)])


@given(
    st.integers(0, 3), st.integers(0, 20), IMAGES, st.sampled_from(["u1", "i1", "f4", "f8", "i4"]), st.booleans(),
    seeds(), st.booleans(),
)  # fmt: skip
def test_channels_last(n, channels, image, dtype, every_second, seed, many):
    rng = np.random.default_rng(seed)
    first = rng.integers(-100, 100, (n, channels, *image)).astype(dtype)
    if every_second:
        first = first.repeat(2, -1)[..., ::2]
    x = np.moveaxis(first, 1, -1)
    with threads(many):
        got = channels_last(x)
    assert got.flags.c_contiguous and got.dtype == x.dtype
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_convolution_of_bytes_with_channels_first(dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (2, 9, 11, 3), np.uint8).view(dtype)
    w = qa.encode(rng.choice((-1, 1), (70, 3, 3, 3)), values=(-1, 1))
    first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    got = qa.conv2d(first, w.transpose(0, 3, 1, 2), padding=1, data_format="NCHW")
    np.testing.assert_array_equal(np.moveaxis(got, 1, -1), qa.conv2d(x, w, padding=1))
