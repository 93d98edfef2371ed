"""Products of bytes on tensor cores: the tests of `test_cuda_conv.py` whose results are integers, and what is this
kernel's own, by models of what the instructions do. See `tensor_models.py`.
"""

import naive
import numpy as np
import pytest
from conv_cases import arrays, check, integer_bias
from cuda_backend import split_by, twins
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits
from strategies import laws, seeds
from test_cuda_conv import cases, few, test_channels, test_integers, test_linear_of_integers  # noqa: F401
from test_cuda_conv import test_bits as check_bits

import quantarray as qa
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import imma
from quantarray.cuda.tensor_cores.byte_rows import WORDS
from quantarray.cuda.tensor_cores.stages import Tile

UP_TO_8_BITS = laws(kinds=["integer"])
TINY = [(Tile(1, 1, 1, 1, 2), 1), (Tile(2, 1, 2, 1, 2), 3), (Tile(1, 2, 1, 2, 2), 2)]  # and over how many blocks


@pytest.fixture(autouse=True, scope="module", params=TINY, ids=["1x1", "2x1", "1x2"])
def tiny(request):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(imma, "tile_for", split_by(*request.param, WORDS))
        patched.setattr(launch, "capability", lambda: (8, 0))
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setenv("QUANTARRAY_CUDA", "imma")
        with twins(packing=False):
            yield


@pytest.mark.parametrize("bits_x", (1, 3, 8))
def test_bits(bits_x):
    check_bits(bits_x, widths=(1, 3, 8))


@few
@given(st.data(), cases(), st.sampled_from([np.uint8, np.int8]))
def test_images_of_bytes(data, case, dtype):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(data.draw(seeds())).integers(limits.min, limits.max, case.image, dtype, endpoint=True)
    _, w, _, q = arrays(data.draw, case, UP_TO_8_BITS, UP_TO_8_BITS)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.astype(int), w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, x, q, expected.astype(np.int32), bias)


@pytest.mark.parametrize("dtype", (np.uint8, np.int8))
@pytest.mark.parametrize(("channels", "taps"), [(1, 7), (3, 7), (4, 3)])
def test_first_layers(dtype, channels, taps):
    """Rows of taps that are no whole fours, at a stride, over more than one stage; 147 bytes are 168."""
    rng = np.random.default_rng(channels)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, (1, 7, 8, channels), dtype, endpoint=True)
    w = rng.integers(-2, 2, (33, taps, taps, channels))
    q, how = qa.encode(w, range(-2, 2)), {"padding": ((3, 2), (2, 3)), "stride": (2, 2), "pad_value": -3}
    expected = naive.conv2d(x.astype(int), w, **how)
    assert_bits(qa.conv2d(x, q, **how), expected.astype(np.int32))
    codes = qa.conv2d(x, q, requantize=qa.Thresholds([-9, 0, 500]), **how).codes()
    np.testing.assert_array_equal(codes, (expected > -9) * 1 + (expected > 0) + (expected > 500))
