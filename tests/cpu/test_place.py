"""The kernels that move bits to other places of a row, against NumPy on single bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantarray.backends.registry import kernel
from quantarray.core.format import word_count
from quantarray.cpu.bits import stride

STEPS = st.one_of(st.integers(-80, 80), st.sampled_from([2, -2, 3, 8, -8, 9, 16, 17, 32, 33, 72, -72, 73, 130, -200]))


@st.composite
def placed_runs(draw, most_words):
    """Two or three runs for the same rows, each from anywhere in its source up to the source's last bit."""
    rows, parts = draw(st.integers(1, 3)), []
    for _ in range(draw(st.integers(2, 3))):
        step, count = draw(STEPS), draw(st.integers(0, most_words * 64))
        reach, first, behind = abs(step) * max(count - 1, 0), draw(st.integers(0, 70)), draw(st.integers(0, 70))
        parts.append((draw(st.sampled_from([1, rows])), first + reach + 1 + behind, step, first, count))
    return rows, parts, draw(st.integers(0, 2**32 - 1))


def check(rows, parts, seed):
    rng, given_parts, expected = np.random.default_rng(seed), [], []
    for rows_there, length, step, first, count in parts:
        bits = rng.integers(0, 2, (rows_there, word_count(length) * 64), dtype=np.uint8)
        start = first if step >= 0 else first + (max(count, 1) - 1) * -step
        at = start + np.arange(count) * step
        given_parts.append((np.packbits(bits, axis=1, bitorder="little").view(np.uint64), start, step, count))
        expected.append(np.broadcast_to(bits[:, at], (rows, count)))
    whole = np.concatenate(expected, axis=1)
    out = np.zeros((rows, word_count(whole.shape[1])), np.uint64)
    kernel("cpu", "place")(given_parts, out)
    made = np.unpackbits(out.view(np.uint8), axis=1, bitorder="little")
    np.testing.assert_array_equal(made[:, : whole.shape[1]], whole)
    assert not made[:, whole.shape[1] :].any()


@given(placed_runs(5))
def test_short_runs(drawn):
    check(*drawn)


@pytest.mark.parametrize("step", [2, -2, 3, -5, 8, 9, -16, 17, 32, 50, 72, 73])
@pytest.mark.parametrize("first", [0, 1, 13])
def test_long_runs(step, first):
    """Runs of whole words, up to the very end of the source, beyond which nothing may be read."""
    count = 64 * 130 + 5
    check(2, [(2, 7, 1, 0, 7), (2, first + abs(step) * (count - 1) + 1, step, first, count)], seed=step + 100)


@pytest.mark.parametrize("step", [2, 3, 8, 9, 31, 63, 64, 65, 1000])
def test_squeezing_takes_every_bit(step):
    """The table has the number of elements in a word for each first bit."""
    taken = stride.squeezing(step)[7:]
    assert taken.tolist() == [len(range(first, 64, step)) for first in range(64)]


@given(st.integers(1, 3), st.integers(1, 140), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_spread(rows, words, times, seed):
    """Spread up to the source's last word, after which nothing may be read."""
    bits = np.random.default_rng(seed).integers(0, 2, (rows, words * 64), dtype=np.uint8)
    out = np.empty((rows, words * times), np.uint64)
    kernel("cpu", "spread")(np.packbits(bits, axis=1, bitorder="little").view(np.uint64), times, out)
    expected = np.packbits(bits.repeat(times, axis=1), axis=1, bitorder="little").view(np.uint64)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("length", [3, 10, 20, 33, 64, 65, 100, 128, 200, 640])
@pytest.mark.parametrize("new_length", [7, 12, 50, 64, 96, 100, 400, 64 * 150 + 1])
def test_rebit(length, new_length):
    """Enough segments that periods of the stream are gone through side by side."""
    segments = -(-new_length * 300 // length)
    bits = np.zeros((segments, word_count(length) * 64), np.uint8)
    bits[:, :length] = np.random.default_rng(length).integers(0, 2, (segments, length))
    stream = bits[:, :length].reshape(-1)
    new_segments = stream.size // new_length
    out = np.zeros((1, new_segments, word_count(new_length)), np.uint64)
    words = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    kernel("cpu", "rebit")(words[None], length, 0, new_length, out)
    expected = np.zeros((new_segments, out.shape[2] * 64), np.uint8)
    expected[:, :new_length] = stream[: new_segments * new_length].reshape(new_segments, new_length)
    np.testing.assert_array_equal(out[0], np.packbits(expected, axis=1, bitorder="little").view(np.uint64))
