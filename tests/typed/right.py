"""A user's script whose types mypy and pyright must agree on, and which runs: each type is compared with what came.

`tests/package/test_types.py` gives it to both checkers and runs it.
"""

from importlib.resources import files
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import quantarray as qa

Array = np.ndarray[Any, Any]


def check(value: object, kind: type) -> None:
    assert isinstance(value, kind), (type(value), kind)


def square(v: Array) -> Array:
    return np.asarray(v * v)


rng = np.random.default_rng(0)
image = rng.standard_normal((1, 8, 8, 64))
raw: NDArray[np.uint8] = rng.integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)

# Making arrays

x = qa.quantize(image, qa.Sign())
w = qa.quantize(rng.standard_normal((16, 3, 3, 64)), qa.Sign(scale=True), scale_axis=0)
first = qa.encode(np.ones((16, 3, 3, 3), int), values=(-1, 1))
q = qa.encode(np.arange(12).reshape(3, 4) % 4, values=range(4))
thresholds = qa.Thresholds([0.0])
check(assert_type(x, qa.QuantArray), qa.QuantArray)
check(assert_type(q.T, qa.QuantArray), qa.QuantArray)
check(assert_type(q[q > 1], qa.QuantArray), qa.QuantArray)
check(assert_type(q[:, q[0] > 1], qa.QuantArray), qa.QuantArray)
check(assert_type(q.codes(), Array), np.ndarray)
check(assert_type(q.dequantize(), Array), np.ndarray)
check(assert_type(q.dtype, qa.DType), qa.DType)
check(assert_type(qa.uint2, qa.DType), qa.DType)
check(assert_type(q.shape, tuple[int, ...]), tuple)

# Products: dense, or packed again

check(assert_type(qa.conv2d(x, w), Array), np.ndarray)
check(assert_type(qa.conv2d(x, w, padding=1, stride=(2, 2)), Array), np.ndarray)
check(assert_type(qa.conv2d(x, w, padding="same", requantize=thresholds), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.conv2d(raw, first, padding=((0, 1), (1, 0))), Array), np.ndarray)
check(assert_type(qa.conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), data_format="NCHW"), Array), np.ndarray)
check(assert_type(qa.linear(q, q), Array), np.ndarray)
check(assert_type(qa.linear(q, q, bias=[1, 2, 3], requantize=qa.Thresholds([3])), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.linear(raw[0, 0, :, :1].astype(np.int8), q[:, :1]), Array), np.ndarray)
check(assert_type(qa.linear(image[0, 0] > 0, image[0, 1] > 0), Array), np.ndarray)
check(assert_type(q @ q.T, Array), np.ndarray)
check(assert_type(qa.matmul(q, q.T, requantize=thresholds), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.avg_pool2d(x, 2), Array), np.ndarray)
check(assert_type(qa.avg_pool2d(x, (2, 2), requantize=thresholds), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.max_pool2d(x, 2, stride=1, padding=1), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.max_pool1d(x[:, 0], 2), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.max_pool2d(qa.conv2d(x, w), 2, requantize=thresholds), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.conv1d(x[:, 0], w[:, 0], padding=1), Array), np.ndarray)
check(assert_type(qa.conv_transpose2d(x, w, stride=2, requantize=thresholds), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.conv2d(x, w, residual=np.zeros((1, 6, 6, 16), np.int8)), Array), np.ndarray)
both = qa.conv2d(x, w, residual=np.zeros((1, 6, 6, 16), np.float32), requantize=thresholds, return_sum=True)
check(assert_type(both, tuple[Array, qa.QuantArray]), tuple)
check(assert_type(qa.channel_shuffle(x, 4), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.inner(q, q), Array), np.ndarray)
check(assert_type(qa.tensordot(q, q, axes=((1,), (1,))), Array), np.ndarray)
check(assert_type(qa.einsum("ik,jk->ij", q, q), Array), np.ndarray)
check(assert_type(qa.hamming(q, q), Array), np.ndarray)
check(assert_type(qa.hamming(q, q, axis=None), np.int64), np.int64)
check(assert_type(thresholds(qa.linear(q, q)), qa.QuantArray), qa.QuantArray)
nearest = qa.top_k(q > 1, q > 2, 2)
check(assert_type(nearest.indices, Array), np.ndarray)


def layer(a: qa.QuantArray, packed: bool) -> Array | qa.QuantArray:
    """An argument that is one or the other gives a result that is one or the other."""
    return assert_type(qa.linear(a, a, requantize=thresholds if packed else None), Array | qa.QuantArray)


check(layer(q, True), qa.QuantArray)
check(layer(q, False), np.ndarray)

# Operators

row = np.array([0.5, 1.0, 1.5, 2.0], np.float32)
check(assert_type(q + 1, qa.QuantArray), qa.QuantArray)
check(assert_type(2 * q - 3, qa.QuantArray), qa.QuantArray)
check(assert_type(q + row, qa.QuantArray), qa.QuantArray)
check(assert_type(row * q, qa.QuantArray), qa.QuantArray)
check(assert_type(np.float32(2) * q, qa.QuantArray), qa.QuantArray)
check(assert_type(q * np.float64(2), qa.QuantArray), qa.QuantArray)
check(assert_type(q + q, qa.QuantArray), qa.QuantArray)
check(assert_type(q / 2, qa.QuantArray), qa.QuantArray)
check(assert_type(-q, qa.QuantArray), qa.QuantArray)
check(assert_type(abs(q), qa.QuantArray), qa.QuantArray)
check(assert_type(q % 2, qa.QuantArray), qa.QuantArray)
check(assert_type(q**2, qa.QuantArray), qa.QuantArray)
check(assert_type(divmod(q, 2), tuple[qa.QuantArray, qa.QuantArray]), tuple)
check(assert_type(q == 1, qa.QuantArray), qa.QuantArray)
check(assert_type(q != q, qa.QuantArray), qa.QuantArray)
check(assert_type(q > row, qa.QuantArray), qa.QuantArray)
check(assert_type((q > 1) & ~(q == 3), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.where(q > 1, q, -1), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.maximum(q, [1, 2, 1, 2]), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.exp(q), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.hypot(q, 2.0), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.clip(q, 1, 2), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.map(np.cbrt, q), qa.QuantArray), qa.QuantArray)

# Elements

mask = q.dequantize() > 1
check(assert_type(q[0], qa.QuantArray), qa.QuantArray)
check(assert_type(q[1:, ::-1], qa.QuantArray), qa.QuantArray)
check(assert_type(q[..., None], qa.QuantArray), qa.QuantArray)
check(assert_type(q[[0, 2], 1:], qa.QuantArray), qa.QuantArray)
check(assert_type(q[mask], qa.QuantArray), qa.QuantArray)
check(assert_type(q[np.array([0, 1])], qa.QuantArray), qa.QuantArray)
check(q[0, 3], np.int32)
for line in q:
    check(assert_type(line, qa.QuantArray), qa.QuantArray)
check(assert_type(q.reshape(2, -1), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.concatenate([q, q], axis=1), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.split(q, 3), list[qa.QuantArray]), list)
check(assert_type(q.take([0, 1], axis=1), qa.QuantArray), qa.QuantArray)

# Reductions: a scalar of all axes, else an array

check(assert_type(q.sum(), np.number[Any]), np.number)
check(assert_type(q.sum(axis=0), Array), np.ndarray)
check(assert_type(q.sum(keepdims=True), Array), np.ndarray)
check(assert_type(q.sum(axis=(0,), keepdims=True), Array), np.ndarray)
check(assert_type(q.mean(), np.float32), np.float32)
check(assert_type(q.std(axis=1, ddof=1), Array), np.ndarray)
check(assert_type(q.max(), np.number[Any]), np.number)
check(assert_type((q == q).all(), np.bool), np.bool)
check(assert_type(q.any(axis=1), Array), np.ndarray)
check(assert_type(q.argmax(), np.int64), np.int64)
check(assert_type(q.argmax(axis=1), Array), np.ndarray)
check(assert_type(q.argsort(axis=1), Array), np.ndarray)
check(assert_type(q.nonzero(), tuple[Array, ...]), tuple)
check(assert_type(qa.sum(q, dtype=np.int64), np.number[Any]), np.number)
check(assert_type(qa.var(q, axis=0, correction=1), Array), np.ndarray)
check(assert_type(qa.count_nonzero(q), np.int64), np.int64)
check(assert_type(qa.counts(q), Array), np.ndarray)
check(assert_type(qa.searchsorted(q[0], 1.5), np.int64), np.int64)
check(assert_type(qa.searchsorted(q[0], [1.5, 2]), Array), np.ndarray)
check(assert_type(qa.map_reduce(square, q, axis=0), Array), np.ndarray)
check(assert_type(qa.map_reduce(lambda v: (v, v * v), q, axis=0), tuple[Array, ...]), tuple)
check(assert_type(qa.linalg.vector_norm(q), np.float32), np.float32)
check(assert_type(qa.linalg.vector_norm(q, axis=1), Array), np.ndarray)
check(assert_type(float(q.mean()), float), float)
check(assert_type(int(q.sum()), int), int)
total: float = float(q.sum() * 2 + 1)

# Networks

net = qa.nn.Sequential([qa.nn.Dense(q, qa.Thresholds([3])), qa.nn.Dense(q[:, :3])])
scores = net(q)
digits = qa.nn.load_network(str(files("quantarray") / "data" / "digits.npz"))
check(assert_type(digits(digits.plain.input[:2]), Array | qa.QuantArray), np.ndarray)
check(digits(digits.plain.input[:2]).argmax(axis=1), np.ndarray)
check(assert_type(qa.nn.Dense(q)(q), Array | qa.QuantArray), np.ndarray)
check(assert_type(qa.nn.Map(np.abs)(q), qa.QuantArray), qa.QuantArray)
check(assert_type(qa.fold(lambda v: 2 * v, into=qa.Sign(), of=range(9)), qa.Thresholds), qa.Thresholds)
check(assert_type(qa.asnumpy(q), qa.QuantArray), qa.QuantArray)

# NumPy's functions, as far as its stubs know them

np.sum(q, axis=1)
np.maximum(q, 2)
