"""The laws: levels, ranks and terms of every dtype."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import integer_dtypes, laws, samples

import quantarray as qa
from quantarray.core.code_values import level_ranks
from quantarray.core.dtypes import DType, arithmetic, terms


@st.composite
def every_code(draw, law):
    """An array that holds each code of a law once, with constants for it."""
    law = draw(law)
    return draw(samples((3, law.dtype.n_levels), -1, law, vary=(0,)))


@given(every_code(laws(8, ["integer", "scaled", "uniform", "basis"])))
def test_levels_are_what_codes_decode_to(x):
    q = x.q
    levels = np.broadcast_to(q.levels.reshape(len(q.levels), -1, 1), (len(q.levels), 3, 1))
    np.testing.assert_array_equal(levels[x.codes, np.arange(3)[:, None], 0], x.values)
    assert q.levels.dtype == (np.int64 if x.exact else np.float32)


@given(every_code(laws(8)))
def test_ranks_sort_the_levels(x):
    levels, ranks = x.q.levels, level_ranks(x.law.dtype, x.q.constants)
    assert ranks.dtype == np.uint8 and ranks.shape == levels.shape
    by_rank = np.take_along_axis(levels, np.argsort(ranks, axis=0), axis=0)
    np.testing.assert_array_equal(by_rank, np.sort(levels, axis=0))
    np.testing.assert_array_equal(np.sort(ranks, axis=0), np.indices(ranks.shape)[0])


def test_equal_levels_rank_in_code_order():
    q = qa.from_codes([0, 1, 2, 3], qa.table(2), table=[1, 0, 1, 0])
    assert level_ranks(q.dtype, q.constants).ravel().tolist() == [2, 0, 3, 1]


@given(integer_dtypes())
def test_integer_dtypes(dtype):
    assert dtype.is_integer and dtype.max_abs == max(map(abs, dtype.levels)) and dtype.n_levels <= 2**dtype.bits
    assert qa.integers(dtype.levels) == dtype and hash(qa.integers(*dtype.levels)) == hash(dtype)
    low, step = arithmetic(dtype.levels)
    assert low == min(dtype.levels) and all((v - low) % step == 0 for v in dtype.levels)
    assert np.gcd.reduce([(v - low) // step for v in dtype.levels]) <= 1
    codes = np.arange(dtype.n_levels)
    if dtype.step is None:
        with pytest.raises(TypeError, match="not affine"):
            terms(dtype)
        return
    [term] = terms(dtype)
    assert (term.base + term.step * codes).tolist() == list(dtype.levels) and term.planes == dtype.bits


@given(st.integers(1, 8))
def test_real_terms_cover_the_planes(bits):
    assert [(t.first, t.planes, t.base, t.step) for t in terms(qa.basis(bits))] == [(k, 1, 0, 1) for k in range(bits)]
    assert [(t.first, t.planes, t.base, t.step) for t in terms(qa.uniform(bits))] == [(0, bits, 0, 1)]
    with pytest.raises(TypeError, match="not affine"):
        terms(qa.table(bits))


def test_names():
    assert qa.integers(-1, 1) is qa.bipolar and qa.integers(range(256)) is qa.uint8
    assert qa.int4.levels == tuple(range(-8, 8)) and qa.ternary.levels == (-1, 0, 1)
    assert str(qa.integers(1, -1)) == "integers(1, -1)" and qa.integers(1, -1) != qa.bipolar
    assert str(qa.uniform(3, 5)) == "uniform(3, n_levels=5)" and str(qa.basis(2)) == "basis(2)"


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: qa.integers(1, 1), "different"),
        (lambda: qa.integers(0.5), "integers"),
        (lambda: qa.integers(range(257)), "256"),
        (lambda: qa.integers(2**31, 0), "2\\*\\*31"),
        (lambda: qa.uniform(9), "1 to 8 bits"),
        (lambda: qa.table(2, 5), "1 to 4 levels"),
        (lambda: DType("basis", 2, 3), "basis of 2 bits"),
        (lambda: DType("other", 2, 3), "kind"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
