"""Elementwise operations of integer levels of any widths, and dense results, against NumPy on the values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import within_memory
from results import assert_packed
from strategies import integer_dtypes, laws, samples, seeds

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.cpu.bits import add_codes

FUNCTIONS = {"add": np.add, "subtract": np.subtract, "maximum": np.maximum, "minimum": np.minimum}
COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
TYPES = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.float16, np.float32, np.float64)


@st.composite
def pairs(draw, law):
    """Draw two samples that broadcast, packed on one axis of the result."""
    shape = [draw(st.sampled_from([1, 2, 3])) for _ in range(draw(st.integers(1, 3)))]
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = draw(st.sampled_from([0, 1, 31, 63, 64, 65, 130]))
    both = []
    for _ in range(2):
        cut = draw(st.integers(0, axis))
        ours = [n if d == axis or draw(st.booleans()) else 1 for d, n in enumerate(shape)]
        both.append(draw(samples(tuple(ours[cut:]), axis - cut, law, range(len(shape) - cut))))
    return both


@given(pairs(laws(8, ["integer"])), st.sampled_from(sorted(FUNCTIONS)), st.booleans())
def test_integers_of_any_widths(both, name, many):
    p, q = both
    expected = FUNCTIONS[name](p.values, q.values)
    a, b = np.array(p.law.dtype.levels), np.array(q.law.dtype.levels)
    possible = np.unique(FUNCTIONS[name].outer(a, b))
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(add_codes, "_LEAST", 0)
        try:
            got = getattr(qa, name)(p.q, q.q)
        except ValueError as error:
            # Levels that are uneven, or of different steps, have a grid of more than 256 with fewer sums
            even = p.law.dtype.step and q.law.dtype.step and abs(p.law.dtype.step) == abs(q.law.dtype.step)
            assert len(possible) > 256 or (name in ("add", "subtract") and not even)
            kind = str(error).partition("out_dtype=np.")[2].partition(" ")[0]
            assert f"{name}: the result would have" in str(error)
            if name in ("add", "subtract"):
                dense = getattr(qa, name)(p.q, q.q, out_dtype=kind)
                np.testing.assert_array_equal(dense, expected)
                assert dense.dtype == kind
            return
    validate(got)
    assert_packed(got, expected)
    assert got.dtype.is_integer and set(possible) <= set(got.dtype.levels)
    if p.law.dtype.bits + q.law.dtype.bits <= 8:
        assert list(got.dtype.levels) == possible.tolist()


@given(pairs(laws(8)), st.sampled_from(COMPARED))
def test_comparisons_of_any_widths(both, name):
    p, q = both
    with within_memory():
        got = getattr(qa, name)(p.q, q.q)
    assert_packed(got, getattr(np, name)(p.values, q.values).astype(np.int64))


@given(pairs(laws(8, ["integer"])), st.data())
def test_where_of_any_widths(both, data):
    p, q = both
    if len({*p.law.dtype.levels, *q.law.dtype.levels}) > 256:
        return
    shape = np.broadcast_shapes(p.values.shape, q.values.shape)
    mask = np.random.default_rng(data.draw(seeds())).integers(0, 2, shape)
    packed = qa.from_codes(mask, qa.uint1, axis=p.axis + len(shape) - p.values.ndim)
    assert_packed(qa.where(packed, p.q, q.q), np.where(mask, p.values, q.values))


@given(pairs(laws(8)), st.sampled_from([*FUNCTIONS, "multiply"]), st.sampled_from(TYPES), st.sampled_from("qdn"))
def test_dense_results(both, name, kind, other):
    p, q = both
    f = {**FUNCTIONS, "multiply": np.multiply}[name]
    b = {"q": q.q, "d": q.values.astype(np.float32), "n": 3}[other]
    right = {"q": q.values, "d": q.values.astype(np.float32), "n": np.int64(3)}[other]
    exact = p.exact and np.asarray(right).dtype.kind == "i"
    work = np.int64 if exact else np.float64
    with np.errstate(all="ignore"):
        expected = f(p.values.astype(work), right.astype(work))
    if np.dtype(kind).kind in "iu":
        if not exact:
            with pytest.raises(TypeError, match=f"{name}: out_dtype must be a type of floats"):
                getattr(qa, name)(p.q, b, out_dtype=kind)
            return
        ends = np.iinfo(kind)
        if expected.size and (expected.min() < ends.min or expected.max() > ends.max):
            with pytest.raises(OverflowError, match=f"{name}: results from .* do not fit out_dtype"):
                getattr(qa, name)(p.q, b, out_dtype=kind)
            return
    got = getattr(qa, name)(p.q, b, out_dtype=kind)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, expected.astype(kind))
    assert got.dtype == kind


@given(integer_dtypes(8), integer_dtypes(8))
def test_nothing_packed_is_larger_than_float32(one, other):
    p, q = (qa.from_codes(np.zeros((64, 130), int), law) for law in (one, other))
    for name in FUNCTIONS:
        try:
            got = getattr(qa, name)(p, q)
        except ValueError:
            continue
        assert got.nbytes < 4 * got.size


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda q: q * np.full(q.shape, 2.5), "multiply: .*out_dtype=np.float32"),
        (lambda q: q + np.full(q.shape, 2.5), "add: .*out_dtype=np.float32"),
        (lambda q: q * 0.5 * np.full(q.shape, 2.5), "multiply: .*out_dtype=np.float32"),
        (lambda q: qa.astype(q, qa.table(5)) + np.full((4, 32, 1), 1), None),
        (lambda q: qa.astype(q, qa.table(5)) + np.full(q.shape, 1), "add: .*out_dtype=np.float32"),
        (lambda q: qa.maximum(q * 0.5, q), "maximum: two packed arrays go through a table .*out_dtype=np.float32"),
        (lambda q: qa.from_codes(q.codes(), qa.int8) - qa.from_codes(q.codes(), qa.int8), "subtract: .*=np.int16"),
    ],
)
def test_what_would_be_larger_is_refused_and_says_how_else(call, said):
    q = qa.from_codes(np.arange(4 * 32 * 64).reshape(4, 32, 64) % 32, qa.uint5)
    if said is None:
        assert call(q).nbytes < 4 * q.size
        return
    with pytest.raises(ValueError, match=said):
        call(q)


def test_dense_results_say_what_is_wrong():
    q = qa.from_codes(np.arange(6).reshape(2, 3), qa.uint5)
    with pytest.raises(TypeError, match="add: out_dtype must be one of"):
        qa.add(q, q, out_dtype=np.complex64)
    with pytest.raises(TypeError, match="add: one operand must be a QuantArray"):
        qa.add(1, 2, out_dtype=np.int8)
    with pytest.raises(ValueError, match="add: a and b must have shapes that broadcast"):
        qa.add(q, np.ones(4), out_dtype=np.float32)


def test_dense_results_beyond_int64():
    """Exact where the type holds them, an error where it does not."""
    q, top = qa.encode([1, 2, 3], values=range(4)), np.uint64([2**63 + 5, 1, 2**64 - 1])
    with pytest.raises(OverflowError, match="do not fit"):
        qa.multiply(q, np.full(3, 2**62), out_dtype=np.int64)
    with pytest.raises(OverflowError, match="do not fit"):
        qa.subtract(top, q, out_dtype=np.int64)
    exact = [int(a) * int(b) for a, b in zip([1, 2, 3], top, strict=True)]
    assert qa.multiply(q, top, out_dtype=np.float64).tolist() == [float(v) for v in exact]
    assert qa.add(q, 2**63, out_dtype=np.float64).tolist() == [float(2**63 + v) for v in (1, 2, 3)]
    assert qa.add(q, np.full(3, 2**62), out_dtype=np.int64).tolist() == [2**62 + v for v in (1, 2, 3)]
    with pytest.raises(ValueError, match=r"got \(3,\) and \(2,\)"):
        qa.add(q, [1, 2], out_dtype=np.float32)
