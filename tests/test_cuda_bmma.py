"""Products on binary tensor cores: the tests of `test_cuda_conv.py` whose results are integers, by models of what the
instructions do.
"""

import pytest
from cuda_backend import twins
from test_cuda_conv import (  # noqa: F401
    test_bits,
    test_channels,
    test_integers,
    test_linear_of_integers,
)

from quantarray.cuda import bmma, launch
from quantarray.cuda.bmma import Tile

TILES = [Tile(1, 1, 1, 1, 2), Tile(2, 1, 2, 1, 3), Tile(1, 2, 1, 2, 4)]


@pytest.fixture(autouse=True, scope="module", params=TILES, ids=["1x1", "2x1", "1x2"])
def tiny(request):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bmma, "tile_for", lambda shape: request.param)
        patched.setattr(launch, "capability", lambda: (8, 0))
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setenv("QUANTARRAY_CUDA", "bmma")
        with twins():
            yield
