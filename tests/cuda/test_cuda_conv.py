"""CUDA twins of convolution and matrix product, through the public functions, against the oracle bit for bit.

Thread blocks are tiny, so that a few pixels and channels span several blocks, stages and warps; `twins` puts the CUDA
kernels where the CPU's would run.
"""

import naive
import numpy as np
import pytest
from conv_cases import Case, arrays, check, integer_bias, real, real_bias
from cuda_backend import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from product_cases import check as check_product
from product_cases import operands
from product_cases import real as real_product
from results import assert_bits
from strategies import laws

import quantarray as qa
from quantarray.cuda.popcount import few_rows, tiles
from quantarray.cuda.popcount.tiles import Tile
from quantarray.cuda.runtime import launch

CHANNELS = (1, 31, 32, 33, 63, 64, 65)
INTEGER = laws(2, kinds=["integer"])
REAL = laws(2, ["scaled", "uniform", "basis", "table"])
SHIPPED = {"tile_for": tiles.tile_for, "real_tile_for": tiles.real_tile_for}
PADS = st.integers(-3, 3)
few = settings(max_examples=10)


@pytest.fixture(autouse=True, scope="module", params=[Tile(2, 2, 2, 3), Tile(3, 1, 1, 1)], ids=["2x2", "3x1"])
def tiny(request):
    with pytest.MonkeyPatch.context() as patched:
        for choice in ("tile_for", "real_tile_for"):
            patched.setattr(tiles, choice, lambda blocks: request.param)
        patched.setattr(few_rows, "MOST", 0)
        patched.setattr(launch, "MOST_ROWS", 2)
        with twins(packing=False):
            yield


@st.composite
def cases(draw, pad_values=PADS):
    """Few pixels of any geometry; every padding is a pair of pairs that makes the window fit."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    per_group, outputs = (draw(st.sampled_from(CHANNELS if groups == 1 else (1, 32, 33))) for _ in range(2))
    kernel, image, dilation, stride = ([draw(st.integers(1, n)) for _ in range(2)] for n in (3, 3, 2, 2))
    pads = [[draw(st.integers(0, 2)) for _ in range(2)] for _ in range(2)]
    for i in range(2):
        lack = (kernel[i] - 1) * dilation[i] + 1 - image[i] - sum(pads[i])
        pads[i][draw(st.integers(0, 1))] += max(0, lack)
    options = {"stride": tuple(stride), "dilation": tuple(dilation), "groups": groups, "pad_value": draw(pad_values)}
    x = draw(st.integers(1, 2)), *image, groups * per_group
    return Case(x, (groups * outputs, *kernel, per_group), options, tuple(map(tuple, pads)), "NHWC")


@few
@given(st.data(), cases())
def test_integers(data, case):
    x, w, *ours = arrays(data.draw, case, INTEGER, INTEGER)
    bias = integer_bias(data.draw, len(w.codes))
    expected = naive.conv2d(x.values, w.values, **case.naive()) + (0 if bias is None else bias)
    check(data.draw, case, *ours, expected.astype(np.int32), bias)


@few
@given(st.data(), st.sampled_from([(), (3,)]), st.booleans())
def test_linear_of_integers(data, lead, wide):
    x, w = operands(data.draw, lead, INTEGER, INTEGER)
    expected = naive.linear(x.values, w.values).astype(np.int64 if wide else np.int32)
    p, q = x.q, w.q
    check_product(data.draw, lambda **how: qa.linear(p, q, out_dtype=expected.dtype, **how), expected)


@few
@given(st.data(), cases())
def test_floats(data, case):
    x, w, *ours = arrays(data.draw, case, REAL, REAL)
    bias, expected = real_bias(data.draw, lambda b: real(case, x.terms, x.scale, x.offset, w, b))
    check(data.draw, case, *ours, expected, bias)


@few
@given(st.data(), st.sampled_from([(), (3,)]))
def test_linear_of_floats(data, lead):
    """Constants vary by row, output and group of the contraction."""
    x, w = operands(data.draw, lead, REAL, REAL, (None, 64, 128), st.sampled_from([65, 129, 200]))
    p, q = x.q, w.q
    check_product(data.draw, lambda **how: qa.linear(p, q, **how), real_product(x, w))


@pytest.mark.parametrize("bits_x", range(1, 9))
def test_bits(bits_x, widths=range(1, 9)):
    """Every pair of widths, with levels of any sign."""
    rng = np.random.default_rng(bits_x)
    x = rng.integers(-5, 2**bits_x - 5, (3, 65))
    for bits_w in widths:
        w = rng.integers(-(2 ** (bits_w - 1)), 2 ** (bits_w - 1), (33, 65))
        p = qa.encode(x, range(-5, 2**bits_x - 5))
        q = qa.encode(w, range(-(2 ** (bits_w - 1)), 2 ** (bits_w - 1)))
        assert_bits(qa.linear(p, q), naive.linear(x, w).astype(np.int32))


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("outputs", (1, 33, 64))
def test_channels(channels, outputs):
    rng = np.random.default_rng(channels + outputs)
    x, w = rng.choice((-1, 1), (1, 2, 2, channels)), rng.choice((-1, 1), (outputs, 2, 2, channels))
    p, q = qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1))
    expected = naive.conv2d(x, w, padding=(0, 1))
    assert_bits(qa.conv2d(p, q, padding=(0, 1)), expected.astype(np.int32))
    codes = qa.conv2d(p, q, padding=(0, 1), requantize=qa.Thresholds([0])).codes()
    np.testing.assert_array_equal(codes, expected > 0)


def test_the_tiles_that_are_shipped():
    rng = np.random.default_rng(0)
    for outputs in (20, 40, 130):
        x, w = rng.choice((-1, 0, 1), (2, 5, 7, 70)), rng.choice((-1, 1), (outputs, 1, 3, 70))
        with pytest.MonkeyPatch.context() as patched:
            for choice, shipped in SHIPPED.items():
                patched.setattr(tiles, choice, shipped)
            p, q = qa.encode(x, (-1, 0, 1)), qa.encode(w, (-1, 1))
            found, halved = qa.conv2d(p, q, padding="same"), qa.conv2d(p * np.float32(0.5), q, padding="same")
        expected = naive.conv2d(x, w, padding="same").astype(np.int32)
        assert_bits(found, expected)
        assert_bits(halved, np.float32(expected / 2))
