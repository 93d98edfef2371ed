"""Types in public signatures, for readers and type checkers.

A result that type checkers call an `Array` is a NumPy scalar where no axis is left: what shapes decide, types cannot.
"""

from __future__ import annotations

from types import EllipsisType
from typing import Any, Literal, Protocol, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from .dtypes import Array


class OnGPU(Protocol):
    """A dense array in GPU memory: CuPy's, PyTorch's, JAX's."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


Number = float | np.number[Any] | np.bool
Vector = Array | OnGPU | list[Any] | tuple[Any, ...]
Values = Number | Vector  # what broadcasts to an array
Bytes = np.ndarray[Any, np.dtype[np.int8 | np.uint8 | np.bool_]] | OnGPU  # images and matrices, taken as they are
Floats = np.ndarray[Any, np.dtype[np.float16 | np.float32]] | OnGPU  # rows that packed weights multiply
Bools = np.ndarray[Any, np.dtype[np.bool_]] | OnGPU  # packed for a call, as uint1

Axes = SupportsIndex | tuple[SupportsIndex, ...] | list[int]
Pair = SupportsIndex | tuple[SupportsIndex, SupportsIndex] | list[int]  # one for both, or (height, width)
Padding = Pair | tuple[Pair, Pair] | Literal["same", "valid"]  # .. or ((top, bottom), (left, right))
Single = SupportsIndex | tuple[SupportsIndex] | list[int]
Triple = SupportsIndex | tuple[SupportsIndex, SupportsIndex, SupportsIndex] | list[int]  # or (depth, height, width)
Sides = tuple[SupportsIndex, SupportsIndex]  # before and after
LinePadding = Single | Sides | tuple[Sides] | Literal["same", "valid"]
VolumePadding = Triple | tuple[Sides, Sides, Sides] | Literal["same", "valid"]
Flags = bool | list[bool] | np.ndarray[Any, np.dtype[np.bool_]]  # one for all channels, or one each
BitOrder = Literal["big", "little"]
DataFormat = Literal["NHWC", "NCHW"]
LineFormat = Literal["NWC", "NCW"]
VolumeFormat = Literal["NDHWC", "NCDHW"]
Side = Literal["left", "right"]
OutType = DTypeLike | None
QuantizeX = Literal["row"] | int | None  # int8 of each row, or of each run of so many elements

Index = SupportsIndex | slice | EllipsisType | Array | list[Any] | range | None
