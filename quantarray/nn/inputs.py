"""Checks of a network's inputs, whose errors name the input, what it must be, what came, and the likely fix."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.bfloat16 import is_bfloat16, of_cpu
from ..arrays.exchange import as_cupy
from ..backends.registry import device_of
from ..core.dtypes import Array
from ..core.errors import DeviceError
from .named import say_first

if TYPE_CHECKING:
    from .graph import Value


def checked(op: str, value: Value, x: Any, note: str = "", device: str = "cpu") -> Array:
    """Return x as an array of the value's dtype and shape on a device, or raise an error with the likely fix.

    note: why the network takes one length of batch alone. A GPU is not asked for elements, such as those out of bounds.
    """
    if isinstance(x, QuantArray):
        raise TypeError(
            f"{op}: the input {value.name} must be a dense {value.text}, got a QuantArray; .dequantize() it"
        )
    dtype = np.dtype(value.dtype)
    if device != "cpu":
        a = _there(op, value, x, device)
    elif type(x) is np.ndarray and x.dtype == dtype:  # first, as in most calls: looking for bfloat16 takes 2 us
        a = x
    elif hasattr(type(x), "__dlpack__") and not isinstance(x, np.ndarray):
        a = checks.shared(op, value.name, x)
    else:
        a = of_cpu(x) if is_bfloat16(x) else np.asarray(x)
    if a.dtype.kind not in "biufV":
        raise TypeError(f"{op}: the input {value.name} must be {value.text}, got {checks.kind(x)}")
    shape, wanted = a.shape, value.shape
    fits = len(shape) == len(wanted) and (shape[1:] == wanted[1:] if value.batched else shape == wanted)
    if not fits:
        fix = likely_fix(value.name, shape, wanted, value.batched)
        if not value.batched and len(shape) == len(wanted) and shape[1:] == wanted[1:]:
            fix = f"; it takes batches of {wanted[0]} alone{f', as {note}' if note else ''}"
        raise ValueError(f"{op}: the input {value.name} must be {value.text}, got {shape}{fix}")
    if value.batched and not shape[0]:
        raise ValueError(f"{op}: the input {value.name} has an empty batch, {shape}; pass at least one")
    if a.dtype != dtype:
        if a.dtype == np.float16 and dtype == np.float32:
            a = a.astype(dtype)
        elif a.dtype.kind == "V" and a.dtype.name.lstrip("u") in ("int4", "int2"):
            a = a.astype(dtype)  # of ml_dtypes
        else:
            raise TypeError(
                f"{op}: the input {value.name} must be {value.text}, got {a.dtype}{_cast(dtype, a, value.name)}"
            )
    bounded = value.low is not None and value.high is not None and a.size and device == "cpu"
    if bounded and (a.min() < value.low or a.max() > value.high):
        raise ValueError(
            f"{op}: the input {value.name} must be from {value.low} to {value.high}, got {a.min()} to {a.max()}"
        )
    return a


def _there(op: str, value: Value, x: Any, device: str) -> Array:
    """Return an array of CuPy's, or a view of another library's, on the GPU of the network."""
    if not hasattr(x, "__cuda_array_interface__") or device_of(x) != device:
        where = device_of(x) if hasattr(x, "__cuda_array_interface__") else "the CPU"
        raise DeviceError(
            f"{op}: the input {value.name} must be on {device}, as the network is, got one on {where}; move it with "
            f"cupy.asarray(x), or pass arrays of the CPU to qa.on({device!r}, network, x)"
        )
    array: Array = x if hasattr(x, "get") else as_cupy(op, value.name, x)
    return array


def name_nan(op: str, error: ValueError, inputs: Iterable[tuple[Value, Array]]) -> None:
    """Put the first input that has a NaN, and where, before the error of a quantiser that has met one.

    Quantisers look for NaN, as one may arise inside of a network too; no call reads its inputs for that.
    """
    if "NaN" in str(error):
        for value, a in inputs:
            if a.dtype.kind == "f" and np.isnan(a).any():
                say_first(error, f"{op}: the input {value.name} has a NaN at {checks.first(np.isnan(a))}: ")
                return


def likely_fix(name: str, shape: tuple[int, ...], wanted: tuple[int, ...], batched: bool = True) -> str:
    """Return the likely fix of a wrong shape as the end of an error, "" if there is none.

    >>> likely_fix("x", (2, 28, 28, 1), (1, 1, 28, 28))
    '; it is NHWC, the network takes NCHW: x.transpose(0, 3, 1, 2)'
    """
    x = name if name.isidentifier() else "x"
    if batched and shape == wanted[1:]:
        return f"; {x}[None] adds the batch axis"
    if len(shape) == len(wanted) == 4 and shape[1:] == (*wanted[2:], wanted[1]):
        return f"; it is NHWC, the network takes NCHW: {x}.transpose(0, 3, 1, 2)"
    if len(shape) == len(wanted) == 4 and shape[1:] == (wanted[3], *wanted[1:3]):
        return f"; it is NCHW, the network takes NHWC: {x}.transpose(0, 2, 3, 1)"
    if batched and shape and math.prod(shape[1:]) == math.prod(wanted[1:]):
        return f"; {x}.reshape(-1, {', '.join(map(str, wanted[1:]))})"
    return ""


def _cast(dtype: np.dtype[Any], a: Array, name: str) -> str:
    """Return the likely fix of a wrong dtype as the end of an error: one that keeps the values, or their positions."""
    x = name if name.isidentifier() else "x"
    if dtype.kind == "f" and a.dtype == np.uint8:
        return f"; {x}.astype(np.{dtype}) / 255, if the network was trained on pixels from 0 to 1"
    if a.dtype.kind not in "biuf" or not a.size:
        return ""
    if dtype.kind not in "iu" or a.dtype == np.bool_:
        return f"; {x}.astype(np.{dtype})"
    low, high, ends = a.min(), a.max(), np.iinfo(dtype)
    if not (ends.min <= low and high <= ends.max):
        return f" of values from {low:.5g} to {high:.5g}, which are no {dtype}; pass pixels as they are in the image"
    if a.dtype.kind == "f" and dtype == np.uint8 and high <= 1:
        return f" of values from {low:.5g} to {high:.5g}; ({x} * 255).round().astype(np.uint8) are pixels"
    return f"; {x}{'.round()' * (a.dtype.kind == 'f')}.astype(np.{dtype})"
