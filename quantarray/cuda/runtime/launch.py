"""Launch kernels and move their constants to the device: the only place that does either.

Kernels take arrays in GPU memory, CuPy's or Numba's; others with `__cuda_array_interface__` go through `array`
first. In Numba's simulator they are NumPy arrays. Only small host arrays, those of a `Plan`, a `Finish` or a table, are
moved, once each, by `resident`.
"""

import weakref
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from ...backends import diagnosis
from ...backends.registry import empty, settle, zeros
from ...core.errors import DeviceError
from ...core.recordings import RECORDINGS, recording
from . import driver, on_disk
from .blank import Blank, ElementsAreRead
from .target import config, cuda

LANES = 32  # threads of a warp, and bits of half a word
MOST_ROWS = 65535  # blocks along y that a grid may have: kernels stride over the rest
WARPS = 8  # of a block that has no shape of its own
BUSY = 2048  # blocks of that many warps that fill every GPU some times over

_GIVEN = 48 << 10  # bytes of shared memory that a thread block gets unasked
_ALL = 100  # percent of L1
_SMALL, _MOST_EQUAL = 1 << 12, 1 << 12  # bytes of an array, and how many are kept by what they hold
_COUNTERS = 1 << 12  # at least, of a stream
_kept, _equal, holders, _ready, _arrivals = {}, {}, [], {}, {}


def inline(function):
    """Make a device function a part of its callers, without which it can't take arrays of registers."""
    options = {} if config.ENABLE_CUDASIM else {"forceinline": True}  # the simulator takes no such argument
    return cuda.jit(device=True, **options)(function)


def together(blocks, threads):
    """Make kernels so many of whose blocks, of so many threads, have registers enough to share a multiprocessor."""
    return cuda.jit() if config.ENABLE_CUDASIM else cuda.jit(launch_bounds=(threads, blocks))


def run(kernel, grid, block, *args, shared=0, tiled=False):
    """Launch a kernel on arrays of GPU memory, numbers, and named tuples of both; nothing waits for it.

    It runs on CuPy's current stream. `shared` bytes are its arrays of shared memory that have no size of their own;
    `tiled` kernels want as much of L1 for shared memory as there is.
    """
    if RECORDINGS and (one := recording("cuda")) is not None:
        one.launch(kernel, grid, block, args, shared, tiled)
        return
    ready = tuple(map(_argument, args))
    try:
        if _driver():
            gpu = driver.current_gpu()
            driver.enter(gpu)
            driver.start(specialized(kernel, gpu, ready, shared, tiled).handle, grid, block, shared, ready)
        else:
            kernel[grid, block, 0, shared](*ready)
    except Exception as error:
        raise_known(error)
        raise


def raise_known(error):
    """Raise the error to show for one of the compiler or of the driver, where the cause is known."""
    known = diagnosis.of_driver("a kernel", error)
    if known is not None:
        raise known from error


class Specialized(NamedTuple):
    """A kernel that is compiled for arguments of one form."""

    compiled: object  # Numba's; None for one from disk
    function: object  # Numba's or cuda.core's, which owns the code
    handle: object  # the driver's


def specialized(kernel, gpu, args, shared, tiled):
    """Return the kernel for arguments of these forms: Numba would type each of them at each launch."""
    key = kernel, gpu, shared, tiled, *map(_form, args)
    one = _ready.get(key)
    if one is None:
        compiled, function = _function(kernel, args)
        attributes = {"PREFERRED_SHARED_MEMORY_CARVEOUT": _ALL} if tiled else {}
        if shared > _GIVEN:
            attributes["MAX_DYNAMIC_SHARED_SIZE_BYTES"] = shared
        driver.set_attributes(function, gpu, attributes)
        one = _ready[key] = Specialized(compiled, function, driver.handle_of(function))
    return one


def _function(kernel, args):
    """(Numba's compiled kernel or None, its function on the GPU), from disk if it is there."""
    text = None
    with suppress(on_disk.UnknownError):
        text = on_disk.text_of(kernel, tuple(map(_form, args)), capability())
    code = None if text is None else on_disk.read(text)
    if code is not None:
        with suppress(Exception):  # of a driver that does not take it: it is compiled again
            return None, driver.loaded(code)
    compiled = kernel.specialize(*map(_typed, args))
    library = driver.library_of(compiled)
    function = library.get_cufunc()
    if text is not None:
        with suppress(AttributeError, TypeError):  # of a version of Numba that has its machine code elsewhere
            on_disk.write(text, on_disk.Code(library._entry_name, bytes(library.get_cubin().code)))
    return compiled, function


def _form(a):
    """Return the properties that decide an argument's type."""
    if isinstance(a, tuple):
        return type(a), *map(_form, a)
    return type(a) if isinstance(a, driver.NUMBERS) else (a.dtype.char, a.ndim, is_contiguous(a))


def _typed(a):
    """Return an argument whose type Numba knows: CuPy's arrays as views."""
    if isinstance(a, tuple):
        return type(a)(*map(_typed, a))
    return cuda.as_cuda_array(a, sync=False) if hasattr(a, "__cuda_array_interface__") else a


def _argument(a):
    if isinstance(a, tuple):
        return type(a)(*map(_argument, a))
    if isinstance(a, Blank):
        raise ElementsAreRead  # by a launch that a cache needs
    return array(a) if isinstance(a, np.ndarray) or hasattr(a, "__cuda_array_interface__") else a


def rows_by_halves(rows, halves, each=1):
    """(grid, block) in which a warp takes one half-word of a row at a time: warps are along x, rows along y.

    A short row does not fill a block, which then takes several rows. A warp strides over up to `each` rows where there
    are blocks enough for the whole GPU.
    """
    across = max(1, min(halves, WARPS))
    down = max(1, WARPS // across)
    wide, high = -(-halves // across), -(-rows // down)
    high = min(high, max(-(-high // each), -(-BUSY // wide)), MOST_ROWS)
    return (wide, high), (across * LANES, down)


def rows_by_items(rows, items):
    """(grid, block) with a thread for each item of a row: items are along x, rows along y.

    Short rows share a block, but a warp's threads have neighbouring items as far as there are any.
    """
    threads = WARPS * LANES
    across = 1
    while across < min(items, threads):
        across *= 2
    down = max(1, threads // across)
    return (-(-items // across), min(-(-rows // down), MOST_ROWS)), (across, down)


def warps_of(tasks):
    """(grid, block) with a warp for each task, whose number is `cuda.grid(1) // LANES`."""
    return -(-tasks // WARPS), WARPS * LANES


def scratch(shape, dtype):
    """Allocate GPU memory for kernels' own use, uninitialised.

    It is CuPy's like all others: of its pool, where Numba would ask the driver each time and wait when it gives back;
    in a captured graph of the graph's own, which keeps it; and it names the stream that its kernels are launched on.
    """
    return np.empty(shape, dtype) if _simulated() else empty(f"cuda:{_gpu()}", shape, dtype)


def arrivals(count):
    """Return so many uint32 counters that are zero, of which kernels count up and leave zeros: `cuda.atomic.inc`.

    Launches of a stream come one after the other, and share them. A captured graph may run beside its stream, so it
    has its own: those of the call before its capture, inside `holding`. Otherwise each launch of it sets some to zero.
    """
    if _simulated():
        return np.zeros(count, np.uint32)
    if RECORDINGS and (one := recording("cuda")) is not None:
        return one.taken((count,), np.uint32, partial(arrivals, count))
    gpu, (stream, captured) = _gpu(), driver.current_stream()
    device, by_stream = f"cuda:{gpu}", holders[-1].arrivals if holders else _arrivals
    counters = by_stream.get((gpu, stream))
    if captured and (not holders or counters is None or counters.size < count):
        return zeros(device, (count,), np.uint32)
    if counters is None or counters.size < count:
        counters = by_stream[gpu, stream] = zeros(device, (max(count, _COUNTERS),), np.uint32)
    return counters


def array(a):
    """Return an array of GPU memory as kernels take it: CuPy's and Numba's as they are."""
    if isinstance(a, np.ndarray):
        if _simulated():
            return a
        raise DeviceError(f"a CUDA kernel got a NumPy array {a.dtype} {a.shape}; move it with .to_device('cuda')")
    if hasattr(a, "is_c_contiguous") or hasattr(getattr(a, "data", None), "ptr"):
        return a
    return cuda.as_cuda_array(a, sync=False)  # what waits for the array's stream is the kernel, on that stream


def is_contiguous(a):
    """True if the elements of an array of GPU memory are in C order without gaps."""
    return a.is_c_contiguous() if hasattr(a, "is_c_contiguous") else a.flags.c_contiguous


def address(a):
    """Return the address of the first element."""
    return a.__array_interface__["data"][0] if isinstance(a, np.ndarray) else driver.address(a)


def halves(words):
    """View uint64 words[.. n] as uint32[.. 2n]: little endian, so a ballot of 32 lanes is one element."""
    return array(words).view(np.uint32)


def resident(a):
    """Return a host array on the device, moved once and kept as long as it lives; nobody may write to it meanwhile.

    Many small arrays are kept, by their contents: one that each call makes again is not moved again.
    """
    if not isinstance(a, np.ndarray):
        return a
    if a.nbytes > _SMALL:
        return cached(_move, (a,))
    key = _gpu(), a.dtype.str, a.shape, a.tobytes()
    moved = _equal.get(key)
    if moved is None:
        moved = _equal[key] = _move(a.copy())
        if len(_equal) > _MOST_EQUAL:
            _equal.pop(next(iter(_equal)), None)
    return hold(moved)


def all_resident(arrays):
    """Move each member of a named tuple as `resident` does."""
    return type(arrays)(*map(resident, arrays))


def cached(make, arrays, *numbers):
    """Return make(*arrays, *numbers), called once a GPU for these very arrays and dropped with the first that goes."""
    key = make, _gpu(), *map(id, arrays), *numbers
    if key not in _kept:
        result = make(*arrays, *numbers)
        _kept[key] = result, [weakref.ref(a, lambda _, key=key: _kept.pop(key, None)) for a in arrays]
    return hold(_kept[key][0])


class Held(list):
    """List what a captured graph keeps, and have the counters of its streams."""

    def __init__(self):
        self.arrivals = {}


@contextmanager
def holding():
    """Give the list of all that `kept` and `resident` give inside: who has it keeps these arrays in GPU memory."""
    held = Held()
    holders.append(held)
    try:
        yield held
    finally:
        holders[:] = [other for other in holders if other is not held]


def hold(result):
    """Let all graphs that are being captured keep what they launch on; return it."""
    for held in holders:
        held.append(result)
    return result


def wait():
    """Wait for what was made on the current stream and is kept, since the next call may come on another one."""
    if _driver():
        settle(f"cuda:{_gpu()}")


def _simulated():
    """Return True where GPU memory is NumPy's."""
    return config.ENABLE_CUDASIM


@cache
def _driver():
    """Return False in the simulator, and where kernels are only compiled."""
    return not config.ENABLE_CUDASIM and cuda.is_available()


def capability():
    """Return the compute capability of the current GPU; the first that there is a tier for where there is no GPU."""
    return driver.compute_capability(driver.current_gpu()) if _driver() else (7, 0)


def multiprocessors():
    """Return how many multiprocessors the current GPU has; where there is no GPU, as many as an H100."""
    return driver.multiprocessors(driver.current_gpu()) if _driver() else 132


def _gpu():
    return driver.current_gpu() if _driver() else 0


def _move(a):
    if _simulated():
        return a
    moved = cuda.to_device(np.ascontiguousarray(a))
    cuda.default_stream().synchronize()  # the copy may still be running, and kernels' streams need not wait for it
    return moved
