"""bfloat16 on a GPU: CuPy has no such dtype, so arrays of other libraries are taken as their bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ..device import cupy
from ..dtypes import Array
from .exchange import await_stream

_TYPE = "<V2"  # by which PyTorch's tensors and ml_dtypes' arrays name it


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
        made: Array = (self.bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return made


def of_gpu(op: str, x: Any) -> Bfloat16 | None:
    """An array of bfloat16 on a GPU, without a copy; None for any other."""
    interface = getattr(x, "__cuda_array_interface__", None)
    if not isinstance(interface, dict) or interface["typestr"] != _TYPE:
        return None
    await_stream(op, x)
    bits = {k: v for k, v in interface.items() if k != "descr"} | {"typestr": "<u2"}
    return Bfloat16(cupy(op).asarray(SimpleNamespace(__cuda_array_interface__=bits)))
