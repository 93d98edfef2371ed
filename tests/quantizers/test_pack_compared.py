"""A bit for each value: `pack_compared` beside NumPy."""

import numpy as np
import pytest

from quantarray.backends.registry import kernel
from quantarray.core.format import WORD

RNG = np.random.default_rng(0)
LARGEST = np.finfo(np.float32).max
NEXT = np.nextafter(np.float32(-3), 0)
BOUNDS = [(0, 6), (1e-45, np.inf), (-np.inf, 0.5), (-3, NEXT), (2, 2), (5, 1), (-LARGEST, LARGEST)]
OTHERS = [0.0, -0.0, 1e-45, -1e-45, 7, LARGEST, -LARGEST]


def bits(x, low, high, between):
    out, wrong = np.full((1, 1, -(-x.size // 64)), 2**64 - 1, WORD), np.zeros(1, np.bool_)
    kernel("cpu", "pack_compared")(x[None], low, high, between, wrong, out)
    return np.unpackbits(out.view(np.uint8).ravel(), bitorder="little"), bool(wrong[0])


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 2**17 + 3])
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_between(size, bounds):
    low, high = np.float32(bounds)
    beside = [np.nextafter(b, np.float32(side)) for b in (low, high) for side in (-LARGEST, LARGEST)]
    x = RNG.choice(np.float32([n for n in (low, high, *beside, *OTHERS) if np.isfinite(n)]), size)
    packed, wrong = bits(x, low, high, True)
    np.testing.assert_array_equal(packed[:size], (low <= x) & (x < high))
    assert not packed[size:].any() and not wrong


@pytest.mark.parametrize("size", [1, 64, 100, 2**17 + 3])
@pytest.mark.parametrize("values", [(0, 1.25), (-1, 1), (3, 3), (-0.0, 1e-45), (-LARGEST, LARGEST)], ids=str)
def test_two_values(size, values):
    low, high = np.float32(values)
    x = RNG.choice(np.float32([low, high]), size)
    above = np.nextafter(low, np.float32(np.inf))
    packed, wrong = bits(x, above, high, False)
    np.testing.assert_array_equal(packed[:size], x == high)
    assert not packed[size:].any() and not wrong
    if above < high:
        x[RNG.integers(size)] = above
        assert bits(x, above, high, False)[1]


@pytest.mark.parametrize("between", [True, False])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, 64, 100, 2**17 + 3])
def test_what_is_not_finite_is_noted(size, value, between):
    x = np.zeros(size, np.float32)
    assert not bits(x, 0, 0, between)[1]
    x[RNG.integers(size)] = value
    assert bits(x, 0, 0, between)[1]
