"""Which products and images become bytes for tensor cores, how they are cut, and the tiles that are shipped."""

import naive
import numpy as np
import pytest
from cuda_backend import twins
from results import assert_bits
from test_cuda_bmma_choice import launched

import quantarray as qa
from quantarray.cuda.popcount import tiles
from quantarray.cuda.runtime import launch
from quantarray.cuda.tensor_cores import byte_rows, imma
from quantarray.cuda.tensor_cores.imma import TILES


@pytest.fixture(autouse=True, scope="module")
def chosen():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launch, "capability", lambda: (8, 0))
        patched.delenv("QUANTARRAY_CUDA", raising=False)
        with twins(packing=False):
            yield


def test_what_becomes_bytes(monkeypatch):
    """8 pairs of planes, and whatever would not fill an instruction on bits, where int32 holds the result."""
    names = launched(monkeypatch)
    for bits_x, bits_w, name in ((2, 4, "imma_tile"), (2, 3, "bmma_tile")):
        x, w = (qa.from_codes(np.ones((n, 300), int), getattr(qa, f"uint{b}")) for n, b in ((16, bits_x), (3, bits_w)))
        assert_bits(qa.linear(x, w), np.full((16, 3), 300, np.int32))
        assert names.pop() == name
        assert_bits(qa.linear(x, w, out_dtype=np.int64), np.full((16, 3), 300))
        assert names.pop() == "few_rows"
        for rows, few in ((15, "imma_tile"), (8, "few_rows")):
            assert_bits(qa.linear(x[:rows], w), np.full((rows, 3), 300, np.int32))
            assert names.pop() == few


def test_images_of_bytes_are_not_packed(monkeypatch):
    names = launched(monkeypatch)
    x, w = np.ones((1, 4, 4, 3), np.uint8), qa.encode(np.ones((3, 2, 2, 3), int), (-1, 1))
    assert_bits(qa.conv2d(x, w), np.full((1, 3, 3, 3), 12, np.int32))
    assert names[-3:] == ["_lay_out", "_move_bits", "imma_tile"]
    names.clear()
    qa.conv2d(x, w)
    assert names == ["imma_tile"]
    for units in ("popc", "bmma"):
        monkeypatch.setenv("QUANTARRAY_CUDA", units)
        v = qa.encode(np.ones((3, 2, 2, 3), int), (-1, 1))
        assert_bits(qa.conv2d(x, v), np.full((1, 3, 3, 3), 12, np.int32))
        assert "imma_tile" not in names[1:]


def test_uneven_levels_of_more_bits_than_a_byte_are_counted(monkeypatch):
    """Levels 0 and 300 are two codes of 1 plane on their grid; 0, 1 and 300 take 9 planes."""
    names = launched(monkeypatch)
    rng = np.random.default_rng(0)
    w = rng.integers(-128, 128, (3, 300))
    for levels, name in (((0, 1, 300), "bmma_tile"), ((0, 300), "imma_tile")):
        x, q = rng.choice(levels, (20, 300)), qa.encode(w, range(-128, 128))
        assert_bits(qa.linear(qa.encode(x, levels), q), naive.linear(x, w).astype(np.int32))
        assert names.pop() == name


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_bounds_of_int32(monkeypatch):
    """The largest results that int32 holds, of sums that pass it on the way."""
    names, k = launched(monkeypatch), 257
    x, w = np.full((16, k), 255), np.stack([np.full(k, level) for level in (-32768, 32512)])
    p, q = qa.encode(x, range(256)), qa.encode(w, range(-32768, 32768, 256))
    bias = np.array([-32767, 32767])
    expected = naive.linear(x, w) + bias
    assert expected.min() == -(2**31) + 1
    assert_bits(qa.linear(p, q, bias=bias), expected.astype(np.int32))
    assert names.pop() == "imma_tile"


@pytest.mark.parametrize("channels", (3, 4, 65))
def test_images_that_begin_anywhere(channels):
    """Fours of bytes are read by aligned words, and none is without a byte of the image: the model refuses these."""
    rng = np.random.default_rng(channels)
    room, w = rng.integers(0, 256, 2 * 5 * 5 * channels + 3, np.uint8), rng.choice((-1, 1), (2, 3, 3, channels))
    for first in range(4):
        x = room[first : first + 2 * 5 * 5 * channels].reshape(2, 5, 5, channels)
        expected = naive.conv2d(x.astype(int), w, padding=((1, 0), (0, 2)))
        assert_bits(qa.conv2d(x, qa.encode(w, (-1, 1)), padding=((1, 0), (0, 2))), expected.astype(np.int32))


def test_the_tiles_that_are_shipped(monkeypatch):
    rng = np.random.default_rng(0)
    x, w = rng.integers(-2, 14, (130, 200)), rng.integers(-8, 8, (130, 200))
    p, q = qa.encode(x, range(-2, 14)), qa.encode(w, range(-8, 8))
    image, taps = rng.integers(-128, 128, (2, 9, 9, 3), np.int8), rng.integers(-8, 8, (66, 3, 3, 3))
    expected, of_image = naive.linear(x, w), naive.conv2d(image.astype(int), taps, padding=((1, 1), (1, 1)))
    for n, tile in enumerate(TILES):
        monkeypatch.setattr(imma, "tile_for", lambda *shape, tile=tile, splits=1 + n % 2: (tile, splits))
        assert_bits(qa.linear(p, q), expected.astype(np.int32))
        codes = qa.linear(p, q, requantize=qa.Thresholds([0, 7])).codes()
        np.testing.assert_array_equal(codes, (expected > 0) * 1 + (expected > 7))
        assert_bits(qa.conv2d(image, qa.encode(taps, range(-8, 8)), padding=1), of_image.astype(np.int32))


@pytest.mark.parametrize(
    ("rows", "blocks", "size", "splits"), [(3000, 94, (128, 128), 1), (64, 344, (64, 64), 3), (3200, 10, (128, 128), 3)]
)
def test_tiles_by_the_grid(rows, blocks, size, splits):
    tile, over = imma.tile_for(tiles.Shape(rows, rows, 2 * rows, 1, 2, 32 * blocks, blocks, 1), 64)
    assert (tile.pixels, 32 * tile.all_blocks, over) == (*size, splits)


def test_rows_that_are_written_at_once_lie_in_all_banks():
    """8 threads write 16 bytes each: pixels' words two to a row, channels' a row each; and images' every other 16."""
    for row in range(0, 64, 8):
        channels = {byte_rows.chunk(0, row + i, 0) // 2 % 8 for i in range(8)}
        assert channels == set(range(8))
        for first in range(row, row + 8, 4):
            pixels = {byte_rows.chunk(0, first + i // 2, 8 * (i % 2)) // 2 % 8 for i in range(8)}
            assert pixels == set(range(8))
