"""Products at the bounds of what sums, counts and limits are kept in, against Python's integers.

Which class of operands reaches each bound is said beside it; `python -m tests.long products` draws more of all of them.
"""

import numpy as np
import pytest

import quantarray as qa
from quantarray.core.format import RUN_PLANES, RUN_WORDS, WORD_BITS

MOST = 2**31 - 1  # magnitude of an integer level


def operand(levels, code, shape):
    """An array of one code, and its values as Python's integers."""
    drawn = np.broadcast_to(np.resize(np.uint8(code), shape[-1]), shape)
    return qa.from_codes(drawn, qa.integers(*levels)), np.array(levels, object)[drawn]


def check(levels_x, code_x, levels_w, code_w, k, rows=(1, 5), outputs=(1, 3, 70)):
    """linear, conv2d, scaled results and thresholds, of one row and several, and with either operand on the left."""
    for n in rows:
        for o in outputs:
            x, xs = operand(levels_x, code_x, (n, k))
            w, ws = operand(levels_w, code_w, (o, k))
            expected = xs[:1] @ ws[:1].T
            bound = k * max(map(abs, levels_x)) * max(map(abs, levels_w))
            dtype = np.int32 if bound < 2**31 else np.int64
            for result, shape in (
                (qa.linear(x, w), (n, o)),
                (qa.linear(w, x), (o, n)),
                (qa.conv2d(x.reshape(1, 1, n, k), w.reshape(o, 1, 1, k)), (1, 1, n, o)),
                (qa.einsum("ik,ok->io", x, w), (n, o)),
            ):
                assert result.dtype == dtype and result.shape == shape
                assert set(result.ravel().tolist()) == {expected.item()}
            scaled = qa.linear(x * np.float32(0.5), w)
            np.testing.assert_allclose(scaled, np.full((n, o), float(expected.item()) / 2), rtol=1e-7)
            check_thresholds(x, w, int(expected.item()))


def check_thresholds(x, w, value):
    for near in (value - 1, value, value + 1):
        for greater in (True, False):
            codes = qa.linear(x, w, requantize=qa.Thresholds([near], greater=greater)).codes()
            assert set(codes.ravel().tolist()) == {int(value > near if greater else value < near)}


@pytest.mark.parametrize(
    ("levels_x", "code_x", "levels_w", "code_w", "k"),
    [
        # Counts of all planes of x in 32 bits: uneven levels are counted on a grid of up to 32 planes
        ((0, 549564285, 810854937, 1020552622), (0, 1, 2, 3), (-1, 1), 1, 4),
        ((0, MOST, 1), 1, (-1, 1), 1, 3),
        ((0, MOST, 1), 1, (0, 1), 1, 3),
        ((-MOST, MOST, 0), 0, (1, -1), 0, 5),
        ((0, 1, 8191, 4095), 2, (-1, 1), 0, 786_533),
        ((0, 1, 2 ** (RUN_PLANES - 1), 2**RUN_PLANES - 1), 3, (-1, 1), 0, 9 * 2**13),
        ((0, 1, 2**RUN_PLANES, 2 ** (RUN_PLANES + 1) - 1), 3, (-1, 1), 0, 9 * 2**13),
        # Results of 32 bits whose counts are twice as large: the sum of levels about zero is half of that of codes
        ((-(2**15), 2**15 - 1, 0), 0, (-1, 1), 0, 2**16 - 1),
        ((-(2**15), 2**15 - 1, 0), 1, (-1, 1), 1, 2**16 - 1),
        ((-(2**20), 2**20 - 1, 1), (0, 1), (-1, 1), 0, 2**11 - 1),
        # Two grids together have more planes than a lane has bits
        ((-46340, 46340, 1), 1, (-46340, 46340, 3), 1, 1),
        ((0, 2**16, 1), 1, (0, 2**15 - 1, 3), 1, 1),
        ((0, 2**16, 1), 1, (0, 2**15, 3), 1, 1),
        # The largest sums of 32, of 53 and of 63 bits, and the first beyond 32 and 53
        ((-MOST, MOST), 1, (-1, 1), 1, 1),
        ((-MOST, MOST), 1, (-1, 1), 0, 2),
        ((0, 2**26, 1), 1, (0, 2**27, 1), 1, 1),
        ((0, 2**26, 1), 1, (0, 2**27 - 1, 1), 1, 1),
        ((-MOST, MOST), 1, (-MOST, MOST), 0, 1),
        ((-MOST, MOST), 0, (-MOST, MOST), 0, 2),
        ((-MOST, MOST, 5), 1, (-MOST, MOST, 7), 0, 2),
        # Sums of 16 bits of a band: 1023 words, and one more
        ((0, 1), 1, (0, 1), 1, 1023 * WORD_BITS),
        ((-1, 1), 1, (-1, 1), 0, 1024 * WORD_BITS),
        # Products of bytes: the largest pairs that 16 bits hold, and levels beyond bytes
        (range(256), 255, range(-128, 128), 0, 200),
        (range(-128, 128), 0, range(256), 255, 200),
        (range(128), 127, range(-127, 129), 255, 200),
        # Sums of 8 and of 4 quads, the fewest that 16 bits hold before they are added in 32, and of a rest
        (range(256), 255, range(-8, 8), 0, 200),
        (range(-128, 128), 0, range(-8, 8), 0, 1100),
        (range(256), 255, range(-15, 17), 31, 68),
        (range(256), 255, range(-16, 16), 0, 12),
    ],
)
def test_at_bounds(levels_x, code_x, levels_w, code_w, k):
    rows, outputs = ((1, 5), (1, 3, 70)) if k < 10**5 else ((2,), (1, 33))
    check(levels_x, code_x, levels_w, code_w, k, rows, outputs)


@pytest.mark.parametrize("levels", [(0, 1, 8191, 4095), (0, 1, MOST), (-MOST, 0, 1, MOST), tuple(range(256))])
def test_runs_longer_than_one(levels):
    """More words than a run, whose sums are added up run after run."""
    k = (RUN_WORDS + 2) * WORD_BITS
    x, xs = operand(levels, (0, len(levels) - 1, 1), (1, k))
    w, ws = operand((-1, 1), (1, 1, 0), (2, k))
    expected = int((xs[0, :3] * ws[0, :3]).sum()) * (k // 3) + int((xs[0, : k % 3] * ws[0, : k % 3]).sum())
    assert qa.linear(x, w).tolist() == [[expected] * 2]
    check_thresholds(x, w, expected)


@pytest.mark.parametrize(
    ("x", "w", "k", "reach"),
    [((-MOST, MOST), (-MOST, MOST), 3, 3 * MOST**2), ((0, 2**31 - 1), (0, 2**31 - 1), 4, 4 * MOST**2)],
)
def test_beyond_int64(x, w, k, reach):
    a, b = operand(x, 1, (2, k))[0], operand(w, 1, (2, k))[0]
    for call in (
        lambda: qa.linear(a, b),
        lambda: a @ b.T,
        lambda: qa.conv2d(a.reshape(2, 1, 1, k), b.reshape(2, 1, 1, k)),
        lambda: qa.einsum("ik,ok->io", a, b),
        lambda: qa.linear(a, b, requantize=qa.Thresholds([0])),
        lambda: qa.linear(a * 0.5, b),
    ):
        with pytest.raises(OverflowError, match=f"may reach {reach}, which int64 cannot hold; contract fewer"):
            call()


def test_a_bias_counts_in_the_bound():
    x, w = operand((-MOST, MOST), 1, (1, 2))[0], operand((-MOST, MOST), 1, (1, 2))[0]
    largest = 2**63 - 1 - 2 * MOST**2  # of a bias
    assert qa.linear(x, w, bias=np.array([largest])).tolist() == [[2**63 - 1]]
    with pytest.raises(OverflowError, match=f"may reach {2**63}, which int64 cannot hold"):
        qa.linear(x, w, bias=np.array([largest + 1]))


def test_scaled_levels_count_as_they_are():
    """Levels of a wide span are on a grid whose last number, which does not occur, is larger than any of them."""
    x = qa.from_codes(np.zeros((1, 34), np.uint8), qa.integers(160534169, -160534160, 5, 9, 77))
    w = qa.from_codes(np.zeros((1, 34), np.uint8), qa.integers(853300276, -853300000, 3))
    exact = 34 * 160534169 * 853300276
    assert qa.linear(x, w).tolist() == [[exact]]
    assert qa.linear(x * 1.0, w) == qa.linear(x, w * 1.0) == np.float32(exact)
    image, kernel = (x * 1.0).reshape(1, 1, 1, 34), w.reshape(1, 1, 1, 34)
    assert qa.conv2d(image, kernel).item() == np.float32(exact)
