"""Products of few pixels, whose weights are read once: the tests of `test_cuda_conv.py` whose results are integers, as
far as they have few pixels, and what is this kernel's own.
"""

import naive
import numpy as np
import pytest
from cuda_backend import twins
from results import assert_bits
from test_cuda_bmma_choice import launched
from test_cuda_conv import test_bits, test_channels, test_integers, test_linear_of_integers  # noqa: F401

import quantarray as qa
from quantarray.cuda.popcount import few_rows, tiles
from quantarray.cuda.popcount.few_rows import Tile
from quantarray.cuda.runtime import launch

SHIPPED = few_rows.tile_for
TINY = {"32": (2, 32, 2), "16": (1, 16, 1), "8": (3, 8, 3)}  # warps, channels, depth


@pytest.fixture(autouse=True, scope="module", params=TINY.values(), ids=TINY)
def tiny(request):
    warps, channels, depth = request.param

    def tile_for(shape, planes_w):
        return Tile(warps, SHIPPED(shape, planes_w).pixels, channels, depth)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(few_rows, "tile_for", tile_for)
        patched.setattr(launch, "MOST_ROWS", 2)
        with twins(packing=False):
            yield


@pytest.mark.parametrize("rows", range(1, 18))
def test_rows(rows, monkeypatch):
    """Rows up to 16, levels of any sign, channels that end inside a block; more rows go elsewhere."""
    names, rng = launched(monkeypatch), np.random.default_rng(rows)
    x, w = rng.integers(-2, 6, (rows, 150)), rng.integers(-4, 0, (13, 150))
    p, q = qa.encode(x, range(-2, 6)), qa.encode(w, range(-4, 0))
    expected = naive.linear(x, w)
    assert_bits(qa.linear(p, q), expected.astype(np.int32))
    assert names.pop() == ("few_rows" if rows <= few_rows.MOST else "integer_tile")
    codes = qa.linear(p, q, requantize=qa.Thresholds([-800, -500, -200])).codes()
    np.testing.assert_array_equal(codes, sum((expected > t) * 1 for t in (-800, -500, -200)))


@pytest.mark.parametrize("length", (1, 64, 65, 64 * 7, 64 * 70))
def test_lengths(length):
    rng = np.random.default_rng(length)
    x, w = rng.choice((-1, 1), (1, length)), rng.integers(0, 4, (9, length))
    found = qa.linear(qa.encode(x, (-1, 1)), qa.encode(w, range(4)))
    assert_bits(found, naive.linear(x, w).astype(np.int32))


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_bounds(monkeypatch):
    """The largest results that int32 holds, of sums that pass it on the way, and larger ones in int64."""
    names, k = launched(monkeypatch), 257
    x, w = np.full((3, k), 255), np.stack([np.full(k, level) for level in (-32768, 32512)])
    p, q, bias = qa.encode(x, range(256)), qa.encode(w, range(-32768, 32768, 256)), np.array([-32767, 32767])
    expected = naive.linear(x, w) + bias
    assert expected.min() == -(2**31) + 1
    assert_bits(qa.linear(p, q, bias=bias), expected.astype(np.int32))
    w = np.stack([np.full(k, level * 2**24) for level in (-127, 127)])
    q = qa.encode(w, range(-127 * 2**24, 2**31, 2**24))
    assert_bits(qa.linear(p, q, out_dtype=np.int64), naive.linear(x, w).astype(np.int64))
    assert names == ["_lay_out", "few_rows"] * 2


def test_more_planes_than_a_byte_holds(monkeypatch):
    """Of x any number; weights of more planes go elsewhere."""
    names, rng = launched(monkeypatch), np.random.default_rng(0)
    wide, bits = rng.choice((0, 1, 300), (5, 70)), rng.choice((-1, 1), (5, 70))
    p, q = qa.encode(wide, (0, 1, 300)), qa.encode(bits, (-1, 1))
    assert_bits(qa.linear(p, q), naive.linear(wide, bits).astype(np.int32))
    assert names.pop() == "few_rows"
    assert_bits(qa.linear(q, p), naive.linear(bits, wide).astype(np.int32))
    assert names.pop() == "integer_tile"


@pytest.mark.parametrize(
    ("groups", "lanes", "channels"),
    [(1, 256 * 32, 32), (1, 255 * 32, 16), (1, 4096, 16), (1, 4064, 8), (1, 1, 8), (256, 20, 32), (128, 20, 16)],
)
def test_widest_columns_that_fill_a_gpu(groups, lanes, channels):
    shape = tiles.Shape(5, 5, 8, groups, 2, lanes, -(-lanes // 32), 1)
    assert SHIPPED(shape, 1) == Tile(8, 8, channels, 4)
    assert [SHIPPED(shape, planes).depth for planes in (2, 3, 8)] == [2, 1, 1]


def test_the_tile_that_is_shipped(monkeypatch):
    monkeypatch.setattr(few_rows, "tile_for", SHIPPED)
    rng = np.random.default_rng(0)
    for rows, outputs in ((1, 130), (6, 20)):
        x, w = rng.integers(-2, 2, (rows, 64 * 70)), rng.integers(-8, 8, (outputs, 64 * 70))
        p, q = qa.encode(x, range(-2, 2)), qa.encode(w, range(-8, 8))
        assert_bits(qa.linear(p, q), naive.linear(x, w).astype(np.int32))
