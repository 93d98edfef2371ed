"""bfloat16, the upper half of a float32, which NumPy lacks: as bits in uint16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def bfloat16_bits(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """float32 to bfloat16, the upper half of a float32, as uint16; rounded to nearest, ties to even.

    >>> [f"{bits:04x}" for bits in bfloat16_bits(np.float32([1, 1.00390625, -0.1]))]
    ['3f80', '3f80', 'bdcd']
    """
    bits = np.asarray(x, np.float32).view(np.uint32)
    return np.asarray(((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16))


def bfloat16_values(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the float32 values of bfloat16 bits, uint16.

    >>> bfloat16_values(np.uint16([0x3F80, 0xBDCD]))
    array([ 1.        , -0.10009766], dtype=float32)
    """
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrowed(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Round float32 values to another type of floats, of which uint16 are bits of bfloat16; too large ones to infinity.

    >>> narrowed(np.float32([1, 1e9]), np.dtype(np.float16)), narrowed(np.float32([1]), np.dtype(np.uint16))
    (array([ 1., inf], dtype=float16), array([16256], dtype=uint16))
    """
    with np.errstate(over="ignore"):
        return bfloat16_bits(values) if dtype == np.uint16 else values.astype(dtype, copy=False)
