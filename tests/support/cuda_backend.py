"""The backend of tests of CUDA kernels: Numba's simulator. Importing this skips a file of tests anywhere else."""

import os
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from unittest.mock import patch

import pytest

if find_spec("numba_cuda") is None:
    pytest.skip("needs numba-cuda", allow_module_level=True)
if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("test_cuda_simulated.py runs this file in Numba's simulator", allow_module_level=True)

import cuda_simulator
import numpy as np

from quantarray.backends.registry import kernel
from quantarray.cpu import costs as cpu_costs
from quantarray.cuda import costs as cuda_costs
from quantarray.ops.products import average_pooling

FASTER = ("depthwise_bytes", "rescale", "unroll")  # the CPU's faster versions of other kernels

cuda_simulator.install()


def both(name, *args, out):
    """Run the CPU's kernel and its CUDA twin on the same arguments; return both results."""
    results = np.array(out), np.array(out)
    for device, one in zip(("cpu", "cuda"), results, strict=True):
        kernel(device, name)(*args, one)
    return results


def split_by(tile, splits, depth):
    """Return `tile_for` of a kernel: one tile, split over so many blocks if windows have as many stages of `depth`."""
    return lambda shape, words, *more: (tile, min(splits, max(1, -(-words // depth))))


@contextmanager
def twins(packing=True):
    """Run public functions on CUDA kernels: a twin takes the place of the CPU's kernel, chosen as for a GPU.

    Without `packing` operands are packed by the CPU, which takes no time.
    """
    device = import_module("quantarray.backends.registry")
    original = device._twin

    def twin(backend, path, name):
        path = path.replace(".cpu.", ".cuda.")
        module = original("cuda", path, name) if packing or name not in ("pack", "unpack") else None
        if hasattr(module, name) or name in FASTER:
            return module
        return original(backend, path.replace(".cuda.", ".cpu."), name)

    with (
        patch.object(device, "_twin", twin),
        patch.object(cpu_costs, "integer_kernel", cuda_costs.integer_kernel),
        patch.object(cpu_costs, "candidates", cuda_costs.candidates),
        patch.object(cpu_costs, "writes_words", cuda_costs.writes_words),
    ):
        caches = kernel, device.has_kernel, device.integer_kernel, device.writes_words, average_pooling._means
        for cached in caches:
            cached.cache_clear()
        yield
    for cached in caches:
        cached.cache_clear()
