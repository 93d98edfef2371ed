"""Thresholds of any dtype as limits that kernels compare exactly: int64 for integer results, float64 for float32."""

from __future__ import annotations

import numpy as np

from ..core.dtypes import Array

ALWAYS, NEVER = -(2**63), 2**63 - 1  # integer results are within +-(2**63 - 1): all above one, none above the other
_EVERY_INTEGER = 2**53  # up to which float64 holds every integer
_COARSE = 2**11  # beyond, up to 2**64, float64 holds every multiple of it, and float32 holds no other integers


def below_int(values: Array, step_back: Array) -> Array:
    """int64: t' such that v > t' is v > t, or v >= t where `step_back`, for every integer |v| < 2**63.

    The step back is one of int64: in the floats of the values t - 1 may round to t.
    """
    if values.dtype.kind == "f":
        values = np.where(step_back, np.ceil(values), np.floor(values))
    always, never = values <= ALWAYS, values >= 2**63
    inside = np.where(always | never, 0, values).astype(np.int64) - step_back
    return np.where(always, np.int64(ALWAYS), np.where(never, np.int64(NEVER), inside))


def below_float32(values: Array, step_back: Array) -> Array:
    """float64: t' such that v > t' is v > t, or v >= t where `step_back`, for every float32 v.

    NaN where every v passes, even -inf, below which there is nothing: kernels take it as below all.
    """
    low, high = _around(values)
    with np.errstate(over="ignore"):
        nearest = high.astype(np.float32)
        before = np.nextafter(nearest, np.float32(-np.inf))
    at_least = np.where(nearest >= high, before, nearest).astype(np.float64)
    return np.where(step_back, np.where(high == -np.inf, np.nan, at_least), low)


def _around(values: Array) -> tuple[Array, Array]:
    """float64 numbers at or below and at or above each value, with no float32 between them but the value itself."""
    if values.dtype.kind == "f":
        exact = values.astype(np.float64)
        return exact, exact
    wide = values if values.dtype == np.uint64 else values.astype(np.int64)
    far = (wide > _EVERY_INTEGER) | (wide < -_EVERY_INTEGER)
    rest = np.where(far, wide % _COARSE, 0)
    low = (wide - rest).astype(np.float64)
    return low, np.where(rest > 0, low + _COARSE, low)
