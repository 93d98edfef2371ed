"""Products by warpgroups: tests of `test_cuda_conv.py` whose results are integers, and what is this kernel's own, by
models of what the instructions do. See `warpgroup_models.py`.
"""

import naive
import numpy as np
import pytest
from cuda_backend import split_by, twins
from results import assert_bits
from test_cuda_conv import CHANNELS, few, test_integers, test_linear_of_integers  # noqa: F401

import quantarray as qa
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import wgmma
from quantarray.cuda.tensor_cores.descriptors import DEPTH
from quantarray.cuda.tensor_cores.stages import Tile

TINY, TWO_WARPGROUPS = Tile(4, 1, 1, 1, 3), Tile(8, 1, 1, 2, 4)


@pytest.fixture(autouse=True, scope="module", params=(1, 2), ids=["whole", "split"])
def tiny(request):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wgmma, "tile_for", split_by(TINY, request.param, DEPTH))
        patched.setattr(launch, "capability", lambda: (9, 0))
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setenv("QUANTARRAY_CUDA", "wgmma")
        with twins(packing=False):
            yield


@pytest.mark.parametrize(("channels", "outputs"), [*zip(CHANNELS, (1, 33, 64, 65, 31, 1, 63), strict=True), (1025, 32)])
def test_channels(channels, outputs):
    rng = np.random.default_rng(channels)
    x, w = rng.choice((-1, 1), (1, 2, 2, channels)), rng.choice((-1, 1), (outputs, 2, 2, channels))
    p, q = qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1))
    expected = naive.conv2d(x, w, padding=(0, 1))
    assert_bits(qa.conv2d(p, q, padding=(0, 1)), expected.astype(np.int32))
    codes = qa.conv2d(p, q, padding=(0, 1), requantize=qa.Thresholds([-7, 0])).codes()
    np.testing.assert_array_equal(codes, (expected > -7) * 1 + (expected > 0))


@pytest.mark.parametrize(("bits_x", "bits_w"), [(1, 1), (1, 8), (8, 1), (2, 3), (5, 4), (8, 8)])
def test_bits(bits_x, bits_w):
    rng = np.random.default_rng(bits_x + bits_w)
    x, w = rng.integers(-5, 2**bits_x - 5, (3, 65)), rng.integers(-(2 ** (bits_w - 1)), 2 ** (bits_w - 1), (33, 65))
    p, q = qa.encode(x, range(-5, 2**bits_x - 5)), qa.encode(w, range(-(2 ** (bits_w - 1)), 2 ** (bits_w - 1)))
    assert_bits(qa.linear(p, q), naive.linear(x, w).astype(np.int32))


@pytest.mark.parametrize(("tile", "outputs", "low"), [(TINY, 130, -1), (TINY, 129, 0), (TWO_WARPGROUPS, 129, -1)])
def test_more_channels_than_a_grid_has_blocks(tile, outputs, low, monkeypatch):
    """Blocks walk on: what they copy next may not reach what a slower warp still multiplies or makes results of.

    Weights from 0 on need no bits of the pixels, and so have fewer steps in which lanes wait for each other.
    """
    monkeypatch.setattr(wgmma, "tile_for", lambda *shape: (tile, 1))
    rng = np.random.default_rng(outputs)
    x, w = rng.integers(0, 4, (3, 1400)), rng.choice((low, 1), (outputs, 1400))
    assert_bits(qa.linear(qa.encode(x, range(4)), qa.encode(w, (low, 1))), naive.linear(x, w).astype(np.int32))
