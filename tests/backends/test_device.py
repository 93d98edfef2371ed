"""Arrays on a GPU: what works on the CPU works there and stays there.

By a stand-in for CuPy that is as strict, with the CPU's kernels; and, marked `gpu`, on a GPU with its own.
"""

import pickle
import sys

import fake_cupy
import numpy as np
import pytest
from gpus import GPUS

import quantarray as qa
from quantarray.arrays.array import validate


def made():
    """An array of three levels, and one of two."""
    rng = np.random.default_rng(0)
    q = qa.from_codes(rng.integers(0, 3, (4, 5, 130)), qa.ternary)
    return q, qa.from_codes(rng.integers(0, 2, (4, 5, 130)), qa.uint1)


PLACES = np.random.default_rng(1).integers(0, 130, (4, 5, 7))
STAY = {
    "transpose": lambda q, b: q.T,
    "slice": lambda q, b: q[:, 1:, 3:70],
    "steps": lambda q, b: q[..., ::3],
    "row": lambda q, b: q[:, :, 5],
    "indices": lambda q, b: q[[0, 2]],
    "mask": lambda q, b: q[:, [True, False, True, True, False]],
    "flip": lambda q, b: qa.flip(q),
    "roll": lambda q, b: qa.roll(q, 3),
    "roll of rows": lambda q, b: qa.roll(q, 3, 0),
    "concatenate": lambda q, b: qa.concatenate([q, q], 2),
    "concatenate rows": lambda q, b: np.concatenate([q, q]),
    "stack": lambda q, b: qa.stack([q, q]),
    "pad": lambda q, b: qa.pad(q, 1),
    "pad edge": lambda q, b: qa.pad(q, 2, "edge"),
    "tile": lambda q, b: qa.tile(q, 2),
    "repeat": lambda q, b: qa.repeat(q, 3, 2),
    "repeat rows": lambda q, b: qa.repeat(q, 3, 0),
    "take": lambda q, b: qa.take(q, [5, 3, 2], 2),
    "take_along_axis": lambda q, b: qa.take_along_axis(q, PLACES, 2),
    "repack": lambda q, b: q.repack(0),
    "reshape": lambda q, b: q.reshape(-1),
    "broadcast_to": lambda q, b: qa.broadcast_to(q, (2, 4, 5, 130)),
    "negative": lambda q, b: -q,
    "add": lambda q, b: q + 1,
    "scale": lambda q, b: q * 2.5,
    "greater": lambda q, b: q > 0,
    "equal": lambda q, b: q == q,
    "where": lambda q, b: qa.where(b, q, 0),
    "and": lambda q, b: b & b,
    "or a bool": lambda q, b: b | True,
    "invert": lambda q, b: ~b,
    "shift": lambda q, b: qa.shift(b, 3),
    "shift of rows": lambda q, b: qa.shift(b, 1, 0),
    "map": lambda q, b: qa.map(np.cbrt, q),
    "map2": lambda q, b: qa.map2(np.add, q, q),
    "astype": lambda q, b: qa.astype(q, qa.int8),
    "clip": lambda q, b: qa.clip(q, 0, 1),
    "isin": lambda q, b: qa.isin(q, 1),
    "sort": lambda q, b: qa.sort(q),
    "sort of rows": lambda q, b: qa.sort(q, axis=0),
    "ones_like": lambda q, b: qa.ones_like(q),
    "empty_like": lambda q, b: qa.empty_like(q),
    "copy": lambda q, b: q.copy(),
    "max_pool2d": lambda q, b: qa.max_pool2d(q[None], 2),
    # dense results
    "codes": lambda q, b: q.codes(),
    "dequantize": lambda q, b: q.dequantize(),
    "to_packbits": lambda q, b: qa.to_packbits(b),
    "sum": lambda q, b: qa.sum(q),
    "sum of rows": lambda q, b: np.sum(q, 1),
    "mean": lambda q, b: q.mean(2),
    "var": lambda q, b: q.var((0, 2)),
    "max": lambda q, b: q.max((0, 1)),
    "any": lambda q, b: qa.any(b, 2),
    "count_nonzero": lambda q, b: qa.count_nonzero(q, 0),
    "counts": lambda q, b: qa.counts(q),
    "map_reduce": lambda q, b: qa.map_reduce(lambda x: (x, x * x), q, axis=0),
    "argmax": lambda q, b: qa.argmax(q, 2),
    "argsort": lambda q, b: qa.argsort(q),
    "cumulative_sum": lambda q, b: qa.cumulative_sum(q, axis=1),
    "diff": lambda q, b: qa.diff(q),
    "nonzero": lambda q, b: qa.nonzero(b),
    "hamming": lambda q, b: qa.hamming(q, q[:1]),
    "vecdot": lambda q, b: qa.vecdot(q, q),
    "top_k": lambda q, b: qa.top_k(b[0], b[1], 2),
    "linear": lambda q, b: qa.linear(q, q[0]),
    "linear with bias": lambda q, b: qa.linear(q, q[0], bias=np.arange(5)),
    "linear of floats": lambda q, b: qa.linear(q * 0.5, q[0] * 2.5),
    "matmul": lambda q, b: q @ q.transpose(0, 2, 1),
    "tensordot": lambda q, b: qa.tensordot(q, q, ((1, 2), (1, 2))),
    "einsum": lambda q, b: qa.einsum("ijk,ljk->il", q, q),
    "conv2d": lambda q, b: qa.conv2d(q[None], q[:, :3, None], padding=1),
    "conv2d to codes": lambda q, b: qa.conv2d(q[None], q[:, :3, None], requantize=THRESHOLDS),
    "conv2d in groups": lambda q, b: qa.conv2d(q[None], q[:, :3, None, :65], groups=2),
    "conv2d of floats": lambda q, b: qa.conv2d(q[None], q[:, :3, None] * 0.5, bias=np.float32([1, 2, 3, 4])),
    "conv2d of an axis in front": lambda q, b: qa.conv2d(
        q[None].transpose(0, 3, 1, 2), q[:, :3, None].transpose(0, 3, 1, 2), data_format="NCHW"
    ),
    "depthwise": lambda q, b: qa.conv2d(q[None], q[:1, :3, None].transpose(3, 1, 2, 0).repack(0), groups=130),
    "avg_pool2d": lambda q, b: qa.avg_pool2d(q[None], 2),
    "max_pool2d of a result": lambda q, b: qa.max_pool2d(qa.linear(q, q[0])[None], (2, 3), padding=((0, 1), (1, 1))),
    "avg_pool2d of a result": lambda q, b: qa.avg_pool2d(qa.linear(q, q[0])[None], (2, 3), padding=((0, 1), (1, 1))),
    "affine": lambda q, b: qa.Affine(np.arange(5) / 3, np.arange(5.0))(qa.linear(q, q[0])),
    "thresholds": lambda q, b: THRESHOLDS(qa.linear(q, q[0, :4])),
    "add arrays": lambda q, b: qa.add(q, q),
    "prod": lambda q, b: qa.prod(b[:, :, :5]),
    "std": lambda q, b: q.std(1),
    "min": lambda q, b: q.min(1),
    "all": lambda q, b: qa.all(b, 1),
    "argmin": lambda q, b: qa.argmin(q, 0),
    "argmax of all": lambda q, b: qa.argmax(q),
    "argmin of all": lambda q, b: qa.argmin(b),
    "argsort of rows": lambda q, b: qa.argsort(q, axis=1, descending=True),
    "cumulative_prod": lambda q, b: qa.cumulative_prod(b, axis=2),
    "cumulative_sum from 0": lambda q, b: qa.cumulative_sum(q, axis=2, include_initial=True),
    "cumulative_sum of floats": lambda q, b: qa.cumulative_sum(q * 0.3, axis=2),
    "searchsorted": lambda q, b: qa.searchsorted(qa.sort(q[0, 0]), [0, 1]),
    "unique_counts": lambda q, b: tuple(qa.unique_counts(q)),
    "unique_all": lambda q, b: tuple(qa.unique_all(q)),
    "unique_inverse": lambda q, b: tuple(qa.unique_inverse(q)),
    "split": lambda q, b: tuple(qa.array_split(q, 3, axis=2)),
    "unstack": lambda q, b: tuple(qa.unstack(q)),
    "meshgrid": lambda q, b: tuple(qa.meshgrid(q[0, 0], q[0, 1])),
    "rot90": lambda q, b: qa.rot90(q),
    "unpack_bits": lambda q, b: qa.unpack_bits(b),
    "remainder": lambda q, b: b % 2,
    "hypot": lambda q, b: qa.hypot(q, q),
    "outer": lambda q, b: qa.outer(q[0, 0], q[0, 1]),
    "inner": lambda q, b: qa.inner(q[0], q[1]),
    "dot": lambda q, b: qa.dot(q[0], q[1].T),
    "vector_norm": lambda q, b: qa.linalg.vector_norm(q, axis=2),
    "matrix_norm": lambda q, b: qa.linalg.matrix_norm(q),
    "diagonal": lambda q, b: qa.linalg.diagonal(q),
    "quantize in groups": lambda q, b: qa.quantize(q.dequantize().astype(np.float32), qa.Grouped(2, seed=3)),
}
THRESHOLDS = qa.Thresholds(np.array([[-3, 0, 3]] * 4), into=qa.uint2)
LEAVE = {
    "array_equal": lambda q, b: qa.array_equal(q, q),
    "in": lambda q, b: 1 in q,
    "digest": lambda q, b: q.digest(),
    "unique_values": lambda q, b: qa.unique_values(q).tolist(),
    "pickle": lambda q, b: pickle.loads(pickle.dumps(q)).digest(),
}


def on_cpu(x):
    if isinstance(x, tuple):
        return tuple(map(on_cpu, x))
    return qa.asnumpy(x)


@GPUS
@pytest.mark.parametrize("name", STAY)
def test_stays_on_the_gpu(name, gpu):
    expected = STAY[name](*made())
    with gpu():
        got = STAY[name](*(q.to_device("cuda") for q in made()))
        for x in got if isinstance(got, tuple) else (got,):
            assert isinstance(x, qa.CuQuantArray) or hasattr(x, "__cuda_array_interface__")
        back = on_cpu(got)
    for x, y in zip(back, expected, strict=True) if isinstance(back, tuple) else [(back, expected)]:
        if isinstance(x, qa.QuantArray):
            validate(x)
            assert qa.array_equal(x, y)
        else:
            assert np.array_equal(x, y)


@GPUS
@pytest.mark.parametrize("name", LEAVE)
def test_answers(name, gpu):
    with gpu():
        assert LEAVE[name](*(q.to_device("cuda") for q in made())) == LEAVE[name](*made())


def test_there_and_back():
    q, _ = made()
    with fake_cupy.gpu():
        there = (q * 0.5).to_device("cuda")
        assert type(there) is qa.CuQuantArray and there.to_device("cuda:0") is there and there.T.device == "cuda:0"
        assert repr(there).startswith("CuQuantArray(") and "device=cuda:0" in repr(there)
        assert qa.array_equal(qa.asnumpy(there), q * 0.5) and type(there.to_device("cpu")) is qa.QuantArray
        with pytest.raises(TypeError, match=r"call \.dequantize"):
            np.asarray(there)


def test_new_arrays_in_a_with_block():
    x = np.float32([[1, -2, 3]])
    calls = [
        lambda: qa.quantize(x, qa.Sign()), lambda: qa.encode([1, -1], (-1, 1)), lambda: qa.from_codes([1], qa.uint1),
        lambda: qa.zeros((2, 3)), lambda: qa.full((2, 3), 1), lambda: qa.pack_bits([True]), lambda: qa.eye(3),
    ]  # fmt: skip
    with fake_cupy.gpu():
        for call in calls:
            with qa.device("cuda"):
                there = call()
            assert there.device == "cuda:0" and call().device == "cpu" and qa.array_equal(qa.asnumpy(there), call())


@GPUS
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_floats_are_packed_where_they_lie(dtype, axis, gpu):
    x = (np.random.default_rng(0).standard_normal((3, 70, 65)) * 3 + 5 * (dtype is np.uint8)).astype(dtype)
    schemes = {"given": qa.Uniform(2, step=0.5), "signs": qa.Sign(), "many": qa.Uniform(6, step=0.1)}
    schemes["fitted"] = qa.LQ(2)
    with gpu() as xp:
        there = xp.asarray(x)
        for name, scheme in schemes.items():
            got = qa.quantize(there, scheme, axis=axis, calibration=x if name == "fitted" else None)
            assert got.device == "cuda:0" and qa.array_equal(qa.asnumpy(got), qa.quantize(x, scheme, axis=axis))
        with pytest.raises(qa.DeviceError, match="constants are fitted on the CPU, and x lies on cuda:0"):
            qa.quantize(there, qa.LQ(2))
        with pytest.raises(qa.DeviceError, match=r"LQ.* of int64 has no kernel for cuda:0"):
            qa.quantize(there.astype(np.int64), qa.LQ(2), calibration=x)
        assert qa.quantize(there[0, :1, :1], qa.Sign()).device == "cuda:0"
        if dtype is not np.uint8:
            there[0, 0, 1] = np.nan
            with pytest.raises(ValueError, match=r"x must hold no NaN, got one at \(0, 0, 1\)"):
                qa.quantize(there, qa.Sign())
        codes = xp.asarray(np.arange(6).reshape(2, 3) % 4)
        assert qa.asnumpy(qa.from_codes(codes, qa.uint2).codes()).tolist() == [[0, 1, 2], [3, 0, 1]]


@GPUS
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float32, np.float16])
@pytest.mark.parametrize("axis", [-1, 0])
def test_values_are_encoded_where_they_lie(dtype, axis, gpu):
    values = [3, 0, 100, 7] if dtype is np.uint8 else [3, -2, 100, 7]
    x = np.random.default_rng(0).choice(values, (3, 5, 70)).astype(dtype)
    with gpu() as xp:
        there = xp.asarray(x)
        got = qa.encode(there, values, axis)
        assert got.device == "cuda:0" and np.array_equal(qa.asnumpy(got).words, qa.encode(x, values, axis).words)
        there[2, 0, 69] = 5
        with pytest.raises(ValueError, match=r"encode: x must hold only the values of .*, got 5(\.0)? at \(2, 0, 69\)"):
            qa.encode(there, values, axis)
        assert qa.encode(there == 5).dtype == qa.uint1


class Tensor:
    """Another library's array on a GPU, as its interface shows it; by default of bfloat16."""

    def __init__(self, x, typestr="<V2"):
        self.x, self.__cuda_array_interface__ = x, x.__array_interface__ | {"typestr": typestr}


@pytest.mark.parametrize("scheme", [qa.Uniform(2, step=0.5), qa.Uniform(6, step=0.1), qa.Grouped(2, seed=1)], ids=repr)
@pytest.mark.parametrize("axis", [-1, 1])
def test_tensors_of_other_libraries(axis, scheme):
    x = np.random.default_rng(0).standard_normal((3, 70, 65)).astype(np.float32)
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    short = (bits.astype(np.uint32) << 16).view(np.float32)
    with fake_cupy.gpu():
        for given, values in ((Tensor(bits), short), (Tensor(x, "<f4"), x)):
            got = qa.quantize(given, scheme, axis=axis)
            assert got.device == "cuda:0" and qa.array_equal(qa.asnumpy(got), qa.quantize(values, scheme, axis=axis))
        bits[0, 0, 1] = 0x7FC0
        with pytest.raises(ValueError, match="NaN" if scheme.fixed else "NaN|finite"):
            qa.quantize(Tensor(bits), scheme, axis=axis)


def test_a_kernel_that_a_gpu_lacks_is_named():
    q, _ = made()
    with fake_cupy.gpu(twins=fake_cupy.TWINS - {"sort"}):
        with pytest.raises(qa.DeviceError, match="sort: there is no kernel for device 'cuda:0'"):
            qa.sort(q.to_device("cuda"))


def test_operands_of_two_devices():
    q, _ = made()
    with fake_cupy.gpu():
        for call in (lambda a, b: qa.linear(a, b[0]), lambda a, b: qa.concatenate([a, b]), lambda a, b: a == b):
            with pytest.raises(qa.DeviceError, match=r"on cuda:0.* on cpu.*to_device"):
                call(q.to_device("cuda"), q)


def test_what_is_missing_is_said(monkeypatch):
    q, _ = made()
    with fake_cupy.gpu():
        with pytest.raises(qa.DeviceError, match="there are 2 GPUs, numbered from 0, got 'cuda:2'"):
            q.to_device("cuda:2")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(qa.DeviceError, match=r"to_device: .*pip install 'quantarray\[cuda13\]'"):
        q.to_device("cuda")
    with pytest.raises(qa.DeviceError, match="to_device: devices are 'cpu' and 'cuda' or 'cuda:N', got 'tpu'"):
        q.to_device("tpu")
