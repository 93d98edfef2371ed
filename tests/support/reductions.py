"""Shared parts of the tests of reductions, searches and contractions: arrays of every law, axes, small blocks."""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st
from strategies import laws, samples

from quantarray.ops.counting import histograms
from quantarray.ops.statistical import searching, sets

LENGTHS = (1, 31, 32, 33, 63, 64, 65, 200)
GROUPS = (None, None, 5, 64)
LAWS = laws(8, table_bits=8)
INTEGER = laws(8, ["integer"])


@st.composite
def shapes(draw, most=4, least_length=0):
    """Draw (shape, packed axis): small axes, rarely of length 0, and a packed one of one of `LENGTHS`, rarely 0."""
    small = st.sampled_from([1, 1, 2, 2, 3, 4] + [0] * (least_length == 0))
    shape = [draw(small) for _ in range(draw(st.integers(1, most)))]
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = draw(st.sampled_from(LENGTHS * 2 + (0,) * (least_length == 0)))
    return tuple(shape), axis


@st.composite
def arrays(draw, law=LAWS, most=4, least_length=0, groups=GROUPS, vary=True):
    """Draw a sample whose constants may vary along any axis."""
    shape, axis = draw(shapes(most, least_length))
    return draw(samples(shape, axis, law, range(len(shape)) if vary else (), groups))


@st.composite
def axes(draw, ndim):
    """Draw None, an axis, or several, counted from either end."""
    kind = draw(st.sampled_from(["none", "one", "several"]))
    if kind == "none":
        return None
    if kind == "one":
        return draw(st.integers(-ndim, ndim - 1))
    chosen = draw(st.permutations(range(ndim)))[: draw(st.integers(0, ndim))]
    return tuple(d - ndim * draw(st.booleans()) for d in chosen)


@contextmanager
def small_blocks(small):
    """Cut even the smallest arrays into many blocks, or leave their usual sizes."""
    with ExitStack() as stack:
        if small:
            stack.enter_context(patch.object(histograms, "_COUNTS", 37))
            stack.enter_context(patch.object(histograms, "_WORDS", 2))
            stack.enter_context(patch.object(searching, "_BLOCK", 37))
            stack.enter_context(patch.object(searching, "_PACKED_BLOCK", 37))
            stack.enter_context(patch.object(sets, "_BLOCK", 37))
        yield


def assert_same(got, expected):
    """Assert NumPy's shape, dtype and values; a scalar where it gives one. Zeros have no sign."""
    assert np.shape(got) == np.shape(expected) and got.dtype == expected.dtype
    assert isinstance(got, np.generic) == (np.ndim(expected) == 0)
    np.testing.assert_array_equal(got, expected)


def assert_rounded(got, expected, room):
    """Assert float32 within one unit in the last place of a longdouble, and what float64 loses of the terms, `room`."""
    assert got.dtype == np.float32 and np.shape(got) == np.shape(expected)
    assert isinstance(got, np.generic) == (np.ndim(expected) == 0)
    unit = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    np.testing.assert_array_less(np.abs(got.astype(np.longdouble) - expected), unit + room + 1e-300)


def integer_type(bound):
    return np.int32 if bound < 2**31 else np.int64


def largest(x):
    """Return the largest magnitude of a sample's integer levels."""
    return max(abs(v) for v in x.law.dtype.levels)
