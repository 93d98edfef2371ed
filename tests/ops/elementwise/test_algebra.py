"""Level algebra against NumPy on decoded values: exact for integers, constants rounded once elsewhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import any_samples, beside, few_bit_pairs, roundings, within_memory
from results import assert_packed

import quantarray as qa
from quantarray.arrays.array import validate

NUMBERS = st.one_of(st.integers(-1000, 1000), st.sampled_from([0.5, -3.25, 1e-3, 1e6, 0.1, np.float32(0.3), True]))
BOTH = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}


def exact_operand(t):
    return isinstance(t, (int, np.integer, np.bool_)) and not isinstance(t, np.ndarray)


def near(x, got, expected, *terms):
    """Within the roundings of constants and of the result, each one of float32, of what is added up."""
    validate(got)
    slack = 4 * np.spacing(np.float32(1)) * sum(np.abs(t) for t in terms) + np.finfo(np.float32).tiny
    assert (np.abs(got.dequantize().astype(np.float64) - expected) <= slack).all()
    assert got.shape == x.codes.shape and got.axis == x.axis and got.bits == x.law.dtype.bits


@given(any_samples())
def test_sign_changes_are_views_of_exact_values(x):
    got = -x.q
    assert_packed(got, -x.values)
    assert got.dtype.kind == x.law.dtype.kind and got.bits == x.law.dtype.bits
    q = x.q
    assert +q is q and np.shares_memory((-q).words, q.words) == (q.words.size > 0)
    assert np.array_equal(qa.negative(-q).dequantize(), q.dequantize())


@given(any_samples(), NUMBERS, st.sampled_from(sorted(BOTH)), st.booleans())
def test_numbers(x, t, name, swapped):
    f, q = BOTH[name], x.q
    got = f(t, q) if swapped else getattr(qa, name)(q, t)
    if x.exact and exact_operand(t):
        expected = f(int(t), x.values) if swapped else f(x.values, int(t))
        assert_packed(got, expected)
        assert got.dequantize().dtype == np.int32
        return
    t64 = np.float64(t)
    value = roundings(x)
    if name == "multiply":
        return near(x, got, value.sum * t64, value.magnitude * t64)
    signs = {"add": (1, 1), "subtract": (-1, 1) if swapped else (1, -1)}[name]
    near(x, got, signs[0] * value.sum + signs[1] * t64, value.magnitude, np.abs(t64) + 0 * value.sum)
    assert np.shares_memory(got.words, q.words) == (q.words.size > 0)


@given(any_samples(), st.data())
def test_vectors(x, data):
    name = data.draw(st.sampled_from([*BOTH, "divide"]))
    t = data.draw(beside(x.codes.shape, x.axis))
    q, value, f = x.q, roundings(x), BOTH.get(name, np.divide)
    if name == "divide":
        t = np.where(t == 0, 1, t)
    with within_memory():
        got = getattr(qa, name)(q, t)
    t64 = t.astype(np.float64)
    expected = f(value.sum, t64)
    near(x, got, expected, *((f(value.magnitude, t64),) if name in ("multiply", "divide") else (value.magnitude, t64)))
    assert np.shares_memory(got.words, q.words) == (q.words.size > 0)


@given(any_samples(), st.sampled_from([2, -3, 0.5, 7.0, np.float32(0.1)]))
def test_division(x, s):
    value = roundings(x)
    got = x.q / s
    near(x, got, value.sum / np.float64(s), value.magnitude / np.float64(s))
    if x.exact:
        expected = (x.values / np.float64(s)).astype(np.float32)
        assert (np.abs(got.dequantize() - expected) <= np.spacing(np.abs(expected))).all()


@given(any_samples(laws=["integer"]), st.sampled_from([6, -1, 0.25]))
def test_division_by_levels(x, s):
    q = qa.where(x.q == 0, 1, x.q) if 0 in x.law.dtype.levels else x.q
    if 0 in q.dtype.levels:  # levels that do not occur count
        with pytest.raises(ValueError, match="divide: levels must be finite"):
            s / q
        return
    expected = (np.float64(s) / np.where(x.values == 0, 1, x.values)).astype(np.float32)
    assert_packed(s / q, expected)


@given(few_bit_pairs(), st.sampled_from(sorted(BOTH)))
def test_two_arrays(pair, name):
    p, q = pair
    with within_memory():
        got = getattr(qa, name)(p.q, q.q)
    both = np.broadcast_arrays(p.values, q.values)
    exact = p.exact and q.exact
    kind = np.int64 if exact else np.float32 if not (p.exact or q.exact) else np.float64
    expected = BOTH[name](*(v.astype(kind) for v in both))
    assert_packed(got, expected if exact else expected.astype(np.float32))
    assert got.dtype.kind == ("integer" if exact else "table")
    assert got.axis == got.ndim - (p.codes.ndim - p.axis)


def test_dtypes():
    q = qa.encode([1, -1], values=(-1, 1))
    assert (q + 1).dtype == qa.integers(0, 2) and (q * 0).dtype == qa.integers(0) and (3 - q).dtype == qa.integers(4, 2)
    assert (q * 0.5).dtype is qa.bipolar and (q + 0.5).dtype == qa.uniform(1)
    assert (q + 0.1 - 0.1).dtype == qa.uniform(1) and (q * [0.5, 2]).group == 1
    assert (qa.encode([5], (1, 5, 6)) + 0.5).dtype == qa.table(2, 3)
    assert (q + q).dtype == qa.integers(-2, 0, 2) and (q * q).dtype == qa.bipolar
    assert (q + True).dtype == qa.integers(0, 2) and (q * 2.0).dtype is qa.bipolar


def test_a_level_is_rounded_once():
    """Uniform with a rounded offset would be 1 ulp off; a table is not."""
    q = qa.encode([0, 1], values=range(2))
    for t in (0.1, -0.1, 1e-9, 2**24 + 0.5, 0.7):
        assert (q + t).dequantize().tolist() == [float(np.float32(v + t)) for v in (0, 1)]


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda q: q + 2**31, ["add: integer levels must be within", "2147483649", "a float operand"]),
        (lambda q: q * 2**40, ["multiply: integer levels must be within"]),
        (lambda q: q + 1e39, ["add: offset must fit in float32, got 1e+39"]),
        (lambda q: q * float("nan"), ["multiply: scale must be finite"]),
        (lambda q: q / 0, ["divide: division by 0", "take the zeros out"]),
        (lambda q: q / [[1.0], [0.0]], ["divide: division by 0"]),
        (lambda q: 1 / (q + 1), ["divide: levels must be finite", "inf"]),
        (lambda q: q + np.ones(4), ["add: the operand must be a number or broadcast", "(2, 3)", "(4,)"]),
        (lambda q: q + np.ones((1, 2, 3)), ["(2, 3)", "(1, 2, 3)", "is not repeated"]),
        (lambda q: q + q[:, :2], ["add: a and b must have shapes that broadcast", "(2, 3) and (2, 2)"]),
        (lambda q: q + qa.encode(np.ones((2, 1), int), (1,), axis=0), ["packed on the same axis", "repack("]),
        (lambda q: qa.map(lambda v: v * 9, q) + qa.encode(np.zeros((2, 3)), qa.uint8), ["274 integer", "np.int16"]),
        (lambda q: q * 0.5 + qa.encode(np.zeros((2, 3)), qa.uint8), ["1 + 8 = 9", "map one of", "np.float32"]),
    ],
)
def test_messages(call, parts):
    q = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    with pytest.raises(ValueError) as caught:
        call(q)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize("call", [lambda q: q + "a", lambda q: None * q, lambda q: qa.add(1, 2), lambda q: q + 1j])
def test_operands_that_are_no_numbers(call):
    with pytest.raises(TypeError, match="must be"):
        call(qa.encode([1, -1], values=(-1, 1)))


def test_constants_that_outgrow_the_values_are_refused():
    q = qa.encode(np.zeros((64, 1024), int), qa.uint8)
    with pytest.raises(ValueError, match="maximum: the result's constants would vary so much"):
        qa.maximum(q, np.zeros((64, 1024)))
