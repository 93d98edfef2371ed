"""Products of integers on a GPU, by all units that multiply bits there, against the CPU bit for bit.

The stand-in for a GPU shows that these tests pass where results are right.
"""

import numpy as np
import pytest
from test_device import GPUS

import quantarray as qa
from quantarray.backends.registry import first_gpu
from quantarray.cuda.runtime import isa

CASES = {
    "product": ((300, 4096), (200, 4096), (-1, 1), {}),
    "product of many_blocks": ((2100, 4096), (2060, 4096), (-1, 1), {}),
    "product of few words": ((70, 65), (33, 65), (-1, 0, 1), {}),
    "convolution": ((3, 28, 27, 128), (130, 3, 3, 128), (-1, 1), {"padding": 1}),
    "convolution of many_blocks": ((9, 56, 56, 64), (64, 3, 3, 64), range(4), {"padding": 1}),
    "strides": ((2, 30, 31, 192), (70, 3, 2, 192), range(4), {"padding": 1, "stride": 2, "dilation": (1, 2)}),
    "groups": ((2, 20, 21, 2 * 70), (2 * 33, 3, 3, 70), (-1, 0, 1), {"padding": 2, "groups": 2}),
    "8 bits": ((2, 14, 14, 256), (256, 3, 3, 256), range(-128, 128), {"padding": 1}),
}


@GPUS
@pytest.mark.parametrize("units", isa.UNITS)
@pytest.mark.parametrize("name", CASES)
def test_all_units_agree_with_the_cpu(name, units, gpu, monkeypatch):
    x_shape, w_shape, values, how = CASES[name]
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
