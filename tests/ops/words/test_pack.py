"""Packing: codes to words and back, tails, and the documented bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import laws, lengths, samples, seeds, threads

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.ops.words.conversion import recode


@st.composite
def shapes(draw, axes=3):
    """A shape and its packed axis, as a length from `lengths`; some other axes are empty or long."""
    shape = [draw(st.sampled_from([1, 1, 2, 2, 3, 3, 0, 70])) for _ in range(draw(st.integers(1, axes)))]
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    shape[axis] = draw(lengths())
    return tuple(shape), axis


@given(st.data(), shapes(), laws(), st.booleans())
def test_codes_and_values_come_back(data, shape_axis, law, many):
    shape, axis = shape_axis
    x = data.draw(samples(shape, axis, law, vary=range(len(shape)), groups=(None, 1, 5, 64, 100)))
    with threads(many):
        q = x.q
        assert q.shape == shape and q.axis == axis % len(shape) and q.bits == law.dtype.bits
        assert q.words.shape == (q.bits, *np.delete(shape, axis), -(-shape[axis] // 64))
        assert q.codes().dtype == np.uint8
        np.testing.assert_array_equal(q.codes(), x.codes)
        np.testing.assert_array_equal(q.dequantize(), x.values)
        assert q.dequantize().dtype == (np.int32 if law.exact else np.float32)


@given(st.data(), shapes(), st.integers(1, 7), st.booleans())
def test_a_code_that_is_too_large_is_found_wherever_it_is(data, shape_axis, bits, many):
    """Codes are checked while they are packed: in whole words, in the rest of a row, in each thread's rows."""
    shape, axis = shape_axis
    rng = np.random.default_rng(data.draw(seeds()))
    codes = rng.integers(0, 2**bits, shape).astype(np.uint8)
    dtype = qa.integers(range(2**bits))
    with threads(many):
        np.testing.assert_array_equal(qa.from_codes(codes, dtype, axis).codes(), codes)
        if codes.size:
            codes.flat[rng.integers(codes.size)] = wrong = rng.integers(2**bits, 256)
            message = rf"from_codes: .* has the codes 0 to {2**bits - 1}, got {codes.min()} to {wrong}"
            with pytest.raises(ValueError, match=message):
                qa.from_codes(codes, dtype, axis)


@given(shapes(), st.integers(1, 8), seeds(), st.booleans())
def test_bits_lie_where_the_format_says(shape_axis, bits, seed, many):
    shape, axis = shape_axis
    codes = np.random.default_rng(seed).integers(0, 2**bits, shape)
    with threads(many):
        words = qa.from_codes(codes, qa.uniform(bits), axis, scale=1.0).words
    last = np.moveaxis(codes, axis, -1)
    for k in range(bits):
        plane = np.zeros(words.shape[1:], np.uint64)
        for i in range(shape[axis]):
            plane[..., i // 64] |= (last[..., i] >> k & 1).astype(np.uint64) << np.uint64(i % 64)
        np.testing.assert_array_equal(words[k], plane)


def test_golden_bytes():
    """Element i is bit i % 64 of word i // 64, plane k is bit k, words are little endian: these bytes never change."""
    codes = [0] * 70
    codes[0], codes[9], codes[63], codes[64], codes[69] = 1, 2, 3, 2, 1
    q = qa.from_codes(codes, qa.uint2)
    assert q.words.tolist() == [[0x8000000000000001, 0x20], [0x8000000000000200, 0x1]]
    assert q.words.tobytes().hex() == ("0100000000000080200000000000000000020000000000800100000000000000")
    rows = qa.from_codes(np.array([[1, 0, 1], [0, 1, 1]]), qa.bipolar, axis=0)
    assert rows.words.tolist() == [[[1], [2], [3]]]


@given(st.data(), shapes(), st.integers(1, 8), st.integers(1, 8), st.sampled_from([None, 1, 3, 64, 100]))
def test_recode_looks_every_code_up(data, shape_axis, bits, new_bits, group):
    shape, axis = shape_axis
    x = data.draw(samples(shape, axis, laws(bits, ["integer"])))
    groups = -(-shape[axis] // group) if group else 1
    vary = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    dims = [n if along else 1 for n, along in zip(shape, vary, strict=True)]
    dims[axis] = groups
    n = x.law.dtype.n_levels
    tables = np.random.default_rng(data.draw(seeds())).integers(0, 2**new_bits, (n, *dims))
    q = qa.QuantArray(x.q.words, qa.table(x.q.bits), shape, axis % len(shape), qa.Constants(group=group))
    made = qa.QuantArray(recode(q, tables, new_bits), qa.uniform(new_bits), shape, q.axis)
    wide = tables.take(np.arange(shape[axis]) // group, axis=1 + q.axis) if group else tables
    expected = np.take_along_axis(np.broadcast_to(wide, (n, *shape)), x.codes[None], 0)[0]
    np.testing.assert_array_equal(made.codes(), expected)
    assert_tail(made)


def assert_tail(q):
    """Nothing after the last element: unpacking and packing again gives the same words."""
    again = qa.from_codes(q.codes(), qa.uniform(q.bits), q.axis, scale=1.0)
    np.testing.assert_array_equal(q.words, again.words)


def test_validate_sees_what_is_wrong():
    q = qa.from_codes(np.arange(70) % 3, qa.ternary)
    validate(q)
    tail, code, writeable = q.words.copy(), q.words.copy(), q.copy()
    tail[0, -1] |= np.uint64(1 << 63)
    code[:, 0] |= np.uint64(1)
    writeable._words = q.words.copy()
    for words, message in ((tail, "after element 70"), (code, "codes below 3"), (q.words[:, :1], "needs words")):
        with pytest.raises(ValueError, match=message):
            validate(qa.QuantArray(words, q.dtype, q.shape, q.axis))
    with pytest.raises(ValueError, match="read-only"):
        validate(writeable)
    for words in (tail, code):
        with pytest.raises(ValueError):
            qa.from_words(words, q.dtype, q.shape)


@pytest.mark.parametrize("length", [85 * 64 + 1, 100 * 64])
def test_many_words_begin_on_a_cache_line(length):
    x = np.random.default_rng(0).standard_normal((3, length)).astype(np.float32)
    for q in (qa.quantize(x, qa.Sign()), qa.encode(np.sign(x).astype(int), (-1, 1))):
        assert q.words.ctypes.data % 64 == 0


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int64])
def test_codes_of_any_type_and_order(dtype):
    """Booleans and bytes are read in place, here backwards and across."""
    codes = np.random.default_rng(0).integers(0, 2, (70, 9, 130))
    lying = codes.astype(dtype)[:, ::-1].transpose(2, 0, 1)
    for axis in range(3):
        got = qa.from_codes(lying, qa.uint1, axis=axis)
        np.testing.assert_array_equal(got.codes(), codes[:, ::-1].transpose(2, 0, 1))
