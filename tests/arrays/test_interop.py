"""Other libraries' arrays as operands, and packed arrays given to other libraries; stand-ins need none installed.

`tests/with_torch` has the same with PyTorch, JAX and ml_dtypes.
"""

import ctypes

import numpy as np
import pytest

import quantarray as qa
from quantarray.arrays.bfloat16 import _DLTensor, _pointer
from quantarray.ops.manipulation import indexing

VALUES = np.array([[1.0, -2.5, 0.0, 3.140625], [-0.0, 1e30, -1e-30, 7.0]])
_BFLOAT = 4  # DLPack's code


class Tensor:
    """A tensor on the CPU: `a` through DLPack, as bfloat16 if it is called so."""

    def __init__(self, a, dtype=None, requires_grad=False, fails=None):
        self.a, self.requires_grad, self.fails = a, requires_grad, fails
        self.dtype = dtype or f"torch.{a.dtype}"

    def __dlpack_device__(self):
        if self.fails == "device":
            raise ValueError("Unknown device type meta for Dlpack")
        return 1, 0

    def __dlpack__(self, **kwargs):
        if self.fails:
            raise BufferError(self.fails)
        capsule = self.a.__dlpack__()
        if "bfloat16" in str(self.dtype):
            _DLTensor.from_address(_pointer(capsule, b"dltensor")).code = _BFLOAT
        return capsule


def halves(a):
    """The upper halves of float32 numbers, which are bfloat16 where the lower ones are zero."""
    return (a.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def brain(a, dtype="torch.bfloat16"):
    return Tensor(halves(a), dtype)


def test_the_struct_has_the_size_of_dlpack():
    assert _DLTensor.code.offset == ctypes.sizeof(ctypes.c_void_p) + 12


@pytest.mark.parametrize("dtype", ["torch.bfloat16", "bfloat16"])
def test_bfloat16_through_dlpack(dtype):
    x = brain(VALUES, dtype)
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(x)
    for quantizer in (qa.Sign(), qa.Uniform(4, step=0.5, signed=True), qa.LloydMax(2)):
        assert qa.array_equal(qa.quantize(x, quantizer), qa.quantize(widened(x.a), quantizer))
    strided = Tensor(np.asfortranarray(x.a)[:, ::2], dtype)
    assert np.array_equal(qa.quantize(strided, qa.Sign()).codes(), qa.quantize(widened(x.a)[:, ::2], qa.Sign()).codes())
    assert x.a.dtype == np.uint16 and np.array_equal(x.a, halves(VALUES))  # left as it was


LEVELS = np.array([[3.0, 0.0, 1.0, 2.0], [1.0, 1.0, 0.0, 3.0]])
W = qa.encode(np.ones((2, 4), int), values=(-1, 1))
TAKEN = {
    "encode": lambda a: qa.encode(a, range(4)).codes(),
    "from_dlpack": lambda a: qa.from_dlpack(a, qa.uint2).codes(),
    "calibration": lambda a: qa.quantize(LEVELS, qa.Uniform(2), calibration=a).dequantize(),
    "choose": lambda a: repr(qa.choose(a, 2)),
    "relu_mask": lambda a: qa.relu_mask(a).codes(),
}


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32"])
def test_functions_take_other_floats(name, kind):
    dense = LEVELS.astype(np.float32)
    other = brain(dense) if kind == "bfloat16" else Tensor(dense.astype(kind))
    if name == "from_dlpack":
        assert np.array_equal(TAKEN[name](other), LEVELS)
    else:
        assert np.array_equal(TAKEN[name](other), TAKEN[name](dense))


def test_products_take_bytes_and_biases():
    x = np.arange(8, dtype=np.int8).reshape(2, 4)
    assert np.array_equal(qa.linear(Tensor(x), W), qa.linear(x, W))
    image, w = np.arange(32, dtype=np.uint8).reshape(1, 4, 4, 2), qa.encode(np.ones((3, 3, 3, 2), int), values=(-1, 1))
    assert np.array_equal(qa.conv2d(Tensor(image), w), qa.conv2d(image, w))
    assert np.array_equal(qa.nn.Dense(W)(Tensor(x)), qa.linear(x, W))
    bias = np.float32([0.5, -2.0])
    assert np.array_equal(qa.linear(x, W, bias=brain(bias)), qa.linear(x, W, bias=bias))


DETACH = {
    "quantize": lambda t: qa.quantize(t, bits=2),
    "encode": lambda t: qa.encode(t, range(4)),
    "from_dlpack": lambda t: qa.from_dlpack(t, qa.uint2),
    "linear": lambda t: qa.linear(t, W),
    "bias": lambda t: qa.linear(W, W, bias=t),
}


@pytest.mark.parametrize("name", DETACH)
@pytest.mark.parametrize("dtype", [None, "torch.bfloat16"])
def test_a_gradient_is_refused_by_its_fix(name, dtype):
    tensor = Tensor(halves(VALUES) if dtype else VALUES, dtype, requires_grad=True)
    with pytest.raises(TypeError, match=r"requires a gradient.*pass (x|bias)\.detach\(\)") as caught:
        DETACH[name](tensor)
    assert "lists of equal lengths" not in str(caught.value)


def test_other_refusals():
    with pytest.raises(TypeError, match=r"quantize: x \(Tensor of torch\.float32\) gives no NumPy array: sparse; conv"):
        qa.quantize(Tensor(np.float32([1, 2]), fails="sparse"), bits=2)
    with pytest.raises(qa.DeviceError, match="quantize: x is on a device that DLPack does not know: Unknown device"):
        qa.quantize(Tensor(np.float32([1, 2]), fails="device"), bits=2)
    with pytest.raises(TypeError, match=r"linear: x must be a QuantArray or an int8/uint8 array, got Tensor"):
        qa.linear(Tensor(np.int32([[1, 2, 3, 4]])), W)


# Packed arrays given away


def test_dense_consumers_are_refused_at_once(monkeypatch):
    """PyTorch asks for DLPack before it asks for elements."""
    q = qa.ones(100)
    for protocol in ("__dlpack__", "__dlpack_device__", "__array__"):
        assert hasattr(q, protocol)
        with pytest.raises(TypeError, match=r"\.dequantize\(\)"):
            getattr(q, protocol)()
    for call in (np.asarray, np.array, np.from_dlpack, lambda q: np.array([q, q]), lambda q: np.float32(q)):
        with pytest.raises(TypeError, match=r"\.dequantize\(\)"):
            call(q)
    with pytest.raises(TypeError, match="from_dlpack: x is packed already"):
        qa.from_dlpack(q)


@pytest.mark.parametrize("group", [None, 1, 100])
@pytest.mark.parametrize("size", [0, 1, 70, 40_000])
def test_iteration_unpacks_blocks(monkeypatch, size, group):
    x = np.random.default_rng(0).standard_normal(size)
    q = qa.quantize(x, qa.Uniform(2, step=None if group else 0.5), group=group)
    asked = []
    getitem = indexing.getitem
    monkeypatch.setattr(indexing, "getitem", lambda q, key: asked.append(key) or getitem(q, key))
    values = list(q)
    assert len(asked) <= size / 10_000 + 1
    assert np.array_equal(values, q.dequantize())
    assert all(type(v) is np.float32 for v in values)
    monkeypatch.undo()
    assert size == 0 or (type(values[0]) is type(q[0]) and values[0] == q[0])


def test_list_like_consumers():
    q = qa.encode(np.array([3, 0, 2, 1]), values=range(4))
    assert sorted(q) == [0, 1, 2, 3] and sum(q) == 6 and tuple(q) == (3, 0, 2, 1) and max(q) == 3
    first, *_, last = q
    assert (first, last) == (3, 1)
    rows = list(q.reshape(2, 2))
    assert [type(row) for row in rows] == [qa.QuantArray] * 2 and rows[1].dequantize().tolist() == [2, 1]
    assert [row.axis for row in qa.encode(np.ones((3, 4), int), (-1, 1), axis=0)] == [0] * 3
    stacked = np.stack([q, q])
    assert isinstance(stacked, qa.QuantArray) and stacked.shape == (2, 4)
