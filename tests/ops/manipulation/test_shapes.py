"""Transposing, reshaping and indexing against NumPy on the values; which results are views."""

import math

import naive
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from results import assert_bits, assert_packed
from strategies import arrays, channels, laws, lengths, samples, seeds, threads

import quantarray as qa
from quantarray.arrays.array import validate


@st.composite
def factors(draw, n):
    """A shape of n elements, with some lengths of 1."""
    shape = []
    while n > 1:
        shape.append(draw(st.sampled_from([d for d in range(2, n + 1) if n % d == 0][:8] + [n])))
        n //= shape[-1]
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return draw(st.permutations(shape)) if shape else [1]


@given(st.data(), arrays())
def test_transpose(data, x):
    order = data.draw(st.permutations(range(x.values.ndim)))
    q = x.q
    got = q.transpose(order)
    assert_packed(got, x.values.transpose(order))
    assert got.axis == order.index(x.axis) and np.shares_memory(got.words, q.words) == (q.words.size > 0)
    assert_packed(q.transpose(*(d - x.values.ndim for d in order)), x.values.transpose(order))
    assert_packed(q.T, x.values.T)
    assert_packed(got.transpose(np.argsort(order).tolist()), x.values)


# reshape


@given(st.data(), arrays(vary=False, groups=(None,), length=lambda: lengths().filter(bool)))
def test_reshape_where_constants_do_not_vary(data, x):
    """The packed axis may merge with axes before it and be split; axes after it stay after it."""
    front, behind = x.codes.shape[: x.axis + 1], x.codes.shape[x.axis + 1 :]
    new = (*data.draw(factors(math.prod(front))), *(data.draw(factors(math.prod(behind))) if behind else ()))
    q = x.q
    got = q.reshape(new)
    assert_packed(got, x.values.reshape(new))
    old_length, length = x.codes.shape[x.axis], new[got.axis]
    if not behind and (length == old_length or length % 64 == old_length % 64 == 0):
        assert np.shares_memory(got.words, q.words)
    if not behind and new[-1] == old_length:
        assert got.axis == got.ndim - 1
    unknown = data.draw(st.integers(0, len(new) - 1))
    assert_packed(q.reshape(*new[:unknown], -1, *new[unknown + 1 :]), x.values.reshape(new))


@given(st.data(), arrays(axis=-1, length=lambda: channels() | st.sampled_from([128, 192, 256])))
def test_reshape_of_unpacked_axes_keeps_constants(data, x):
    new = (*data.draw(factors(math.prod(x.codes.shape[:-1]))), x.codes.shape[-1])
    q = x.q
    got = q.reshape(new)
    assert_packed(got, x.values.reshape(new))
    assert np.shares_memory(got.words, q.words) and got.group == q.group


@given(st.data(), arrays(most=3))
def test_reshape_moves_constants_or_refuses(data, x):
    """Where constants vary along axes that merge with the packed one it may refuse, but never returns other values."""
    new = data.draw(factors(x.codes.size)) if x.codes.size else [*x.codes.shape[::-1], 1]
    try:
        got = x.q.reshape(new)
    except ValueError as error:
        assert "reshape" in str(error)
        assume(False)
    assert_packed(got, x.values.reshape(new))


@pytest.mark.parametrize("old, axis, new", [((2, 0, 2), 1, (2, 0, 2, 1)), ((0, 3), 1, (3, 0)), ((4, 0), 1, (0,))])
def test_reshape_of_nothing_keeps_one_constant(old, axis, new):
    """Varying constants have nothing left to vary over."""
    scale = np.ones((2, *(n if d != axis else 1 for d, n in enumerate(old))))
    q = qa.from_codes(np.zeros(old, int), qa.basis(2), axis=axis, scale=scale)
    got = q.reshape(new)
    assert_packed(got, np.zeros(new, np.float32))
    assert got.scale.size == 2


def test_reshape_of_a_packed_axis_of_length_1_into_one_along_which_constants_vary():
    q = qa.from_codes([[1], [0]], qa.bipolar, scale=[[2.0], [3.0]])
    assert_packed(q.reshape(2), np.float32([2, -3]))
    assert q.reshape(2).group == 1


def test_reshape_keeps_the_packed_axis_last():
    """The packed axis stays last, also if its length of 1 could be any of several axes."""
    for old, new in (((3, 1), (3, 1, 1, 1)), ((1,), (1, 1)), ((1, 1, 1, 1), (1,) * 5), ((1, 3, 1), (3, 1, 1))):
        q = qa.from_codes(np.ones(old, int), qa.bipolar, scale=np.full((1,) * len(old), 2.0))
        assert q.reshape(new).axis == len(new) - 1
        assert_packed(q.reshape(new), np.full(new, 2.0))


def test_reshape_groups_through_merges_and_splits():
    rng = np.random.default_rng(0)
    scale = np.float32(rng.normal(size=(2, 3, 4)))
    q = qa.from_codes(rng.integers(0, 2, (2, 3, 256)), qa.bipolar, scale=scale, group=64)
    for new in ((2, 768), (6, 256), (1536,), (2, 3, 4, 64), (2, 12, 64), (2, 3, 2, 128)):
        assert_packed(q.reshape(new), q.dequantize().reshape(new))
    rows = qa.from_codes(rng.integers(0, 2, (2, 3, 100)), qa.bipolar, scale=scale[..., :1])
    assert_packed(rows.reshape(2, 300), rows.dequantize().reshape(2, 300))
    with pytest.raises(ValueError, match="do not fit its new length"):
        rows.reshape(4, 150)


# indexing


def slices(n):
    bound = st.none() | st.integers(-n - 1, n + 1)
    return st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, -1, -2]))


@st.composite
def keys(draw, x):
    """A basic index: integers, slices, None and ...; slices of the packed axis have step 1."""
    items = []
    for d, n in enumerate(x.codes.shape):
        if d == x.axis:
            ends = st.none() | st.sampled_from([0, 1, 5, 63, 64, 65, 128, n // 2, n, -1, -64])
            items.append(draw(st.just(slice(None)) | st.builds(slice, ends, ends, st.sampled_from([None, 1]))))
        else:
            items.append(draw(slices(n) | (st.integers(-n, n - 1) if n else slices(n))))
    whole = [d for d, item in enumerate(items) if item == slice(None)]
    if whole and draw(st.booleans()):  # a run of whole axes may be written as ..., at the end as nothing
        first = last = draw(st.sampled_from(whole))
        while last + 1 in whole:
            last += 1
        items[first : last + 1] = [...] if last < len(items) - 1 or draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return tuple(items)


@given(st.data(), arrays())
def test_indexing(data, x):
    key = data.draw(keys(x))
    q = x.q
    expected = x.values[key]
    try:
        got = q[key]
    except IndexError as error:
        assert "cuts through a group" in str(error) and q.group is not None
        return
    assert_packed(got, expected)


def test_slices_of_whole_groups():
    scale = np.float32(np.random.default_rng(0).normal(size=(2, 4)))
    q = qa.from_codes(np.arange(400).reshape(2, 200) % 2, qa.bipolar, scale=scale, group=64)
    for start, stop in ((0, 64), (64, 200), (128, 1000), (5, 5), (70, 3), (200, 300), (0, 63), (65, 127), (130, 190)):
        assert_packed(q[:, start:stop], q.dequantize()[:, start:stop])
    for start, stop in ((1, 65), (63, 128), (32, 200)):
        with pytest.raises(IndexError, match=f"{start}:{stop} cuts through a group"):
            q[:, start:stop]


@given(arrays(axis=-1, groups=(None,), length=lambda: st.sampled_from([64, 129, 192, 200])), st.data())
def test_word_aligned_slices_are_views(x, data):
    q, n = x.q, x.codes.shape[-1]
    start = data.draw(st.sampled_from(range(0, n, 64)))
    stop = data.draw(st.sampled_from([*range(start + 64, n, 64), n]))
    for got, expected in ((q[..., start:stop], x.values[..., start:stop]), (q[None], x.values[None])):
        assert_packed(got, expected)
        assert np.shares_memory(got.words, q.words)
    assert not np.shares_memory(q.copy().words, q.words) and not q.copy().words.flags.writeable


def test_what_indexing_refuses():
    q = qa.from_codes(np.arange(12).reshape(3, 4) % 3, qa.ternary)
    for key in (
        (3,),
        (0, -5),
        (0, 0, 0),
        (..., ...),
        [3],
        ([0, 1], [1, 1, 1]),
        np.ones(2, bool),
        np.ones((4, 3), bool),
    ):
        with pytest.raises(IndexError):
            q[key]
    for key in (True, [0.5], np.ones(2), 1.0, "a", [[0], [1, 2]]):
        with pytest.raises(TypeError, match="packed arrays take"):
            q[key]
    assert len(q) == 3 and [row.shape for row in q] == [(4,)] * 3


# kernels must not care how an operand came about


@given(st.data(), seeds())
def test_kernels_take_views(data, seed):
    rng = np.random.default_rng(seed)
    c = data.draw(channels())
    x = data.draw(samples((3, 5, 4, c + 64), -1, laws(kinds=["integer"])))
    w = data.draw(samples((4, c + 64, 3, 2), 1, laws(kinds=["integer"])))
    crop = (slice(None, None, -2), slice(1, None), slice(None, None, -1), slice(64, None))
    image, values = x.q[crop], x.values[crop]
    kernel, weights = (a[:, 64:, ::-1, :1].transpose(0, 2, 3, 1) for a in (w.q, w.values))
    validate(kernel)
    assert_bits(qa.conv2d(image, kernel), naive.conv2d(values, weights).astype(np.int32))
    assert_packed(qa.max_pool2d(image, 2), naive.max_pool2d(values, (2, 2), (2, 2)))
    rows, flat = image.reshape(-1, c), values.reshape(-1, c)
    assert_bits(rows @ kernel[:, 0, 0].T, naive.matmul(flat, weights[:, 0, 0].T).astype(np.int32))
    order = rng.permutation(4)
    assert_packed(image.transpose(*order)[::-1], values.transpose(*order)[::-1]) if order[0] != 3 else None


@pytest.mark.parametrize("length", [1, 31, 62, 63, 64, 65, 127])
def test_reshape_cuts_full_words_at_every_length(length):
    """Bits of the next segment must not stay in the tail of a segment's last word."""
    codes = np.ones(3 * length, int)
    made = qa.from_codes(codes, qa.bipolar).reshape(3, length)
    validate(made)
    assert np.array_equal(made.codes(), codes.reshape(3, length))


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("length", "new_length"),
    [(100, 50), (50, 100), (100, 400), (128, 100), (100, 128), (30, 90), (3, 64), (5, 10), (100, 77)],
)
def test_reshape_of_many_short_rows(length, new_length, many):
    """Rows whose lengths fit each other after a few go side by side; what is left of the last ones goes by itself."""
    rows = 64 * math.lcm(length, new_length) // length + 7 * new_length
    v = np.random.default_rng(length).integers(0, 3, (2, rows, length))
    for q in (qa.from_codes(v, qa.ternary), qa.from_codes(v[0], qa.ternary)):
        with threads(many):
            got, back = q.reshape(-1, new_length), q.reshape(-1).reshape(q.shape)
        assert_packed(got, q.dequantize().reshape(got.shape))
        assert_packed(back, q.dequantize())


def test_reshape_to_one_row_of_many():
    v = np.random.default_rng(0).integers(0, 3, (8, 5000, 100))
    q = qa.from_codes(v, qa.ternary)
    assert_packed(q.reshape(8, -1), q.dequantize().reshape(8, -1))
    assert_packed(q.reshape(8, -1).reshape(8, -1, 50), q.dequantize().reshape(8, -1, 50))
