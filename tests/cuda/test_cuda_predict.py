"""Predicted times of kernels: they reproduce times that were measured, and the limits are those of their shapes."""

import os
from dataclasses import replace

import pytest
from cuda_compile import needs_toolkit
from cuda_predict import APART, CLOCK, EACH, LAUNCH, MEASURED, SMS, WITHIN, conv, factor, predict, product, total

from quantarray.cuda.tensor_cores import bmma, wgmma

pytestmark = [
    pytest.mark.full,
    needs_toolkit,
    pytest.mark.skipif("NUMBA_ENABLE_CUDASIM" in os.environ, reason="the simulator compiles nothing"),
]


def test_times_that_were_measured_are_reproduced():
    near = [work.name for work in MEASURED if factor(total(work)[1], work.us) <= WITHIN]
    assert len(near) >= 10, f"only {near}"


def test_limits_of_a_product():
    """Check against hand: 28x28x128 at batch 32 is 196 blocks of 128 x 128, whose 18 words are 5 stages of 64 BMMA."""
    (one,) = predict(conv(32, 28, 128, 128), "bmma", "1")
    loop, trips, opcode, read, *_ = one.work
    assert (one.name, one.launched.blocks, one.warps, one.together) == ("bmma_tile", 196, 8, 2)
    assert (opcode, trips * loop.count(opcode), read) == ("BMMA", 5 * 16, 8 * 20 * (128 + 128))
    assert one.limits["products"] == pytest.approx(-(-196 // SMS) * 5 * 32 * 8 / CLOCK)
    assert one.limit == "warps" and one.seconds == LAUNCH + one.issued * (APART + 4 * EACH) / CLOCK


def test_pairs_of_planes_are_counted_and_bytes_multiplied_once():
    work = product(4096, 1024, 4096, 2, 8)
    products = {units: predict(work, units, "0")[-1].products for units in ("bmma", "imma")}
    single = predict(product(4096, 1024, 4096), "bmma", "0")[-1].products
    assert products["bmma"] == 16 * single
    assert products["imma"] < products["bmma"]


def test_blocks_that_share_a_tile_have_parts_of_its_stages():
    """49 pixels by 512 channels are 16 tiles of 64 x 32; 18 stages over 6 blocks are 3 of each."""
    (one,) = predict(conv(1, 7, 512, 512), "bmma")
    assert (one.splits, one.launched.grid, one.work.trips) == (6, (1, 16, 6), 3)
    (whole,) = predict(conv(1, 7, 512, 512), "bmma", "4")
    assert whole.splits > 1 and one.seconds < whole.seconds


def test_planes_of_few_rows_are_counted_for_each_load():
    """4,096 words of 64 bits in 64 words by 16 channels are one load of 4 planes' words or two of 2 a lane."""
    one, more = (predict(product(1, 4096, 4096, 4, bits))[-1] for bits in (1, 8))
    assert (one.name, one.work.trips, one.work.times, more.work.times) == ("few_rows", 2, 1, 8)
    assert more.products == 8 * one.products and more.issued > one.issued


LAYERS = {"56x56x64": (64, 56, 64), "28x28x128": (32, 28, 128), "7x7x512": (64, 7, 512)}


@pytest.mark.parametrize("units", ("bmma", "wgmma"))
@pytest.mark.parametrize("layer", LAYERS)
def test_the_tile_that_a_grid_takes_is_predicted_to_be_the_fastest(layer, units):
    """Tiles are chosen by instructions that a table has, and predicted by those of machine code."""
    batch, size, channels = LAYERS[layer]
    make, count = conv(batch, size, channels, channels), len({"bmma": bmma, "wgmma": wgmma}[units].TILES)
    chosen = predict(make, units)[-1].seconds
    assert chosen <= 1.1 * min(predict(make, units, str(n))[-1].seconds for n in range(count))


@pytest.mark.parametrize(("units", "tile"), [(m, n) for m in (bmma, wgmma) for n in range(len(m.TILES))])
def test_instructions_of_tiles(units, tile):
    """Hold the table against machine code of 28x28x128 to bits."""
    one, listed = predict(conv(32, 28, 128, 128), units.__name__.rpartition(".")[2], str(tile))[-1], units.TILES[tile]
    stage = one.work.loop.longest(one.work.opcode)
    assert one.together == listed.together
    assert listed.issued == pytest.approx(stage, rel=0.05)
    assert listed.issued_outside(True) == pytest.approx(one.issued - one.work.trips * stage, rel=0.2)


def test_a_row_that_names_a_kernel_is_of_it_alone():
    assert total(replace(MEASURED[0], kernel="none")) == ([], 0)
