"""Which backend owns an array's memory, and the kernels of that backend. Nothing is moved behind the caller's back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial, wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from ..core.allocation import no_room
from ..core.dtypes import Array
from ..core.errors import DeviceError
from ..core.forks import no_fork
from ..core.format import WORD, empty_lines
from . import diagnosis, kernel_choice

_MANY_WORDS, _MANY = 1 << 8, 1 << 18  # elements for which a line is worth finding, which takes 3 us

_FILES = {
    "pack": "pack",
    "pack_seen": "pack",
    "unpack": "pack",
    "encode": "encode",
    "encode_small": "encode",
    "encode_grid": "grid",
    "encode_grid_small": "grid",
    "encode_range": "grid",
    "extremes": "extremes",
    "range_constants": "extremes",
    "group_constants": "extremes",
    "encode_grouped": "grouped",
    "encode_groups": "grouped",
    "recode": "layout",
    "rebit": "rebit",
    "unroll": "unroll",
    "place": "place",
    "spread": "spread",
    "gather": "gather",
    "gather_rows": "gather",
    "repack": "repack",
    "threshold": "threshold",
    "max_pool": "pool",
    "nearest": "nearest",
    "conv_weights": "conv",
    "conv_words": "conv",
    "conv": "conv",
    "dot_weights": "dot",
    "dot_words": "dot",
    "dot": "dot",
    "winograd": "winograd",
    "framed": "framed",
    "conv_real": "conv_real",
    "rescale": "rescale",
    "depthwise": "depthwise",
    "depthwise_bytes": "depthwise_bytes",
    "depthwise_codes": "depthwise_bytes",
    "sliced": "sliced",
    "turn": "turn",
    "count": "reduce",
    "count_lanes": "reduce",
    "argmax": "scan",
    "cumulate": "scan",
    "argsort": "scan",
    "sort": "scan",
}
KERNELS = tuple(_FILES)


@cache
def kernel(device: str, name: str) -> Callable[..., None]:
    """The kernel `name` of `quantarray.kernels.contract` for a device."""
    backend = device.partition(":")[0]
    module = _twin(backend, f"quantarray.{backend}.{_FILES[name]}", name)
    found: Callable[..., None] | None = getattr(module, name, None)
    if found is None:
        raise DeviceError(f"{name}: there is no kernel for device {device!r}; move the operands with .to_device('cpu')")
    return _on(device, found) if ":" in device else found


@cache
def has_kernel(device: str, name: str) -> bool:
    """True where a device has a kernel of that name: some are faster ways to do what others do too."""
    backend = device.partition(":")[0]
    return hasattr(_twin(backend, f"quantarray.{backend}.{_FILES[name]}", name), name)


def _on(device: str, run: Callable[..., None]) -> Callable[..., None]:
    """A kernel that is launched on one of several GPUs, whichever is the current one."""

    @wraps(run)
    def there(*args: Any) -> None:
        with current(device):
            run(*args)

    return there


def _twin(backend: str, path: str, name: str) -> ModuleType | None:
    """The module of a backend's kernel, None where there is none."""
    if backend not in ("cpu", "cuda"):
        return None
    try:
        with no_fork:
            return import_module(path)
    except ModuleNotFoundError as error:
        if error.name == path:
            return None
        raise DeviceError(
            f"{name}: kernels for the device {backend!r} need the package {error.name}; install it with "
            f"pip install 'quantarray[cuda13]', or move the operands with .to_device('cpu')"
        ) from error


@cache
def integer_kernel(device: str) -> Callable[..., str]:
    """What names the kernel of an integer product; each backend has its own `costs`."""
    return partial(kernel_choice.chosen, _costs(device))


def product_costs(device: str) -> Any:
    """The cost model of a backend's integer products; None where nobody has measured any."""
    model = _costs(device)
    return model if hasattr(model, "costs") else None


def _costs(device: str) -> ModuleType:
    with no_fork:
        return import_module(f"quantarray.{device.partition(':')[0]}.costs")


def source_code(device: str, names: Sequence[str], form: str, run: Callable[[], Any]) -> dict[str, str]:
    """{function: text} of the compiled functions of kernels that `run` calls; form "llvm", "asm", "ptx" or "sass"."""
    backend = f"quantarray.{device.partition(':')[0]}"
    with no_fork:
        inspection = import_module(f"{backend}.inspection")
        modules = [import_module(f"{backend}.{_FILES[name]}") for name in names if name in _FILES]
    texts: dict[str, str] = inspection.texts(modules, form, run)
    return texts


def graph_class() -> Any:
    """The class of CUDA graphs, imported with the first."""
    with no_fork:
        return import_module("quantarray.cuda.graph").Graph


def device_of(x: Any) -> str:
    """The device an array lies on; NumPy arrays lie on the CPU."""
    found = getattr(x, "device", "cpu")
    if isinstance(found, str):
        return found
    return f"cuda:{found.id}" if hasattr(found, "id") else str(found)  # CuPy's, or PyTorch's


def common_device(op: str, **operands: Any) -> str:
    """The one device on which all operands lie; an error that says which is where if there are two."""
    devices = {device_of(x) for x in operands.values() if x is not None}
    if len(devices) > 1:
        listed = ", ".join(f"{name} on {device_of(x)}" for name, x in operands.items() if x is not None)
        raise DeviceError(f"{op}: operands lie on different devices: {listed}; move one with .to_device(...)")
    return devices.pop()


# Arrays of a device


def to_host(x: Any) -> Array:
    """A dense array as NumPy's; itself if it is one."""
    if isinstance(x, np.ndarray):
        return x
    copied: Array = cupy("asnumpy").asnumpy(x) if hasattr(x, "__cuda_array_interface__") else np.asarray(x)
    return copied


def cupy(op: str) -> Any:
    """CuPy, imported when the first array goes to a GPU."""
    try:
        with no_fork:
            return import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"{op}: arrays on a GPU need CuPy; install it with {diagnosis.INSTALL} ({error})") from None


def _gpus(op: str, number: int) -> int:
    """How many GPUs there are, when one of them can be used; or one message with the cause and the fix."""
    diagnosis.check_wheels(op)
    runtime = cupy(op).cuda.runtime
    diagnosis.check_driver(op, runtime)
    found = diagnosis.count(op, runtime)
    if number < found:
        diagnosis.check_capability(op, runtime, number)
    return found


def first_gpu(op: str) -> tuple[str, tuple[int, int]]:
    """The name and compute capability of the first GPU, or the message of what is missing."""
    _gpus(op, 0)
    if not find_spec("numba_cuda"):
        raise DeviceError(f"{op}: CUDA kernels need numba-cuda; install it with pip install 'quantarray[cuda13]'")
    found = cupy(op).cuda.runtime.getDeviceProperties(0)
    name = found["name"]
    return name.decode() if isinstance(name, bytes) else name, (found["major"], found["minor"])


def namespace(device: str) -> Any:
    """The module with NumPy's functions for arrays on a device: numpy, or cupy."""
    return np if device == "cpu" else cupy("namespace")


def current(device: str) -> Any:
    """A context in which arrays are made on a device."""
    return nullcontext() if device == "cpu" else cupy("device").cuda.Device(int(device.partition(":")[2] or 0))


def empty(device: str, shape: tuple[int, ...], dtype: Any = WORD) -> Array:
    """An uninitialised array; on the CPU, where it has many elements, it begins on a cache line."""
    if device == "cpu":
        lines = math.prod(shape) >= (_MANY_WORDS if dtype is WORD else _MANY)
        try:
            return empty_lines(shape, np.dtype(dtype)) if lines else np.empty(shape, dtype)
        except (MemoryError, ValueError):  # ValueError: more bytes than an index has
            raise no_room(shape, dtype) from None
    with allocating(device, shape, dtype):
        made: Array = namespace(device).empty(shape, dtype)
    return made


def zeros(device: str, shape: tuple[int, ...], dtype: Any = WORD) -> Array:
    """An array of zeros."""
    if device == "cpu":
        try:
            return np.zeros(shape, dtype)
        except (MemoryError, ValueError):
            raise no_room(shape, dtype) from None
    with allocating(device, shape, dtype):
        made: Array = namespace(device).zeros(shape, dtype)
    return made


@contextmanager
def allocating(device: str, shape: tuple[int, ...], dtype: Any) -> Iterator[None]:
    """Makes an array on a GPU inside, or says what it has no room for."""
    try:
        with current(device):
            yield
    except MemoryError:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        free, total = namespace(device).cuda.runtime.memGetInfo()
        raise diagnosis.of_memory(f"{np.dtype(dtype)} {shape} of {nbytes:,} bytes", free, total) from None


def settle(device: str) -> None:
    """Wait for what was made on the current stream and is kept, since the next to use it may be another stream."""
    if device != "cpu":
        with current(device):
            cupy("device").cuda.get_current_stream().synchronize()


def contiguous(a: Array) -> Array:
    """The array with its elements in C order, itself if they are."""
    if a.flags.c_contiguous:  # CuPy's arrays have flags too
        return a
    try:
        made: Array = namespace(device_of(a)).ascontiguousarray(a)
    except MemoryError:
        raise no_room(a.shape, a.dtype) from None
    return made


def reshaped(a: Array, shape: tuple[int, ...]) -> Array:
    """The array in another shape, a copy where its strides do not allow a view."""
    try:
        return a.reshape(shape)
    except MemoryError:
        raise no_room(shape, a.dtype) from None


def moveaxis(a: Array, source: int, destination: int) -> Array:
    """NumPy's and CuPy's; the array itself where no axis moves, for which NumPy's takes 6 us."""
    if source % a.ndim == destination % a.ndim:
        return a
    made: Array = namespace(device_of(a)).moveaxis(a, source, destination)
    return made


def known_device(op: str, name: Any) -> str:
    """The full name of a device."""
    if not isinstance(name, str) or not re.fullmatch(r"cpu|cuda(:[0-9]+)?", name):
        raise DeviceError(f"{op}: devices are 'cpu' and 'cuda' or 'cuda:N', got {name!r}")
    if name == "cpu":
        return name
    number = int(name.partition(":")[2] or 0)
    count = _gpus(op, number)
    if number >= count:
        raise DeviceError(f"{op}: there are {count} GPUs, numbered from 0, got {name!r}")
    return f"cuda:{number}"
