"""Counting bands of tiles by tables, against NumPy, whatever this CPU would choose."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from quantarray.cpu import bands
from quantarray.cpu.micro import LANES, PAIR, TILE, count_bytes


@njit
def count(left, origins, kinds, sizes, right, block, second, runs, first_run, differ):
    """The sums of one band; Numba's own arrays are aligned as the kernel needs them."""
    sums, tables, steps = bands.band_buffers(left.shape[0], right.shape[0], len(kinds))
    bands.count_band(
        left, origins, kinds, sizes, len(kinds), right, block, second, runs, first_run, differ, tables, steps, sums
    )
    return sums


@njit
def read(sums, i0, planes_i, j0, planes_j, tile, odd, counts, total):
    bands.read_band(sums, i0, planes_i, j0, planes_j, tile, odd, counts, total)


def check(left, origins, kinds, sizes, weights, block, second, runs, first_run, differ):
    """weights uint64[planes blocks words lanes] as they are; all pixels that count."""
    laid_out = count_bytes.lay_out(weights)
    got = count(left, origins, kinds, sizes, laid_out, block, second, runs, first_run, -1 if differ else 0)
    expected = np.zeros_like(got)
    for tile, kind in enumerate(kinds):
        for p in range(sizes[tile]):
            for at, weight, length in runs[first_run[kind] : first_run[kind + 1]]:
                a = left[:, None, origins[tile, p] + at :][..., :length]
                for half, chosen in enumerate((block, second)):
                    b = weights[None, :, chosen, weight : weight + length]
                    ones = np.bitwise_count(a[..., None] ^ b if differ else a[..., None] & b).sum(2, dtype=np.uint16)
                    expected[:, :, tile * TILE + p, half * LANES : (half + 1) * LANES] += ones
    np.testing.assert_array_equal(got, expected)
    return got


@pytest.mark.parametrize("differ", [False, True])
@given(data=st.data())
def test_sums(differ, data):
    """Classes of any runs, in any order; pixels that only fill a tile up stay zero."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    planes, others, blocks = (data.draw(st.integers(1, 3)) for _ in range(3))
    words, classes, tiles = (data.draw(st.integers(1, n)) for n in (9, 3, 5))
    left = rng.integers(0, 1 << 64, (planes, 40), np.uint64)
    weights = rng.integers(0, 1 << 64, (others, blocks, words, LANES), np.uint64)
    rows, first_run = [], [0]
    for _ in range(classes):
        cuts = np.sort(rng.integers(0, words + 1, 2 * data.draw(st.integers(0, 3))))
        rows += [(rng.integers(0, 20), a, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
        first_run.append(len(rows))
    runs = np.array(rows, np.int64).reshape(-1, 3)
    origins, kinds = rng.integers(0, 10, (tiles, TILE)), rng.integers(0, classes, tiles)
    sizes, block, second = rng.integers(1, TILE + 1, tiles), *rng.integers(0, blocks, 2)
    got = check(left, origins, kinds, sizes, weights, block, second, runs, np.array(first_run), differ)

    i0, j0 = rng.integers(0, planes), rng.integers(0, others)
    tile, odd, dtype = tiles - 1, int(rng.integers(0, 2)), data.draw(st.sampled_from([np.int32, np.int64]))
    counts, total = np.full((2, TILE, LANES), -1, dtype)
    read(got, i0, planes - i0, j0, others - j0, tile, odd, counts, total)
    chosen = got[i0:, j0:, tile * TILE : (tile + 1) * TILE, odd * LANES : (odd + 1) * LANES].astype(np.int64)
    weight = 1 << np.add.outer(np.arange(planes - i0), np.arange(others - j0))
    np.testing.assert_array_equal(total, (weight[..., None, None] * chosen).sum((0, 1)))


@pytest.mark.parametrize("differ", [False, True])
def test_no_sum_overflows(differ):
    # As many words as a band may have, all bits counted: rows, bytes and 16 bits are all full
    words, ones = bands.MOST, ~np.uint64(0)
    weights = np.full((1, 1, words, LANES), ones * np.uint64(not differ))
    runs, none = np.array([[0, 0, words]]), np.zeros(1, np.int64)
    got = check(
        np.full((1, words), ones), np.zeros((1, TILE), np.int64), none, none + TILE, weights, 0, 0, runs,
        np.array([0, 1]), differ,
    )  # fmt: skip
    assert (got == 64 * words).all() and got.shape[-1] == PAIR
