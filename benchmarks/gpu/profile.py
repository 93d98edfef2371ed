"""Run one case for Nsight Compute or Systems: `python -m benchmarks.gpu.profile NAME`.

cudaProfilerStart and Stop enclose the calls that count, after kernels are compiled and weights laid out. Layers of a
network are ranges of NVTX.
"""

import os
import sys
from contextlib import contextmanager

import numpy as np

import quantarray as qa
from quantarray.backends.registry import cupy

CASES = ("bmma", "wgmma", "popc", "encode", "conv", "network")


@contextmanager
def profiled(xp):
    """Let a profiler see what is inside."""
    xp.cuda.runtime.deviceSynchronize()
    xp.cuda.runtime.profilerStart()
    try:
        yield
        xp.cuda.runtime.deviceSynchronize()
    finally:
        xp.cuda.runtime.profilerStop()


def call_of(name, xp):
    """Return the call of a case, on arrays on the GPU."""
    rng = np.random.default_rng(0)

    def bits(*shape):
        return qa.encode(rng.choice(np.array([-1, 1], np.int8), shape), (-1, 1)).to_device("cuda")

    if name in ("bmma", "wgmma", "popc"):
        os.environ["QUANTARRAY_CUDA"] = name
        x, w = bits(8192, 8192), bits(8192, 8192)
        return lambda: qa.linear(x, w)
    if name == "encode":
        values = xp.asarray(rng.standard_normal((1 << 14, 1 << 14), np.float32))
        return lambda: qa.quantize(values, qa.Sign())
    if name == "conv":
        x, w, cut = bits(32, 28, 28, 128), bits(128, 3, 3, 128), qa.Thresholds([0])
        return lambda: qa.conv2d(x, w, padding=1, requantize=cut)
    from importlib.resources import files

    network = qa.nn.load_network(files("quantarray") / "data" / "digits.npz")
    raw = xp.asarray(network.plain.input)
    on_device = network.to_device("cuda")
    return lambda: on_device(raw)


def main(name):
    xp = cupy("profile")
    call = call_of(name, xp)
    call()
    with profiled(xp):
        call()


if __name__ == "__main__":
    main(sys.argv[1])
