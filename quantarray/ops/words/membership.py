"""Membership: the codes of a value, and whether they occur."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.code_values import constant_dims, values_of_codes
from ...core.dtypes import Array
from .conversion import recode
from .level_tables import is_small, levels, parts


def contains(q: QuantArray, value: Any) -> bool:
    """See `QuantArray.__contains__`."""
    if not isinstance(value, (Real, np.bool_)):
        raise TypeError(f"in: packed arrays hold numbers, so needs one on the left, got {checks.kind(value)}")
    for part in parts(q):
        hit = levels(q[part])[: q.dtype.n_levels] == value
        if hit.any() and recode(q[part], hit, 1).any():
            return True
    return False


def first_codes(q: QuantArray, value: Any) -> tuple[Array, Array]:
    """(first code that decodes to a value, whether one does), each with an axis for each of q's."""
    if is_small(q):
        hit = np.asarray(levels(q)[: q.dtype.n_levels] == value)
        return np.asarray(hit.argmax(axis=0)), np.asarray(hit.any(axis=0))
    dims = constant_dims(q.constants)
    first, some = np.zeros(dims, np.uint8), np.zeros(dims, bool)
    for code in reversed(range(q.dtype.n_levels)):  # one after the other: all levels are 2**bits times the constants
        hit = levels_of_code(q, code) == value
        first[hit] = code
        some |= hit
    return first, some


def levels_of_code(q: QuantArray, code: int) -> Array:
    """Return the levels of one code, with an axis for each of q's."""
    if q.constants.table is not None:
        return np.asarray(q.constants.table[code])
    return values_of_codes(q.dtype, q.constants, np.full((1,) * q.ndim, code))
