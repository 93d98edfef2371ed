"""Functions of levels, comparisons and choices against NumPy on decoded values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import any_samples, beside, few_bit_pairs, one_sample, shapes, within_memory
from results import assert_packed
from strategies import threads

import quantarray as qa
from quantarray.arrays.array import validate

SAME = {  # the same values of integers and floats
    "abs": np.abs, "sign": np.sign, "square": np.square, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.round, "relu": lambda v: np.maximum(v, 0), "isfinite": np.isfinite, "isinf": np.isinf,
    "isnan": np.isnan, "signbit": np.signbit, "positive": np.positive,
}  # fmt: skip
FLOAT = {
    "atan": np.arctan, "asinh": np.arcsinh, "cos": np.cos, "sin": np.sin, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip
PARTLY = {  # finite for some levels only
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "atanh": np.arctanh, "exp": np.exp, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "cosh": np.cosh,
    "sinh": np.sinh, "reciprocal": lambda v: 1 / v,
}  # fmt: skip
COMPARED = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
NUMBERS = st.one_of(st.integers(-20, 20), st.sampled_from([0.5, -1.5, 3.25, 100.0, 0.1]))


def floats(f, v):
    """f of integers in float64, of floats in float32, rounded to float32 as tables are."""
    with np.errstate(all="ignore"):
        return f(v.astype(np.float64) if v.dtype.kind == "i" else v).astype(np.float32)


@given(any_samples(), st.sampled_from(sorted(SAME)), st.booleans())
def test_functions_with_the_same_values(x, name, many):
    with threads(many), within_memory():
        got = getattr(qa, name)(x.q)
    with np.errstate(over="ignore"):
        expected = SAME[name](x.values)
    assert_packed(got, expected.astype(np.int32) if expected.dtype == bool else expected)
    assert got.axis == x.axis
    if name in ("floor", "ceil", "trunc", "round", "abs", "relu", "square"):
        assert got.dtype.is_integer == x.exact


@given(any_samples(), st.sampled_from(sorted(FLOAT)))
def test_functions_that_give_floats(x, name):
    with within_memory():
        got = getattr(qa, name)(x.q)
    assert_packed(got, floats(FLOAT[name], x.values))
    assert got.dtype == qa.table(x.law.dtype.bits, x.law.dtype.n_levels)


@given(any_samples(most_bits=3), st.sampled_from(sorted(PARTLY)))
def test_functions_that_are_not_finite_everywhere(x, name):
    """All levels count, also those that do not occur."""
    levels = floats(PARTLY[name], x.q.levels)
    if np.isfinite(levels).all():
        with within_memory():
            got = getattr(qa, name)(x.q)
        assert_packed(got, floats(PARTLY[name], x.values))
    else:
        with pytest.raises(ValueError, match=f"{name}: levels must be finite and fit in float32, got"):
            getattr(qa, name)(x.q)


@given(any_samples(), NUMBERS, st.sampled_from(["maximum", "minimum", "clip"]), st.booleans())
def test_limits(x, t, name, swapped):
    limits = (t, t + 2) if name == "clip" else (t,)
    with within_memory():
        got = getattr(qa, name)(t, x.q) if swapped and name != "clip" else getattr(qa, name)(x.q, *limits)
    expected = getattr(np, name)(x.values, *limits)
    assert_packed(got, expected)
    assert got.dtype.is_integer == (x.exact and isinstance(t, int))


@given(any_samples(), st.data())
def test_limits_by_vectors(x, data):
    t = data.draw(beside(x.codes.shape, x.axis))
    with within_memory():
        got = qa.maximum(x.q, t)
    kind = np.float64 if x.exact else np.float32
    assert_packed(got, np.maximum(x.values.astype(kind), t.astype(kind)).astype(np.float32))


@given(any_samples(laws=["integer"]), st.integers(-20, 20).filter(bool), st.integers(0, 4))
def test_integer_division_and_powers(x, n, power):
    q, v = x.q, x.values
    assert_packed(q // n, v // n)
    assert_packed(q % n, v % n)
    highest = max(abs(level) for level in x.law.dtype.levels) ** power
    if highest < 2**31:
        assert_packed(q**power, v**power)
    else:
        with pytest.raises(ValueError, match="pow: integer levels must be within"):
            q**power
    assert_packed(qa.round(q, -1), np.round(v, -1))


@given(any_samples(laws=["scaled", "uniform", "basis", "table"]), st.sampled_from([0.5, -3.0, 7]))
def test_float_division(x, s):
    with within_memory():
        whole, rest = x.q // s, x.q % s
    assert_packed(whole, np.floor_divide(x.values, np.float32(s)))
    assert_packed(rest, np.remainder(x.values, np.float32(s)))


@given(few_bit_pairs(), st.sampled_from(["maximum", "minimum", "atan2", "copysign", "hypot", "logaddexp"]))
def test_functions_of_two_arrays(pair, name):
    p, q = pair
    f = {"atan2": np.arctan2}.get(name) or getattr(np, name)
    with within_memory():
        got = getattr(qa, name)(p.q, q.q)
    expected = f(p.values.astype(np.float64), q.values.astype(np.float64))
    assert_packed(got, expected.astype(np.float32) if got.dtype.kind == "table" else expected)


@given(any_samples(), st.sampled_from(sorted(COMPARED)), st.booleans(), st.data())
def test_comparisons(x, name, swapped, data):
    """Arrays are compared with numbers, vectors, and a value that occurs."""
    f = COMPARED[name]
    kinds = [NUMBERS, beside(x.codes.shape, x.axis)]
    if x.values.size:
        kinds.append(st.just(x.values.flat[0].item()))
    t = data.draw(st.one_of(*kinds))
    with within_memory():
        got = getattr(qa, name)(t, x.q) if swapped else getattr(qa, name)(x.q, t)
    assert_packed(got, (f(t, x.values) if swapped else f(x.values, t)).astype(np.int32))
    assert got.dtype is qa.uint1


@given(few_bit_pairs(), st.sampled_from(sorted(COMPARED)))
def test_comparisons_of_two_arrays(pair, name):
    p, q = pair
    with within_memory():
        got = getattr(qa, name)(p.q, q.q)
    assert_packed(got, COMPARED[name](p.values, q.values).astype(np.int32))


@given(shapes(), st.sampled_from(sorted(COMPARED)), st.data())
def test_comparisons_of_many_bits(place, name, data):
    """Arrays of many bits are compared by ranks of levels, some of which are equal."""
    p = data.draw(one_sample(*place))
    q = data.draw(st.one_of(one_sample(*place), st.just(p)))
    with within_memory():
        got = getattr(qa, name)(p.q, q.q)
    assert_packed(got, COMPARED[name](p.values, q.values).astype(np.int32))


def test_comparisons_with_integers_of_many_bits():
    """Numbers beyond integer levels and beyond float64; real levels may be on either side of some."""
    q, u = qa.encode([1, -1], values=(-1, 1)), qa.from_codes([0, 1], qa.uint1, scale=1e30)
    for n in (2**63, 2**64, 2**70, 10**400):
        assert (q < n).all() and (-n < q).all() and not (q == n).any() and not (q > n).any()
    assert ((u > 2**70).codes() == [0, 1]).all() and not (u > 2**110).any()


def test_numbers_of_numpy_compare_by_their_types():
    q = qa.from_codes([0, 1], qa.table(1), table=[0.1, 1.0])
    v = q.dequantize()
    for t in (0.1, np.float32(0.1), np.float64(0.1), np.array(0.1), np.float16(0.1), np.uint8(1), np.bool_(True)):
        for f in (np.equal, np.less, np.greater_equal):
            assert_packed(f(q, t), f(v, t).astype(np.int32))
            assert_packed(f(t, q), f(t, v).astype(np.int32))


@pytest.mark.parametrize("one", [True, np.bool_(True)])
def test_a_bool_is_a_number(one):
    q = qa.encode([0, 2, 3], values=range(4))
    assert_packed(qa.where(q > 2, one, q), np.int32([0, 2, 1]))
    assert_packed(qa.minimum(one, q), np.int32([0, 1, 1]))


def test_operators_are_the_functions():
    q = qa.encode([0, 3, 2], values=range(4))
    for got, expected in [
        (q == 3, [0, 1, 0]), (q != 3, [1, 0, 1]), (q < 2, [1, 0, 0]), (2 < q, [0, 1, 0]), (q <= 2, [1, 0, 1]),
        (2 >= q, [1, 0, 1]), (q > q, [0, 0, 0]), (q == [0, 3, 1], [1, 1, 0]), (np.array([0, 3, 1]) == q, [1, 1, 0]),
        (abs(-q), [0, 3, 2]), (+q, [0, 3, 2]), (7 // (q + 1), [7, 1, 2]), (7 % (q + 1), [0, 3, 1]), (2**q, [1, 8, 4]),
        (q**q, [1, 27, 4]), (np.ones(3) - q, [1, -2, -1]), (np.float32(2) * q, [0, 6, 4]), (np.square(q), [0, 9, 4]),
        (~(q == 0), [0, 1, 1]), (np.invert(q == 0) & (q > 2), [0, 1, 0]),
        *zip(divmod(q, 2), ([0, 1, 1], [0, 1, 0]), strict=True),
        *zip(divmod(7, q + 1), ([7, 1, 2], [0, 3, 1]), strict=True),
        *zip(np.divmod(q, 2), ([0, 1, 1], [0, 1, 0]), strict=True),
        *zip(divmod(np.array([7, 7, 7]), q + 1), ([7, 1, 2], [0, 3, 1]), strict=True),
    ]:  # fmt: skip
        assert_packed(got, expected)
    assert 3 in q and 1 not in q and 0.5 not in q


@given(few_bit_pairs(laws=["integer", "scaled", "uniform", "table"]), st.data())
def test_where(pair, data):
    p, q = pair
    shape = np.broadcast_shapes(p.codes.shape, q.codes.shape)
    axis = len(shape) - (p.codes.ndim - p.axis)
    m = data.draw(st.integers(0, 2**32 - 1).map(lambda s: np.random.default_rng(s).integers(0, 2, shape)))
    mask = qa.from_codes(m, qa.uint1, axis)
    with within_memory():
        got = qa.where(mask, p.q, q.q)
    both = p.exact and q.exact
    assert_packed(got, np.where(m, p.values, q.values) if both else np.where(m, p.values, q.values).astype(np.float32))
    if both:
        assert got.dtype == qa.result_type(p.law.dtype, q.law.dtype)


@given(any_samples(most_bits=7), NUMBERS, st.booleans())
def test_where_of_a_number(x, t, swapped):
    m = np.abs(x.codes) % 2
    mask = qa.from_codes(m, qa.uint1, x.axis)
    if x.exact and isinstance(t, float) and not t.is_integer():
        t = int(t)
    with within_memory():
        got = qa.where(mask, t, x.q) if swapped else qa.where(mask, x.q, t)
    expected = np.where(m, t, x.values) if swapped else np.where(m, x.values, t)
    assert_packed(got, expected.astype(x.values.dtype))


def test_where_keeps_a_law():
    q = qa.from_codes([0, 1, 3], qa.uniform(2), scale=0.5)
    got = qa.where(q > 0.2, q, q)
    assert got.dtype == q.dtype and got.scale == q.scale and qa.array_equal(got, q)
    assert qa.where(q > 0.2, 1, 0).dtype is qa.uint1 and qa.where(q > 0.2, 1, 0.5).dtype == qa.table(1)


@given(any_samples(), st.sampled_from([np.cbrt, lambda v: v * 2 > 1, lambda v: np.sign(v).astype(int), lambda v: v]))
def test_map(x, f):
    with within_memory():
        got = qa.map(f, x.q)
    expected = f(x.values)
    if expected.dtype.kind == "f":
        expected = floats(f, x.values)
    assert_packed(got, expected.astype(np.int32) if expected.dtype == bool else expected)


def test_map_evaluates_levels_not_elements():
    seen = []
    q = qa.encode(np.zeros((30, 200), int), qa.uint2)
    qa.map(lambda v: seen.append(v.size) or v, q)
    qa.map2(lambda v, w: seen.append(v.size) or v + w, q, q)
    assert seen == [4, 16]


def test_map2_of_levels_that_fill_no_bits():
    """Codes of pairs that cannot occur have no entry in the table."""
    p, q = qa.encode([1, 0, -1], qa.ternary), qa.encode([4, 6, 5], (4, 5, 6))
    got = qa.map2(lambda a, b: a / b, p, q)
    assert got.dtype == qa.table(4, 9)
    assert_packed(got, np.float32([1 / 4, 0, -1 / 5]))


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda q: qa.map(np.sum, q), ValueError, ["map: the function must return an array of the shape", "(2,", "()"]),
        (lambda q: qa.map(str, q), TypeError, ["map: what the function returns must be an array of bool"]),
        (lambda q: qa.map(lambda v: v * 2**40, q), ValueError, ["map: integer levels must be within"]),
        (lambda q: qa.sqrt(q), ValueError, ["sqrt: levels must be finite", "got nan for -1"]),
        (lambda q: qa.log(q + 1), ValueError, ["log: levels must be finite", "got -inf for 0"]),
        (lambda q: q // 0, ValueError, ["floor_divide: levels must be finite"]),
        (lambda q: q % 0, ValueError, ["remainder: levels must be finite"]),
        (lambda q: pow(q, 2, 3), TypeError, ["pow of packed arrays takes no modulus", r"(q ** n) % m"]),
        (lambda q: (q + 1) ** -1, ValueError, ["pow: levels must be finite"]),
        (lambda q: q**40000000000 * 2 ** (q * 200), ValueError, ["pow: levels must be finite and fit in"]),
        (lambda q: qa.where(q, 1, 0), TypeError, ["where: mask must be a uint1 array, got bipolar", "q > 0"]),
        (lambda q: qa.where([True], q, 0), TypeError, ["where: mask must be a QuantArray"]),
        (lambda q: qa.where(q > 0, q, [1, 2, 3]), TypeError, ["where: b must be a packed array or a number"]),
        (lambda q: qa.where(q > 0, qa.zeros(3, qa.uint8), -5), ValueError, ["where", "257 levels"]),
        (lambda q: qa.where(q > 0, q[:2], 1), ValueError, ["mask and a and b", "broadcast", "(3,) and (2,) and (3,)"]),
        (lambda q: q << 1, TypeError, ["<<", "q * 2**n", "shift(q, n)"]),
        (lambda q: 1 >> q, TypeError, [">>", "shift(q, n)"]),
        (lambda q: q == None, TypeError, ["equal: the operand must be an array of bool"]),  # noqa: E711
        (lambda q: q < "a", TypeError, ["less: the operand must be an array of bool"]),
        (lambda q: np.gcd(q, 2), TypeError, ["numpy.gcd does not take packed arrays"]),
        (lambda q: np.add(q, 1, out=np.ones(3)), TypeError, ["numpy.add does not take packed arrays"]),
        (lambda q: qa.abs([1]), TypeError, ["abs: q must be a QuantArray"]),
        (lambda q: qa.tanh(1.0), TypeError, ["tanh: q must be a QuantArray"]),
        (lambda q: qa.round(q, 0.5), TypeError, ["round: decimals must be an integer"]),
        (lambda q: q + 2**70, ValueError, ["add: the operand must fit in 64 bits, got an integer of 71"]),
        (lambda q: qa.where(q > 0, 10**5000, q), ValueError, ["where: a must fit in 64 bits"]),
        (lambda q: qa.where(q > 0, 2**40, q), ValueError, ["where: integer levels must be within"]),
        (lambda q: qa.map(3, q), TypeError, ["map: f must be a function, got int"]),
        (lambda q: qa.map2(None, q, q), TypeError, ["map2: f must be a function, got NoneType"]),
        (lambda q: qa.map_reduce(q, q), TypeError, ["map_reduce: f must be a function, got QuantArray"]),
    ],
)
def test_messages(call, error, parts):
    q = qa.encode([1, -1, 1], values=(-1, 1))
    with pytest.raises(error) as caught:
        call(q)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


def test_dtypes_follow_from_dtypes():
    """Another array of the same law has results of the same dtype and constants."""
    for dtype in (qa.bipolar, qa.int3, qa.uniform(3), qa.basis(2), qa.table(2)):
        constants = {"uniform": {"scale": 0.3}, "basis": {"scale": [0.5, 2]}, "table": {"table": np.arange(4.0)}}
        made = [
            qa.from_codes(codes, dtype, **constants.get(dtype.kind, {})) for codes in ([0, 0, 0], [1, 0, 1], [1, 1, 1])
        ]
        for f in (qa.abs, qa.sign, qa.relu, qa.tanh, lambda q: q > 1, lambda q: qa.maximum(q, q), lambda q: q * q + 1):
            results = [f(q) for q in made]
            assert len({r.dtype for r in results}) == 1
            for r in results:
                validate(r)
                np.testing.assert_array_equal(r.levels, results[0].levels)
