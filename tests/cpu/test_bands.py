"""Counting bands of tiles by tables and by shuffles, and what is read from their sums, against NumPy, whatever this CPU
would choose."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from processors import AVX512BW

from quantarray.cpu.llvm.vectors import LANES, PAIR, TILE
from quantarray.cpu.llvm.views import Limits, Rows, View
from quantarray.cpu.popcount import bands, count_bytes
from quantarray.cpu.popcount.affine import least_above
from quantarray.cpu.popcount.band_avx512bw_pshufb import SHUFFLED, SPLIT
from quantarray.cpu.popcount.band_lut import TABLES, WORDS
from quantarray.cpu.popcount.band_sums import mask_sums, mask_words, value_sums
from quantarray.cpu.popcount.tiles import Places, Product, Sums
from quantarray.kernels.operands import Left, Plan

WAYS = ["tables", pytest.param("shuffles", marks=pytest.mark.skipif(not AVX512BW, reason="no AVX-512 to compile for"))]


def operand(words):
    """Return an operand of which bands read the words alone.

    A tuple class of this file would be named in the cache on disk, and processes without this file would look for it.
    """
    return Left(words, None, None, None, 0, False)


@cache
def counter(way):
    """The function that counts the sums of one band."""
    count_band, lanes, ready_size = {
        "tables": (bands.look_up_band, PAIR, lambda words: WORDS * TABLES),
        "shuffles": (bands.shuffle_band, SHUFFLED, lambda words: 2 * words * SPLIT),
    }[way]
    ready_size = njit(ready_size)

    @njit
    def count(product, places, block, near, differ):
        left, right, tiles = product.x.words, product.w.words, len(places.kinds)
        band = bands.band_buffers(left.shape[0], right.shape[0], tiles, lanes, ready_size(right.shape[2]))
        count_band(product, places, tiles, block, near, differ, band)
        return band.sums

    return count


@njit
def read(counted, left, right, tile, block, counts, total):
    bands.read_band(counted, left, right, tile, block, Sums(total, counts, counts))


def check(way, left, origins, kinds, sizes, weights, block, near, runs, first_run, differ):
    """weights uint64[planes blocks words lanes] as they are; all pixels that count. The sums of others become zero."""
    laid_out = count_bytes.lay_out(weights)
    none = np.empty(0, np.int64)
    plan = Plan(origins, sizes, kinds, none, first_run, runs, 0, 1)
    product = Product(operand(left), operand(laid_out), plan)
    got = counter(way)(product, Places(origins, origins, kinds, sizes), block, near, -1 if differ else 0)
    expected = np.zeros_like(got[..., : near * LANES])
    for tile in range(len(kinds)):
        got[:, :, tile * TILE + sizes[tile] : (tile + 1) * TILE] = 0
    for tile, kind in enumerate(kinds):
        for p in range(sizes[tile]):
            for at, weight, length in runs[first_run[kind] : first_run[kind + 1]]:
                a = left[:, None, origins[tile, p] + at :][..., :length]
                for i in range(near):
                    b = weights[None, :, block + i, weight : weight + length]
                    ones = np.bitwise_count(a[..., None] ^ b if differ else a[..., None] & b).sum(2, dtype=np.uint16)
                    expected[:, :, tile * TILE + p, i * LANES : (i + 1) * LANES] += ones
    np.testing.assert_array_equal(got[..., : near * LANES], expected)
    return got


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
def test_sums(way, differ, data):
    """Classes of any runs, in any order; tiles of 4 pixels or fewer, which the last then fills up."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    planes, others = (data.draw(st.integers(1, 3)) for _ in range(2))
    near, before = data.draw(st.integers(1, 2 if way == "tables" else 4)), data.draw(st.integers(0, 1))
    words, classes, tiles = (data.draw(st.integers(1, n)) for n in (9, 3, 5))
    left = rng.integers(0, 1 << 64, (planes, 40), np.uint64)
    weights = rng.integers(0, 1 << 64, (others, before + near + 1, words, LANES), np.uint64)
    rows, first_run = [], [0]
    for _ in range(classes):
        cuts = np.sort(rng.integers(0, words + 1, 2 * data.draw(st.integers(0, 3))))
        rows += [(rng.integers(0, 20), a, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
        first_run.append(len(rows))
    runs = np.array(rows, np.int64).reshape(-1, 3)
    kinds, sizes = rng.integers(0, classes, tiles), rng.integers(1, TILE + 1, tiles)
    origins = np.array([rng.permutation(10)[np.minimum(np.arange(TILE), size - 1)] for size in sizes])
    got = check(way, left, origins, kinds, sizes, weights, before, near, runs, np.array(first_run), differ)

    i0, j0 = rng.integers(0, planes), rng.integers(0, others)
    tile, nth, dtype = tiles - 1, int(rng.integers(0, near)), data.draw(st.sampled_from([np.int32, np.int64]))
    counts, total = np.full((2, TILE, LANES), -1, dtype)
    read(got, (i0, planes - i0), (j0, others - j0), tile, nth, counts, total)
    chosen = got[i0:, j0:, tile * TILE : (tile + 1) * TILE, nth * LANES : (nth + 1) * LANES].astype(np.int64)
    weight = 1 << np.add.outer(np.arange(planes - i0), np.arange(others - j0))
    np.testing.assert_array_equal(total, (weight[..., None, None] * chosen).sum((0, 1)))


@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_no_sum_overflows(way, differ):
    # As many words as a band may have, all bits counted: rows, bytes and 16 bits are all full
    words, ones = bands.MOST, ~np.uint64(0)
    weights = np.full((1, 1, words, LANES), ones * np.uint64(not differ))
    runs, none = np.array([[0, 0, words]]), np.zeros(1, np.int64)
    got = check(
        way, np.full((1, words), ones), np.zeros((1, TILE), np.int64), none, none + TILE, weights, 0, 1, runs,
        np.array([0, 1]), differ,
    )  # fmt: skip
    assert (got[..., :LANES] == 64 * words).all()


@njit
def least_counts(limits):
    least = np.empty(limits.shape, np.uint16)
    for i in range(limits.shape[0]):
        for lane in range(limits.shape[1]):
            least[i, lane] = least_above(limits[i, lane])
    return least


@njit
def mask(sums, at, limits, least_at, masks):
    mask_sums(sums, at, PAIR, least_counts(limits), least_at, masks)


@njit
def value(sums, at, extra, extra_at, step, values, places, pixels):
    value_sums(Rows(sums, at, PAIR), View(extra, extra_at), step, values, places, pixels)


@given(data=st.data())
def test_masks(data):
    """Limits on either side of all counts, beyond 16 bits too, and on counts themselves."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    sums = rng.integers(0, data.draw(st.sampled_from([2, 300, 64 * bands.MOST + 1])), (3 * TILE, PAIR), np.uint16)
    tile, odd, kind = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    chosen = sums[tile * TILE : (tile + 1) * TILE, odd * LANES : (odd + 1) * LANES].astype(np.int64)
    limits = rng.choice([-(1 << 40), -2, -1, 0, 65472, 65534, 65535, 1 << 40, *chosen[0, :9]], (2, LANES))
    masks = np.zeros(TILE, np.uint64)
    mask(sums, tile * TILE * PAIR + odd * LANES, limits, kind * LANES, masks)
    bits = masks[:, None] >> np.arange(LANES, dtype=np.uint64) & np.uint64(1)
    np.testing.assert_array_equal(bits, chosen > limits[kind])
    assert (masks < 1 << LANES).all()


@njit
def store(sums, at, limits, lane, flips, used, words, places, pixels):
    mask_words(Rows(sums, at, PAIR), Limits(least_counts(limits), lane, flips, used), words, places, pixels)


@given(data=st.data())
def test_words(data):
    """Whole words over what was there, of as many pixels as a tile has."""
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    sums = rng.integers(0, data.draw(st.sampled_from([2, 300, 64 * bands.MOST + 1])), (3 * TILE, PAIR), np.uint16)
    tile, kind, pixels = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)), data.draw(st.integers(1, TILE))
    chosen = sums[tile * TILE : (tile + 1) * TILE].astype(np.int64)
    limits = rng.choice([-(1 << 40), -1, 0, 65535, 1 << 40, *chosen[0, :9]], (2, PAIR))
    flips, used = rng.integers(0, 2**64, 2, np.uint64)
    words, places = rng.integers(0, 2**64, (1, 5, 2), np.uint64), rng.permutation(10)[:TILE]
    bits = np.packbits(chosen > limits[kind], axis=1, bitorder="little").view(np.uint64)[:, 0]
    expected = words.copy()
    expected.reshape(-1)[places[:pixels]] = ((bits ^ flips) & used)[:pixels]
    store(sums, tile * TILE * PAIR, limits, kind * PAIR, flips, used, words, places, pixels)
    np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(data=st.data())
def test_values(dtype, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    sums = rng.integers(0, 64 * bands.MOST + 1, (3 * TILE, PAIR), np.uint16)
    tile, odd, kind = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    step = data.draw(st.sampled_from([1, -1, 2, -2, 64, -128]))
    extra, values = rng.integers(-(1 << 20), 1 << 20, (2, LANES)).astype(dtype), np.full((9, 40), -7, dtype)
    pixels, before = data.draw(st.integers(1, TILE)), values.copy()
    rows = rng.permutation(9)[np.minimum(np.arange(TILE), pixels - 1)]
    value(sums, tile * TILE * PAIR + odd * LANES, extra, kind * LANES, step, values, rows * 40 + 5, pixels)
    expected, chosen = before, sums[tile * TILE : (tile + 1) * TILE, odd * LANES : (odd + 1) * LANES]
    expected[rows[:pixels], 5 : 5 + LANES] = (extra[kind] + dtype(step) * chosen.astype(dtype))[:pixels]
    np.testing.assert_array_equal(values, expected)
