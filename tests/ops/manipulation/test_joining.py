"""Arrays joined, stacked and padded, against NumPy on the values; which laws come out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import Law, arrays, integer_dtypes, laws, lengths, samples, seeds, threads

import quantarray as qa


@st.composite
def shapes(draw):
    """(a shape, its packed axis, an axis to join along, lengths of the parts)."""
    shape = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 3)))]
    packed, axis = (draw(st.integers(0, len(shape) - 1)) for _ in range(2))
    shape[packed] = draw(lengths())
    part = lengths() if axis == packed else st.integers(0, 4)
    return shape, packed, axis, draw(st.lists(part, min_size=1, max_size=4))


def with_length(shape, axis, n):
    return (*shape[:axis], n, *shape[axis + 1 :])


@given(st.data(), shapes(), st.booleans())
def test_integers_join_in_a_common_dtype(data, given_shape, many):
    shape, packed, axis, parts = given_shape
    xs = [data.draw(samples(with_length(shape, axis, n), packed, integer_dtypes(5).map(Law))) for n in parts]
    values = [x.values for x in xs]
    with threads(many):
        got = qa.concatenate([x.q for x in xs], axis)
    assert_packed(got, np.concatenate(values, axis))
    union = set().union(*(x.law.dtype.levels for x in xs))
    assert set(got.dtype.levels) == union and got.axis == packed
    assert got.dtype == next((x.law.dtype for x in xs if set(x.law.dtype.levels) == union), got.dtype)


@given(st.data(), shapes(), laws(4))
def test_real_laws_join_along_unpacked_axes(data, given_shape, law):
    """Constants of any shape become one an element of the axis where they differ."""
    shape, packed, axis, parts = given_shape
    axis = axis if axis != packed else (packed + 1) % len(shape)
    if axis == packed:
        return
    xs = [
        data.draw(samples(with_length(shape, axis, n % 4), packed, law, range(len(shape)), (None, 64))) for n in parts
    ]
    groups = {x.q.group for x in xs if x.q.group}
    try:
        got = qa.concat([x.q for x in xs], axis)
    except ValueError as error:
        assert "concat: constants come in groups of" in str(error) and len(groups) > 1
        return
    assert_packed(got, np.concatenate([x.values for x in xs], axis))


@given(st.data(), arrays(), st.booleans())
def test_equal_laws_join_along_any_axis(data, x, many):
    """Constants that don't vary along the axis stay; those that do follow, whole groups of the packed one."""
    q, d = x.q, data.draw(st.integers(0, x.values.ndim - 1))
    n = x.values.shape[d]
    at = data.draw(st.integers(0, n))
    first = (slice(None),) * d + (slice(0, at),)
    rest = (slice(None),) * d + (slice(at, None),)
    try:
        pieces = [q[first], q[rest]]
    except IndexError:
        return
    with threads(many):
        assert_packed(qa.concatenate(pieces, d), x.values)
        try:
            got = qa.concatenate([q, *pieces[::-1]], d)
        except ValueError as error:
            assert "along the packed axis" in str(error) and d == q.axis
            return
    assert_packed(got, np.concatenate([x.values, x.values[rest], x.values[first]], d))


@given(st.data(), arrays())
def test_stack(data, x):
    q, d = x.q, data.draw(st.integers(0, x.values.ndim))
    other = qa.flip(q, 0) if q.axis else q
    values = [x.values, x.values[::-1] if q.axis else x.values, x.values]
    assert_packed(qa.stack([q, other, q], d), np.stack(values, d))
    assert qa.stack([q, q], d).dtype == q.dtype


@given(arrays(vary=False, groups=(None,)))
def test_vstack_and_hstack(x):
    for name in ("vstack", "hstack"):
        if x.values.ndim > 1 or name == "hstack" or x.q.axis == 0:
            assert_packed(getattr(qa, name)([x.q, x.q]), getattr(np, name)([x.values, x.values]))


@given(st.data(), arrays(groups=(None,)))
def test_a_join_without_an_axis(data, x):
    try:
        flat = qa.ravel(x.q)
    except ValueError:
        return
    if flat.group is None:
        assert_packed(qa.concatenate([x.q, x.q], None), np.concatenate([x.values, x.values], None))


def test_scalars_become_one_an_element():
    a, b = (qa.quantize(np.float32([[1, -2, 3]]) * k, qa.Sign(scale=True)) for k in (1, 2))
    both = qa.concatenate([a, b, a])
    assert both.scale.ravel().tolist() == [2, 4, 2] and both.scheme == a.scheme
    assert qa.concatenate([a, a]).scale.shape == (1, 1)
    assert qa.stack([a, b], 1).scale.shape == (1, 2, 1)
    halves = [qa.from_codes([[1, 0]], qa.bipolar, scale=[[s]]) for s in (0.5, 0.25)]
    halves[0] = qa.QuantArray(*_parts(halves[0]), halves[0].constants.to_bfloat16())
    assert_packed(qa.concatenate(halves), np.float32([[0.5, -0.5], [0.25, -0.25]]))


def _parts(q):
    return q.words, q.dtype, q.shape, q.axis


def test_whole_groups_join_along_the_packed_axis():
    scale = np.float32([[1, 2]])
    q = qa.from_codes(np.ones((1, 128), int), qa.bipolar, scale=scale, group=64)
    part = qa.from_codes(np.ones((1, 70), int), qa.bipolar, scale=scale * 4, group=64)
    assert_packed(qa.concatenate([q, part], 1), np.float32([[1] * 64 + [2] * 64 + [4] * 64 + [8] * 6]))
    halves = [
        qa.from_codes(np.ones(n, int), qa.bipolar, scale=s) for n, s in ((0, 9.0), (50, 2.0), (50, 1.0), (7, 4.0))
    ]
    assert_packed(qa.concatenate(halves), np.float32([2] * 50 + [1] * 50 + [4] * 7))
    assert qa.concatenate(halves).group == 50 and qa.concatenate(halves[:2]).group is None
    with pytest.raises(ValueError, match="concatenate: constants come in groups of 64 along the packed axis, which"):
        qa.concatenate([part, q], 1)


def test_what_joins_refuse():
    t = qa.from_codes(np.zeros((2, 3), int), qa.ternary)
    u = qa.from_codes(np.zeros((2, 3), int), qa.uniform(2), scale=1.0)
    many = [qa.from_codes(np.zeros((2, 3), int), qa.integers(range(k, k + 200))) for k in (0, 100)]
    scaled = [qa.from_codes(np.zeros((2, 3), int), qa.ternary, scale=s) for s in (1.0, 2.0)]
    refused = [
        (lambda: qa.concatenate([]), ValueError, "needs at least one array"),
        (lambda: qa.stack(None), TypeError, "stack: needs a list of arrays, got NoneType"),
        (lambda: qa.concatenate(t), TypeError, "needs a list of arrays"),
        (lambda: qa.concatenate([t, np.ones((2, 3))]), TypeError, r"concatenate: arrays\[1\] must be a QuantArray"),
        (lambda: qa.concatenate([t, t[0]]), ValueError, "equal but for axis 0"),
        (lambda: qa.concatenate([t, t[:, :2]]), ValueError, "equal but for axis 0"),
        (
            lambda: qa.concat([t, t.repack(0)]),
            ValueError,
            r"concat: needs arrays packed on one axis, got axes 1, 0; rep",
        ),
        (lambda: qa.concatenate([t, u]), ValueError, "ternary, uniform.2. have no common dtype"),
        (lambda: qa.concatenate(many), ValueError, "300 levels together, 8 bits hold 256"),
        (lambda: qa.concatenate([t, scaled[0]]), ValueError, "some arrays of ternary have a scale"),
        (
            lambda: qa.concatenate([scaled[0][:, :2], scaled[1]], 1),
            ValueError,
            r"groups of 3 along the packed axis, which the lengths \[2, 3\] cut; pack another one with repack",
        ),
        (lambda: qa.stack([t, t[0]]), ValueError, "stack: needs arrays of one shape"),
        (lambda: qa.stack([t, t], 4), IndexError, "stack: axis 4 is out of bounds"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()
    assert_packed(qa.concatenate([q.repack(0) for q in scaled], 1), np.float32([[-1] * 3 + [-2] * 3] * 2))


# pad


@given(st.data(), arrays(), st.booleans())
def test_pad_with_edges(data, x, many):
    q = x.q
    width = [(data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0, 1, 63, 64, 70]))) for _ in x.values.shape]
    width = [w if d == x.axis else (w[0], w[1] % 3) for d, w in enumerate(width)]
    if not all(n or w == (0, 0) for n, w in zip(x.values.shape, width, strict=True)):
        with pytest.raises(ValueError, match="no edge to repeat"):
            qa.pad(q, width, "edge")
        return
    try:
        with threads(many):
            got = qa.pad(q, width, mode="edge")
    except IndexError as error:
        assert "pad: constants come in groups" in str(error) and q.group
        return
    assert_packed(got, np.pad(x.values, width, mode="edge"))


@given(st.data(), arrays(vary=False, groups=(None,)), st.booleans())
def test_pad_with_a_level(data, x, many):
    q = x.q
    value = q.levels.ravel()[data.draw(st.integers(0, q.dtype.n_levels - 1))]
    width = data.draw(st.sampled_from([0, 1, (2, 0), (0, 65), (63, 1), (64, 64)]))
    width = width if x.values.ndim == 1 or np.max(width) < 3 else [(1, 0)] * (x.values.ndim - 1) + [width]
    with threads(many):
        got = qa.pad(q, width, constant_values=value)
    assert_packed(got, np.pad(x.values, width, constant_values=value))
    assert got.dtype == q.dtype


@given(seeds(), st.integers(0, 2))
def test_pad_with_a_value_of_other_codes_by_channel(seed, axis):
    """Zero points differ, and zero is a level of each: the code of 0 differs by channel."""
    rng = np.random.default_rng(seed)
    zero = rng.integers(0, 4, (1, 5, 1))
    scale = np.float32(2.0 ** rng.integers(-3, 4, (1, 5, 1)))
    q = qa.from_codes(rng.integers(0, 4, (3, 5, 70)), qa.uniform(2), axis % 2 * 2, scale=scale, offset=-scale * zero)
    width = [(0, 0)] * 3
    width[0], width[2] = (1, 2), (3, 61)
    assert_packed(qa.pad(q, width), np.pad(q.dequantize(), width))


def test_what_pad_refuses():
    s = qa.from_codes([[0, 1, 1]], qa.bipolar)
    channels = qa.from_codes([[0, 1], [1, 1]], qa.ternary, scale=[[1.0], [2.0]])
    refused = [
        (lambda: qa.pad(s, 1), ValueError, r"pad: 0 is not a level of bipolar; levels are -1, 1"),
        (lambda: qa.pad(channels, [(1, 0), (0, 0)]), ValueError, "pad: constants vary along axis 0"),
        (
            lambda: qa.pad(channels, [(0, 0), (1, 0)], constant_values=2),
            ValueError,
            "not a level of ternary everywhere",
        ),
        (lambda: qa.pad(s, 1, "reflect"), ValueError, "pad: mode must be one of 'constant', 'edge'"),
        (lambda: qa.pad(s, [(1, 1)] * 3), ValueError, "pad_width must be an integer"),
        (lambda: qa.pad(s, -1), ValueError, "pad: pad_width must be at least 0"),
        (lambda: qa.pad(s, 1, constant_values="a"), TypeError, "constant_values must be a number"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("length", [1, 100, 64 * 62 + 5, 64 * 4100 + 5])
def test_joins_of_many_rows_and_of_long_ones(length, many):
    """Short rows by hundreds, long ones by thousands of words; what fills a pad is one row for all."""
    rows = max(3, 100_000 // length) if length < 10_000 else 3
    q = qa.from_codes(np.random.default_rng(length).integers(0, 3, (rows, length)), qa.ternary)
    v = q.dequantize()
    with threads(many):
        assert_packed(qa.concatenate([q, q[:, :1], q[:, ::-1], q], 1), np.concatenate([v, v[:, :1], v[:, ::-1], v], 1))
        assert_packed(
            qa.pad(q, ((0, 0), (3, 700)), constant_values=1), np.pad(v, ((0, 0), (3, 700)), constant_values=1)
        )
        assert_packed(qa.roll(q, 5, 1), np.roll(v, 5, 1))
        assert_packed(qa.concatenate([q[:1]] * 40, 1), np.concatenate([v[:1]] * 40, 1))
