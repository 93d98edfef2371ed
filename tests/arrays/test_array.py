"""QuantArray itself: what it shows, what it keeps, what cannot be changed, and use from threads and forked children."""

import copy
import pickle
import threading
from unittest import mock

import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.core.dtypes import Constants
from quantarray.ops.manipulation import repacking


def example():
    """A 4-bit array with a scale an output channel, 192 elements a row."""
    x = np.random.default_rng(0).normal(size=(6, 3, 3, 192))
    return qa.quantize(x, qa.Uniform(4), scale_axis=0)


def views(q):
    """Views and copies of the example, none with the words of the whole."""
    return [
        q,
        q[1:4],
        q[::-1, 1:, ::2],
        q[..., 64:128],
        q[..., 5:70],
        q.T,
        q.transpose(3, 0, 2, 1),
        q.reshape(6, 9, -1),
    ]


def same(a, b):
    validate(a)
    constants = [[(n, c.tolist(), k) for n, c, k in q.constants.items()] for q in (a, b)]
    words = np.array_equal(a.words, b.words)
    return (
        (a.shape, a.axis, a.dtype, a.group) == (b.shape, b.axis, b.dtype, b.group)
        and words
        and constants[0] == constants[1]
    )


# what it shows


def test_attributes():
    q = example()
    assert (q.shape, q.ndim, q.size, len(q)) == ((6, 3, 3, 192), 4, 6 * 9 * 192, 6)
    assert (q.bits, q.axis, q.device, q.group) == (4, 3, "cpu", None)
    assert q.words.shape == (4, 6, 3, 3, 3) and q.scale.shape == (6, 1, 1, 1) and q.offset is None
    assert q.nbytes == 4 * 6 * 9 * 3 * 8 + 6 * 4 and q.constants.nbytes == 24
    assert q.levels.shape == (15, 6, 1, 1, 1) and q.T.shape == q.shape[::-1]
    assert (np.shape(q), np.ndim(q), np.size(q)) == (q.shape, q.ndim, q.size)


def test_repr():
    q = qa.encode(np.arange(20).reshape(2, 10) % 4, range(4))
    assert repr(q) == (
        "QuantArray(shape=(2, 10), dtype=uint2, bits=2, axis=1, no constants, device=cpu, 32 bytes, "
        "2.5x smaller than float32, values: 0 1 2 3 0 1 ..)"
    )
    assert str(q) == repr(q)
    assert "scale=" in repr(example()) and ".. along axis 0" in repr(example())
    grouped = qa.quantize(np.ones((2, 100)), qa.Uniform(4, symmetric=False), group=32)
    assert "along axis 0 and 1 in groups of 32" in repr(grouped)
    assert "scale=none," in repr(qa.quantize(np.ones((2, 3)), qa.Sign(scale=True), scale_axis=0)[:0])
    assert "values: none" in repr(q[:0]) and "values: 0)" in repr(q[:1, :1])
    basis = qa.from_codes([1], qa.basis(5), scale=[1.0, 2, 3, 4, 5])
    assert "scale=[1, 2, 3, 4, ..], offset=0" in repr(basis)
    for view in views(example()):
        assert f"shape={view.shape}" in repr(view) and f"axis={view.axis}" in repr(view)


def test_levels_and_values():
    q = qa.from_codes([2, 0, 1], qa.ternary, scale=0.5)
    assert q.levels.tolist() == [[-0.5], [0], [0.5]] and q.dequantize().tolist() == [0.5, -0.5, 0]
    assert q.codes().tolist() == [2, 0, 1] and q.codes().dtype == np.uint8
    assert qa.encode([2], (2, 7)).dequantize().dtype == np.int32


@pytest.mark.parametrize("group", [None, 64])
@pytest.mark.parametrize("shape", [(70, 3), (130, 2, 65), (1, 4), (0, 3)])
def test_rows_along_the_packed_axis(shape, group):
    """One repack serves all rows, and each is what an index gives."""
    scale = np.arange(1, 1 + max(1, -(-shape[0] // (group or 1)))).reshape(-1, *(1,) * (len(shape) - 1))
    codes = np.arange(np.prod(shape)).reshape(shape) % 4
    q = qa.from_codes(codes, qa.uint2, 0, scale=scale if shape[0] and group else 0.5, group=group)
    with mock.patch(
        "quantarray.ops.manipulation.repacking._repacked_words", wraps=repacking._repacked_words
    ) as repacked:
        rows = list(q)
    assert len(rows) == shape[0] and repacked.call_count == 1
    for i, row in enumerate(rows):
        expected = q[i]
        assert (row.axis, row.group, row.constants.shapes) == (
            expected.axis,
            expected.group,
            expected.constants.shapes,
        )
        assert np.array_equal(row.words, expected.words) and np.array_equal(row.dequantize(), q.dequantize()[i])


def test_len_and_iter():
    q = example()
    rows = list(q)
    assert len(rows) == len(q) == 6
    for row, values in zip(rows, q.dequantize(), strict=True):
        validate(row)
        np.testing.assert_array_equal(row.dequantize(), values)
    assert len(q[:0]) == 0 and list(q[:0]) == []
    assert list(qa.encode(np.zeros((0, 3)), (0,), axis=0)) == []


# what cannot be changed


def test_nothing_can_be_written():
    for q in (*views(example()), example().copy(), pickle.loads(pickle.dumps(example())), copy.deepcopy(example())):
        validate(q)
        for a in (q.words, q.scale, q.constants.scale):
            with pytest.raises(ValueError, match="read-only"):
                a[...] = 0
        for name in ("shape", "words", "dtype", "axis", "scale", "anything"):
            with pytest.raises(AttributeError):
                setattr(q, name, None)
        with pytest.raises(AttributeError):
            q.constants.scale = None


def test_what_goes_in_and_out_is_a_copy():
    words = np.array([[5]], np.uint64)
    scale = np.float32([2])
    q = qa.from_words(words, qa.bipolar, (3,), scale=scale)
    words[:], scale[:] = 0, 0
    assert q.dequantize().tolist() == [2, -2, 2]
    x = np.float32([1, -1])
    made = qa.quantize(x, qa.Sign())
    x[:] = 0
    q.codes()[:] = 0
    q.dequantize()[:] = 0
    assert made.codes().tolist() == [1, 0] and q.codes().tolist() == [1, 0, 1]
    image = np.ones((1, 2, 2, 64), np.int8)
    packed = qa.conv2d(image, qa.encode(np.ones((1, 1, 1, 64), int), (-1, 1)))
    image[:] = 0
    assert (packed == 64).all()


def broken():
    """Arrays that break one invariant each, made without the checks of the public functions."""
    q = example()
    words, law = q.words.copy(), q.constants

    def scale(a):
        return Constants(scale=a)

    writeable, changed = qa.QuantArray(words, q.dtype, q.shape, 3, law), scale(law.scale)
    writeable._words = words.copy()
    changed._stored["scale"] = law.scale.copy()
    tail = qa.QuantArray(np.full((1, 1), 8, np.uint64), qa.bipolar, (3,), 0)
    return {
        "packed one among them": qa.QuantArray(words, q.dtype, q.shape, 4, law),
        "at least one axis": qa.QuantArray(words, q.dtype, (), 0, law),
        "words uint64": qa.QuantArray(words.view(np.int64), q.dtype, q.shape, 3, law),
        r"words uint64 \(4, 6, 3, 3, 4\)": qa.QuantArray(words, q.dtype, (6, 3, 3, 193), 3, law),
        "words must be read-only": writeable,
        "after element 3 .* must be zero": tail,
        "codes below 15, got 15": qa.QuantArray(np.full_like(words, 2**64 - 1), q.dtype, q.shape, 3, law),
        "needs the constants": qa.QuantArray(words, q.dtype, q.shape, 3, Constants(offset=law.scale)),
        "scale must have the shape": qa.QuantArray(words, q.dtype, q.shape, 3, Constants(scale=law.scale[0])),
        "group needs at least one": qa.QuantArray(words, q.dtype, q.shape, 3, Constants(law.scale, group=0)),
        "finite read-only float32": qa.QuantArray(words, q.dtype, q.shape, 3, scale(np.ones((1,) * 4))),
        "must be finite": qa.QuantArray(words, q.dtype, q.shape, 3, scale(np.full((1,) * 4, np.nan, np.float32))),
        "must be .*read-only": qa.QuantArray(words, q.dtype, q.shape, 3, changed),
        "fit in float32": qa.QuantArray(words, q.dtype, q.shape, 3, scale(np.full((1,) * 4, 3e38, np.float32))),
    }


@pytest.mark.parametrize("message", broken())
def test_validate(message):
    with pytest.raises(ValueError, match=message):
        validate(broken()[message])


# copies


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q)), qa.QuantArray.copy]
)
def test_duplicates(duplicate):
    for q in views(example()):
        made = duplicate(q)
        assert same(made, q) and made.digest() == q.digest() and qa.array_equal(made, q)
    for dtype, constants in (
        (qa.basis(2), {"scale": [1.0, 2]}), (qa.table(2), {"table": [1.0, 2, 3, 4]}), (qa.int2, {}),
        (qa.uniform(2), {"scale": np.ones((1, 2)), "offset": 1, "group": 3}),
    ):  # fmt: skip
        q = qa.from_codes([[0, 1, 2, 3, 0]], dtype, **constants)
        assert same(duplicate(q), q)
    assert duplicate(qa.encode(np.zeros((0, 3)), (0, 1))).shape == (0, 3)


def test_digest_of_views_and_copies():
    q = example()
    for view in views(q):
        assert view.digest() == view.copy().digest()
    assert q.T.T.digest() == q.digest() == q[:].digest() == q.reshape(6, 9, 192).reshape(q.shape).digest()
    assert len({view.digest() for view in views(q)}) == len(views(q))


def test_pickles_hold_what_the_array_shows():
    """A pickle has neither the words of the view's base nor the layouts that kernels made."""
    q = qa.encode(np.ones((64, 3, 3, 256), np.int8), (-1, 1))
    small = len(pickle.dumps(q))
    assert small < q.nbytes + 1000
    assert len(pickle.dumps(q[:1])) < q.nbytes / 64 + 1000
    assert len(pickle.dumps(q[..., :64])) < q.nbytes / 4 + 1000
    qa.conv2d(qa.encode(np.ones((1, 4, 4, 256), np.int8), (-1, 1)), q, padding=1)
    assert q.nbytes_cached > 0 and len(pickle.dumps(q)) == small
    for made in (pickle.loads(pickle.dumps(q)), copy.deepcopy(q), copy.copy(q), q.copy()):
        assert made.nbytes_cached == 0


# what kernels keep


def test_cache():
    x = qa.encode(np.ones((2, 5, 5, 64), np.int8), (-1, 1))
    w = qa.encode(np.ones((8, 3, 3, 64), np.int8), (-1, 1))
    nbytes = w.nbytes
    assert w.nbytes_cached == 0
    first = qa.conv2d(x, w, padding=1)
    kept = w.nbytes_cached
    assert kept >= w.words.nbytes and w.nbytes == nbytes
    np.testing.assert_array_equal(qa.conv2d(x, w, padding=1), first)
    assert w.nbytes_cached == kept
    w.drop_cache()
    assert w.nbytes_cached == 0
    np.testing.assert_array_equal(qa.conv2d(x, w, padding=1), first)
    nchw = w.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(
        qa.conv2d(x.transpose(0, 3, 1, 2), nchw, padding=1, data_format="NCHW"), first.transpose(0, 3, 1, 2)
    )
    assert nchw.nbytes_cached >= kept - nbytes
    nchw.drop_cache()
    assert nchw.nbytes_cached == 0 and w.nbytes_cached == kept


def test_cached_builds_once():
    q, calls = example(), []

    def build():
        calls.append(1)
        return np.ones(3)

    assert q._cached("key", build) is q._cached("key", build) and calls == [1] and q.nbytes_cached == 24


# equality


def test_array_equal():
    x = np.random.default_rng(0).integers(-1, 2, (3, 70))
    q = qa.encode(x, (-1, 0, 1))
    equal = [
        q, q.copy(), q[:], q.T.T, qa.encode(x, (-1, 0, 1), axis=0), qa.encode(x, (1, -1, 0)), qa.encode(x, qa.int4),
        qa.from_codes(x + 1, qa.ternary, scale=1.0), qa.from_codes(x + 1, qa.uniform(2), scale=1, offset=-1),
        qa.from_codes(x + 1, qa.table(2), table=[-1, 0, 1, 1]), qa.from_codes(x + 1, qa.ternary, scale=np.ones((3, 1))),
        qa.from_codes(x + 1, qa.ternary, scale=np.ones((1, 3)), group=32), qa.encode(x.astype(float), (-1, 0, 1)),
    ]  # fmt: skip
    for a in equal:
        for b in equal:
            assert qa.array_equal(a, b) is True
    other = x.copy()
    other[2, 69] ^= 1
    unequal = [
        qa.encode(other, range(-2, 3)), qa.encode(x[:2], (-1, 0, 1)), q.T, q[None], q[:, :69],
        qa.from_codes(x + 1, qa.ternary, scale=2.0),
    ]  # fmt: skip
    for a in unequal:
        assert qa.array_equal(a, q) is False and qa.array_equal(q, a) is False
    assert qa.array_equal(q[:0], qa.encode(np.zeros((0, 70)), (5,)))


def test_equal_values_of_different_codes():
    """Codes of the same value are equal: a table may repeat one, and a scale of 0 makes all the same."""
    repeated = [qa.from_codes([c], qa.table(2), table=[1, 2, 2, 3]) for c in (1, 2)]
    assert qa.array_equal(*repeated) and repeated[0].digest() != repeated[1].digest()
    assert qa.array_equal(*(qa.from_codes([c], qa.bipolar, scale=0) for c in (0, 1)))
    assert not qa.array_equal(qa.encode([2**24 + 1], (2**24 + 1,)), qa.from_codes([0], qa.table(1), table=[2.0**24, 0]))


# devices, @ and NumPy on the left


def test_devices():
    q = example()
    assert q.to_device("cpu") is q
    with qa.device("cpu"):
        assert qa.encode([1], (1,)).device == "cpu"


def test_numpy_on_the_left_of_matmul():
    b = qa.encode(np.arange(12).reshape(4, 3) % 4, range(4), axis=0)
    a = np.arange(8, dtype=np.int8).reshape(2, 4)
    expected = a.astype(int) @ b.dequantize()
    for result in (a @ b, np.matmul(a, b), qa.matmul(a, b)):
        assert result.dtype == np.int32
        np.testing.assert_array_equal(result, expected)


# threads


def test_threads_share_what_is_built():
    """One result is kept of a build that threads race for."""
    q, barrier, found = example(), threading.Barrier(8), []

    def work():
        barrier.wait()
        found.append(q._cached("key", lambda: np.ones(1)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8 and len({id(a) for a in found}) == 1


def test_elements_that_are_read_one_after_the_other():
    """torch.tensor([q, q]) does so. A block of values is unpacked for the first, and the next are read from it."""
    q = qa.encode(np.arange(1300) % 5, values=range(8))
    order = np.random.default_rng(0).permutation(1300).tolist()
    assert [q[i] for i in order] == [i % 5 for i in order] and type(q[7]) is np.int32
    assert q[-1] == 1299 % 5 and q[np.int64(600)] == 0
    with pytest.raises(IndexError, match="index: 1300 is out of bounds for axis 0 of length 1300"):
        q[1300]
    real = q * 0.5
    assert real[0] == 0 and real[4] == 2.0 and type(real[4]) is np.float32


def test_the_shape_of_words_is_not_that_of_the_array():
    q, scaled = qa.encode([[0, 1], [1, 0]], values=(0, 1)), qa.quantize(np.eye(2), qa.XNOR(), scale_axis=0)
    q.words.shape = (-1,)
    scaled.scale.shape = (1, 2)
    assert q.codes().tolist() == [[0, 1], [1, 0]] and scaled.scale.shape == (2, 1)


def test_schemes_of_files_are_shown_in_a_line():
    q = qa.QuantArray(np.zeros((1, 1), np.uint64), qa.uint1, (3,), 0, scheme="red\x1b[31m\n" + "a" * 1000)
    assert "\x1b" not in repr(q) and "\n" not in repr(q) and len(repr(q)) < 400
