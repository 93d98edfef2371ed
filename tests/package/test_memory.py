"""Nothing unpacks a whole array: memory stays below twice the packed bytes of what goes in and comes out."""

import tracemalloc
from functools import cache

import numpy as np
import pytest

import quantarray as qa

pytestmark = pytest.mark.full
MIB = 2**20
BOUND = 2
SMALL = 4 * MIB  # what the machinery of a call may take besides: blocks in work, tables, compiled kernels


PLACES = np.random.default_rng(0).integers(-8, 8, (64, 8, 65536), np.int8)


@cache
def large(bits=1):
    """64 MiB of words."""
    rng = np.random.default_rng(bits)
    words = rng.integers(0, 2**64, (bits, 64 // bits, 128, 1024), dtype=np.uint64)
    dtype = qa.bipolar if bits == 1 else getattr(qa, f"uint{bits}")
    return qa.from_words(words, dtype, (64 // bits, 128, 65536))


def bits(q):
    """A view of the first plane."""
    return qa.QuantArray(q.words[:1], qa.uint1, q.shape, q.axis)


CALLS = {
    "transpose": lambda q: q.transpose(1, 0, 2),
    "reshape": lambda q: q.reshape(-1, 65536),
    "flatten": lambda q: q.reshape(q.shape[0], -1),
    "slice of words": lambda q: q[:, :, 64:-64],
    "slice of bits": lambda q: q[:, :, 1:-1],
    "flip": lambda q: qa.flip(q),
    "every second": lambda q: q[:, :, ::2],
    "row": lambda q: q[:, :, 5],
    "roll": lambda q: qa.roll(q, 5, 2),
    "roll all": lambda q: qa.roll(q, 5),
    "concatenate": lambda q: qa.concatenate([q, q], 2),
    "concatenate bits": lambda q: qa.concatenate([q[:, :, :1], q], 2),
    "stack": lambda q: qa.stack([q, q], 3),
    "pad": lambda q: qa.pad(q, 1, constant_values=1),
    "pad edge": lambda q: qa.pad(q, (0, 3), "edge"),
    "tile": lambda q: qa.tile(q, 2),
    "repeat": lambda q: qa.repeat(q, 2, 2),
    "repeat rows": lambda q: qa.repeat(q, 2, 0),
    "take": lambda q: qa.take(q, np.arange(q.shape[2])[::-1], 2),
    "take rows": lambda q: q[:, [1, 0, 1]],
    "take_along_axis": lambda q: qa.take_along_axis(q, np.arange(65536)[None, None, ::-1]),
    "take_along_axis of rows": lambda q: qa.take_along_axis(
        q, np.arange(q.shape[0], dtype=np.int8)[::-1, None, None], 0
    ),
    "take_along_axis of elements": lambda q: qa.take_along_axis(q[:, :8], PLACES[: q.shape[0]], 1),
    "mask": lambda q: q[:, np.arange(q.shape[1]) % 2 == 0, 1:],
    "split": lambda q: qa.array_split(q, 3, 2)[2],
    "repack": lambda q: q.repack(1),
    "in": lambda q: 0 in q or -1 in q,
    "broadcast_to": lambda q: qa.broadcast_to(q, (3, *q.shape)),
    "array_equal": lambda q: qa.array_equal(q, q[:]),
    "digest": lambda q: q.digest(),
    "copy": lambda q: q.copy(),
    "sum": lambda q: qa.sum(q),
    "sum of packed axis": lambda q: qa.sum(q, -1),
    "sum of unpacked axes": lambda q: qa.sum(q, (0, 1)),
    "mean": lambda q: qa.mean(q, 1),
    "var": lambda q: qa.var(q, (0, 2)),
    "count_nonzero": lambda q: qa.count_nonzero(q, 0),
    "any": lambda q: qa.any(q, 1),
    "max": lambda q: qa.max(q, (0, 1)),
    "counts": lambda q: qa.counts(q, (0, 2)),
    "cumulative_prod": lambda q: qa.cumulative_prod(q[:, :8, :32768] * 0.5, axis=2),
    "diff of diff": lambda q: qa.diff(q[:, :, :4096], n=2),
    "diagonal": lambda q: qa.linalg.diagonal(q),
    "vector_norm": lambda q: qa.linalg.vector_norm(q, axis=2),
    "NumPy's sum": lambda q: np.sum(q, axis=1),
    "argmax": lambda q: qa.argmax(q, -1),
    "argmax of unpacked axis": lambda q: qa.argmax(q[:, :, :8192], 1),
    "argmin of all": lambda q: qa.argmin(q),
    "unique_counts": lambda q: qa.unique_counts(q),
    "isin": lambda q: qa.isin(q, 1),
    "sort": lambda q: qa.sort(q),
    "sort of unpacked axis": lambda q: qa.sort(q, axis=0),
    "hamming": lambda q: qa.hamming(q, q),
    "hamming of rows": lambda q: qa.hamming(q, q[0, 0], (0, 1)),
    "vecdot": lambda q: qa.vecdot(q, q),
    "vecdot of unpacked axis": lambda q: qa.vecdot(q, q, axis=0),
    "linear": lambda q: qa.linear(q[0, :4], q.reshape(-1, 65536)),
    "linear of one output": lambda q: qa.linear(q.reshape(1, -1), q.reshape(1, -1)),
    "linear of few outputs": lambda q: qa.linear(q.reshape(4, -1)[:1], q.reshape(4, -1)),
    "product of few floats": lambda q: (q * 0.5).reshape(4, -1) @ (q * 2.5).reshape(4, -1)[:3].T,
    "conv2d": lambda q: qa.conv2d(
        q[:, :, :1024].reshape(q.shape[0], 128, 16, 64), q[:1, :9, :2048].reshape(32, 3, 3, 64)
    ),
    "dot of vectors": lambda q: qa.dot(q.reshape(-1), q.reshape(-1)),
    "max_pool2d": lambda q: qa.max_pool2d(q.reshape(q.shape[0], 128, 1024, 64), 2),
    "map": lambda q: qa.map(np.cbrt, q),
    "astype": lambda q: qa.astype(q, qa.table(8)),
    "hstack": lambda q: qa.hstack([q, q]),
    "top_k": lambda q: qa.top_k(bits(q)[0, :8], bits(q).reshape(-1, 65536), 3),
    "dot": lambda q: qa.dot(q, q[0, 0]),
    "tensordot": lambda q: qa.tensordot(q, q[0, :2], ((2,), (1,))),
    "map_reduce": lambda q: qa.map_reduce(lambda x: (x, x * x), q, axis=(0, 2), reduce="mean"),
    "map_reduce of two": lambda q: qa.map_reduce(abs_difference, q, q, axis=1),
    "negative": lambda q: -q,
    "add": lambda q: q + 0.5,
    "relu": qa.relu,
    "multiply arrays": lambda q: q[:, :64] * q[:, 64:],
    "greater": lambda q: q > 0,
    "equal arrays": lambda q: q[:, :64] == q[:, 64:],
    "equal by ranks": lambda q: q[:, :64] == q[:, 64:] + 1,
    "where": lambda q: qa.where(bits(q), q, -3),
    "and": lambda q: bits(q) & bits(q),
    "invert": lambda q: ~bits(q),
    "shift": lambda q: qa.shift(bits(q), 3),
    "full_like": lambda q: qa.full_like(q, 1),
    "to_packbits": lambda q: qa.to_packbits(bits(q)),
}


def abs_difference(x, y):
    return np.abs(x - y)


@pytest.mark.parametrize("bits", [1, 4])
@pytest.mark.parametrize("name", CALLS)
def test_peak(name, bits):
    q = large(bits)
    CALLS[name](q[:1])  # compile and import
    tracemalloc.start()
    made = CALLS[name](q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    out = getattr(made, "nbytes", 0)
    assert peak <= BOUND * (q.nbytes + out) - q.nbytes + SMALL, f"{peak / MIB:.0f} MiB"


UNEVEN = qa.integers(0, 1, 65535)  # 2 bits, on 16 planes for products


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize(("rows", "outputs"), [(4, 5), (1, 1), (300, 2), (3, 200)])
def test_uneven_levels_take_no_table_of_pairs(rows, outputs, scale):
    """One of 2**32 pairs of codes on planes was 32 GiB; what is recoded at a time is bounded."""
    rng, k = np.random.default_rng(0), 30_000_000 // max(rows * outputs, 100)
    scaled = {} if scale is None else {"scale": scale}
    x, w = (qa.from_codes(rng.integers(0, 3, (n, k), np.uint8), UNEVEN, **scaled) for n in (rows, outputs))
    qa.linear(x[:, :64], w[:, :64])  # compile and import
    tracemalloc.start()
    made = qa.linear(x, w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    levels = np.array(UNEVEN.levels, np.float64) * (scale or 1)
    a, b = (levels[q.codes()] for q in (x, w))
    np.testing.assert_allclose(made, a @ b.T, rtol=1e-6 if scale else 0)
    assert peak <= 4 * (x.nbytes + w.nbytes) + made.nbytes + 64 * MIB, f"{peak / MIB:.0f} MiB"


def test_a_plan_of_many_rows_is_of_some_at_a_time():
    x = qa.from_words(np.random.default_rng(0).integers(0, 2**64, (1, 2**21, 1), np.uint64), qa.bipolar, (2**21, 64))
    w = qa.encode(np.random.default_rng(1).choice([-1, 1], (64, 64)), (-1, 1))
    steps = qa.Thresholds([0])
    qa.linear(x[:70000], w, requantize=steps), qa.linear(x[:10], w, requantize=steps)
    tracemalloc.start()
    made = qa.linear(x, w, requantize=steps)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= made.nbytes + SMALL + 2 * MIB, f"{peak / MIB:.0f} MiB"
    some = np.random.default_rng(2).integers(0, 2**21, 50)
    expected = x[some].dequantize().astype(int) @ w.dequantize().T > 0
    np.testing.assert_array_equal(made[some].codes(), expected)
