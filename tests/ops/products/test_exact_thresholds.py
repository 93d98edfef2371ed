"""Thresholds of every dtype against Python's numbers, applied to arrays and inside every kernel."""

from itertools import product

import numpy as np
import pytest
from strategies import products_by

import quantarray as qa

DTYPES = (np.float32, np.float64, np.int64, np.int32, np.uint64, np.float16)
WAYS = list(product([True, False], [True, False]))  # greater, strict
TOP = 2**63 - 1  # of integer results


def passes(value, threshold, greater, strict):
    """Python compares integers and floats by their exact values."""
    if greater:
        return value > threshold if strict else value >= threshold
    return value < threshold if strict else value <= threshold


def counts(values, thresholds, greater, strict):
    """How many of thresholds [channels, T] each of values [.. channels] passes."""
    rows = values.reshape(-1, values.shape[-1]).tolist()
    ways = [t.tolist() for t in thresholds]
    codes = [[sum(passes(v, t, greater, strict) for t in ts) for v, ts in zip(row, ways, strict=True)] for row in rows]
    return np.reshape(codes, values.shape)


def around(centre, dtype):
    """Results at and beside a number, and at and beside what it is in float32."""
    rounded = np.float32(centre)
    whole = [] if np.isinf(rounded) else [n + d for n in (int(centre), int(rounded)) for d in (-2, -1, 0, 1, 2)]
    if dtype == np.float32:
        at = np.float32([*whole, rounded, 0, -0.0, np.inf, -np.inf])
        return np.concatenate([at, *[np.nextafter(at, np.float32(to)) for to in (-np.inf, np.inf)]])
    low, high = (-TOP, TOP) if dtype == np.int64 else (-(2**31), 2**31 - 1)
    return np.array([min(max(n, low), high) for n in (*whole, 0, low, high)], dtype)


def some_thresholds(rng, dtype, count):
    """Draw thresholds of all sizes and both signs, some at the ends of this or other dtypes, some with a fraction."""
    info = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.iinfo(np.int64)
    ends = [2**k + d for k in (0, 8, 24, 25, 31, 32, 53, 54, 60, 62, 63) for d in (-1, 0, 1)]
    drawn = [2 ** int(k) + int(rng.integers(0, 2 ** int(k))) for k in rng.integers(0, 62, count)]
    whole = [sign * n for n in (*ends, *drawn) for sign in (1, -1)]
    if np.dtype(dtype).kind in "iu":
        return np.array([n for n in whole if info.min <= n <= info.max], dtype)
    with np.errstate(over="ignore"):
        exact = np.array([float(n) for n in whole]).astype(dtype)
    return np.concatenate([exact, exact + np.array(0.5, dtype), np.array([np.inf, -np.inf, 0.0, -0.0], dtype)])


@pytest.mark.parametrize("greater, strict", WAYS)
@pytest.mark.parametrize("result", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_against_python(dtype, result, greater, strict):
    rng = np.random.default_rng(0)
    for t in some_thresholds(rng, dtype, 60):
        values = around(t, result)[:, None]
        got = qa.Thresholds([t], greater=greater, strict=strict, into=qa.uint1)(values)
        np.testing.assert_array_equal(got.codes(), counts(values, np.array([[t]]), greater, strict), err_msg=f"{t!r}")


@pytest.mark.parametrize("values", [[2**63 - 1], [-(2**63)], [2**63], [2**64 - 1], [2**53 + 1], [-(2**53) - 1]])
@pytest.mark.parametrize("greater, strict", WAYS)
def test_python_integers(values, greater, strict):
    law = qa.Thresholds(values, greater=greater, strict=strict, into=qa.uint1)
    for result in (np.int32, np.int64, np.float32):
        v = around(law.values[0], result)[:, None]
        np.testing.assert_array_equal(law(v).codes(), counts(v, [law.values], greater, strict))


def test_lists_that_numpy_would_round_are_refused():
    for values in ([2**53 + 1, 0.5], [2**63 + 1, -1], [[0.5], [2**53 + 1]], [np.int64(2**53 + 1), 0.5]):
        with pytest.raises(ValueError, match=r"integer \d+, which float64 cannot hold; pass integers alone"):
            qa.Thresholds(values)
    assert qa.Thresholds([2**53, 0.5]).values.tolist() == [0.5, 2.0**53]


# inside kernels

rng = np.random.default_rng(0)


def drawn(levels, *shape, axis=-1):
    return qa.encode(rng.choice(levels, shape), levels, axis)


WIDE = (0, 16777213)  # sums of them pass 2**24 in int32, and 2**31 where there are many
SIGNS = (-1, 1)
FOUR = (-(2**20) - 1, 3, 2**20 + 7, 2**21 + 1)
half = np.float32(0.37)
X, W = drawn(WIDE, 2, 5, 5, 4), drawn(SIGNS, 5, 3, 3, 4)
X4, W4 = drawn(FOUR, 2, 5, 5, 64), drawn((-3, -1, 1, 3), 33, 3, 3, 64)
XD, WD = drawn(FOUR, 2, 6, 6, 70), drawn(SIGNS, 70, 3, 3, 1, axis=0)
XB, WB = drawn(SIGNS, 2, 6, 6, 64), drawn(SIGNS, 64, 3, 3, 4)
ROWS, COLUMNS = drawn(WIDE, 6, 300), drawn(SIGNS, 5, 300)
LONG, ONE = drawn(FOUR, 4, 1 << 18), drawn(SIGNS, 2, 1 << 18)
IMAGE = rng.integers(-128, 128, (2, 5, 5, 3)).astype(np.int8)
CALLS = {
    "conv2d": lambda **how: qa.conv2d(X, W, padding=1, **how),
    "conv2d of int64": lambda **how: qa.conv2d(X, W, padding=1, out_dtype=np.int64, **how),
    "conv2d of uneven levels": lambda **how: qa.conv2d(X4, W4, padding=1, **how),
    "conv2d of bytes": lambda **how: qa.conv2d(IMAGE, drawn_once, **how),
    "conv2d of real scales": lambda **how: qa.conv2d(X * half, W * half, padding=1, **how),
    "conv2d of a scale": lambda **how: qa.conv2d(X, W * np.float32(1e9), **how),
    "conv2d of an offset": lambda **how: qa.conv2d(X * half + np.float32(0.5), W, **how),
    "depthwise": lambda **how: qa.conv2d(XD, WD, padding=1, groups=70, **how),
    "depthwise of a scale": lambda **how: qa.conv2d(XD * half, WD, groups=70, **how),
    "groups": lambda **how: qa.conv2d(XB, WB, padding=1, groups=16, **how),
    "linear of int64": lambda **how: qa.linear(ROWS, COLUMNS, **how),
    "linear of a scale": lambda **how: qa.linear(ROWS * half, COLUMNS, **how),
    "linear of few": lambda **how: qa.linear(LONG, ONE, **how),
    "linear with a bias": lambda **how: qa.linear(ROWS, COLUMNS, bias=np.full(5, 2**40 + 1), out_dtype=np.int64, **how),
    "matmul": lambda **how: qa.matmul(ROWS, qa.encode(COLUMNS.dequantize().T.copy(), SIGNS, axis=0), **how),
    "avg_pool2d": lambda **how: qa.avg_pool2d(X, 2, **how),
    "avg_pool2d of a scale": lambda **how: qa.avg_pool2d(XD * np.float32(1e4), (2, 3), padding=1, **how),
}
drawn_once = drawn((-3, -1, 1, 3), 5, 3, 3, 3)


def beside(result, dtype):
    """Thresholds [channels, 3] of a dtype at and beside results of each channel."""
    flat = result.reshape(-1, result.shape[-1])
    some = flat[rng.integers(0, len(flat), (3, 1)), np.arange(flat.shape[1])].T
    if np.dtype(dtype).kind == "f":
        t = some.astype(dtype)
        return np.where(
            rng.random(t.shape) < 0.3, np.nextafter(t, rng.choice([-np.inf, np.inf], t.shape).astype(dtype)), t
        )
    info = np.iinfo(dtype)
    whole = np.array([[int(v) for v in row] for row in some], object) + rng.integers(-1, 2, some.shape).astype(object)
    return np.clip(whole, int(info.min), int(info.max)).astype(dtype)


@pytest.mark.parametrize("name", CALLS)
def test_every_kernel_compares_exactly(name):
    call = CALLS[name]
    result = call()
    for dtype in (np.float32, np.float64, np.int64, np.int32, np.uint64):
        t = beside(result, dtype)
        for (greater, strict), count in product(WAYS, (1, 3)):
            law = qa.Thresholds(t[:, :count], greater=greater, strict=strict, into=qa.integers(range(count + 1)))
            got = call(requantize=law)
            expected = counts(
                result.astype(object) if result.dtype.kind == "O" else result, law.values, greater, strict
            )
            np.testing.assert_array_equal(got.codes(), expected, err_msg=f"{dtype} {greater=} {strict=}")
            np.testing.assert_array_equal(law(result).codes(), expected)


@pytest.mark.parametrize("kernel", ["conv", "dot", "winograd", "framed"])
@pytest.mark.parametrize("greater, strict", WAYS)
def test_every_integer_kernel_compares_exactly(kernel, greater, strict):
    x, w = drawn(tuple(range(-8, 8)), 2, 6, 6, 64) * 1, drawn((-65536, 65535), 5, 3, 3, 64)
    with products_by(kernel):
        result = qa.conv2d(x, w, padding=1)
        for dtype in (np.float32, np.float64, np.int64):
            law = qa.Thresholds(beside(result, dtype), greater=greater, strict=strict)
            got = qa.conv2d(x, w, padding=1, requantize=law)
            np.testing.assert_array_equal(got.codes(), counts(result, law.values, greater, strict))
