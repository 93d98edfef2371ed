"""Which backend owns an array's memory, and the kernels of that backend. Nothing is moved behind the caller's back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import DeviceError

if TYPE_CHECKING:
    from .array import QuantArray

_FILES = {
    "pack": "pack",
    "unpack": "pack",
    "encode": "encode",
    "encode_grouped": "grouped",
    "recode": "layout",
    "rebit": "rebit",
    "place": "place",
    "spread": "spread",
    "gather": "gather",
    "gather_rows": "gather",
    "repack": "repack",
    "threshold": "threshold",
    "max_pool": "pool",
    "nearest": "nearest",
    "conv_weights": "conv",
    "conv": "conv",
    "dot_weights": "dot",
    "dot": "dot",
    "conv_real": "conv_real",
    "depthwise": "depthwise",
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
    """The kernel `name` of `quantarray.kernels` for a device."""
    backend = device.partition(":")[0]
    if backend != "cpu":
        raise DeviceError(f"{name}: there is no kernel for device {device!r}; move the operands with .to_device('cpu')")
    module = import_module(f".{backend}.{_FILES[name]}", __package__)
    found: Callable[..., None] = getattr(module, name)
    return found


@cache
def integer_kernel(device: str) -> Callable[..., str]:
    """What names the fastest kernel of an integer product, `conv` or `dot`; each backend has its own `costs`."""
    module = import_module(f".{device.partition(':')[0]}.costs", __package__)
    found: Callable[..., str] = module.integer_kernel
    return found


def device_of(x: Any) -> str:
    """The device an array lies on; NumPy arrays lie on the CPU."""
    return str(getattr(x, "device", "cpu"))


def common_device(op: str, **operands: Any) -> str:
    """The one device on which all operands lie; an error that says which is where if there are two."""
    where = {name: device_of(x) for name, x in operands.items() if x is not None}
    if len(set(where.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in where.items())
        raise DeviceError(f"{op}: operands lie on different devices: {listed}; move one with .to_device(...)")
    return next(iter(where.values()))


def move(q: QuantArray, device: str) -> QuantArray:
    """The array on another device."""
    _check_known("to_device", device)
    return q


@contextmanager
def device(name: str) -> Iterator[None]:
    """Make new arrays on a device inside a `with` block. The CPU is the only one yet.

    >>> import quantarray as qa
    >>> with qa.device("cpu"):
    ...     q = qa.encode([1, -1], values=(-1, 1))
    """
    _check_known("device", name)
    yield


def _check_known(op: str, name: Any) -> None:
    if not isinstance(name, str) or name != "cpu":
        raise DeviceError(f"{op}: this version knows the device 'cpu' only, got {name!r}")
