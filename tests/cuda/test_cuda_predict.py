"""Predicted times of kernels: they reproduce times that were measured, and the limits are those of their shapes."""

import os
from dataclasses import replace

import pytest
from cuda_compile import needs_toolkit
from cuda_predict import APART, CLOCK, LAUNCH, MEASURED, SMS, WITHIN, conv, factor, predict, product, total

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
    (one,) = predict(conv(32, 28, 128, 128), "bmma")
    loop, trips, opcode, read = one.work
    assert (one.name, one.launched.blocks, one.warps, one.together) == ("bmma_tile", 196, 4, 2)
    assert (opcode, trips * loop.count(opcode), read) == ("BMMA", 5 * 32, 8 * 20 * (128 + 128))
    assert one.limits["products"] == pytest.approx(-(-196 // SMS) * 5 * 32 * 8 / CLOCK)
    assert one.limit == "one warp" and one.seconds == LAUNCH + one.issued * APART / CLOCK


def test_pairs_of_planes_are_counted_and_bytes_multiplied_once():
    products = {units: predict(product(128, 1024, 128, 2, 8), units)[-1].products for units in ("bmma", "imma")}
    single = predict(product(128, 1024, 128), "bmma")[-1].products
    assert products["bmma"] == 16 * single
    assert products["imma"] < products["bmma"]


def test_a_row_that_names_a_kernel_is_of_it_alone():
    assert total(replace(MEASURED[0], kernel="none")) == ([], 0)
