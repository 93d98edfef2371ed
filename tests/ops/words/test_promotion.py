"""Between dtypes: can_cast says what astype does, values stay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import any_samples, within_memory
from results import assert_packed
from strategies import integer_dtypes, laws

import quantarray as qa


@given(any_samples(), st.data())
def test_astype(x, data):
    own = st.sampled_from([x.law.dtype, qa.table(8), qa.uniform(8), qa.basis(8), qa.int8, qa.table(x.law.dtype.bits)])
    to = data.draw(st.one_of(own, laws().map(lambda law: law.dtype)))
    if not qa.can_cast(x.q, to):
        with pytest.raises(ValueError, match=r"astype: .* does not have all levels of .*quantize"):
            qa.astype(x.q, to)
        return
    with within_memory():
        got = qa.astype(x.q, to)
    assert got.dtype == to and got.axis == x.axis
    assert_packed(got, x.values if to.is_integer else x.values.astype(np.float32))


@given(integer_dtypes(), integer_dtypes())
def test_integers_go_where_all_levels_are(a, b):
    assert qa.can_cast(a, b) == (set(a.levels) <= set(b.levels))
    union = set(a.levels) | set(b.levels)
    if len(union) > 256:
        with pytest.raises(ValueError, match=r"result_type: .* levels together, 8 bits hold 256"):
            qa.result_type(a, b)
        return
    found = qa.result_type(a, b)
    assert set(found.levels) == union and qa.can_cast(a, found) and qa.can_cast(b, found)
    assert found == (a if set(a.levels) == union else b if set(b.levels) == union else qa.integers(sorted(union)))


def test_laws():
    assert qa.can_cast(qa.uniform(2), qa.table(2)) and qa.can_cast(qa.uniform(2), qa.uniform(3))
    assert qa.can_cast(qa.basis(2), qa.basis(4)) and not qa.can_cast(qa.basis(2), qa.uniform(4))
    assert not qa.can_cast(qa.table(2), qa.uniform(2)) and not qa.can_cast(qa.table(2), qa.table(1))
    assert qa.can_cast(qa.integers(1, 3, 5), qa.uniform(2)) and not qa.can_cast(qa.integers(1, 3, 4), qa.uniform(2))
    assert not qa.can_cast(qa.integers(2**24 + 1, 2**24 + 2), qa.uniform(1))
    assert not qa.can_cast(qa.encode([1], (0, 1)) * 0.3, qa.uniform(1)) and not qa.can_cast(qa.uniform(1), qa.uint8)
    assert qa.result_type(qa.table(2), qa.table(2)) == qa.table(2)


def test_a_scale_is_kept():
    got = qa.astype(qa.encode([1, -1], (-1, 1)) * 0.3, qa.ternary)
    assert got.dtype is qa.ternary and got.scale == np.float32(0.3)


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [
        (qa.uint1, ["bool", "unsigned integer", "integral", "numeric"]),
        (qa.uint4, ["unsigned integer", "integral", "numeric"]),
        (qa.bipolar, ["signed integer", "integral", "numeric"]),
        (qa.basis(2), ["real floating", "numeric"]),
    ],
)
def test_kinds(dtype, kinds):
    listed = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]
    assert [kind for kind in listed if qa.isdtype(dtype, kind)] == kinds
    assert qa.isdtype(dtype, dtype) and qa.isdtype(dtype, ("complex floating", kinds[0]))


def test_bounds():
    info = qa.iinfo(qa.integers(7, -3, 5))
    assert (info.bits, info.min, info.max, info.dtype.levels) == (2, -3, 7, (7, -3, 5))


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda q: qa.astype(q, qa.uint2), ValueError, ["astype: uint2 does not", "bipolar (it lacks -1)", "encode("]),
        (lambda q: qa.astype(q * 0.5, qa.uniform(1)), ValueError, ["integer with a scale to 2 of the kind uniform"]),
        (lambda q: qa.astype(q + 0.5, qa.int8), ValueError, ["they are real"]),
        (lambda q: qa.astype(q, np.int8), TypeError, ["astype: dtype must be one of quantarray's dtypes", "int8"]),
        (lambda q: qa.astype([1], qa.int8), TypeError, ["astype: q must be a QuantArray"]),
        (lambda q: qa.can_cast(np.int8, qa.int8), TypeError, ["can_cast: from_ must be"]),
        (lambda q: qa.result_type(), ValueError, ["result_type: needs at least one"]),
        (lambda q: qa.result_type(q, qa.table(1)), ValueError, ["no common dtype", "real levels", "astype("]),
        (lambda q: qa.isdtype(q.dtype, "int"), ValueError, ["isdtype: kind must be one of"]),
        (lambda q: qa.iinfo(qa.table(1)), TypeError, ["iinfo: dtype must have integer levels"]),
    ],
)
def test_messages(call, error, parts):
    q = qa.encode([1, -1, 1], values=(-1, 1))
    with pytest.raises(error) as caught:
        call(q)
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)
