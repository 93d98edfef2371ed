"""Codes of values that are as near to a step as floats are: those of float64 arithmetic, whatever computes them."""

import numba
import numpy as np
import pytest

from quantarray.backends.registry import kernel
from quantarray.core.format import WORD
from quantarray.cpu.bits import encode_grouped

RNG = np.random.default_rng(0)
GRIDS = [  # start, step, low, high
    (0.0, 1.0, 0, 3), (0.1, 0.3, 0, 255), (-7.25, 0.015625, -128, 127), (3.0, 1e-12, 0, 15), (1e4, 0.37, 0, 255),
    (0.0, 1e-37, 0, 7), (0.0, 2.0**99, -8, 7), (5.0, 1e-3, 0, 1), (np.float64(np.float32(0.7)), 0.02, -3, 90),
]  # fmt: skip


def near(numbers):
    """The nearest float32 of numbers, moved by up to three floats."""
    x = np.float32(numbers)
    for _ in range(3):
        x = np.where(RNG.random(x.shape) < 0.5, np.nextafter(x, np.float32(RNG.choice((-np.inf, np.inf)))), x)
    return x


def codes_of(words, length):
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")[..., :length]
    return (bits.astype(np.int64) << np.arange(len(words))[:, None, None]).sum(0)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_grid(grid, down, kind):
    start, step, low, high = grid
    at = RNG.integers(low - 2, high + 3, 6400) + (0 if down else 0.5)
    x = near(start + at * step)[None]
    x[0, ::64] = RNG.choice([0, 1e30, -1e30, start, start + step], 100)
    x = x.astype(kind)
    bits = (high - low).bit_length()
    out, nan = np.zeros((bits, 1, 100), WORD), np.zeros(4, np.bool_)
    table = np.zeros(1, np.int64)
    kernel("cpu", "encode_grid")(
        x[..., None], np.array([[start]]), np.array([[step]]), 1.0, low, high, down, table, 1, nan, out
    )  # fmt: skip
    steps = (x.astype(np.float64) - start) / step
    expected = np.clip((np.floor if down else np.rint)(steps), low, high) - low
    np.testing.assert_array_equal(codes_of(out, 6400), expected)
    assert not nan.any() and len(np.unique(expected)) > 1


@numba.njit
def draw(first, key, block, words):
    encode_grouped.draw_uniform(first, 1, key, block, words)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("span", [1.0, 3e-30, 1e20, 0.7])
def test_random_rounding_in_groups(bits, span):
    """Each element lies where its own random number decides between two codes."""
    key, top, run, n = np.array([7, 8, 1], np.uint32), 2**bits - 1, 128, 6400
    x = RNG.uniform(-span, span, (1, n)).astype(np.float32)
    out, constants, wrong = np.zeros((bits, 1, n // 64), WORD), np.zeros((2, n // run), np.float32), np.zeros(1, bool)

    def encode():
        kernel("cpu", "encode_groups")(x, run, 8, key, wrong, constants, out)
        assert not wrong[0]
        step, low = (np.repeat(a, run).astype(np.float64) for a in constants)
        return step, low

    step, low = encode()
    u, words = np.zeros(n), np.zeros(64, np.uint32)
    for first in range(0, n, 64):
        draw(first, key, np.zeros((4, 20), np.uint64), words)
        u[first : first + 64] = words * 2.0**-32
    inner = np.arange(n) % run > 1  # the first two of a group are its ends
    x[0, ::run], x[0, 1::run] = constants[1], constants[1] + np.float32(constants[0] * top * 0.999)
    step, low = encode()
    k = RNG.integers(0, top + 1, n)
    ends = (np.repeat(x[0, i::run], run) for i in range(2))
    x[0] = np.where(inner, np.clip(near(low + (k - u) * step), *ends), x[0])
    step, low = encode()
    expected = np.clip(np.floor((x[0].astype(np.float64) - low) / step + u), 0, top)
    np.testing.assert_array_equal(codes_of(out, n)[0], expected)
    apart = (x[0] - low) / step + u
    assert (np.abs(apart - np.rint(apart))[inner] < 1e-4).mean() > 0.3
