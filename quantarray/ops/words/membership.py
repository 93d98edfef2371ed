"""Which codes stand for a value, and whether they occur."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.dtypes import Array, level_values
from .conversion import recode


def contains(q: QuantArray, value: Any) -> bool:
    """See `QuantArray.__contains__`."""
    if not isinstance(value, (Real, np.bool_)):
        raise TypeError(f"in: packed arrays hold numbers, so needs one on the left, got {checks.kind(value)}")
    hit = codes_of(q, value)
    return bool(hit.any()) and bool(recode(q, hit, 1).any())


def codes_of(q: QuantArray, value: Any) -> Array:
    """Which codes decode to a value: bool [n_levels, *axes], each axis as long as the constants along it."""
    levels = level_values(q.dtype, q.constants)
    return np.asarray(levels.reshape(len(levels), *(levels.shape[1:] or (1,) * q.ndim)) == value)
