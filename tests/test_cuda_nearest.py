"""The CUDA twin of `nearest` against the CPU's, in blocks of one warp or three and with little memory."""

import numpy as np
import pytest
from cuda_backend import both

from quantarray.cuda.hamming import nearest
from quantarray.cuda.runtime import launch


@pytest.mark.parametrize("warps", [1, 3])
@pytest.mark.parametrize("length", (1, 3))
@pytest.mark.parametrize(
    "rows, asked, kept", [(0, 2, 3), (1, 1, 1), (5, 3, 8), (40, 9, 40), (700, 2, 5), (300, 3, 130)]
)
def test_nearest(rows, asked, kept, length, warps, monkeypatch):
    """Half of the rows occur several times, so that distances are equal."""
    monkeypatch.setattr(launch, "WARPS", warps)
    monkeypatch.setattr(nearest, "_ROOM", 600)
    rng = np.random.default_rng(rows)
    words = rng.integers(0, 1 << 64, (rows, length), np.uint64)
    words[rows // 2 :] = words[rng.integers(0, max(1, rows // 8), rows - rows // 2)]
    queries = rng.integers(0, 1 << 64, (asked, length), np.uint64)
    cpu, cuda = both("nearest", words, queries, out=np.zeros((2, asked, kept), np.int64))
    np.testing.assert_array_equal(cuda, cpu)


@pytest.mark.parametrize("queries", [0, 2])
def test_all_rows_equally_near(queries):
    words = np.full((50, 2), 7, np.uint64)
    cpu, cuda = both("nearest", words, words[:queries], out=np.zeros((2, queries, 20), np.int64))
    np.testing.assert_array_equal(cuda, cpu)
