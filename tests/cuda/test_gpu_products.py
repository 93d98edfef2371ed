"""Products of integers on a GPU, by all units that multiply bits there, against the CPU bit for bit.

The stand-in for a GPU shows that these tests pass where results are right.
"""

import numpy as np
import pytest
from gpus import GPUS, PRODUCTS

import quantarray as qa
from quantarray.backends.registry import first_gpu
from quantarray.cuda.runtime import isa


@GPUS
@pytest.mark.parametrize("units", isa.UNITS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_all_units_agree_with_the_cpu(name, units, gpu, monkeypatch):
    x_shape, w_shape, values, how = PRODUCTS[name]
    rng = np.random.default_rng(0)
    x, w = qa.encode(rng.choice(values, x_shape), values), qa.encode(rng.choice((-1, 1), w_shape), (-1, 1))
    multiply = qa.conv2d if len(x_shape) == 4 else qa.linear
    cut = qa.Thresholds([-40, 0, 9])
    dense, codes = multiply(x, w, **how), multiply(x, w, requantize=cut, **how)
    monkeypatch.setenv("QUANTARRAY_CUDA", units)
    with gpu():
        try:
            isa.best(first_gpu("test")[1])
        except qa.DeviceError as error:
            pytest.skip(str(error))
        p, q = x.to_device("cuda"), w.to_device("cuda")
        np.testing.assert_array_equal(qa.asnumpy(multiply(p, q, **how)), dense)
        assert qa.array_equal(qa.asnumpy(multiply(p, q, requantize=cut, **how)), codes)


@GPUS
@pytest.mark.parametrize("dtype", (np.uint8, np.int8))
@pytest.mark.parametrize("bits", (1, 4, 8))
def test_images_of_bytes_agree_with_the_cpu(bits, dtype, gpu):
    rng = np.random.default_rng(bits)
    limits, levels = np.iinfo(dtype), range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    x = rng.integers(limits.min, limits.max, (2, 9, 9, 3), dtype, endpoint=True)
    w = qa.encode(rng.choice(levels, (40, 7, 7, 3)), levels)
    how = {"padding": 3, "stride": 2, "pad_value": 1}
    cut = qa.Thresholds([-4000, 0, 900])
    dense, codes = qa.conv2d(x, w, **how), qa.conv2d(x, w, requantize=cut, **how)
    with gpu() as xp:
        p, q = xp.asarray(x), w.to_device("cuda")
        np.testing.assert_array_equal(qa.asnumpy(qa.conv2d(p, q, **how)), dense)
        assert qa.array_equal(qa.asnumpy(qa.conv2d(p, q, requantize=cut, **how)), codes)


@GPUS
@pytest.mark.parametrize("units", isa.UNITS)
@pytest.mark.parametrize("kind", ("bits", "scaled", "int8", "int32", "float32"))
def test_shortcuts_agree_with_the_cpu(kind, units, gpu, monkeypatch):
    rng = np.random.default_rng(0)
    x, w = (qa.encode(rng.choice((-1, 1), s), (-1, 1)) for s in ((2, 9, 9, 256), (96, 3, 3, 256)))
    shape, cut = (2, 9, 9, 96), qa.Thresholds([-40, 0, 9])
    if kind in ("bits", "scaled"):
        r = qa.encode(rng.choice((-1, 1), shape), (-1, 1)) * (np.float32(0.3) if kind == "scaled" else 1)
    else:
        r = (rng.normal(size=shape) * 30).astype(kind)
    total, codes = qa.conv2d(x, w, padding=1, residual=r, requantize=cut, return_sum=True)
    monkeypatch.setenv("QUANTARRAY_CUDA", units)
    with gpu() as xp:
        try:
            isa.best(first_gpu("test")[1])
        except qa.DeviceError as error:
            pytest.skip(str(error))
        p, q = x.to_device("cuda"), w.to_device("cuda")
        s = r.to_device("cuda") if isinstance(r, qa.QuantArray) else xp.asarray(r)
        sums, bits = qa.conv2d(p, q, padding=1, residual=s, requantize=cut, return_sum=True)
        np.testing.assert_array_equal(qa.asnumpy(sums), total)
        assert qa.array_equal(qa.asnumpy(bits), codes)
        assert qa.array_equal(qa.asnumpy(qa.conv2d(p, q, padding=1, residual=s, requantize=cut)), codes)
        np.testing.assert_array_equal(qa.asnumpy(qa.conv2d(p, q, padding=1, residual=s)), total)
