"""Public functions on CUDA kernels without CuPy: each kernel's arrays are moved by Numba, and results brought back."""

import time
from contextlib import ExitStack, contextmanager
from importlib import import_module
from statistics import median
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

import quantarray as qa
from quantarray.backends import registry
from quantarray.ops.quantize import prepared_schemes

_TURNS = 5
_PRODUCT = ("conv", "conv_weights")  # the second lays weights out for the first
_ONLY_CPU = (  # faster kernels for what others do too, without a CUDA twin
    "decode_uniform", "depthwise_bytes", "elementwise", "encode_grid", "encode_grid_small", "encode_groups",
    "encode_range",
    "encode_small", "rescale", "sliced", "unroll",
)  # fmt: skip


def moved_kernel(name, times):
    """Return a function that runs the CUDA kernel `name` on host arrays and appends its seconds to `times`.

    "called" is the time of the kernel only, "moved" includes the transfers.
    """
    from numba import cuda

    run = getattr(import_module(f"quantarray.cuda.{registry._FILES[name]}"), name)

    def call(*args):
        moved = [_round_trip(cuda, run, args) for _ in range(_TURNS)]
        copies = {}
        arrays = [_moved(a, copies) for a in args]
        called = [_seconds(cuda, run, arrays) for _ in range(_TURNS)]
        times.append({"kernel": name, "called": median(called), "moved": median(moved[1:])})  # the first one compiles

    return call


def _moved(a, copies):
    """Copy arrays of words and values to the device; tables stay on the host, since launches copy these themselves."""
    from numba import cuda

    if isinstance(a, np.ndarray):
        return copies.setdefault(id(a), (a, cuda.to_device(np.ascontiguousarray(a))))[1]
    if hasattr(a, "_fields") and "words" in a._fields:
        return a._replace(words=_moved(a.words, copies))
    if hasattr(a, "w") and hasattr(a, "_fields"):
        return a._replace(w=_moved(a.w, copies))
    return a


def _round_trip(cuda, run, args):
    """Measure the seconds from arrays on the host to the result on the host, in the last of `args`."""
    begin, copies = time.perf_counter(), {}
    arrays = [_moved(a, copies) for a in args]
    run(*arrays)
    arrays[-1].copy_to_host(args[-1])
    return time.perf_counter() - begin


def _seconds(cuda, run, args):
    cuda.synchronize()
    begin = time.perf_counter()
    run(*args)
    cuda.synchronize()
    return time.perf_counter() - begin


@contextmanager
def on_cuda(names, times):
    """Let public functions use the CUDA kernels `names` instead of the CPU's, within the context."""
    twin = registry._twin
    chosen = import_module("quantarray.cuda.costs").integer_kernel
    cached = registry.kernel, registry.has_kernel, registry.integer_kernel

    def moved(backend, path, name):
        if name in _ONLY_CPU:
            return None
        return SimpleNamespace(**{name: moved_kernel(name, times)}) if name in names else twin(backend, path, name)

    with ExitStack() as stack:
        stack.enter_context(patch.object(registry, "_twin", moved))
        stack.enter_context(patch.object(prepared_schemes, "form", lambda *call: None))  # its kernels are the CPU's
        stack.enter_context(patch.object(import_module("quantarray.cpu.costs"), "integer_kernel", chosen))
        for function in cached:
            function.cache_clear()
            stack.callback(function.cache_clear)
        yield


def cases():
    """{name: (kernels, call)}; a call makes new operands, since weights remember how the CPU used them."""
    rng = np.random.default_rng(0)
    x, w = (rng.choice((-1, 1), (n, 4096)) for n in (4096, 4096))
    image, kernels = rng.choice((-1, 1), (8, 28, 28, 128)), rng.choice((-1, 1), (128, 3, 3, 128))
    values = rng.standard_normal((4096, 4096)).astype(np.float32)
    return {
        "4096^3": (_PRODUCT, lambda: qa.linear(*map(_bits, (x, w)))),
        "28x28x128, batch 8": (_PRODUCT, lambda: qa.conv2d(*map(_bits, (image, kernels)), padding=1)),
        "float32 to 1 bit, 64 MB": (("encode",), lambda: qa.quantize(values, qa.Sign()).words),
    }


def _bits(a):
    return qa.encode(a, (-1, 1))


def compared(seconds):
    """Run each case on CUDA and return rows: equal to the CPU's result or not, and seconds."""
    rows, end = [], time.monotonic() + 0.8 * seconds
    for name, (kernels, call) in cases().items():
        if time.monotonic() > end:
            rows.append({"case": name, "error": "no time was left"})
            continue
        times, expected = [], call()
        try:
            with on_cuda(kernels, times):
                got = call()
            if not times:
                raise RuntimeError(f"no CUDA kernel of {kernels} was asked")
            rows.append({"case": name, "equal": bool(np.array_equal(got, expected)), "seconds": times})
        except Exception as error:
            rows.append({"case": name, "error": f"{type(error).__name__}: {error}"})
        print(rows[-1], flush=True)
    wrong = [row["case"] for row in rows if row.get("equal") is not True]
    if wrong:
        raise RuntimeError(f"wrong or failed: {', '.join(wrong)}")
    return rows
