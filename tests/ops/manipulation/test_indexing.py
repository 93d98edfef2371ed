"""Indexing beyond slices of whole words, taking and repeating, against NumPy on the values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed
from strategies import arrays, seeds, threads

import quantarray as qa


def steps(n):
    bound = st.none() | st.integers(-n - 1, n + 1)
    return st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, 64, 65, -1, -1, -2, -63, -64]))


def assert_found(q, key, expected):
    """NumPy's result, a scalar included, or a refusal to cut a group."""
    try:
        got = q[key]
    except IndexError as error:
        assert "through a group" in str(error) and q.group is not None
        return
    if isinstance(got, qa.QuantArray):
        assert_packed(got, expected)
    else:
        assert expected.ndim == 0 and got == expected and got.dtype == q.dequantize().dtype


@given(st.data(), arrays(), st.booleans())
def test_any_basic_index(data, x, many):
    """Any step on any axis, and integers on the packed one."""
    key = [data.draw(steps(n) | (st.integers(-n, n - 1) if n else steps(n))) for n in x.values.shape]
    for _ in range(data.draw(st.integers(0, 2))):
        key.insert(data.draw(st.integers(0, len(key))), None)
    with threads(many):
        assert_found(x.q, tuple(key), np.asarray(x.values[tuple(key)]))


@given(st.data(), arrays(groups=(None,)))
def test_one_array_of_indices(data, x):
    """The array's axes are where NumPy puts them, also beside integers, None and '...'."""
    shape = x.values.shape
    at = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(seeds()))
    key = [data.draw(steps(n) | (st.integers(-n, n - 1) if n else steps(n)) | st.just(slice(None))) for n in shape]
    n = shape[at]
    dims = data.draw(st.sampled_from([(3,), (0,), (1,), (70,), (2, 3), (1, 1), (2, 0)]))
    dims = dims if n else (0,)
    picked = rng.integers(-n, n, dims) if n else np.zeros(dims, int)
    mask = rng.random(n) < data.draw(st.sampled_from([0, 0.5, 1]))
    key[at] = data.draw(st.sampled_from([picked, picked.tolist(), picked.astype(np.int8), mask, mask.tolist()]))
    if isinstance(key[at], list) and np.size(key[at]) == 0:  # which NumPy takes for floats
        key[at] = picked
    whole = [d for d, item in enumerate(key) if isinstance(item, slice) and item == slice(None)]
    if whole and data.draw(st.booleans()):
        key[data.draw(st.sampled_from(whole))] = ...
    elif data.draw(st.booleans()):
        key.insert(data.draw(st.integers(0, len(key))), data.draw(st.sampled_from([None, ...])))
    q = x.q
    got, expected = q[tuple(key)], x.values[tuple(key)]
    assert_packed(got, expected)


@given(st.data(), arrays(least=2, groups=(None,)))
def test_several_arrays_of_indices(data, x):
    """Masks of several axes too; where constants follow elements of the packed axis they are refused."""
    shape = x.values.shape
    rng = np.random.default_rng(data.draw(seeds()))
    key = [data.draw(steps(n) | st.integers(-n, n - 1) if n else steps(n)) for n in shape]
    several = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=2, max_size=3, unique=True))
    dims = [(3,), (1,), (2, 3), (2, 1)] if all(shape[d] for d in several) else [(0,), (1, 0)]
    for d in several:
        n = shape[d]
        wide = data.draw(st.sampled_from(dims))
        key[d] = rng.integers(-n, n, wide) if n else np.zeros(wide, int)
    if data.draw(st.booleans()):
        first = data.draw(st.integers(0, len(shape) - 1))
        covered = shape[first : first + data.draw(st.integers(2, 3))]
        key[first : first + len(covered)] = [rng.random(covered) < data.draw(st.sampled_from([0, 0.3, 1]))]
    for item in (None, ...):  # ... means no axis here, but still separates the arrays beside it
        if data.draw(st.booleans()):
            key.insert(data.draw(st.integers(0, len(key))), item)
    try:
        expected = x.values[tuple(key)]
    except IndexError:  # masks name numbers of elements that do not broadcast against the arrays
        with pytest.raises(IndexError, match="index: arrays of indices must broadcast"):
            x.q[tuple(key)]
        return
    try:
        got = x.q[tuple(key)]
    except (IndexError, ValueError) as error:
        assert "constants" in str(error) and any(np.prod(a.shape[lead:]) > 1 for _, a, lead in x.q.constants.items())
        return
    assert_packed(got, expected)


@given(st.data(), arrays(), st.booleans())
def test_take_along_axis(data, x, many):
    q, v, d = x.q, x.values, data.draw(st.integers(0, x.values.ndim - 1))
    n = v.shape[d]
    rng = np.random.default_rng(data.draw(seeds()))
    dims = [data.draw(st.sampled_from([1, m])) for m in v.shape]
    dims[d] = data.draw(st.sampled_from([0, 1, 5, 65])) if n else 0
    picked = rng.integers(-n, n, dims) if n else np.zeros(dims, int)
    try:
        with threads(many):
            got = qa.take_along_axis(q, picked, d - q.ndim * data.draw(st.booleans()))
    except ValueError as error:
        assert "take_along_axis: constants vary along axis" in str(error)
        assert any(a.shape[lead + d] != 1 for _, a, lead in q.constants.items())
        return
    full = np.broadcast_to(picked, (*v.shape[:d], dims[d], *v.shape[d + 1 :]))
    assert_packed(got, np.take_along_axis(v, full, d))


def test_take_along_axis_broadcasts_the_array_too():
    q = qa.from_codes([[0, 1, 2]], qa.ternary)
    picked = np.arange(12).reshape(4, 3) % 3
    for p in (q, q.repack(0)):
        assert_packed(qa.take_along_axis(p, picked), np.take_along_axis(np.repeat(q.dequantize(), 4, 0), picked, 1))
        assert_packed(qa.take_along_axis(p, [[0]], 0), q.dequantize())


@given(st.data(), arrays())
def test_in(data, x):
    some = [0, 1, -1, 0.5, float("nan"), 2**40, *x.q.levels.ravel()[:3], *x.values.ravel()[:3]]
    value = data.draw(st.sampled_from(some))
    assert (value in x.q) == (value in x.values)
    assert (float(value) in x.q) == (float(value) in x.values)


def test_truth_of_one_element():
    q = qa.from_codes([[0, 1, 2]], qa.ternary)
    assert [bool(q[:, i : i + 1]) for i in range(3)] == [True, False, True]
    for many in (q, q[:0]):
        with pytest.raises(ValueError, match=f"of {many.size} elements is ambiguous"):
            bool(many)
    with pytest.raises(TypeError, match="in: packed arrays hold numbers"):
        _ = [0, 1, 2] in q


@given(st.data(), arrays())
def test_take(data, x):
    q, d = x.q, data.draw(st.integers(0, x.values.ndim - 1))
    n = x.values.shape[d]
    rng = np.random.default_rng(data.draw(seeds()))
    dims = data.draw(st.sampled_from([(5,), (65,), (0,), (2, 33)])) if n else (0,)
    picked = rng.integers(-n, n, dims) if n else np.zeros(dims, int)
    try:
        assert_packed(qa.take(q, picked, d), x.values.take(picked, d))
        assert_packed(q.take(picked, axis=d - q.ndim), x.values.take(picked, d))
    except IndexError as error:
        assert "take: constants come in groups" in str(error) and d == q.axis and q.group
    except ValueError as error:  # several axes of indices are a reshape, which must fit groups too
        assert "reshape: the constants" in str(error) and d == q.axis and q.group
    if n and q.ndim > 1 and (d != q.axis or q.group is None):
        assert_packed(qa.take(q, int(picked.flat[0]) if picked.size else -1, d), x.values.take(
            int(picked.flat[0]) if picked.size else -1, d))  # fmt: skip


@given(st.data(), arrays(), st.booleans())
def test_repeat(data, x, many):
    q, d = x.q, data.draw(st.integers(0, x.values.ndim - 1))
    n = x.values.shape[d]
    times = data.draw(st.integers(0, 5))
    each = np.random.default_rng(data.draw(seeds())).integers(0, 4, n)
    with threads(many):
        assert_packed(qa.repeat(q, times, d), x.values.repeat(times, d))
        try:
            assert_packed(q.repeat(each, axis=d), x.values.repeat(each, d))
        except IndexError as error:
            assert "repeat: constants come in groups" in str(error) and d == q.axis and q.group


def test_repeat_of_nothing_nothing_times():
    q = qa.from_codes(np.zeros((0, 4), int), qa.ternary)
    for p, axis in ((q, 0), (q.T, 1), (q.repack(0), 0)):
        assert_packed(qa.repeat(p, [], axis), p.dequantize())


def test_repeat_in_parts(monkeypatch):
    """Indices of the packed axis are made in parts that begin on words."""
    from quantarray.ops.manipulation import taking

    monkeypatch.setattr(taking, "_PART", 128)
    q = qa.from_codes(np.arange(300).reshape(3, 100) % 3, qa.ternary)
    counts = np.arange(100) % 7
    assert_packed(qa.repeat(q, 5, 1), q.dequantize().repeat(5, 1))
    assert_packed(qa.repeat(q, counts, 1), q.dequantize().repeat(counts, 1))


@pytest.mark.parametrize("rows", [7, 8, 63, 64, 65, 130])
@pytest.mark.parametrize("length", [31, 64, 65, 512, 513, 1100])
def test_take_of_many_rows(rows, length):
    """64 rows at a time become words of elements; whole cache lines of the result are stored past the cache."""
    rng = np.random.default_rng(rows * length)
    q = qa.from_codes(rng.integers(0, 3, (rows, length)), qa.ternary)
    for many in (1, 64, 512, 1024, 1025):
        picked = rng.integers(length // 3, length, many) - length * rng.integers(0, 2, many)
        with threads(bool(many % 2)):
            assert_packed(qa.take(q, picked, 1), q.dequantize().take(picked, 1))
            assert_packed(qa.take_along_axis(q, picked[None], 1), q.dequantize()[:, picked])
    assert_packed(qa.take(q, picked[:0], 1), q.dequantize().take(picked[:0], 1))


def test_take_of_long_rows(monkeypatch):
    """Words of the elements of 64 long rows are not held for a few of them."""
    from quantarray.cpu.bits import gather_across

    q = qa.from_codes(np.arange(9 * 500).reshape(9, 500) % 3, qa.ternary)
    for short in (7, 8):
        monkeypatch.setattr(gather_across, "_SHORT", short)
        assert gather_across.worth(q.words[0], np.zeros((1, 5), int)) == (short == 8)
        assert_packed(qa.take(q, np.arange(500)[::-1], 1), q.dequantize()[:, ::-1])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "uint64"])
def test_take_along_axis_of_any_integers(dtype):
    q = qa.from_codes(np.random.default_rng(0).integers(0, 3, (5, 120)), qa.ternary)
    picked = np.random.default_rng(1).integers(0, 5, (5, 120)).astype(dtype)
    for p in (q, q.repack(0)):
        for axis in (0, 1):
            assert_packed(qa.take_along_axis(p, picked, axis), np.take_along_axis(q.dequantize(), picked, axis))
    with pytest.raises(IndexError, match="120 is out of bounds for axis 1"):
        qa.take_along_axis(q, np.array([[120]], dtype), 1)


@pytest.mark.parametrize("times", [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 100, 200])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 129, 64 * 128, 64 * 130 + 1])
def test_repeat_by_one_number(times, length):
    q = qa.from_codes(np.random.default_rng(length).integers(0, 2, (3, length)), qa.bipolar)
    with threads(times % 2 == 1):
        assert_packed(qa.repeat(q, times, 1), q.dequantize().repeat(times, 1))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16, 31, 32, 33, 63, 64, 65, 100])
def test_slices_of_many_steps(size):
    """Long enough for whole words of the result, from anywhere in a word."""
    q = qa.from_codes(np.random.default_rng(size).integers(0, 2, (3, 64 * 5 * max(size, 30))), qa.bipolar)
    for start in (0, 1, size, 77):
        assert_packed(q[:, start::size], q.dequantize()[:, start::size])
        assert_packed(q[:, -start - 1 :: -size], q.dequantize()[:, -start - 1 :: -size])


def test_groups_stay_whole_or_are_refused():
    scale = np.float32(np.random.default_rng(0).normal(size=(2, 4)))
    q = qa.from_codes(np.arange(400).reshape(2, 200) % 2, qa.bipolar, scale=scale, group=64)
    v = q.dequantize()
    for key in (slice(None, None, 2), slice(0, 192, 4), slice(191, None, -1), slice(130, 180, 7), slice(63, 0, -3)):
        assert_packed(q[:, key], v[:, key])
    assert q[:, ::2].group == 32 and q[:, 130:180].group is None
    assert_packed(q[:, np.r_[64:128, 0:64]], v[:, np.r_[64:128, 0:64]])
    assert_packed(qa.repeat(q, 3, 1), v.repeat(3, 1))
    assert qa.repeat(q, 3, 1).group == 192
    for key in (slice(None, None, -1), slice(2, None, 3), [0, 64], slice(63, 190)):
        with pytest.raises(IndexError, match="through a group"):
            q[:, key]


def test_values_come_as_scalars():
    q = qa.from_codes([[0, 1, 2]], qa.ternary)
    assert q[0, 2] == 1 and isinstance(q[0, 2], np.int32) and [int(v) for v in q[0]] == [-1, 0, 1]
    assert isinstance(qa.from_codes([1], qa.uniform(1), scale=0.5)[0], np.float32)
    assert q[0, 2, None].shape == (1,)


def test_an_ellipsis_for_no_axis_parts_arrays_of_indices():
    q = qa.from_codes(np.arange(24).reshape(2, 3, 4) % 3, qa.ternary)
    for key in ((slice(1), [0, 2], ..., [1, 2]), (slice(1), [[0], [2]], ..., 1), (slice(1), ..., [0, 2], [1, 2])):
        assert_packed(q[key], q.dequantize()[key])


def test_tuples_and_ranges_are_indices():
    q = qa.from_codes(np.arange(24).reshape(2, 3, 4) % 3, qa.ternary)
    for key in (((0, 1), (2, 0)), range(2), ((),), (slice(None), (True, False, True))):
        assert_packed(q[key], q.dequantize()[key])


@pytest.mark.parametrize("key", [[], slice(0), np.zeros(130, bool)], ids=str)
@pytest.mark.parametrize("dtype", [qa.uniform(2), qa.basis(2), qa.table(2), qa.uint2], ids=str)
def test_no_elements_under_constants_in_groups(dtype, key):
    """Arrays without groups go through every function that makes new constants."""
    draw = np.random.default_rng(0).normal
    lead = {"basis": (2,), "table": (4,)}.get(dtype.kind, ())
    name = "table" if dtype.kind == "table" else "scale"
    q = qa.from_codes(np.zeros((3, 130), int), dtype, **{name: draw(size=(*lead, 3, 26))}, group=5)[:, key]
    v = q.dequantize()
    assert v.shape == (3, 0)
    for got in (q * 2, q + 1.5, qa.abs(q), qa.maximum(q, 0.5), q[:, ::-1], q + q[:, ::-1], qa.where(q > 0, q, 1)):
        assert_packed(got, got.dequantize())
        assert got.shape == v.shape
    for got in (qa.concatenate([q, -q]), qa.tile(q, (2, 3)), qa.repeat(q, 2, 0), qa.tanh(q)[:, :1]):
        assert_packed(got, np.zeros(got.shape, np.float32))
    for name in ("argmax", "argsort", "cumulative_sum", "sum", "max"):
        assert getattr(qa, name)(q, axis=0).shape == getattr(np, name)(v, axis=0).shape
    flat = qa.tanh(q)[0]
    assert_packed(qa.stack([flat, flat[:0]]), np.zeros((2, 0), np.float32))


def test_what_indexing_with_arrays_refuses():
    q = qa.from_codes(np.zeros((3, 4), int), qa.ternary)
    refused = [
        (lambda: q[[0, 1], [1, 1, 1]], IndexError, r"must broadcast, got the shapes \(2,\), \(3,\)"),
        (lambda: q[[3]], IndexError, "index: 3 is out of bounds for axis 0 of length 3"),
        (lambda: q[:, np.ones(3, bool)], IndexError, r"a mask from axis 1 on must have the shape \(4,\), got \(3,\)"),
        (lambda: q[np.ones((4, 3), bool)], IndexError, r"must have the shape \(3, 4\), got \(4, 3\)"),
        (lambda: q[np.ones((1, 1, 1), bool)], IndexError, "too many indices"),
        (lambda: q[np.ones(3)], TypeError, "packed arrays take"),
        (lambda: qa.take_along_axis(q, [0], 0), ValueError, "indices must have 2 axes that broadcast against"),
        (lambda: qa.take_along_axis(q, [[4]], 1), IndexError, "take_along_axis: 4 is out of bounds"),
        (lambda: qa.take_along_axis(q, [[0.0]], 1), TypeError, "take_along_axis: indices must be integers"),
        (lambda: qa.take(q, [0.5], 0), TypeError, "take: indices must be integers"),
        (lambda: qa.take(q, [-4], 0), IndexError, "take: -4 is out of bounds"),
        (lambda: qa.take(q[0], 1, 0), ValueError, r"none would be left; q\[1\] gives the value"),
        (lambda: qa.take(q.T, [0]), ValueError, "pack the last axis first, with repack"),
        (lambda: qa.repeat(q, -1, 0), ValueError, "repeat: repeats must be integers that are not negative"),
        (lambda: qa.repeat(q, [1, 2], 0), ValueError, "one integer or 3"),
        (lambda: qa.take(q, 3, 0), IndexError, "take: 3 is out of bounds for axis 0"),
        (lambda: qa.repeat(q, 2**63, 1), MemoryError, r"repeat: an array of shape \(3, .* needs at least"),
        (lambda: qa.repeat(q, [2**62] * 4, 1), MemoryError, "repeat: an array of shape"),
        (lambda: qa.repeat(q[:, :0], 1 << 62, 0), MemoryError, "repeat: an axis of"),
        (lambda: qa.tile(q, 2**63), MemoryError, "tile: an array of shape"),
        (lambda: qa.tile(q[:, :0], (1 << 62, 1)), MemoryError, "tile: 4611686018427387904 repeats"),
        (lambda: qa.pad(q, 2**62), MemoryError, "pad: an array of shape"),
        (lambda: qa.broadcast_to(q[:, :1], (3, 2**50)), MemoryError, "broadcast_to: an array of shape"),
    ]
    for call, error, message in refused:
        with pytest.raises(error, match=message):
            call()


@given(st.data(), arrays(groups=(None,), vary=False))
def test_packed_masks_are_numpys_masks(data, x):
    """Masks of all axes or of some, packed on any axis, beside other items."""
    shape = x.values.shape
    first = data.draw(st.integers(0, len(shape) - 1))
    last = data.draw(st.integers(first + 1, len(shape)))
    mask = np.random.default_rng(data.draw(seeds())).random(shape[first:last]) < 0.5
    packed = qa.encode(mask, values=qa.uint1, axis=data.draw(st.integers(0, mask.ndim - 1)))
    lead = (slice(None),) * first
    assert_packed(x.q[(*lead, packed)], x.values[(*lead, mask)])
    assert_packed(x.q[(..., packed, *(slice(None),) * (len(shape) - last))], x.values[(*lead, mask)])


@given(arrays(groups=(None,), vary=False))
def test_an_arrays_own_comparison_selects_its_elements(x):
    assert_packed(x.q[x.q > 0], x.values[x.values > 0])
    assert_packed(x.q[x.q != x.q], x.values[:0].reshape(-1))


@pytest.mark.parametrize(
    ("mask", "error", "text"),
    [
        (qa.encode([1, -1, 1], values=(-1, 1)), TypeError, "uint1 array without a scale, got bipolar"),
        (qa.encode([0, 2, 1], values=range(4)), TypeError, "comparisons such as q > 0 or q != 0 make one"),
        (qa.encode([0, 1, 1], values=(0, 1)) * 0.5, TypeError, "uint1 array without a scale"),
        (qa.encode([0, 1], values=(0, 1)), IndexError, r"must have the shape \(3,\), got \(2,\)"),
    ],
)
def test_other_packed_arrays_are_no_masks(mask, error, text):
    with pytest.raises(error, match=text):
        qa.encode([[0, 1], [1, 0], [1, 1]], values=range(2))[mask]
    with pytest.raises(TypeError, match=r"by accident: .*dequantize\(\)"):
        np.arange(mask.size)[mask]
