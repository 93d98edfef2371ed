"""Which products take binary tensor cores, how they are cut, and the tiles that are shipped."""

import naive
import numpy as np
import pytest
from cuda_backend import twins
from results import assert_bits

import quantarray as qa
from quantarray.cuda.popcount import tiles
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import bmma
from quantarray.cuda.tensor_cores.bmma import TILES
from quantarray.cuda.tensor_cores.fragments import width


@pytest.fixture(autouse=True, scope="module")
def forced():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch, "capability", lambda: (8, 0))
        patched.setenv("QUANTARRAY_CUDA", "bmma")
        with twins(packing=False):
            yield


def launched(patched):
    """The names of the kernels that are launched from here on."""
    names, run = [], launch.run

    def note(kernel, *args, **how):
        names.append(kernel.fn.__name__)
        run(kernel, *args, **how)

    patched.setattr(launch, "run", note)
    return names


def test_what_takes_which_kernel(monkeypatch):
    names = launched(monkeypatch)
    x, w = qa.encode(np.ones((20, 300), int), (-1, 1)), qa.encode(np.ones((3, 300), int), (-1, 1))
    assert_bits(qa.linear(x, w), np.full((20, 3), 300, np.int32))
    assert names.pop() == "bmma_tile"
    assert_bits(qa.linear(x, w, out_dtype=np.int64), np.full((20, 3), 300))
    assert names.pop() == "integer_tile"
    monkeypatch.delenv("QUANTARRAY_CUDA")
    for rows, length, name in ((20, 300, "bmma_tile"), (15, 300, "few_rows"), (20, 192, "imma_tile")):
        assert (qa.linear(x[:rows, :length], w[:, :length]) == length).all()
        assert names.pop() == name
    monkeypatch.setattr(launch, "capability", lambda: (10, 0))
    qa.linear(x, w)
    assert names.pop() == "imma_tile"
    monkeypatch.setenv("QUANTARRAY_CUDA", "bmma")
    with pytest.raises(qa.DeviceError, match="QUANTARRAY_CUDA=bmma needs a GPU of compute capability"):
        qa.linear(x, w)


def test_words_that_begin_at_an_odd_place_are_copied_one_by_one(monkeypatch):
    """A view of a batch may begin between two words that an even one would have together."""
    rng = np.random.default_rng(0)
    x, w = rng.choice((-1, 1), (5, 192)), rng.choice((-1, 1), (3, 384))
    p, q = qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1))
    taken, kernel = [], bmma._kernel
    monkeypatch.setattr(bmma, "_kernel", lambda tile, form: taken.append(form.words) or kernel(tile, form))
    for first in (0, 1):
        rows = p[first : first + 4].reshape(2, 384)
        assert np.shares_memory(rows.words, p.words) and launch.address(rows.words) % 16 == 8 * first
        assert_bits(qa.linear(rows, q), naive.linear(x[first : first + 4].reshape(2, 384), w).astype(np.int32))
    assert taken == [2, 1]


def test_the_tiles_that_are_shipped(monkeypatch):
    rng = np.random.default_rng(0)
    x, w = rng.integers(-2, 2, (130, 320)), rng.choice((-1, 1), (130, 320))
    p, q = qa.encode(x, range(-2, 2)), qa.encode(w, (-1, 1))
    expected = naive.linear(x, w).astype(np.int32)
    for n, tile in enumerate(TILES):
        monkeypatch.setattr(bmma, "tile_for", lambda *shape, tile=tile, splits=1 + n % 2: (tile, splits))
        assert_bits(qa.linear(p, q), expected)
        np.testing.assert_array_equal(
            qa.linear(p, q, requantize=qa.Thresholds([0, 7])).codes(), (expected > 0) * 1 + (expected > 7)
        )


@pytest.mark.parametrize(
    ("rows", "blocks", "words", "size", "splits"),
    [(56 * 56 * 64, 2, 9, (128, 64), 1), (28 * 28 * 32, 4, 18, (128, 64), 1), (7 * 7 * 64, 16, 72, (64, 64), 1),
     (28 * 28 * 64, 4, 18, (128, 128), 1), (56 * 56, 2, 9, (64, 32), 1), (7 * 7, 16, 72, (64, 32), 6)],
)  # fmt: skip
def test_tiles_by_the_grid(rows, blocks, words, size, splits):
    shape = tiles.Shape(rows, rows, 2 * rows, 1, 2, 32 * blocks, blocks, 1)
    tile, over = bmma.tile_for(shape, words, codes=True)
    assert (tile.pixels, 32 * tile.all_blocks, over) == (*size, splits)


@pytest.mark.parametrize("count", (1, 40, 108, 132, 1000))
def test_a_tile_is_split_only_if_all_blocks_run_at_once(count, monkeypatch):
    monkeypatch.setattr(launch, "multiprocessors", lambda: count)
    for rows in (1, 100, 10_000):
        for words, pairs in ((1, 8), (9, 1), (72, 2)):
            shape = tiles.Shape(rows, rows, 2 * rows, 1, 2, 128, 4, 1)
            tile, splits = bmma.tile_for(shape, words, pairs)
            across, down = tiles.grid(shape, tile.pixels, tile.all_blocks)
            assert splits == 1 or (across * down * splits <= count * tile.together and splits <= -(-words // 4))


def test_a_tile_that_is_asked_for(monkeypatch):
    shape = tiles.Shape(1, 1, 2, 1, 2, 32, 1, 1)
    for n, tile in enumerate(TILES):
        monkeypatch.setenv("QUANTARRAY_CUDA_TILE", str(n))
        assert bmma.tile_for(shape, 1) == (tile, 1)
    for wrong in ("6", "-1", "large"):
        monkeypatch.setenv("QUANTARRAY_CUDA_TILE", wrong)
        with pytest.raises(qa.DeviceError, match=f"CUDA_TILE must be a number from 0 to 5, or unset, got '{wrong}'"):
            bmma.tile_for(shape, 1)


@pytest.mark.parametrize("tile", TILES)
def test_weights_that_a_warp_reads_at_once_lie_in_all_banks(tile):
    row = width(tile)
    half_words = {((t // 2) * row + g) * 2 + t % 2 for g in range(8) for t in range(4)}
    assert {half % 32 for half in half_words} == set(range(32))
