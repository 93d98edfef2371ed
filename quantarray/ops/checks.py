"""What public functions ask of their arguments, with messages that name the op, the need, and what came."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..array import QuantArray
from ..dtypes import Array


def integer(op: str, name: str, value: Any, least: int) -> int:
    """A Python integer of at least `least`."""
    try:
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {name} must be an integer, got {value!r}") from None
    if n < least:
        raise ValueError(f"{op}: {name} must be at least {least}, got {n}")
    return n


def pair(op: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """An integer for both spatial axes, or two."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{op}: {name} must be an integer or two (height, width), got {value!r}")
        return integer(op, name, value[0], least), integer(op, name, value[1], least)
    n = integer(op, name, value, least)
    return n, n


def axis(op: str, value: Any, ndim: int) -> int:
    """An axis, counted from the end if negative, as a number that is not."""
    n = integer(op, "axis", value, -(2**31))
    if not -ndim <= n < ndim:
        raise np.exceptions.AxisError(f"{op}: axis {n} is out of bounds for an array of {ndim} axes")
    return n % ndim


def packed(op: str, name: str, value: Any) -> QuantArray:
    """A QuantArray, or an error that names the way to make one."""
    if isinstance(value, QuantArray):
        return value
    kind = f"{value.dtype} array {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(
        f"{op}: {name} must be a QuantArray, got {kind}; make one with quantize(x, quantizer) or encode(x, values)"
    )


def real_array(op: str, name: str, value: Any) -> Array:
    """An array of bools, integers or floats; objects, complex numbers and strings are refused."""
    if isinstance(value, QuantArray):
        raise TypeError(f"{op}: {name} is packed already; call .dequantize() first to quantise it anew")
    x = np.asarray(value)
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        raise TypeError(f"{op}: {name} must be an array of bool, integers or floats up to 64 bits, got {x.dtype}")
    if x.ndim == 0:
        raise ValueError(f"{op}: {name} must have at least one axis to pack, got a scalar")
    return x


def finite(op: str, name: str, x: Array) -> None:
    """No NaN and no infinity, or an error that says where the first is."""
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
        raise ValueError(f"{op}: {name} must be finite, got {x[where]} at {where}")


def choice(op: str, name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise ValueError(f"{op}: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)
