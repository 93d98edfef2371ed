"""The CUDA twin of `nearest` against the CPU's, in blocks of one warp or three and with little memory."""

from unittest.mock import patch

import numpy as np
import pytest
from cuda_backend import both, split_by

from quantarray.cuda.hamming import by_digits, nearest, settle
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import bmma, wgmma
from quantarray.cuda.tensor_cores.bmma import Tile

SIZES = [(0, 2, 3), (1, 1, 1), (5, 3, 8), (40, 9, 40), (700, 2, 5), (300, 3, 130), (300, 35, 4)]


@pytest.fixture(params=["digits", "bmma"])
def units(request, monkeypatch):
    """Search by digits of all distances, or by tensor cores with room for few candidates."""
    if request.param == "bmma":
        monkeypatch.setattr(launch, "capability", lambda: (8, 0))
        monkeypatch.setattr(bmma, "tile_for", split_by(Tile(1, 1, 1, 1, 2), 2, 4))
        for name, value in (("LEAST", 32), ("PLENTY", 32), ("ROOM", 300), ("SAMPLE", 32)):
            monkeypatch.setattr(nearest, name, value)
        monkeypatch.setattr(settle, "_WARPS", 1)
    else:
        monkeypatch.setattr(by_digits, "_ROOM", 600)
    return request.param


@pytest.fixture(params=[1, 3], autouse=True)
def warps(request, monkeypatch):
    monkeypatch.setattr(launch, "WARPS", request.param)


@pytest.mark.parametrize("length", (1, 3))
@pytest.mark.parametrize("rows, asked, kept", SIZES)
def test_nearest(rows, asked, kept, length, units):
    """Half of the rows occur several times, so that distances are equal."""
    rng = np.random.default_rng(rows)
    words = rng.integers(0, 1 << 64, (rows, length), np.uint64)
    words[rows // 2 :] = words[rng.integers(0, max(1, rows // 8), rows - rows // 2)]
    queries = rng.integers(0, 1 << 64, (asked, length), np.uint64)
    cpu, cuda = both("nearest", words, queries, out=np.zeros((2, asked, kept), np.int64))
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("rows, asked, kept", [(150, 3, 4), (17, 35, 20)])
def test_warpgroups(rows, asked, kept, monkeypatch):
    """Rows of 16 words or more are multiplied by `wgmma`."""
    monkeypatch.setattr(launch, "capability", lambda: (9, 0))
    monkeypatch.setattr(wgmma, "tile_for", split_by(Tile(4, 1, 1, 1, 3), 2, 16))
    rng = np.random.default_rng(rows)
    words = rng.integers(0, 1 << 64, (rows, 33), np.uint64)
    queries = words[rng.integers(0, rows, asked)] ^ rng.integers(0, 1 << 20, (asked, 33), np.uint64)
    with patch.dict(nearest._PRODUCTS, bmma=None, popc=None):
        cpu, cuda = both("nearest", words, queries, out=np.zeros((2, asked, kept), np.int64))
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("queries", [0, 2])
def test_all_rows_equally_near(queries, units):
    words = np.full((150, 2), 7, np.uint64)
    cpu, cuda = both("nearest", words, words[:queries], out=np.zeros((2, queries, 20), np.int64))
    np.testing.assert_array_equal(cuda, cpu)
