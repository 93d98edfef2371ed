"""Start compiled kernels through the driver, with what Numba looks up at each launch kept.

Numba asks for the current context twice for each array of a launch: of the 450 us that a convolution took from Python,
280 went there. `cuda.core` takes 95 ns a parameter, of which an array has five and two for each axis; the driver's
own function takes a block of them.
"""

import threading
from ctypes import addressof, c_uint64
from functools import cache, lru_cache

import numpy as np

from ...backends.registry import cupy
from ...core.errors import DeviceError
from . import target
from .target import cuda

NUMBERS = int, float, np.generic
_WORD = (1 << 64) - 1
_DEFAULT = 1  # the default stream, whatever the process takes 0 for
_entered = threading.local()


@cache
def _runtime():
    """Return CuPy's runtime and its function for the current stream, or None where only Numba's arrays are used."""
    try:
        of_cupy = cupy("launch").cuda
    except DeviceError:
        return None
    return of_cupy.runtime, of_cupy.get_current_stream


def current_gpu():
    """Return the number of the current GPU."""
    runtime = _runtime()
    return runtime[0].getDevice() if runtime else cuda.current_context().device.id


def current_stream():
    """Return CuPy's current stream, by its number, and whether it is captured."""
    runtime = _runtime()
    if not runtime:
        return 0, False
    stream = runtime[1]()
    return stream.ptr, stream.is_capturing()


def enter(gpu):
    """Make the GPU's context current in this thread once: a thread that has allocated nothing yet has none."""
    gpus = _entered.__dict__.setdefault("gpus", set())
    if gpu not in gpus:
        cuda.current_context()
        gpus.add(gpu)


@cache
def compute_capability(gpu):
    """Return the compute capability of the current GPU, whose number is `gpu`."""
    return cuda.current_context().device.compute_capability


@cache
def multiprocessors(gpu):
    """Return how many multiprocessors the current GPU has, whose number is `gpu`."""
    return cuda.current_context().device.MULTIPROCESSOR_COUNT


def library_of(specialized):
    """Return Numba's library of a kernel that is compiled for one set of types."""
    (compiled,) = specialized.overloads.values()
    return compiled._codelibrary


def loaded(code):
    """Load machine code, and return `cuda.core`'s kernel."""
    from cuda.core import ObjectCode

    return ObjectCode.from_cubin(code.cubin).get_kernel(code.name)


def handle_of(kernel):
    """Return the driver's handle of a kernel of Numba's or of `cuda.core`'s, as `enqueue` takes it."""
    from cuda.bindings.driver import CUfunction

    return CUfunction(int(kernel.handle))


def set_attributes(kernel, gpu, values):
    """Set attributes of a kernel by CUDA's names, which Numba has no words for: it asks the driver as Numba does."""
    numba_driver = target.driver()
    for name, value in values.items():
        attribute = getattr(numba_driver.binding.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        numba_driver.driver.cuKernelSetAttribute(attribute, value, kernel.handle, gpu)


def numbers(args):
    """Return a kernel's parameters: those of arrays, as Numba has them, and numbers; tuples are their members."""
    listed = []
    _list(args, listed)
    return listed


def _list(args, listed):
    for a in args:
        if isinstance(a, tuple):
            _list(a, listed)
        elif isinstance(a, NUMBERS):
            listed.append(a)
        else:
            # no owner and no parent, elements, bytes of one, address, lengths, strides in bytes
            listed += (0, 0, a.size, a.dtype.itemsize, address(a), *a.shape, *a.strides)


def address(a):
    """Return the address of the first element of CuPy's or Numba's array, or of another library's."""
    memory = getattr(a, "data", None)
    if hasattr(memory, "ptr"):
        return memory.ptr
    if hasattr(a, "device_ctypes_pointer"):
        return a.device_ctypes_pointer.value or 0
    return a.__cuda_array_interface__["data"][0]


def parameters(args):
    """Pack a kernel's parameters for the driver: the address of a word of each, then these words."""
    listed = numbers(args)
    count = len(listed)
    block = (c_uint64 * (2 * count))()
    begin = addressof(block) + 8 * count
    block[:count] = range(begin, begin + 8 * count, 8)
    block[count:] = [n & _WORD if type(n) is int else _bits(n) for n in listed]
    return block


def _bits(number):
    """Return the bytes of a number, which a kernel reads as many of as its type has, as an integer."""
    if isinstance(number, bool):
        return int(number)
    return int.from_bytes((number if isinstance(number, np.generic) else np.float64(number)).tobytes(), "little")


def sizes(extent):
    """Return the three sizes of a grid or block of one to three axes."""
    extent = extent if isinstance(extent, tuple) else (extent,)
    return (*extent, 1, 1)[:3]


def start(kernel, grid, block, shared, args):
    """Start a kernel of `handle_of` on CuPy's current stream."""
    enqueue(kernel, sizes(grid), sizes(block), shared, stream(), parameters(args))


def stream():
    """Return CuPy's current stream as `enqueue` takes it."""
    runtime = _runtime()
    return _stream(runtime[1]().ptr or _DEFAULT if runtime else 0)


def enqueue(kernel, grid, block, shared, on, packed):
    """Start a kernel on a stream, with what `parameters` returned, which the driver reads before it returns."""
    (error,) = _launcher()(kernel, *grid, *block, shared, on, addressof(packed), 0)
    if error:
        raise RuntimeError(f"the driver did not start a kernel: {error!r}")


@cache
def _launcher():
    from cuda.bindings.driver import cuLaunchKernel

    return cuLaunchKernel


@lru_cache(256)
def _stream(handle):
    from cuda.bindings.driver import CUstream

    return CUstream(handle)
