"""bfloat16, a dtype that NumPy and CuPy lack: arrays of other libraries are taken as their bits, and widened.

On a GPU the bits are read in place; on the CPU all are widened to float32 at once.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..backends.registry import cupy
from ..core.dtypes import Array
from .exchange import await_stream

_TYPE = "<V2"  # by which PyTorch's tensors and ml_dtypes' arrays name it
_UINT = 1  # DLPack's code of unsigned integers


class Bfloat16:
    """uint16 `bits` on a GPU, with what packing asks of an array."""

    dtype = "bfloat16"

    def __init__(self, bits: Any) -> None:
        self.bits = bits
        self.shape, self.ndim, self.size, self.device = bits.shape, bits.ndim, bits.size, bits.device

    def __getitem__(self, key: Any) -> Bfloat16:
        return Bfloat16(self.bits[key])

    def widened(self) -> Array:
        """float32 on the GPU, the same values."""
        return _widened(self.bits)


def of_gpu(op: str, x: Any) -> Bfloat16 | None:
    """View an array of bfloat16 on a GPU, without a copy; None for any other."""
    interface = getattr(x, "__cuda_array_interface__", None)
    if not isinstance(interface, dict) or interface["typestr"] != _TYPE:
        return None
    await_stream(op, x)
    bits = {k: v for k, v in interface.items() if k != "descr"} | {"typestr": "<u2"}
    return Bfloat16(cupy(op).asarray(SimpleNamespace(__cuda_array_interface__=bits)))


def is_bfloat16(x: Any) -> bool:
    """True where an array's dtype is called bfloat16: by PyTorch torch.bfloat16, by JAX and ml_dtypes bfloat16."""
    if type(x) is np.ndarray and x.dtype.isbuiltin == 1:  # without a name, which takes NumPy 5 us
        return False
    return str(getattr(x, "dtype", "")).rpartition(".")[2] == "bfloat16"


def of_cpu(x: Any) -> Array:
    """Convert an array of bfloat16 on the CPU to float32, the same values: ml_dtypes', or one that has DLPack."""
    return _widened(bits_of_cpu(x))


def bits_of_cpu(x: Any) -> Array:
    """View an array of bfloat16 on the CPU as uint16, which may be written to if it is NumPy's or PyTorch's."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):  # of whose memory DLPack would give a read-only array
        x = x.detach().view(torch.int16).numpy()
    bits: Array = x.view(np.uint16) if isinstance(x, np.ndarray) else np.from_dlpack(_Bits(x))
    return bits


def _widened(bits: Any) -> Array:
    """float32 numbers of which `bits` are the upper halves, and the lower ones are zero.

    >>> _widened(np.array([0x3F80, 0xC040], np.uint16))
    array([ 1., -3.], dtype=float32)
    """
    values: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


class _DLTensor(ctypes.Structure):
    """A beginning of DLPack's struct of that name, with its device and its dtype."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    )  # fmt: skip


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Bits:
    """An array of bfloat16 that calls itself one of uint16 when it is exported, for NumPy refuses it else.

    Each export has a struct of its own, so nobody else sees the other name.
    """

    def __init__(self, x: Any) -> None:
        self._x = x

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._x.__dlpack_device__()
        return device

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._x.__dlpack__()  # without max_version it is of the first version, which has the struct alone
        _DLTensor.from_address(_pointer(capsule, b"dltensor")).code = _UINT
        return capsule
