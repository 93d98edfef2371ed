"""linear, matmul and @ against the oracle, bit for bit."""

from dataclasses import replace
from unittest.mock import patch

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from product_cases import LENGTHS, check, operands, real
from results import assert_bits, assert_packed
from strategies import Law, channels, laws, products_by, samples, seeds, threads

import quantarray as qa
from quantarray.core.format import RUN_WORDS
from quantarray.cpu.llvm.stream import STREAMED
from quantarray.ops.products import few_outputs

INTEGER = laws(kinds=["integer"])
REAL = laws(3, ["integer", "scaled", "uniform", "basis", "basis", "table"])
GROUPS = (None, 64, 128, 192)

MANY_GROUPS = st.sampled_from([129, 192, 257, 449])  # from three groups on, their order shows in a float sum
LARGE_OR_REAL = st.just(Law(qa.integers(2**20, -(2**20) + 3), scaled=True)) | laws(2, ["uniform", "basis"])


def leads(most=2):
    return st.lists(st.integers(0, 3) | st.integers(1, 3), max_size=most).map(tuple)


def places(draw):
    """Products by the kernels, or as if their layout took too much memory."""
    return patch.object(
        few_outputs, "_SMALL", draw(st.sampled_from([few_outputs._SMALL, few_outputs._SMALL, -(2**62)]))
    )


@given(st.data(), leads(), st.booleans())
def test_linear_of_integers(data, lead, dense):
    x, w = operands(data.draw, lead, INTEGER, INTEGER)
    left, values = x.q, x.values
    if dense:
        left = values = np.random.default_rng(data.draw(seeds())).integers(-128, 128, x.codes.shape).astype(np.int8)
    rng = np.random.default_rng(data.draw(seeds()))
    bias = data.draw(st.sampled_from([None, rng.integers(-999, 999, len(w.codes))]))
    expected = (naive.matmul(values, w.values.T) + (0 if bias is None else bias)).astype(np.int32)
    right = w.q
    with places(data.draw):
        check(data.draw, lambda **more: qa.linear(left, right, bias=bias, **more), expected)
        for dtype in (np.int64, np.float32):
            got = qa.linear(left, right, bias=bias, out_dtype=dtype)
            assert_bits(got, expected.astype(dtype))


@given(st.data(), leads())
def test_linear_of_floats(data, lead):
    """Constants per row, per output and per group on either side; the bias may cancel the first row."""
    x, w = operands(data.draw, lead, REAL, REAL, GROUPS, LENGTHS | MANY_GROUPS)
    if x.exact and w.exact:
        w = data.draw(samples(w.codes.shape, -1, laws(3, ["scaled"]), (0,), GROUPS))
    bias, kind = None, data.draw(st.sampled_from(["none", "none", "cancel", "cancel", "random"]))
    if kind == "random":
        bias = np.random.default_rng(data.draw(seeds())).normal(size=len(w.codes)).astype(np.float32)
    elif kind == "cancel" and 0 not in lead:
        bias = -real(x, w).reshape(-1, len(w.codes))[0]
    left, right = x.q, w.q
    expected = real(x, w, None if bias is None else bias.astype(np.float64))
    with places(data.draw):
        check(data.draw, lambda **more: qa.linear(left, right, bias=bias, **more), expected)


@pytest.mark.parametrize("outputs", [2112, 2056])  # whole lines, and rows that begin within one
@pytest.mark.parametrize(
    "levels, scheme", [((-1, 1), None), (range(16), None), ((-1, 1), qa.ABC(2)), ((0, 1), qa.XNOR())]
)
def test_results_past_the_cache(levels, scheme, outputs):
    """More than 16 MiB, of counts, of products of bytes, of floats."""
    rng = np.random.default_rng(0)
    values, weights = rng.choice(levels, (2048, 65)), rng.choice([-1.0, 1.0], (outputs, 65)).astype(np.float32)
    x = qa.encode(values, levels)
    w = qa.encode(weights, (-1, 1)) if scheme is None else qa.quantize(weights * rng.random((outputs, 1)), scheme)
    with threads(True):
        got = qa.linear(x, w)
    assert got.nbytes >= STREAMED
    expected = values.astype(np.float64) @ w.dequantize().T.astype(np.float64)
    if scheme is None:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)
    some = rng.integers(0, 2048, 40)
    np.testing.assert_array_equal(qa.linear(x[some], w), got[some])


@given(st.data(), st.integers(1, 2))
def test_large_integers(data, rows):
    law = Law(qa.integers(-(2**20), 2**20 - 1))
    x, w = operands(data.draw, (rows,), law, law)
    expected = naive.linear(x.values, w.values)
    assert_bits(qa.linear(x.q, w.q), expected)
    with pytest.raises(OverflowError, match="int32 cannot hold"):
        qa.linear(x.q, w.q, out_dtype=np.int32)


@given(st.data(), st.integers(1, 3), st.booleans())
def test_large_integers_with_scales(data, rows, swap):
    """A product of two scales is exact in float64, but not its product with a sum of 29 bits or more: the order shows.

    The bias cancels the first row but for these rounding errors.
    """
    two = [Law(qa.integers(-(2**20), 2**20 - 1), scaled=True), data.draw(LARGE_OR_REAL)]
    x, w = operands(data.draw, (rows,), *(reversed(two) if swap else two))
    bias = -real(x, w)[0]
    assert_bits(qa.linear(x.q, w.q, bias=bias), real(x, w, bias.astype(np.float64)))


def test_counts_beyond_int64_are_refused():
    """A float result with a scale is still made of integer counts: k * (2**31 - 1)**2 must stay below 2**63."""
    levels = qa.integers(-(2**31 - 1), 2**31 - 1)
    for k in (2, 3):
        x, w = (qa.from_codes(np.ones((1, k), int), levels, scale=s) for s in (2.0**-31, 1.0))
        if k == 3:
            with pytest.raises(OverflowError, match="int64 cannot hold"):
                qa.linear(x, w)
            with pytest.raises(OverflowError, match="int64 cannot hold"):
                qa.conv2d(x.reshape(1, 1, 1, k), w.reshape(1, 1, 1, k))
        else:
            assert_bits(qa.linear(x, w), np.float32([[2.0**32]]))


def test_a_slice_of_one_group_may_meet_groups_of_another_length():
    codes = np.random.default_rng(0).integers(0, 2, (3, 200))
    x = qa.from_codes(codes, qa.bipolar, scale=np.float32([[0.5, 3]]), group=100)[:, :100]
    w = qa.from_codes(codes[:, :100], qa.bipolar, scale=np.float32([[2, 0.25]]), group=64)
    assert_bits(qa.linear(x, w), x.dequantize() @ w.dequantize().T)


# matmul


@given(st.data(), leads(), st.booleans(), st.booleans())
def test_matmul_with_a_matrix(data, lead, real_laws, vector):
    """[.. k] times [k n] or [k], as NumPy's shapes have it."""
    law = REAL if real_laws else INTEGER
    k = data.draw(LENGTHS)
    x = data.draw(samples((*lead, k), -1, law, range(len(lead)), GROUPS))
    w = data.draw(samples((1 if vector else data.draw(channels(33)), k), -1, law, () if vector else (0,), GROUPS))
    right = _column(w) if vector else w.transpose(1, 0).q
    left = x.q
    expected = real(x, w) if not (x.exact and w.exact) else naive.matmul(x.values, w.values.T).astype(np.int32)
    if vector:
        assert_bits(np.asarray(left @ right), expected[..., 0])
    else:
        assert_bits(np.asarray(left @ right), expected)
        check(data.draw, lambda **more: qa.matmul(left, right, **more), expected)


def _column(w):
    """A matrix of one row as a vector."""
    constants = {name: a.reshape(*a.shape[: a.ndim - 2], a.shape[-1]) for name, a in w.constants.items()}
    return qa.from_codes(w.codes[0], w.law.dtype, **constants, group=w.group)


@given(st.data(), st.sampled_from(["a", "b"]), st.sampled_from([np.int8, np.uint8]))
def test_matmul_with_dense_bytes(data, side, dtype):
    m, k, n = data.draw(channels(33)), data.draw(LENGTHS), data.draw(channels(33))
    info = np.iinfo(dtype)
    shape = (k, n) if side == "b" else (m, k)
    dense = np.random.default_rng(data.draw(seeds())).integers(info.min, info.max + 1, shape).astype(dtype)
    packed = data.draw(samples((m, k) if side == "b" else (n, k), -1, INTEGER))
    if side == "b":
        expected = naive.matmul(packed.values, dense).astype(np.int32)
        assert_bits(packed.q @ dense, expected)
        assert_bits(qa.matmul(packed.q[0], dense[:, 0]), expected[0, 0])
    else:
        assert_bits(dense @ packed.transpose(1, 0).q, naive.matmul(dense, packed.values.T).astype(np.int32))


@given(st.data(), leads(), leads())
def test_matmul_broadcasts_leading_axes(data, ours, theirs):
    """Batches on both sides: each matrix product is that of its two matrices."""
    m, k, n = data.draw(channels(3)), data.draw(channels(65)), data.draw(channels(3))
    try:
        lead = np.broadcast_shapes(ours, theirs)
    except ValueError:
        theirs = ours[-1:]
        lead = np.broadcast_shapes(ours, theirs)
    law = data.draw(st.sampled_from([INTEGER, REAL]))
    a = data.draw(samples((*ours, m, k), -1, law, range(len(ours) + 1)))
    b = data.draw(samples((*theirs, n, k), -1, law, range(len(theirs) + 1)))
    order = (*range(len(theirs)), len(theirs) + 1, len(theirs))
    right = b.transpose(*order).q
    dtype = np.int32 if a.exact and b.exact else np.float32
    expected = np.zeros((*lead, m, n), dtype)
    for at in np.ndindex(*lead):
        x, w = (_matrix(s, at) for s in (a, b))
        expected[at] = naive.linear(x.values, w.values) if dtype == np.int32 else real(x, w)
    assert_bits(a.q @ right, expected)


def _matrix(s, at):
    """The matrix of a batch, as a sample, at a broadcast index."""

    def cut(a, full):
        lead = a.ndim - full
        index = at[len(at) - (full - 2) :] if full > 2 else ()
        own = a.shape[lead : lead + full - 2]
        return a[(slice(None),) * lead + tuple(0 if n == 1 else i for i, n in zip(index, own, strict=True))]

    full = s.values.ndim
    return replace(s, **{name: cut(getattr(s, name), full) for name in ("values", "terms", "scale", "offset")})


@pytest.mark.parametrize(("m", "k", "n"), [(3, 0, 5), (3, 64, 0), (0, 0, 5), (0, 64, 0), (2, 0, 0)])
@pytest.mark.parametrize("law", [{}, {"scale": 0.5}])
def test_sums_of_nothing(m, k, n, law):
    """Sums of nothing are zeros, or the bias, of the type that sums of elements would have."""
    x, w = (qa.from_codes(np.ones((rows, k), int), qa.bipolar, **law) for rows in (m, n))
    dtype = np.float32 if law else np.int32
    assert_bits(x @ w.T, np.zeros((m, n), dtype))
    assert_bits(qa.linear(np.ones((m, k), np.uint8), w), np.zeros((m, n), dtype) + np.full(n, k, dtype))
    bias = np.arange(n)
    assert_bits(qa.linear(x, w, bias=bias), np.broadcast_to(bias, (m, n)).astype(dtype))
    assert_bits(qa.linear(x, w, bias=bias / 2), np.broadcast_to(bias / 2, (m, n)).astype(np.float32))
    signs = np.broadcast_to(np.where(bias > 1, 1, -1), (m, n))
    assert_packed(qa.linear(x, w, bias=bias, requantize=qa.Thresholds([1])), signs)


def test_requantize_needs_a_matrix_on_the_right():
    """Thresholds go by columns of the right operand; a vector or a batch does not have one row of them."""
    law = qa.Thresholds([0])
    a, b = (qa.from_codes(np.ones((2, 3, 3), int), qa.bipolar, axis) for axis in (-1, -2))
    for left, right in ((a, b), (a, b[0, :, :1].reshape(3)), (a[0, :1].reshape(3), b[0, :, :1].reshape(3))):
        with pytest.raises(TypeError, match="two axes"):
            qa.matmul(left, right, requantize=law)
    packed = qa.matmul(a[0, 0], b[0], requantize=law)
    assert_packed(packed, [1, 1, 1])


@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.parametrize("w_dtype", [qa.bipolar, qa.uint1])
def test_contractions_longer_than_a_run(bits, w_dtype):
    """More words than sums of 32 bits are counted over at once; the last row and column have all bits set."""
    rng, words = np.random.default_rng(0), RUN_WORDS + 2
    a, b = (rng.integers(0, 1 << 64, (planes, rows, words), np.uint64) for planes, rows in ((bits, 5), (1, 64)))
    a[:, -1], b[:, -1] = ~np.uint64(0), ~np.uint64(0)
    common = np.zeros((5, 64), np.int64)
    ones = np.zeros((5, 1), np.int64)
    for i in range(bits):
        for row in range(5):
            common[row] += np.bitwise_count(a[i, row] & b[0]).sum(axis=1, dtype=np.int64) << i
        ones += np.bitwise_count(a[i]).sum(axis=1, dtype=np.int64)[:, None] << i
    expected = 2 * common - ones if w_dtype == qa.bipolar else common
    x = qa.from_words(a, (qa.uint1, qa.uint2)[bits - 1], (5, 64 * words))
    w = qa.from_words(b, w_dtype, (64, 64 * words))
    for dtype in np.int32, np.int64:
        with products_by("conv"):
            y = qa.linear(x, w, out_dtype=dtype)
        np.testing.assert_array_equal(y, expected.astype(dtype), strict=True)
    with products_by("conv"):
        law = qa.Thresholds(expected[1, :, None])
        np.testing.assert_array_equal(qa.linear(x, w, requantize=law).codes(), expected > expected[1])


@pytest.mark.parametrize("weights", [(0, 1), (0, -1), (-1, 1)])
def test_limits_beyond_32_bits(weights):
    """Sums near the end of int32, and thresholds beyond it: a limit on the count alone is farther out."""
    rng = np.random.default_rng(0)
    x, w = rng.choice([0, 1], (9, 100)), rng.choice(weights, (70, 100))
    bias = rng.choice([-(2**31) + 101, 0, 2**31 - 101], 70)
    expected = x @ w.T + bias
    q, v = qa.encode(x, [0, 1]), qa.encode(w, weights)
    for cut in -(2**40), -(2**31), 2**31 - 1, 2**40:
        got = qa.linear(q, v, bias=bias, requantize=qa.Thresholds([cut]), out_dtype=np.int32)
        np.testing.assert_array_equal(got.codes(), expected > cut)
