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
