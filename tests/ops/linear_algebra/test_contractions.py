"""hamming, vecdot, dot, inner, outer, tensordot and einsum against NumPy on the values."""

import math
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reductions import INTEGER, LENGTHS, assert_rounded, assert_same, axes, integer_type, largest, small_blocks
from strategies import laws, samples, seeds

import quantarray as qa

REAL = laws(3, ["scaled", "uniform", "basis", "table"])
SMALL = st.sampled_from([0, 1, 2, 3, 4])


def unrounded(x):
    """The values that products use: the law of a sample without rounding, as in `matmul`, not its float32 values."""
    return x.values if x.exact else x.offset + (x.scale.astype(np.longdouble) * x.terms).sum(axis=0)


def checked(got, a, b, n, contract, meaning=unrounded):
    """A contraction of n elements against NumPy's on exact values."""
    expected = contract(meaning(a), meaning(b))
    if a.exact and b.exact:
        assert_same(got, np.asarray(expected).astype(integer_type(n * largest(a) * largest(b)))[()])
    else:
        # Terms of the two laws may cancel where their sums do not
        room = contract(*(np.abs(x.offset) + (np.abs(x.scale) * np.abs(x.terms)).sum(axis=0) for x in (a, b)))
        assert_rounded(got, np.asarray(expected, np.longdouble)[()], 2.0**-44 * np.asarray(room, np.float64))


@st.composite
def pairs(draw):
    """Shapes of two arrays that broadcast, packed on the same axis of one length; the axis from the end."""
    shape = [draw(SMALL) for _ in range(draw(st.integers(1, 4)))]
    at = draw(st.integers(0, len(shape) - 1))
    shape[at] = draw(st.sampled_from((0, *LENGTHS * 2)))
    made = []
    for _ in range(2):
        own = [n if d == at or draw(st.booleans()) else 1 for d, n in enumerate(shape)]
        made.append(tuple(own[draw(st.integers(0, at)) :]))
    return *made, at - len(shape)


@given(st.data(), pairs(), laws(8), st.booleans(), st.booleans())
def test_hamming(data, shapes, law, keep, small):
    first, second, at = shapes
    a, b = (data.draw(samples(s, at, law)) for s in (first, second))
    axis = data.draw(axes(max(a.codes.ndim, b.codes.ndim)))
    with small_blocks(small):
        got = qa.hamming(a.q, b.q, axis, keepdims=keep)
    assert_same(got, (a.codes != b.codes).sum(axis, keepdims=keep))


@given(st.data(), pairs(), st.booleans())
def test_vecdot_of_integers(data, shapes, small):
    first, second, at = shapes
    a, b = (data.draw(samples(s, at, INTEGER)) for s in (first, second))
    axis = data.draw(st.integers(-min(a.codes.ndim, b.codes.ndim), -1))
    if a.codes.shape[axis] != b.codes.shape[axis]:
        with pytest.raises(ValueError, match=r"vecdot: .* must have the same length along axis"):
            qa.vecdot(a.q, b.q, axis=axis)
        return
    together = a.law.dtype.bits + b.law.dtype.bits
    if axis != at and together > 8 and None in (a.law.dtype.step, b.law.dtype.step):
        with pytest.raises(ValueError, match=r"vecdot: .* uneven levels"):
            qa.vecdot(a.q, b.q, axis=axis)
        return
    with small_blocks(small):
        got = qa.vecdot(a.q, b.q, axis=axis)
    checked(got, a, b, a.codes.shape[axis], lambda x, y: (x * y).sum(axis))


@given(st.data(), pairs())
def test_vecdot_of_floats(data, shapes):
    first, second, at = shapes
    laws_of = data.draw(st.sampled_from([(REAL, REAL), (REAL, INTEGER), (INTEGER, REAL)]))
    a, b = (
        data.draw(samples(s, at, law, [d for d in range(len(s)) if d != at + len(s)], (None, 64)))
        for s, law in zip((first, second), laws_of, strict=True)
    )
    checked(qa.vecdot(a.q, b.q, axis=at), a, b, a.codes.shape[at], lambda x, y: (x * y).sum(at))


@st.composite
def contractions(draw, batches=0):
    """Letters of two operands and of the result, with the letter on which both are packed, and lengths."""
    letters = iter(string.ascii_letters)
    shared = [next(letters) for _ in range(draw(st.integers(1, 3)))]
    batch = [next(letters) for _ in range(draw(st.integers(0, batches)))]
    free = [[next(letters) for _ in range(draw(st.integers(0, 2)))] for _ in range(2)]
    lengths = {c: draw(SMALL) for c in shared + batch + free[0] + free[1]}
    packed = draw(st.sampled_from(shared))
    lengths[packed] = draw(st.sampled_from(LENGTHS))
    ours, theirs = ("".join(draw(st.permutations(shared + batch + own))) for own in free)
    out = "".join(draw(st.permutations(batch + free[0] + free[1])))
    return ours, theirs, out, packed, lengths, shared


def operands(draw, case, laws_of):
    """Both operands; constants may vary along axes over which nothing is summed."""
    ours, theirs, out, packed, lengths, _ = case
    for letters, law in zip((ours, theirs), laws_of, strict=True):
        vary = [d for d, c in enumerate(letters) if c in out]
        yield draw(samples(tuple(lengths[c] for c in letters), letters.index(packed), law, vary))


OPERANDS = st.sampled_from([(INTEGER, INTEGER), (INTEGER, INTEGER), (REAL, REAL), (INTEGER, REAL), (REAL, INTEGER)])


@given(st.data(), contractions(), OPERANDS)
def test_tensordot(data, case, laws_of):
    ours, theirs, _, _, lengths, shared = case
    a, b = operands(data.draw, case, laws_of)
    order = data.draw(st.permutations(shared))
    at = [ours.index(c) - len(ours) * data.draw(st.booleans()) for c in order], [theirs.index(c) for c in order]
    n = math.prod(lengths[c] for c in shared)
    checked(qa.tensordot(a.q, b.q, at), a, b, n, lambda x, y: np.tensordot(x, y, at))


@given(st.data(), contractions(batches=1), OPERANDS)
def test_einsum_of_two(data, case, laws_of):
    ours, theirs, out, _, lengths, shared = case
    a, b = operands(data.draw, case, laws_of)
    text = f"{ours},{theirs}->{out}"
    n = math.prod(lengths[c] for c in shared)
    checked(qa.einsum(text, a.q, b.q), a, b, n, lambda x, y: np.einsum(text, x, y))


@given(st.data())
def test_einsum_of_one(data):
    ndim = data.draw(st.integers(1, 4))
    letters = string.ascii_lowercase[:ndim]
    shape, at = [data.draw(SMALL) for _ in letters], data.draw(st.integers(0, ndim - 1))
    shape[at] = data.draw(st.sampled_from(LENGTHS))
    x = data.draw(samples(tuple(shape), at, INTEGER))
    out = "".join(data.draw(st.permutations(letters))[: data.draw(st.integers(0, ndim))])
    got = qa.einsum(f"{letters} -> {out}", x.q)
    values = got.dequantize() if isinstance(got, qa.QuantArray) else got
    np.testing.assert_array_equal(values, np.einsum(f"{letters}->{out}", x.values))
    assert isinstance(got, qa.QuantArray) == (len(out) == ndim)


def test_einsum_without_an_arrow_has_the_letters_of_one_operand_in_order():
    a = qa.encode(np.ones((2, 70), int), (-1, 1))
    np.testing.assert_array_equal(qa.einsum("jk,ik", a, a[:1]), np.einsum("jk,ik", np.ones((2, 70)), np.ones((1, 70))))


@given(st.data(), seeds(), st.sampled_from(LENGTHS), st.booleans())
def test_a_dense_operand(data, seed, k, signed):
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, (3, k)).astype(np.int8) if signed else rng.integers(0, 256, (3, k)).astype(np.uint8)
    w = data.draw(samples((k, 2), 0, INTEGER))
    expected = x.astype(np.int64) @ w.values
    np.testing.assert_array_equal(qa.dot(x, w.q), expected)
    np.testing.assert_array_equal(qa.tensordot(w.q, x, (0, 1)), expected.T)
    np.testing.assert_array_equal(qa.einsum("ik,kj->ji", x, w.q), expected.T)
    np.testing.assert_array_equal(qa.inner(x, w.q.T), expected)


@given(st.data(), st.lists(SMALL, max_size=2), st.lists(SMALL, max_size=2), st.sampled_from(LENGTHS), OPERANDS)
def test_dot_and_inner(data, first, second, k, laws_of):
    a = data.draw(samples((*first, k), -1, laws_of[0]))
    shape = (*second[:-1], k, *second[-1:])
    b = data.draw(samples(shape, -2 if second else -1, laws_of[1]))
    checked(qa.dot(a.q, b.q), a, b, k, np.dot)
    checked(a.q.dot(b.q), a, b, k, np.dot)
    moved = b if not second else b.transpose(*[d for d in range(len(shape)) if d != len(second) - 1], len(second) - 1)
    checked(qa.inner(a.q, moved.q), a, moved, k, np.inner)


@given(st.data(), st.sampled_from((0, *LENGTHS)), st.sampled_from(LENGTHS), OPERANDS)
def test_outer(data, n, m, laws_of):
    a, b = (data.draw(samples((k,), 0, law)) for k, law in zip((n, m), laws_of, strict=True))
    checked(
        qa.outer(a.q, b.q),
        a,
        b,
        1,
        np.multiply.outer,
        lambda x: x.values.astype(np.int64 if x.exact else np.longdouble),
    )


A, B = (qa.encode(np.ones((2, 70), int), (-1, 1), axis) for axis in (1, 0))
VARYING = qa.quantize(np.ones((2, 70)), qa.Sign(scale=True), scale_axis=0)
TABLE = qa.from_codes(np.ones((2, 70), int), qa.table(5), table=np.arange(32.0))
FLOAT = qa.quantize(np.ones((2, 70)), qa.Sign(scale=True))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: qa.hamming(A, qa.from_codes(A.codes(), qa.uint1)), TypeError, "hamming: a and b must have one dtype"),
        (lambda: qa.hamming(A, B), ValueError, "hamming: a and b must be packed on the same axis"),
        (lambda: qa.hamming(A, A[:, :64]), ValueError, "hamming: .* do not broadcast"),
        (lambda: qa.vecdot(FLOAT, A, axis=0), ValueError, r"vecdot: arrays with float constants, .* are summed over"),
        (lambda: qa.vecdot(A, A[0], axis=0), ValueError, r"vecdot: axis 0 is another one in a \(2, 70\) than in b"),
        (lambda: qa.vecdot(A, np.ones(70)), TypeError, "vecdot: b must be a QuantArray"),
        (lambda: qa.dot(A, A), ValueError, "dot: axis 1 of a .* must have the same length"),
        (lambda: qa.dot(A, np.ones(70)), TypeError, "dot: b must be a QuantArray or an int8/uint8 array"),
        (lambda: qa.inner(B, B), ValueError, "inner: .*must be packed on axes of one of these pairs"),
        (lambda: qa.outer(A, A), ValueError, "outer: needs arrays of one axis"),
        (lambda: qa.tensordot(A, A, (1, 2, 3)), ValueError, "tensordot: axes must be a number or a pair"),
        (lambda: qa.tensordot(A, A, ((0, 0), (0, 1))), ValueError, "tensordot: axes must pair each axis once"),
        (lambda: qa.tensordot(A, A, 3), ValueError, "tensordot: axes must be at most 2"),
        (lambda: qa.tensordot(A, A, 0), ValueError, "tensordot: sums over no axis"),
        (
            lambda: qa.tensordot(VARYING, VARYING, 2),
            ValueError,
            r"tensordot: .* must have one scale for each multiple of 64",
        ),
        (lambda: qa.inner(TABLE, A), TypeError, "inner: as a product of matrices: linear: x is a table of 5 bits"),
        (lambda: qa.einsum("ik,jk,lk->ijl", A, A, A), ValueError, "einsum: takes one array or two"),
        (lambda: qa.einsum("ii->i", A), ValueError, "einsum: 'ii' repeats a letter"),
        (lambda: qa.einsum("...k->k", A), ValueError, "einsum: '...' is not taken"),
        (lambda: qa.einsum("ik,jk->j", A, A), ValueError, "einsum: 'i' is an axis of a alone"),
        (lambda: qa.einsum("ik,ik->ik", A, A), ValueError, "einsum: sums over no axis"),
        (lambda: qa.einsum("ikl->i", A), ValueError, "einsum: 'ikl' names 3 axes"),
        (lambda: qa.einsum(0, A), TypeError, "einsum: subscripts must be text"),
        (lambda: qa.einsum("ik,jk->iz", A, A), ValueError, "einsum: the result 'iz'"),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()
