"""GPUs for tests: the stand-in for CuPy, and a real one where there is one."""

from contextlib import contextmanager

import fake_cupy
import pytest

import quantarray as qa
from quantarray.backends.registry import cupy


@contextmanager
def a_gpu():
    """Give CuPy with a real GPU, or skip the test."""
    try:
        qa.encode([1, -1], (-1, 1)).to_device("cuda")
    except qa.DeviceError as error:
        pytest.skip(str(error))
    yield cupy("test")


class Tensor:
    """An array of another library on a GPU, as its interface shows it; by default of bfloat16."""

    def __init__(self, x, typestr="<V2"):
        self.x, self.__cuda_array_interface__ = x, x.__array_interface__ | {"typestr": typestr}


GPUS = pytest.mark.parametrize("gpu", [fake_cupy.gpu, pytest.param(a_gpu, marks=pytest.mark.gpu)])
# name: shape of x, shape of w, values of x, keywords; "many_blocks" fill a GPU in the largest tiles
PRODUCTS = {
    "product": ((300, 4096), (200, 4096), (-1, 1), {}),
    "product of many_blocks": ((2020, 4096), (2030, 4096), (-1, 1), {}),
    "product of few words": ((70, 65), (33, 65), (-1, 0, 1), {}),
    "convolution": ((3, 28, 27, 128), (130, 3, 3, 128), (-1, 1), {"padding": 1}),
    "convolution of many_blocks": ((9, 56, 56, 64), (64, 3, 3, 64), range(4), {"padding": 1}),
    "strides": ((2, 30, 31, 192), (70, 3, 2, 192), range(4), {"padding": 1, "stride": 2, "dilation": (1, 2)}),
    "groups": ((2, 20, 21, 2 * 70), (2 * 33, 3, 3, 70), (-1, 0, 1), {"padding": 2, "groups": 2}),
    "8 bits": ((2, 14, 14, 256), (256, 3, 3, 256), range(-128, 128), {"padding": 1}),
}
