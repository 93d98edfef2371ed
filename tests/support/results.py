"""Checks of results: bits, valid packed arrays, and random thresholds with their expected values."""

import naive
import numpy as np
from hypothesis import strategies as st
from strategies import Law, constants_of, meaning, seeds

import quantarray as qa
from quantarray.arrays.array import validate


@st.composite
def thresholds(draw, values):
    """Draw Thresholds for results [.. channels], and the values it must decode to there.

    Most thresholds occur among the results, so that > and >= differ; some are beside them, between them, or at
    infinity.
    """
    rng = np.random.default_rng(draw(seeds()))
    channels, count = values.shape[-1], draw(st.sampled_from([1, 1, 2, 3, 15, 255]))
    flat = values.reshape(-1, channels) if values.size else np.zeros((1, channels), values.dtype)
    t = np.take_along_axis(flat, rng.integers(0, len(flat), (count, channels)), 0).T
    beside = draw(st.sampled_from(["exact", "integer", "double", "infinite"]))
    if beside == "integer":
        t = np.rint(t).astype(np.int64) + rng.integers(-1, 2, t.shape)
    elif beside == "double":
        t = t * (1 + rng.choice([-1e-12, 0, 1e-12], t.shape)) + rng.choice([0, 0.5], t.shape)
    elif beside == "infinite":
        t = np.where(rng.random(t.shape) < 0.3, rng.choice([-np.inf, np.inf], t.shape), t)
    t = t if draw(st.booleans()) else t[0]
    each = [channels if draw(st.booleans()) and t.ndim == 2 else None for _ in range(2)]
    greater, strict = (rng.integers(0, 2, n).astype(bool) if n else draw(st.booleans()) for n in each)
    law, constants = draw(_results(count + 1, rng))
    shared = False if t.ndim == 1 else None  # equal ones among them are meant
    cut = qa.Thresholds(t, per_channel=shared, greater=greater, strict=strict, into=law and law.dtype, **constants)
    law = law or Law(cut.into)
    wide = {n: np.asarray(a, np.float32).reshape(*np.shape(a), 1) for n, a in constants.items()}
    levels = np.sort(meaning(law, np.arange(count + 1), wide)[0])
    ranks = naive.thresholds(values, np.sort(np.broadcast_to(t, (channels, count))), greater, strict)
    return cut, levels[ranks]


@st.composite
def _results(draw, count, rng):
    """Draw a law of `count` levels in any order for thresholded codes, and its constants; None for the default."""
    bits = max(1, (count - 1).bit_length())
    kinds = ["default", "integer", "scaled", "uniform", "table"] + ["basis"] * (count == 2**bits)
    kind = draw(st.sampled_from(kinds))
    if kind == "default":
        return None, {}
    shuffled = qa.integers(rng.choice(np.arange(-300, 300), count, False).tolist())
    dtypes = {"integer": shuffled, "scaled": shuffled, "basis": qa.basis(bits)}
    law = Law(dtypes.get(kind) or getattr(qa, kind)(bits, count), kind == "scaled")
    return law, {} if law.exact else constants_of(rng, law, ())


def assert_bits(got, expected):
    """Assert the same dtype, shape and bits."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    as_bits = np.uint32 if got.dtype == np.float32 else got.dtype
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(as_bits), np.ascontiguousarray(expected).view(as_bits))


def assert_packed(got, expected):
    """Assert a valid packed array of the expected values."""
    validate(got)
    np.testing.assert_array_equal(got.dequantize(), expected)
