"""The error of level algebra that docs/type-rules.md states, against the laws' formulas in exact fractions."""

import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import seeds

import quantarray as qa
from quantarray.arrays.array import validate

FLOAT64 = Fraction(1 + 1e-6)  # levels and constants are computed in float64: some 2**-29 of an ulp
TINY = Fraction(2) ** -150  # half the spacing of float32 below 2**-126
SUMS = {"q + t": operator.add, "q - t": operator.sub, "t - q": lambda q, t: t - q}
PRODUCTS = {"q * t": operator.mul, "q / t": operator.truediv}
DTYPES = [qa.bipolar, qa.ternary, qa.uint4, qa.int4, qa.int7, qa.uint8, qa.integers(range(-9, 10, 3))]
DTYPES += [qa.integers(3, 0, -3), qa.integers(0, 1, 5), qa.integers(100, 103, 101), qa.integers(0, 2**24 + 1)]
DTYPES += [qa.integers(range(-1785, 1799, 14))]
fractions = np.vectorize(Fraction, otypes=[object])


def exact_levels(q):
    """The levels of q without any rounding: fractions [n_levels 3 1], or with 1 for 3 without constants."""
    c, dtype = q.constants, q.dtype
    codes = np.arange(dtype.n_levels).reshape(-1, 1, 1).astype(object)
    if dtype.kind == "table":
        return fractions(np.float64(c.table))
    scale = fractions(np.float64(1) if c.scale is None else np.float64(c.scale))
    if dtype.levels is not None:
        return scale * np.array(dtype.levels, object).reshape(codes.shape)
    offset = fractions(np.float64(c.offset))
    if dtype.kind == "uniform":
        return offset + scale * codes
    return sum(((codes >> k & 1) * scale[k] for k in range(dtype.bits)), offset)


def ulp(exact):
    """The spacing of float32 at numbers that are exact: fractions."""
    exponents = [max(np.frexp(float(v))[1] - 24, -149) if v else -149 for v in exact.ravel()]
    return np.array([Fraction(2) ** int(e) for e in exponents], object).reshape(exact.shape)


def bound(result, exact, operation):
    """How far each level of the result may be from the exact one; see the table of the page."""
    largest = abs(exact).max(axis=0)
    if result.dtype.kind == "table":
        return ulp(exact) / 2
    if operation in SUMS:
        return 0 * exact if result.dtype.is_integer else ulp(largest) + 0 * exact
    if not result.dtype.is_integer:
        return largest / 2**22 + TINY * (result.dtype.n_levels + 1) + 0 * exact
    if result.scale is None:
        return 0 * exact
    return ulp(exact) * 3 / 2 + TINY * result.dtype.max_abs


def wide(rng, shape=()):
    return np.float32(rng.normal(size=shape) * 10.0 ** rng.integers(-6, 9, shape))


def drawn(rng):
    """An array [3 5] of any law, with constants of any size: one for all, or one a row."""
    kind, bits, n = rng.choice(["integer", "scaled", "uniform", "basis", "table"]), int(rng.integers(1, 9)), (3, 1)
    shape = n if rng.integers(2) else (1, 1)
    scale = wide(rng, shape)
    if kind in ("integer", "scaled"):
        dtype = DTYPES[rng.integers(len(DTYPES))]
        constants = {"scale": scale} if kind == "scaled" else {}
    elif kind == "uniform":
        dtype = qa.uniform(bits)
        zero = -scale * rng.integers(0, 2**bits) if rng.integers(2) else wide(rng, shape)
        constants = {"scale": scale, "offset": np.float32(zero)}
    elif kind == "basis":
        dtype, scale = qa.basis(bits), wide(rng, (bits, *shape))
        center = -scale.sum(axis=0, dtype=np.float64) / 2 if rng.integers(2) else wide(rng, shape)
        constants = {"scale": scale, "offset": np.float32(center)}
    else:
        dtype, constants = qa.table(bits), {"table": wide(rng, (2**bits, *shape))}
    return qa.from_codes(rng.integers(0, dtype.n_levels, (3, 5)), dtype, **constants)


def operand(rng, exact):
    """A number or a vector: of any size, or what nearly or wholly cancels a level."""
    level = float(exact.ravel()[rng.integers(exact.size)])
    choices = [float(wide(rng)), wide(rng), np.float64(-level), -level * (1 + 1e-7 * rng.normal()), level]
    choices += [
        int(rng.integers(-1000, 1000)),
        np.float64(rng.normal()),
        rng.normal(size=(3, 1)) * 10.0 ** rng.integers(9),
    ]
    return choices[rng.integers(len(choices))]


def check(q, t, operation):
    """The result of an operation, whose levels are within the bound of the exact ones."""
    f = {**SUMS, **PRODUCTS}[operation]
    exact = f(exact_levels(q), Fraction(t) if isinstance(t, int) else fractions(np.asarray(t, np.float64)))
    got = f(q, t)
    validate(got)
    levels = fractions(got.levels.astype(np.float64)).reshape(len(exact), *(got.levels.shape[1:] or (1, 1)))
    assert (abs(levels - exact) <= FLOAT64 * bound(got, exact, operation)).all(), (q, t, operation)
    return got


@settings(max_examples=300)
@given(seeds(), st.sampled_from([*SUMS, *PRODUCTS]))
def test_every_level_is_within_the_stated_error(seed, operation):
    rng = np.random.default_rng(seed)
    q = drawn(rng)
    t = operand(rng, exact_levels(q))
    if operation in PRODUCTS and not np.all(t):
        return
    try:
        check(q, t, operation)
    except ValueError as error:  # integers beyond 2**31, or too many constants
        assert "integer levels must be within" in str(error) or "would vary so much" in str(error)


@settings(max_examples=100)
@given(seeds())
def test_every_step_of_a_chain_is(seed):
    rng = np.random.default_rng(seed)
    q = drawn(rng) * float(wide(rng))
    for _ in range(4):
        t = operand(rng, exact_levels(q))
        operation = rng.choice([*SUMS, *PRODUCTS] if np.all(t) else [*SUMS])
        if operation in PRODUCTS and np.abs(np.log10(np.abs(t))).max() > 6:
            continue  # so that levels stay within float32
        q = check(q, t, operation)


@pytest.mark.parametrize(
    ("q", "t"),
    [
        (qa.from_codes([64, 65], qa.int7, scale=1e6), 1.7936),  # the offset is rounded at 64e6
        (qa.from_codes([0, 1], DTYPES[-1], scale=48972.797), -938),  # so is 14 times the scale
        (qa.from_codes([0, 1], qa.uniform(1), scale=1e-7, offset=1e6), -1e6 - 1e-7),  # t is no float32
        (qa.from_codes([0, 1], qa.integers(100, 103, 101), scale=np.float32(0.1)), -10.1),  # nor are the levels
        (qa.from_codes([0, 1], qa.integers(0, 2**24 + 1)), -1.5),  # nor is the step
        (qa.from_codes([0, 1], qa.bipolar, scale=1e8), 1.0),
    ],
)
def test_cases_that_round_more_than_the_offset(q, t):
    q = q.reshape(1, 2)
    for operation in SUMS:
        check(q, t, operation)
        check(q, np.full((1, 1), t), operation)


def test_the_example_of_the_page():
    q = qa.from_codes([64, 65], qa.int7, scale=1e6)
    assert np.spacing(np.abs(q.levels).max()) == 4
    assert (q + 1.7936).dequantize().tolist() == [0, 1e6]
    assert qa.map(lambda v: v + 1.7936, q).dequantize().tolist() == np.float32([1.7936, 1000001.7936]).tolist()
    assert (q + 2.5).dequantize().tolist() == [4, 1e6 + 4]


def test_levels_beyond_float32_are_refused():
    q = qa.from_codes([0, 1], qa.uniform(1), scale=2e38, offset=0)
    for wrong in (lambda: q + 2e38, lambda: -2e38 - q, lambda: q * 2, lambda: q / 0.1, lambda: q + 1e39):
        with pytest.raises(ValueError, match="fit in float32"):
            wrong()
    assert (q - 1e38).dequantize().tolist() == np.float32([-1e38, 1e38]).tolist()
