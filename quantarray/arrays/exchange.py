"""Other libraries' arrays on a GPU as CuPy's, without a copy, and their streams: who waits for whom.

Through DLPack the other library makes CuPy's current stream wait for its own, on the GPU; the CPU goes on. Through the
CUDA array interface CuPy waits on the CPU for the stream that it names. PyTorch's names none, so DLPack comes first.
Memory that the other library gives to others meanwhile is its caller's care: one stream for both has no such case.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..backends.registry import cupy, current, device_of
from .array import QuantArray

_GPU = 2, 13  # DLPack's kinds of devices: CUDA's own memory, and managed memory


def is_on_gpu(x: Any) -> bool:
    """Return True for an array on a GPU, by either protocol."""
    if isinstance(x, np.ndarray | QuantArray | type):
        return False
    name = "__cuda_array_interface__"  # a value that PyTorch traces has any attribute, but no dict, and no such type
    if isinstance(getattr(x, name, None), dict) or (hasattr(type(x), name) and hasattr(x, name)):
        return True
    asked = getattr(x, "__dlpack_device__", None)
    try:
        return asked is not None and int(asked()[0]) in _GPU
    except (TypeError, ValueError, NotImplementedError):  # a device that DLPack does not know
        return False


def is_cupy(x: Any) -> bool:
    """Return True for a CuPy array; nothing is imported to know."""
    xp = sys.modules.get("cupy")
    return xp is not None and isinstance(x, xp.ndarray)


def as_cupy(op: str, name: str, x: Any) -> Any:
    """View x's memory as a CuPy array, which the current stream may read at once."""
    if is_cupy(x):
        return x
    xp = cupy(op)
    if not hasattr(x, "__dlpack__"):
        return xp.asarray(x)
    try:
        return xp.from_dlpack(x)
    except (BufferError, RuntimeError) as error:  # such as a tensor that needs a gradient
        raise TypeError(f"{op}: {name} gives no CuPy array through DLPack: {error}") from None


def await_stream(op: str, x: Any) -> None:
    """Make the current stream wait for x's, of an array whose memory is not taken through DLPack."""
    if hasattr(x, "__dlpack__"):
        with current(device_of(x)):
            x.__dlpack__(stream=cupy(op).cuda.get_current_stream().ptr or 1)  # 1 is DLPack's name of the default one
