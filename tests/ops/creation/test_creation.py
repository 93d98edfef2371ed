"""Arrays of known values, and from others' bits: np.packbits, bitarray, DLPack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import PACKED, any_samples, shapes
from results import assert_packed
from strategies import integer_dtypes, seeds

import quantarray as qa


@given(shapes(), integer_dtypes(), st.data())
def test_full(place, dtype, data):
    shape, axis = place
    value = data.draw(st.sampled_from(dtype.levels))
    got = qa.full(shape, value, dtype, axis)
    assert_packed(got, np.full(shape, value))
    assert got.dtype == dtype and got.axis == axis
    for name, one in (("zeros", 0), ("ones", 1)):
        if one in dtype.levels:
            assert_packed(getattr(qa, name)(shape, dtype, axis), np.full(shape, one))
            assert_packed(getattr(qa, f"{name}_like")(got), np.full(shape, one))
    assert_packed(qa.full_like(got, value), np.full(shape, value))
    assert_packed(qa.empty(shape, dtype, axis), np.full(shape, dtype.levels[0]))


@given(any_samples(), st.data())
def test_like_real_levels(x, data):
    """A level that every index has, in the law of the array; others are refused."""
    q = x.q
    empty = qa.empty_like(q)
    assert (empty.codes() == 0).all() and empty.dtype == q.dtype and empty.axis == q.axis
    if not q.levels.size:
        return
    value = data.draw(st.sampled_from(q.levels.ravel()[:8].tolist()))
    if (q.levels == value).any(axis=0).all():
        got = qa.full_like(q, value)
        assert_packed(got, np.full(q.shape, value, x.values.dtype))
        assert got.dtype == q.dtype
    else:
        with pytest.raises(ValueError, match=r"full_like: .* must have the level"):
            qa.full_like(q, value)


@given(st.integers(-300, 300), st.integers(-300, 300), st.integers(-9, 9).filter(bool))
def test_arange(start, stop, step):
    expected = np.arange(start, stop, step)
    if not (len(expected) and expected.min() >= -128 and expected.max() <= (127 if expected.min() < 0 else 255)):
        if len(expected):
            with pytest.raises(ValueError, match="arange: no dtype of up to 8 bits"):
                qa.arange(start, stop, step)
        if len(expected) <= 256:
            dtype = qa.integers(expected.tolist() or [0])
            assert_packed(qa.arange(start, stop, step, dtype), expected)
        return
    got = qa.arange(start, stop, step)
    assert_packed(got, expected)
    half = got.bits and [getattr(qa, f"uint{b}", qa.uint1) for b in range(1, got.bits)]
    assert not [d for d in half if set(expected.tolist()) <= set(d.levels)]


@given(st.integers(0, 70), st.sampled_from([None, *PACKED]), st.integers(-70, 210), st.booleans(), integer_dtypes())
def test_eye(n, m, k, first, dtype):
    if not {0, 1} <= set(dtype.levels):
        dtype = qa.uint1
    assert_packed(qa.eye(n, m, k, dtype, 0 if first else -1), np.eye(n, m, k))


# bits


@given(shapes(), st.sampled_from(["big", "little"]), seeds())
def test_packbits_both_ways(place, order, seed):
    shape, axis = place
    x = np.random.default_rng(seed).integers(0, 2, shape).astype(bool)
    packed = np.packbits(x, axis=axis, bitorder=order)
    for data in (packed, packed.tobytes(), memoryview(np.ascontiguousarray(packed)).cast("B") if x.size else b""):
        got = qa.from_packbits(data, shape, axis, order)
        assert_packed(got, x.astype(np.int32))
    np.testing.assert_array_equal(qa.to_packbits(got, order), packed)
    assert_packed(qa.pack_bits(x, axis), x.astype(np.int32))
    np.testing.assert_array_equal(qa.unpack_bits(got), x)
    assert qa.unpack_bits(got).dtype == bool


def test_bits_behind_the_last_are_ignored():
    got = qa.from_packbits(b"\xff\xff", 9)
    assert_packed(got, [1] * 9)
    assert_packed(qa.from_packbits(b"\xff\xff", 9, bitorder="little"), [1] * 9)


class Bits(bytearray):
    """What a bitarray has: a buffer, a length in bits, an order."""

    def __init__(self, x, order, as_method):
        super().__init__(np.packbits(x, bitorder=order).tobytes())
        self.endian = (lambda: order) if as_method else order
        self.size = len(x)

    def __len__(self):
        return self.size


@given(st.sampled_from(PACKED), st.sampled_from(["big", "little"]), st.booleans(), seeds())
def test_bitarrays(n, order, as_method, seed):
    x = np.random.default_rng(seed).integers(0, 2, n).astype(bool)
    assert_packed(qa.from_bitarray(Bits(x, order, as_method)), x.astype(np.int32))
    if n % 5 == 0:
        assert_packed(qa.from_bitarray(Bits(x, order, as_method), (5, n // 5)), x.reshape(5, -1).astype(np.int32))


def test_real_bitarrays():
    bitarray = pytest.importorskip("bitarray").bitarray
    x = np.random.default_rng(0).integers(0, 2, 77)
    for order in ("big", "little"):
        assert_packed(qa.from_bitarray(bitarray(x.tolist(), endian=order)), x)
    back = bitarray(buffer=qa.to_packbits(qa.pack_bits(x), "little").tobytes(), endian="little")[:77]
    assert back.tolist() == x.tolist()


# DLPack


class Elsewhere:
    """Another library's array: DLPack and nothing else."""

    def __init__(self, x, kind=1):
        self.x, self.kind = x, kind

    def __dlpack__(self, **kwargs):
        return self.x.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return (self.kind, 0)


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.array([[True, False, True]]), qa.uint1),
        (np.array([[3, 255, 0]], np.uint8), qa.uint8),
        (np.array([[3, -128, 0]], np.int8), qa.int8),
    ],
)
def test_dlpack(x, dtype):
    got = qa.from_dlpack(Elsewhere(x), axis=0)
    assert_packed(got, x.astype(np.int32))
    assert got.dtype == dtype and got.axis == 0 and not np.shares_memory(got.words, x)
    wide = Elsewhere(x.astype(np.int64))
    assert_packed(qa.from_dlpack(wide, dtype), x.astype(np.int32))
    assert_packed(qa.encode(wide, dtype), x.astype(np.int32))


def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1, -1, 1], [-1, -1, 1]])
    assert_packed(qa.from_dlpack(x, qa.bipolar), x.numpy())
    assert_packed(qa.from_dlpack(x > 0), (x > 0).int().numpy())
    assert_packed(qa.from_dlpack(x.T.to(torch.int8)), x.T.numpy())
    assert_packed(qa.pack_bits(x > 0), (x > 0).int().numpy())
    assert qa.quantize(x.float(), qa.Sign()).shape == (2, 3)
    words = torch.from_dlpack(qa.pack_bits(x > 0).words.copy())
    assert_packed(qa.from_words(words, qa.uint1, (2, 3)), (x > 0).int().numpy())


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda: qa.full(3, 5, qa.bipolar), ValueError, ["full: bipolar has no level 5", "integers(5, ..)"]),
        (lambda: qa.full(3, 300), ValueError, ["full: no dtype of up to 8 bits", "300"]),
        (lambda: qa.full(3, 0.5), ValueError, ["full: no dtype of up to 8 bits", "0.5"]),
        (lambda: qa.full((), 1), ValueError, ["full: shape must have at least one axis to pack"]),
        (lambda: qa.full(3, "a"), TypeError, ["full: fill_value must be a number"]),
        (lambda: qa.full(-1, 1), ValueError, ["full: a length of shape must be at least 0"]),
        (lambda: qa.zeros(3, np.int8), TypeError, ["zeros: dtype must be one of quantarray's", "int8"]),
        (lambda: qa.zeros(3, qa.bipolar), ValueError, ["zeros: bipolar has no level 0"]),
        (lambda: qa.ones(3, qa.uniform(2)), TypeError, ["ones: dtype must have integer levels", "from_codes"]),
        (lambda: qa.empty((2, 3), axis=2), np.exceptions.AxisError, ["empty: axis 2 is out of bounds"]),
        (lambda: qa.zeros((2**40, 2**40)), MemoryError, ["zeros: an array of shape", "needs at least"]),
        (lambda: qa.eye(2**40), MemoryError, ["eye: an array of shape"]),
        (lambda: qa.eye(2.0), TypeError, ["eye: n must be an integer"]),
        (lambda: qa.arange(0, 5, 0), ValueError, ["arange: step must not be 0"]),
        (lambda: qa.arange(4, dtype=qa.ternary), ValueError, ["arange: ternary has no level 2"]),
        (lambda: qa.arange(10**12), ValueError, ["arange: no dtype"]),
        (lambda: qa.pack_bits([0.5]), TypeError, ["pack_bits: x must be bools or integers", "x > 0"]),
        (lambda: qa.unpack_bits(qa.full(3, 2)), TypeError, ["unpack_bits: q must be a uint1 array", "uint2"]),
        (lambda: qa.from_packbits(b"abc", 9), ValueError, ["from_packbits: data must be 2 bytes", "uint8 (3,)"]),
        (lambda: qa.from_packbits(b"a", 8, bitorder="up"), ValueError, ["bitorder must be one of 'big', 'little'"]),
        (lambda: qa.from_packbits([1], 8), ValueError, ["data must be 1 bytes, uint8 (1,), got int64"]),
        (lambda: qa.from_bitarray(b"a"), TypeError, ["from_bitarray: bits must be a bitarray, got bytes"]),
        (lambda: qa.from_bitarray([1]), TypeError, ["from_bitarray: bits must be a bitarray, got list"]),
        (lambda: qa.from_dlpack([1]), TypeError, ["from_dlpack: x must have __dlpack__, got list", "encode("]),
        (lambda: qa.from_dlpack(np.ones(3)), TypeError, ["from_dlpack: float64 needs the dtype="]),
        (lambda: qa.from_dlpack(np.ones(3), qa.table(1)), TypeError, ["from_dlpack: dtype must have integer levels"]),
        (lambda: qa.from_dlpack(np.array([2]), qa.bipolar), ValueError, ["from_dlpack: x must hold only", "got 2 at"]),
        (lambda: qa.from_dlpack(Elsewhere(np.ones(3), 10)), qa.DeviceError, ["a ROCm device", "move it there first"]),
        (lambda: qa.from_dlpack(np.array(True)), ValueError, ["from_dlpack: x must have at least one axis to pack"]),
    ],
)  # fmt: skip
def test_messages(call, error, parts):
    with pytest.raises(error) as caught:
        call()
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)
