"""Products on binary tensor cores: the tests of `test_cuda_conv.py` whose results are integers, and what is this
kernel's own, by models of what the instructions do. See `tensor_models.py`.
"""

import naive
import numpy as np
import pytest
from cuda_backend import split_by, twins
from hypothesis import given
from hypothesis import strategies as st
from results import assert_bits
from test_cuda_conv import (  # noqa: F401
    few,
    test_channels,
    test_integers,
    test_linear_of_integers,
)
from test_cuda_conv import test_bits as check_bits

import quantarray as qa
from quantarray.cuda.popcount import tiles
from quantarray.cuda.popcount.tiles import OUTSIDE
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import bmma
from quantarray.cuda.tensor_cores.stages import WORDS, Tile
from quantarray.kernels import windows

TINY = [(Tile(1, 1, 1, 1, 2), 1), (Tile(2, 1, 2, 1, 3), 3), (Tile(1, 2, 1, 2, 4), 2)]  # and over how many blocks


@pytest.fixture(autouse=True, scope="module", params=TINY, ids=["1x1", "2x1", "1x2"])
def tiny(request):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bmma, "tile_for", split_by(*request.param, WORDS))
        patched.setattr(launch, "capability", lambda: (8, 0))
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setenv("QUANTARRAY_CUDA", "bmma")
        with twins(packing=False):
            yield


@few
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(0, 2), st.integers(1, 4), st.integers(1, 2))
def test_pairs_of_words(kernel, stride, image, pad, words, groups):
    """Words are copied in pairs if all words inside the image form pairs, each from an even place on."""
    image = max(image, kernel)
    found = windows.Window((image,) * 2, (kernel,) * 2, (stride,) * 2, ((pad, pad),) * 2, (1, 1))
    taps = tiles.taps(windows.plan(found, words, groups, 4))
    paired = taps.offsets.shape[1] % 2 == 0
    for begin, kind, _ in (taps.places[:, [2, 1, 0]]).tolist():
        for one, two in taps.offsets[kind].reshape(-1, 2).tolist() if paired else []:
            outside = one == two == OUTSIDE
            paired = paired and (outside or (one != OUTSIDE and two == one + 1 and (begin + one) % 2 == 0))
    assert taps.paired == paired or not taps.paired  # a stride may make all of two odd numbers even
    if words % 2 == 0 and (taps.offsets != OUTSIDE).any():
        assert taps.paired


@pytest.mark.parametrize("bits_x", (1, 3, 8))
def test_bits(bits_x):
    check_bits(bits_x, widths=(1, 3, 8))


@pytest.mark.parametrize(("outputs", "low"), [(130, -1), (257, 0)])
def test_more_channels_than_a_grid_has_blocks(outputs, low):
    """Blocks walk on: what they copy next may not reach what a slower warp still multiplies.

    Weights from 0 on need no bits of the pixels, and so have fewer steps in which lanes wait for each other.
    """
    rng = np.random.default_rng(outputs)
    x, w = rng.integers(0, 4, (18, 600)), rng.choice((low, 1), (outputs, 600))
    assert_bits(qa.linear(qa.encode(x, range(4)), qa.encode(w, (low, 1))), naive.linear(x, w).astype(np.int32))
