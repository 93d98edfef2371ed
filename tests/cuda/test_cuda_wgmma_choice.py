"""Which products warpgroups take, how they are cut, the places of their words, and the tiles that are shipped."""

import naive
import numpy as np
import pytest
from cuda_backend import twins
from results import assert_bits
from tensor_models import Models
from test_cuda_bmma_choice import launched
from warpgroup_models import WarpgroupModels

import quantarray as qa
from quantarray.cuda.popcount import tiles
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import ptx, wgmma
from quantarray.cuda.tensor_cores.descriptors import PATTERN
from quantarray.cuda.tensor_cores.stages import Tile
from quantarray.cuda.tensor_cores.wgmma import TILES

MOST_SHARED = 227 << 10  # bytes that a block may ask for at compute capability 9.0


@pytest.fixture(autouse=True, scope="module")
def forced():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch, "capability", lambda: (9, 0))
        patched.setenv("QUANTARRAY_CUDA", "wgmma")
        with twins(packing=False):
            yield


def test_what_takes_which_kernel(monkeypatch):
    names = launched(monkeypatch)
    x, w = qa.encode(np.ones((16, 256), int), (-1, 1)), qa.encode(np.ones((3, 256), int), (-1, 1))
    assert_bits(qa.linear(x, w), np.full((16, 3), 256, np.int32))
    assert names.pop() == "wgmma_tile"
    assert_bits(qa.linear(x, w, out_dtype=np.int64), np.full((16, 3), 256))
    assert names.pop() == "few_rows"
    monkeypatch.delenv("QUANTARRAY_CUDA")
    qa.linear(x, w)
    assert names.pop() == "bmma_tile"
    monkeypatch.setenv("QUANTARRAY_CUDA", "wgmma")
    monkeypatch.setattr(launch, "capability", lambda: (8, 9))
    with pytest.raises(qa.DeviceError, match=r"QUANTARRAY_CUDA=wgmma needs a GPU of compute capability 9\.0"):
        qa.linear(x, w)


@pytest.mark.parametrize(("tile", "splits"), [(TILES[0], 1), (TILES[2], 2), (TILES[-1], 2)])
def test_the_tiles_that_are_shipped(tile, splits, monkeypatch):
    """Pixels of two warpgroups or blocks; a whole stage and a part of one."""
    rng = np.random.default_rng(0)
    x, w = rng.choice((-1, 1), (67, 1100)), rng.choice((-1, 1), (32 * tile.all_blocks, 1100))
    monkeypatch.setattr(wgmma, "tile_for", lambda *shape: (tile, splits))
    assert_bits(qa.linear(qa.encode(x, (-1, 1)), qa.encode(w, (-1, 1))), naive.linear(x, w).astype(np.int32))


@pytest.mark.parametrize("tile", TILES)
def test_what_a_tile_needs(tile):
    """Whole warpgroups, shared memory that there is; the fields of descriptors."""
    tables = tile.pixels * 20 + tile.stages * 8
    assert tile.across == tile.rows == 1 and tile.down % 4 == 0 and tile.stages >= 3
    assert wgmma.shared_bytes(tile) + tables <= MOST_SHARED
    stages = tile.stages * (tile.pixels + 32 * tile.all_blocks) * 128
    assert wgmma.shared_bytes(tile) >= stages + PATTERN - 16
    assert tile.pixels * 128 % PATTERN == 0 and tile.all_blocks * 32 * 128 % PATTERN == 0


@pytest.mark.parametrize(
    ("rows", "blocks", "words", "size", "splits"),
    [(8192, 256, 128, (128, 256), 1), (28 * 28 * 32, 4, 18, (64, 128), 1), (7 * 7 * 64, 16, 72, (128, 128), 1),
     (17, 128, 64, (64, 32), 1), (7 * 7, 16, 72, (64, 32), 5)],
)  # fmt: skip
def test_tiles_by_the_grid(rows, blocks, words, size, splits):
    shape = tiles.Shape(rows, rows, 2 * rows, 1, 2, 32 * blocks, blocks, 1)
    tile, over = wgmma.tile_for(shape, words, codes=words != 128)
    assert (tile.pixels, 32 * tile.all_blocks, over) == (*size, splits)


@pytest.mark.parametrize(("words", "products"), [(1, 1), (4, 1), (5, 2), (15, 4), (16, 4), (17, 5)])
def test_products_of_zeros_are_left_out(words, products, monkeypatch):
    begun, begin = [], WarpgroupModels._begin
    monkeypatch.setattr(WarpgroupModels, "_begin", lambda self, *args: begun.append(1) or begin(self, *args))
    monkeypatch.setattr(wgmma, "tile_for", lambda *shape: (Tile(4, 1, 1, 1, 3), 1))
    x = qa.encode(np.ones((1, 64 * words), int), (-1, 1))
    assert qa.linear(x, x).tolist() == [[64 * words]] and len(begun) == 128 * products


@pytest.mark.parametrize("channels", (64, 128))
def test_what_a_warp_copies_or_reads_at_once_lies_in_all_banks(channels, monkeypatch):
    copied, read = {}, {}
    copy, look = Models._copy, ptx.read

    def noted_copy(self, words, into, at, *args):
        copied.setdefault((words, self.current().thread_id), []).append(ptx.address(into, at))
        copy(self, words, into, at, *args)

    def noted_read(array, at):
        if array.dtype == np.uint64:
            read.setdefault((1, threads().thread_id), []).append(ptx.address(array, at))
        return look(array, at)

    monkeypatch.setattr(Models, "_copy", noted_copy)
    monkeypatch.setattr(ptx, "read", noted_read)
    threads = ptx.wait.__self__.current
    monkeypatch.setattr(wgmma, "tile_for", lambda *shape: (Tile(4, 1, 1, 1, 4), 1))
    x, w = qa.encode(np.ones((1, 3, 3, channels), int), (-1, 1)), qa.encode(np.ones((3, 3, 3, channels), int), (-1, 1))
    qa.conv2d(x, w)
    for noted in copied, read:
        assert len(noted) in (128, 256)
        for words, thread in noted:
            lanes = 16 // words  # that are served at once
            if thread % lanes == 0:
                for places in zip(*(noted[words, thread + i] for i in range(lanes)), strict=True):
                    assert len({place // (8 * words) % lanes for place in places}) == lanes
