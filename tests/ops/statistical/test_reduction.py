"""Sums, means, extremes and counts over axes against NumPy on the values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reductions import (
    INTEGER,
    LENGTHS,
    arrays,
    assert_rounded,
    assert_same,
    axes,
    integer_type,
    largest,
    small_blocks,
)
from strategies import integer_dtypes, laws, samples

import quantarray as qa


@st.composite
def cases(draw, **kwargs):
    """An array, axes to reduce, keepdims, and the number of elements of a result."""
    x = draw(arrays(**kwargs))
    axis = draw(axes(x.values.ndim))
    over = range(x.values.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return x, axis, draw(st.booleans()), math.prod(x.values.shape[d] for d in over)


def both(name, x, axis, keepdims, **kwargs):
    """The function and the method, which must agree."""
    q = x.q
    got = getattr(qa, name)(q, axis, keepdims=keepdims, **kwargs)
    again = getattr(q, name)(axis, keepdims=keepdims, **kwargs)
    np.testing.assert_array_equal(got, again)
    return got


@given(cases(), st.booleans())
def test_sum(case, small):
    x, axis, keep, n = case
    with small_blocks(small):
        got = both("sum", x, axis, keep)
    if x.exact:
        assert_same(got, x.values.sum(axis, keepdims=keep).astype(integer_type(n * largest(x))))
    else:
        wide = x.values.astype(np.longdouble)
        room = 2.0**-44 * np.abs(wide).sum(axis, keepdims=keep)
        assert_rounded(got, wide.sum(axis, keepdims=keep), room)


@given(cases(), st.booleans())
def test_mean(case, small):
    x, axis, keep, n = case
    with small_blocks(small):
        got = both("mean", x, axis, keep)
    if n == 0:
        assert_same(got, np.full(np.shape(x.values.sum(axis, keepdims=keep)), np.nan, np.float32)[()])
        return
    wide = x.values.astype(np.longdouble)
    room = 0 if x.exact else 2.0**-44 * np.abs(wide).mean(axis, keepdims=keep)
    assert_rounded(got, wide.mean(axis, keepdims=keep), room)


@given(cases(), st.booleans(), st.sampled_from([0, 1, 0.5, -1, 3]))
def test_var_and_std(case, small, correction):
    x, axis, keep, n = case
    with small_blocks(small):
        var = both("var", x, axis, keep, correction=correction)
        std = both("std", x, axis, keep, correction=correction)
    wide = x.values.astype(np.longdouble)
    if n == 0 or n - correction <= 0:
        nan = np.full(np.shape(wide.sum(axis, keepdims=keep)), np.nan, np.float32)[()]
        assert_same(var, nan)
        assert_same(std, nan)
        return
    expected = wide.var(axis, keepdims=keep) * (np.longdouble(n) / (np.longdouble(n) - np.longdouble(correction)))
    # float64 distances are wrong by a part of the values; the variance by twice that times a distance
    lost = 2.0**-48 * np.abs(wide).max(axis, keepdims=keep, initial=0) * math.sqrt(n)
    assert_rounded(var, expected, 2 * np.sqrt(expected) * lost + lost**2)
    assert_rounded(std, np.sqrt(expected), lost)


@given(st.data(), st.booleans())
def test_prod(data, small):
    narrow = st.just(qa.bipolar) | st.just(qa.ternary) | integer_dtypes(3)
    x, axis, keep, n = data.draw(cases(law=laws(3, ["integer"]) | narrow.map(_law)))
    most = largest(x)
    if most > 1 and n * math.log2(most) >= 63:
        with pytest.raises(OverflowError, match="prod"):
            qa.prod(x.q, axis)
        return
    with small_blocks(small):
        got = both("prod", x, axis, keep)
    assert_same(got, x.values.prod(axis, keepdims=keep).astype(integer_type(most**n if most > 1 else 1)))


def _law(dtype):
    from strategies import Law

    return Law(dtype)


@given(cases(), st.booleans())
def test_min_and_max(case, small):
    x, axis, keep, n = case
    if not n:
        for name in ("min", "max"):
            with pytest.raises(ValueError, match=f"{name}: no elements"):
                getattr(qa, name)(x.q, axis)
        return
    values = x.values.astype(np.int32) if x.exact else x.values
    with small_blocks(small):
        assert_same(both("min", x, axis, keep), values.min(axis, keepdims=keep))
        assert_same(both("max", x, axis, keep), values.max(axis, keepdims=keep))


@given(cases(), st.booleans())
def test_any_all_and_count_nonzero(case, small):
    x, axis, keep, _ = case
    with small_blocks(small):
        got = [qa.count_nonzero(x.q, axis, keepdims=keep), both("any", x, axis, keep), both("all", x, axis, keep)]
    one = (x.values != 0).astype(np.int64)
    for made, expected in zip(got, [one.sum, x.values.any, x.values.all], strict=True):
        assert_same(made, expected(axis, keepdims=keep))


@given(cases(), st.booleans())
def test_counts(case, small):
    x, axis, keep, _ = case
    with small_blocks(small):
        got = qa.counts(x.q, axis, keepdims=keep)
    assert got.shape[0] == x.law.dtype.n_levels
    for code, made in enumerate(got):
        np.testing.assert_array_equal(made, (x.codes == code).sum(axis, keepdims=keep))


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("length", LENGTHS)
def test_every_width_and_length(bits, length):
    codes = np.random.default_rng(bits * length).integers(0, 2**bits, (3, length, 2))
    q = qa.from_codes(codes, getattr(qa, f"uint{bits}"), 1)
    for axis in (None, 0, 1, 2, (0, 1), (1, 2)):
        np.testing.assert_array_equal(q.sum(axis), codes.sum(axis))
        np.testing.assert_array_equal(q.max(axis), codes.max(axis))
        np.testing.assert_array_equal(qa.count_nonzero(q, axis), np.count_nonzero(codes, axis))


@given(st.data())
def test_a_view_is_reduced_as_its_copy(data):
    x = data.draw(arrays(law=INTEGER, least_length=1))
    cut = tuple(slice(data.draw(st.integers(0, 1)), None, data.draw(st.sampled_from([1, 2]))) for _ in x.codes.shape)
    cut = cut[: x.axis] + (slice(None),) + cut[x.axis + 1 :]
    q, values = x.q[cut], x.values[cut]
    axis = data.draw(axes(values.ndim))
    np.testing.assert_array_equal(q.sum(axis), values.sum(axis))
    np.testing.assert_array_equal(q.T.sum(axis), values.T.sum(axis))


@given(st.data())
def test_sums_do_not_depend_on_where_blocks_end(data):
    """Counts are exact; only runs of one law are added in floats, and these in one order."""
    shape, axis = data.draw(st.sampled_from([((3, 200, 2), 1), ((4, 65), 1), ((200,), 0)]))
    x = data.draw(samples(shape, axis, laws(4, ["scaled", "uniform", "basis", "table"]), range(len(shape)), (None, 5)))
    over = data.draw(axes(len(shape)))
    whole = qa.sum(x.q, over)
    with small_blocks(True):
        np.testing.assert_array_equal(qa.sum(x.q, over), whole)


def test_a_dtype_that_is_asked_for():
    """The requested dtype has the values of the default one, or is refused; cumulative sums and products too."""
    q = qa.encode([[3, -2, 3], [1, 1, -2]], values=range(-2, 4))
    line = {"sum": qa.sum, "prod": qa.prod, "cumulative_sum": qa.cumulative_sum, "cumulative_prod": qa.cumulative_prod}
    for name, f in line.items():
        expected = getattr(np, name)(q.dequantize().astype(np.int64), axis=1)
        for dtype in (np.int32, np.int64, np.float32, np.float64):
            got = f(q, axis=1, dtype=dtype)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, expected)
        with pytest.raises(TypeError, match=f"{name}: dtype must be one of int32, int64, float32, float64, got int8"):
            f(q, axis=1, dtype=np.int8)
    assert qa.sum(q * 0.1, dtype=np.float64) == np.sum((q * 0.1).dequantize(), dtype=np.float64)
    with pytest.raises(TypeError, match="sum: float constants give float32 or float64, got dtype=int64"):
        qa.sum(q * 0.1, dtype=int)
    with pytest.raises(OverflowError, match="sum: the exact result may not fit int32"):
        qa.sum(q * 2**28, dtype=np.int32)
    assert q.sum(1, dtype=float).dtype == q.prod(1, dtype=float).dtype == np.float64


def test_result_types_follow_from_dtypes_and_shapes():
    big = qa.integers([2**30, 0])
    assert qa.sum(qa.from_codes([1], big)).dtype == np.int32
    assert qa.sum(qa.from_codes([1, 1], big)).dtype == np.int64
    assert qa.prod(qa.from_codes([1, 1], big)).dtype == np.int64
    assert qa.sum(qa.quantize(np.ones(2), qa.Sign(scale=True))).dtype == np.float32
    assert qa.max(qa.from_codes([1], big)).dtype == np.int32


def test_methods_take_numpys_name_for_a_correction():
    q = qa.encode([[0, 1, 2, 3]], range(4))
    assert (q.var(ddof=1), q.std(axis=1, ddof=1)) == (qa.var(q, correction=1), qa.std(q, 1, correction=1))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda q: qa.sum([1, 2]), TypeError, "sum: q must be a QuantArray"),
        (lambda q: qa.sum(q, 2), np.exceptions.AxisError, "sum: axis 2 is out of bounds"),
        (lambda q: qa.mean(q, (0, -2)), ValueError, "mean: axis must name each axis once"),
        (lambda q: qa.max(q, keepdims=1), TypeError, "max: keepdims must be True or False"),
        (lambda q: qa.var(q, correction="1"), TypeError, "var: correction must be a number"),
        (lambda q: qa.prod(qa.quantize(np.ones(2), qa.Sign(scale=True))), TypeError, r"prod: .*np\.prod takes"),
        (lambda q: qa.prod(qa.from_codes(np.ones(200, int), qa.uint2)), OverflowError, "prod: .*multiply fewer"),
        (lambda q: qa.min(q[:, :0]), ValueError, "min: no elements have no min"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call(qa.encode(np.ones((2, 70), int), (-1, 1)))
