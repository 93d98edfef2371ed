"""Arrays on a GPU: what works on the CPU works there and stays there.

By a stand-in for CuPy that is as strict, with the CPU's kernels; and, marked `gpu`, on a GPU with its own.
"""

import sys

import fake_cupy
import numpy as np
import pytest
from device_calls import LEAVE, STAY, operands
from gpus import GPUS, Tensor

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.core.bfloat16 import bfloat16_bits


def on_cpu(x):
    if isinstance(x, tuple):
        return tuple(map(on_cpu, x))
    return qa.asnumpy(x)


@GPUS
@pytest.mark.parametrize("name", STAY)
def test_stays_on_the_gpu(name, gpu):
    expected = STAY[name](*operands())
    with gpu():
        got = STAY[name](*(q.to_device("cuda") for q in operands()))
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
        assert LEAVE[name](*(q.to_device("cuda") for q in operands())) == LEAVE[name](*operands())


def test_there_and_back():
    q, _ = operands()
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
    schemes["calibrated"] = qa.LQ(2)
    with gpu() as xp:
        there = xp.asarray(x)
        for name, scheme in schemes.items():
            got = qa.quantize(there, scheme, axis=axis, calibration=x if name == "calibrated" else None)
            assert got.device == "cuda:0" and qa.array_equal(qa.asnumpy(got), qa.quantize(x, scheme, axis=axis))
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


@pytest.mark.parametrize("law", ["uniform", "integers", "a scale", "groups", "an axis in front"])
def test_out_is_on_the_gpu_of_the_words(law):
    """In its own type, float16 and bfloat16; a strided one too. One on the CPU is refused."""
    rng = np.random.default_rng(0)
    q = {
        "uniform": lambda x: qa.quantize(x, qa.Uniform(4, symmetric=False), scale_axis=0),
        "integers": lambda x: qa.encode(np.sign(x), (-1, 0, 1)),
        "a scale": lambda x: qa.quantize(x, qa.Sign(scale=True), scale_axis=0),
        "groups": lambda x: qa.quantize(x, qa.Grouped(2, group=40)),
        "an axis in front": lambda x: qa.quantize(x, qa.LloydMax(2), axis=0, scale_axis=1),
    }[law](rng.normal(size=(5, 70)).astype(np.float32))
    values = q.dequantize()
    with fake_cupy.gpu() as xp:
        there = q.to_device("cuda")
        for kind in (values.dtype, np.float16):
            out, apart = xp.zeros((5, 70), kind), xp.zeros((5, 140), kind)
            assert there.dequantize(out=out) is out and np.array_equal(out.held, values.astype(kind))
            there.dequantize(out=apart[:, ::2])
            assert np.array_equal(apart.held[:, ::2], values.astype(kind)) and not apart.held[:, 1::2].any()
        bits = np.zeros((5, 70), np.uint16)
        there.dequantize(out=Tensor(bits))
        assert np.array_equal(bits, bfloat16_bits(values.astype(np.float32)))
        with pytest.raises(TypeError, match=r"out must be a writeable array on cuda:0 of shape \(5, 70\)"):
            there.dequantize(out=np.zeros((5, 70), values.dtype))


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
    q, _ = operands()
    with fake_cupy.gpu(twins=fake_cupy.TWINS - {"sort"}):
        with pytest.raises(qa.DeviceError, match="sort: there is no kernel for device 'cuda:0'"):
            qa.sort(q.to_device("cuda"))


def test_operands_of_two_devices():
    q, _ = operands()
    with fake_cupy.gpu():
        for call in (lambda a, b: qa.linear(a, b[0]), lambda a, b: qa.concatenate([a, b]), lambda a, b: a == b):
            with pytest.raises(qa.DeviceError, match=r"on cuda:0.* on cpu.*to_device"):
                call(q.to_device("cuda"), q)


def test_what_is_missing_is_said(monkeypatch):
    q, _ = operands()
    with fake_cupy.gpu():
        with pytest.raises(qa.DeviceError, match="there are 2 GPUs, numbered from 0, got 'cuda:2'"):
            q.to_device("cuda:2")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(qa.DeviceError, match=r"to_device: .*pip install 'quantarray\[cuda13\]'"):
        q.to_device("cuda")
    with pytest.raises(qa.DeviceError, match="to_device: devices are 'cpu' and 'cuda' or 'cuda:N', got 'tpu'"):
        q.to_device("tpu")
