"""Backends and their kernels, by the device that holds an array's memory. Nothing is moved unasked."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, lru_cache, partial, wraps
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
from ..core.recordings import RECORDINGS, recording
from . import diagnosis, kernel_choice

_MANY_WORDS, _MANY = 1 << 8, 1 << 18  # elements for which a line is worth finding, which takes 3 us

_FILES = {
    "pack": "bits.pack",
    "pack_seen": "bits.pack",
    "pack_signed": "bits.pack",
    "pack_compared": "bits.pack_compared",
    "round_values": "float32.round_values",
    "unpack": "bits.pack",
    "encode": "bits.encode",
    "encode_small": "bits.encode",
    "encode_grid": "bits.encode_grid",
    "encode_grid_small": "bits.encode_grid",
    "encode_range": "bits.encode_grid",
    "extremes": "bits.extremes",
    "range_constants": "bits.extremes",
    "group_constants": "bits.extremes",
    "encode_grouped": "bits.encode_grouped",
    "encode_groups": "bits.encode_grouped",
    "group_ends": "bits.encode_mixed",
    "encode_mixed": "bits.encode_mixed",
    "decode_mixed": "bits.decode_mixed",
    "decode_uniform": "bits.decode_uniform",
    "decode_spaced": "bits.decode_uniform",
    "decode_levels": "bits.decode_levels",
    "recode": "bits.recode",
    "look_up": "bits.look_up",
    "add_codes": "bits.add_codes",
    "rebit": "bits.rebit",
    "unroll": "bits.im2col",
    "place": "bits.place",
    "spread": "bits.repeat",
    "gather": "bits.gather",
    "gather_rows": "bits.gather",
    "repack": "bits.repack",
    "threshold": "epilogue.threshold",
    "elementwise": "epilogue.elementwise",
    "add_shortcut": "epilogue.shortcut",
    "max_pool": "reduction.pool",
    "pool_values": "reduction.dense_pool",
    "float_product": "float32.product",
    "scaled_product": "float32.product",
    "row_product": "float32.row_products",
    "row_product_spaced": "float32.row_products",
    "row_product_levels": "float32.row_products",
    "row_product_scaled": "float32.row_products",
    "hadamard": "float32.hadamard",
    "rms_norm": "float32.rms_norm",
    "join": "float32.join",
    "put_channels_last": "bits.channels_last",
    "nearest": "hamming.nearest",
    "nearest_sets": "hamming.nearest_sets",
    "within_distance": "hamming.nearest",
    "within_sets": "hamming.nearest_sets",
    "add_candidates": "hamming.candidates",
    "add_products": "hamming.candidates",
    "least_candidates": "hamming.candidates",
    "nearest_products": "hamming.nearest_products",
    "conv_weights": "popcount.conv",
    "conv_words": "popcount.conv",
    "conv": "popcount.conv",
    "encode_rows": "int8.encode_runs",
    "encode_runs": "int8.encode_runs",
    "group_product": "int8.group_products",
    "byte_row_product": "int8.byte_rows",
    "conv_added": "popcount.conv_added",
    "dot_weights": "int8.dot",
    "dot_words": "int8.dot",
    "dot": "int8.dot",
    "winograd": "int8.winograd",
    "framed": "int8.framed",
    "conv_real": "popcount.conv_real",
    "rescale": "epilogue.rescale",
    "divide_rows": "epilogue.divide_rows",
    "add_planes": "epilogue.plane_sums",
    "depthwise": "depthwise.masked_add",
    "depthwise_bytes": "depthwise.int8",
    "depthwise_codes": "depthwise.int8",
    "sliced": "depthwise.bit_sliced",
    "turn": "bits.rotate",
    "count": "reduction.reduce",
    "count_lanes": "reduction.reduce",
    "map_reduce": "reduction.map_reduce",
    "total": "reduction.total",
    "sums": "reduction.sums",
    "below": "reduction.sums",
    "argmax": "reduction.scan",
    "cumulate": "reduction.scan",
    "argsort": "reduction.scan",
    "sort": "reduction.scan",
}
KERNELS = tuple(_FILES)


def file_of(name: str) -> str:
    """Return the file of a kernel in each back end's folder, with dots."""
    return _FILES[name]


@cache
def kernel(device: str, name: str) -> Callable[..., None]:
    """Return the kernel `name` of `quantarray.kernels.contract` for a device."""
    backend = device.partition(":")[0]
    module = _twin(backend, f"quantarray.{backend}.{_FILES[name]}", name)
    function: Callable[..., None] | None = getattr(module, name, None)
    if function is None:
        raise DeviceError(f"{name}: there is no kernel for device {device!r}; move the operands with .to_device('cpu')")
    return _on(device, function) if ":" in device else function


@cache
def has_kernel(device: str, name: str) -> bool:
    """True if a device has a kernel of that name: some kernels only do faster what others do too."""
    backend = device.partition(":")[0]
    return hasattr(_twin(backend, f"quantarray.{backend}.{_FILES[name]}", name), name)


def _on(device: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel, or the choice of one, to be for one of several GPUs, whichever is the current one."""

    @wraps(run)
    def on_device(*args: Any) -> Any:
        with current(device):
            return run(*args)

    return on_device


def _twin(backend: str, path: str, name: str) -> ModuleType | None:
    """Import the module of a backend's kernel; None where there is none."""
    if backend not in ("cpu", "cuda"):
        return None
    try:
        with no_fork:
            return import_module(path)
    except ModuleNotFoundError as error:
        if error.name and path.startswith(error.name):  # the file, or its folder
            return None
        fix = "pip install numba" if backend == "cpu" else f"{diagnosis.install()}, or use .to_device('cpu')"
        raise DeviceError(
            f"{name}: kernels for the device {backend!r} need the package {error.name}; install it with {fix}"
        ) from error


@cache
def integer_kernel(device: str) -> Callable[..., str]:
    """Return the function that names the kernel of an integer product; each backend has its own `costs`."""
    choose = partial(kernel_choice.chosen, _costs(device))
    return _on(device, choose) if ":" in device else choose


def product_costs(device: str) -> Any:
    """Return the cost model of a backend's integer products; None where nobody has measured any."""
    model = _costs(device)
    return model if hasattr(model, "costs") else None


@lru_cache(maxsize=1024)
def writes_words(device: str, name: str, rows: int, channels: int, groups: int = 1) -> bool:
    """Return True if a kernel writes all words of codes of a product, whatever they hold before."""
    model = _costs(device)
    return hasattr(model, "writes_words") and bool(model.writes_words(name, rows, channels, groups))


@cache
def few_rows(device: str, planes: int) -> int:
    """Return up to how many rows of int8 the words of weights are read in place: see the costs of a device."""
    model = _costs(device)
    return int(model.few_rows(planes)) if hasattr(model, "few_rows") else 0


@cache
def few_queries(device: str, planes: int, words: int) -> int:
    """Return up to how many queries of int8 meet the words of rows that they search: see the costs of a device."""
    return int(_costs(device).few_queries(planes, words))


def _costs(device: str) -> ModuleType:
    with no_fork:
        return import_module(f"quantarray.{device.partition(':')[0]}.costs")


def source_code(device: str, names: Sequence[str], form: str, run: Callable[[], Any]) -> dict[str, str]:
    """{function: text} of the compiled functions of kernels that `run` calls; form "llvm", "asm", "ptx" or "sass"."""
    backend = f"quantarray.{device.partition(':')[0]}"
    with no_fork:
        inspection = import_module(f"{backend}.runtime.inspection")
        modules = [import_module(f"{backend}.{_FILES[name]}") for name in names if name in _FILES]
    texts: dict[str, str] = inspection.texts(modules, form, run)
    return texts


def graph_class() -> Any:
    """Import the class of CUDA graphs, with the first."""
    with no_fork:
        return import_module("quantarray.cuda.runtime.graph").Graph


def call_class() -> Any:
    """Import the class of calls whose launches are recorded, with the first."""
    with no_fork:
        return import_module("quantarray.cuda.runtime.recorded").Recorded


def device_of(x: Any) -> str:
    """Return the device that holds an array; NumPy arrays are on the CPU."""
    device = getattr(x, "device", "cpu")
    if isinstance(device, str):
        return device
    return f"cuda:{device.id}" if hasattr(device, "id") else str(device)  # CuPy's, or PyTorch's


def common_device(op: str, **operands: Any) -> str:
    """Return the one device that holds all operands, or raise an error that says where each is."""
    devices = {device_of(x) for x in operands.values() if x is not None}
    if len(devices) > 1:
        listed = ", ".join(f"{name} on {device_of(x)}" for name, x in operands.items() if x is not None)
        raise DeviceError(f"{op}: operands are on different devices: {listed}; move one with .to_device(...)")
    return devices.pop()


# Arrays of a device


def to_host(x: Any) -> Array:
    """Copy a dense array to NumPy; itself if it is NumPy's."""
    if isinstance(x, np.ndarray):
        return x
    copied: Array = cupy("asnumpy").asnumpy(x) if hasattr(x, "__cuda_array_interface__") else np.asarray(x)
    return copied


def cupy(op: str) -> Any:
    """Import CuPy, when the first array goes to a GPU."""
    loaded = sys.modules.get("cupy")
    if loaded is not None and not getattr(getattr(loaded, "__spec__", None), "_initializing", False):
        return loaded  # without `no_fork`, which looks at every signal: 300 calls
    try:
        with no_fork:
            return import_module("cupy")
    except ImportError as error:
        raise DeviceError(f"{op}: arrays on a GPU need CuPy; install it with {diagnosis.install()} ({error})") from None


def _gpus(op: str, number: int) -> int:
    """Count the GPUs if one of them can be used, or raise one message with the cause and the fix."""
    diagnosis.check_wheels(op)
    runtime = cupy(op).cuda.runtime
    diagnosis.check_driver(op, runtime)
    gpus = diagnosis.count(op, runtime)
    if number < gpus:
        diagnosis.check_capability(op, runtime, number)
    return gpus


def first_gpu(op: str) -> tuple[str, tuple[int, int]]:
    """Return the name and compute capability of the first GPU, or raise the message of what is missing."""
    _gpus(op, 0)
    if not find_spec("numba_cuda"):
        raise DeviceError(f"{op}: CUDA kernels need numba-cuda; install it with {diagnosis.install()}")
    properties = cupy(op).cuda.runtime.getDeviceProperties(0)
    name = properties["name"]
    return name.decode() if isinstance(name, bytes) else name, (properties["major"], properties["minor"])


def namespace(device: str) -> Any:
    """Return the module with NumPy's functions for arrays on a device: numpy, or cupy."""
    return np if device == "cpu" else cupy("namespace")


def current(device: str) -> Any:
    """Return a context in which arrays are made on a device."""
    return nullcontext() if device == "cpu" else cupy("device").cuda.Device(int(device.partition(":")[2] or 0))


def empty(device: str, shape: tuple[int, ...], dtype: Any = WORD) -> Array:
    """Allocate an uninitialised array; on the CPU, where it has many elements, it begins on a cache line."""
    if device == "cpu":
        if RECORDINGS and (planned := recording()) is not None:
            return planned.array(shape, dtype)
        lines = math.prod(shape) >= (_MANY_WORDS if dtype is WORD else _MANY)
        try:
            return empty_lines(shape, np.dtype(dtype)) if lines else np.empty(shape, dtype)
        except (MemoryError, ValueError):  # ValueError: more bytes than an index has
            raise no_room(shape, dtype) from None
    if RECORDINGS and (planned := recording("cuda")) is not None:
        return planned.array(shape, dtype)
    with allocating(device, shape, dtype):
        array: Array = namespace(device).empty(shape, dtype)
    return array


def zeros(device: str, shape: tuple[int, ...], dtype: Any = WORD) -> Array:
    """Allocate an array of zeros."""
    if device == "cpu":
        if RECORDINGS and (planned := recording()) is not None:
            return planned.array(shape, dtype, cleared=True)
        try:
            return np.zeros(shape, dtype)
        except (MemoryError, ValueError):
            raise no_room(shape, dtype) from None
    if RECORDINGS and (planned := recording("cuda")) is not None:
        return planned.array(shape, dtype, cleared=True)
    with allocating(device, shape, dtype):
        array: Array = namespace(device).zeros(shape, dtype)
    return array


@contextmanager
def allocating(device: str, shape: tuple[int, ...], dtype: Any) -> Iterator[None]:
    """Allocate an array on a GPU inside, or say what it has no room for."""
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
    """Return the array with its elements in C order, itself if they are."""
    if a.flags.c_contiguous:  # CuPy's arrays have flags too
        return a
    try:
        copied: Array = namespace(device_of(a)).ascontiguousarray(a)
    except MemoryError:
        raise no_room(a.shape, a.dtype) from None
    return copied


def reshaped(a: Array, shape: tuple[int, ...]) -> Array:
    """Return the array in another shape, a copy where its strides do not allow a view."""
    try:
        return a.reshape(shape)
    except MemoryError:
        raise no_room(shape, a.dtype) from None


def moveaxis(a: Array, source: int, destination: int) -> Array:
    """Move an axis as NumPy and CuPy do; return the array itself where none moves, for which NumPy takes 6 us."""
    if source % a.ndim == destination % a.ndim:
        return a
    moved: Array = namespace(device_of(a)).moveaxis(a, source, destination)
    return moved


def known_device(op: str, name: Any) -> str:
    """Return the full name of a device, or raise DeviceError."""
    if not isinstance(name, str) or not re.fullmatch(r"cpu|cuda(:[0-9]+)?", name):
        raise DeviceError(f"{op}: devices are 'cpu' and 'cuda' or 'cuda:N', got {name!r}")
    if name == "cpu":
        return name
    number = int(name.partition(":")[2] or 0)
    count = _gpus(op, number)
    if number >= count:
        raise DeviceError(f"{op}: there are {count} GPUs, numbered from 0, got {name!r}")
    return f"cuda:{number}"
