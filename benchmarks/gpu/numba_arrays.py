"""Public functions on CUDA kernels without CuPy: each kernel's arrays are moved by Numba, and results brought back."""

import time
from contextlib import ExitStack, contextmanager
from importlib import import_module
from statistics import median
from unittest.mock import patch

import numpy as np

import quantarray as qa

_TURNS = 5


def moved_kernel(name, times):
    """The CUDA kernel `name` for host arrays; seconds of each call go to `times`, by kernel and with transfers."""
    from numba import cuda

    device = import_module("quantarray.device")
    run = device.kernel("cuda", name)

    def call(*args):
        begin, out, copies = time.perf_counter(), args[-1], {}
        there = [_moved(a, copies) for a in args]
        turns = [_seconds(cuda, run, there) for _ in range(_TURNS)]
        there[-1].copy_to_host(out)
        times.append({"kernel": name, "called": median(turns[1:]), "first with transfers": time.perf_counter() - begin})

    return call


def _moved(a, copies):
    """Arrays of words and values on the device; tables stay, since launches move those themselves."""
    from numba import cuda

    if isinstance(a, np.ndarray):
        return copies.setdefault(id(a), (a, cuda.to_device(np.ascontiguousarray(a))))[1]
    if hasattr(a, "_fields") and "words" in a._fields:
        return a._replace(words=_moved(a.words, copies))
    if hasattr(a, "w") and hasattr(a, "_fields"):
        return a._replace(w=_moved(a.w, copies))
    return a


def _seconds(cuda, run, args):
    cuda.synchronize()
    begin = time.perf_counter()
    run(*args)
    cuda.synchronize()
    return time.perf_counter() - begin


@contextmanager
def on_cuda(name, times):
    """Public functions take the CUDA kernel `name` for what they do by the CPU's."""
    modules = [import_module(f"quantarray.ops.{where}") for where in ("products", "encoding")]
    with ExitStack() as stack:
        for module in modules:
            real = module.kernel

            def kernel(device, asked, real=real):
                return moved_kernel(asked, times) if asked == name else real(device, asked)

            stack.enter_context(patch.object(module, "kernel", kernel))
        chosen = import_module("quantarray.cuda.costs").integer_kernel
        stack.enter_context(patch.object(import_module("quantarray.cpu.costs"), "integer_kernel", chosen))
        yield


def cases():
    """{name: (kernel, call)}."""
    rng = np.random.default_rng(0)
    x, w = (qa.encode(rng.choice((-1, 1), (n, 4096)), (-1, 1)) for n in (4096, 4096))
    image = qa.encode(rng.choice((-1, 1), (8, 28, 28, 128)), (-1, 1))
    kernels = qa.encode(rng.choice((-1, 1), (128, 3, 3, 128)), (-1, 1))
    values = rng.standard_normal((4096, 4096)).astype(np.float32)
    return {
        "4096^3": ("conv", lambda: qa.linear(x, w)),
        "28x28x128, batch 8": ("conv", lambda: qa.conv2d(image, kernels, padding=1)),
        "float32 to 1 bit, 64 MB": ("encode", lambda: qa.quantize(values, qa.Sign()).words),
    }


def compared(seconds):
    """A row for each case: equal to the CPU or not, and seconds."""
    rows, end = [], time.monotonic() + 0.8 * seconds
    for name, (kernel, call) in cases().items():
        if time.monotonic() > end:
            rows.append({"case": name, "error": "no time was left"})
            continue
        times, expected = [], call()
        try:
            with on_cuda(kernel, times):
                got = call()
            rows.append({"case": name, "equal": bool(np.array_equal(got, expected)), "seconds": times})
        except Exception as error:
            rows.append({"case": name, "error": f"{type(error).__name__}: {error}"})
        print(rows[-1], flush=True)
    wrong = [row["case"] for row in rows if row.get("equal") is not True]
    if wrong:
        raise RuntimeError(f"wrong or failed: {', '.join(wrong)}")
    return rows
