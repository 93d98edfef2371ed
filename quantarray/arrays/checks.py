"""Checks of arguments of public functions, with messages that name the op, the need, and what came."""

from __future__ import annotations

import math
import operator
import os
import sys
from functools import cache
from typing import Any

import numpy as np

from ..backends.registry import common_device, to_host
from ..core.code_values import all_finite
from ..core.dtypes import Array
from ..core.errors import DeviceError
from ..core.format import MAX_AXES, WORD, word_count
from . import likely_fix
from .array import QuantArray
from .bfloat16 import is_bfloat16, of_cpu
from .exchange import as_cupy, is_on_gpu

_HOST, _DEVICES = (
    (1, 3),
    {2: "a CUDA device", 4: "an OpenCL device", 7: "a Vulkan device", 8: "a Metal device", 10: "a ROCm device"},
)
FARTHEST = 2**31 - 1  # strides, dilations and paddings beyond any image would leave int64 when multiplied


def integer(op: str, name: str, value: Any, least: int, most: int | None = None) -> int:
    """Check for an integer of at least `least` and at most `most`."""
    try:
        if isinstance(value, bool):
            raise TypeError
        n = operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {name} must be an integer, got {value!r}") from None
    if n < least:
        raise ValueError(f"{op}: {name} must be at least {least}, got {n}")
    if most is not None and n > most:
        raise ValueError(f"{op}: {name} must be at most {most}, got {n}")
    return n


def lengths(op: str, shape: Any) -> tuple[int, ...]:
    """Check a shape: an integer or several."""
    sizes = tuple(integer(op, "a length of shape", n, 0) for n in (shape if np.iterable(shape) else (shape,)))
    dimensions(op, len(sizes))
    return sizes


def dimensions(op: str, ndim: int) -> None:
    """Refuse more axes than NumPy's arrays have room for beside the planes."""
    if ndim > MAX_AXES:
        raise ValueError(f"{op}: a packed array has at most {MAX_AXES} axes, got {ndim}")


def pair(op: str, name: str, value: Any, least: int) -> tuple[int, int]:
    """Check for an integer for both spatial axes, or two."""
    both = value if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2:
        raise ValueError(f"{op}: {name} must be an integer or two (height, width), got {value!r}")
    return integer(op, name, both[0], least, FARTHEST), integer(op, name, both[1], least, FARTHEST)


def number(op: str, name: str, value: Any) -> float:
    """Check for a finite real number; a Python int where it is an integer."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{op}: {name} must be a number, got {value!r}")
    if isinstance(value, (int, np.integer)):
        return int(value)
    if not math.isfinite(value):  # NumPy's takes 1 us
        raise ValueError(f"{op}: {name} must be finite, got {value!r}")
    return int(value) if float(value).is_integer() else float(value)


def axis(op: str, value: Any, ndim: int, name: str = "axis") -> int:
    """Check an axis, counted from the end if negative; return it as a number that is not."""
    n = integer(op, name, value, -(2**63))
    if not -ndim <= n < ndim:
        raise np.exceptions.AxisError(f"{op}: {name} {n} is out of bounds for an array of {ndim} axes")
    return n % ndim


def axes(op: str, value: Any, ndim: int) -> list[int]:
    """Check one axis or several, all different."""
    dims = [axis(op, d, ndim) for d in (value if np.iterable(value) else (value,))]
    if len(set(dims)) < len(dims):
        raise ValueError(f"{op}: an axis is named twice in {value}")
    return dims


def indices_within(op: str, a: Array, length: int, d: int) -> None:
    """Raise an error that names the first index that is out of bounds of an axis. Nothing as large as `a` is made."""
    if a.size and (a.min() < -length or a.max() >= length):
        wrong = (a < -length) | (a >= length)
        raise IndexError(f"{op}: {a[wrong][0]} is out of bounds for axis {d} of length {length}")


def indices(op: str, a: Array, length: int, d: int) -> Array:
    """Check indices of an axis, and return them as int64, not negative; the error names the first out of bounds."""
    indices_within(op, a, length, d)
    whole = a.astype(np.int64)
    return np.add(whole, length, out=whole, where=whole < 0)


def packed(op: str, name: str, value: Any, hint: str = "") -> QuantArray:
    """Check for a QuantArray; the error names the function that makes one, and ends with a hint."""
    if isinstance(value, QuantArray):
        return value
    how = "encode(x, values=uint1)" if is_bool(value) else "quantize(x, quantizer) or encode(x, values)"
    raise TypeError(f"{op}: {name} must be a QuantArray, got {kind(value)}; make one with {how}{hint}")


def is_bool(value: Any) -> bool:
    """Return True for an array of bools of any library."""
    if type(value) is np.ndarray:  # without a name, which takes NumPy 5 us
        return bool(value.dtype.kind == "b")
    return str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def kind(value: Any) -> str:
    """Name an object, for a message, that should have been something else."""
    if isinstance(value, np.ndarray):
        masked = "masked " if is_masked(value) else ""
        return f"{masked}{value.dtype} array {value.shape}"
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def is_masked(value: Any) -> bool:
    """True for a masked array. `np.ma`, which NumPy imports when it is asked for, has been if there is one."""
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def numbers(op: str, name: str, value: Any) -> Array:
    """Check for an array of bools, integers or floats: no objects, complex numbers, strings or masked arrays.

    One on a GPU is copied to the host, where constants, indices and masks are looked at.
    """
    if isinstance(value, QuantArray):
        raise TypeError(f"{op}: {name} is packed already; .dequantize() gives its values, .codes() its codes")
    if is_masked(value):
        raise TypeError(f"{op}: {name} is a masked array, and its mask would be lost; call .filled(value) first")
    if is_on_gpu(value):
        x = to_host(as_cupy(op, name, value))
    elif isinstance(value, type) or (hasattr(type(value), "__dlpack__") and not isinstance(value, np.ndarray)):
        x = shared(op, name, value)
    else:
        try:
            x = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{op}: {name} must be an array, or lists of equal lengths: {error}") from None
    if is_bfloat16(x):
        return of_cpu(x)
    if x.dtype.kind not in "biuf" or x.dtype.itemsize > 8:
        fix = "; .astype(np.float32) converts it" if x.dtype.kind == "V" and x.dtype.names is None else ""
        raise TypeError(f"{op}: {name} must be an array of bool, integers or floats up to 64 bits, got {x.dtype}{fix}")
    return x


def numbers_beside(op: str, name: str, value: Any, q: QuantArray) -> Array:
    """`numbers` of an operand of q: one on a GPU has to be on q's."""
    if is_on_gpu(value):
        common_device(op, **{name: as_cupy(op, name, value), "the packed array": q})
    return numbers(op, name, value)


def anywhere(op: str, name: str, value: Any) -> Any:
    """`numbers`; or CuPy's array as it is, and other libraries' on a GPU as CuPy's, without a copy."""
    return as_cupy(op, name, value) if is_on_gpu(value) else numbers(op, name, value)


def dense(op: str, name: str, value: Any) -> Any:
    """Check for an array of bools, integers or floats that has an axis to pack."""
    return _with_axis(op, name, anywhere(op, name, value))


def shared(op: str, name: str, value: Any) -> Array:
    """View another library's array on the CPU as NumPy's, through DLPack, which needs no import of that library."""
    if isinstance(value, type):
        raise TypeError(f"{op}: {name} must be an array, got {kind(value)}; pass an object of it")
    if getattr(value, "requires_grad", False) is True:
        raise TypeError(f"{op}: {name} requires a gradient, which is not followed through codes; pass {name}.detach()")
    try:
        kind_of_device = int(value.__dlpack_device__()[0])
    except (TypeError, ValueError, NotImplementedError) as error:  # PyTorch's meta device, which has no memory
        raise DeviceError(f"{op}: {name} is on a device that DLPack does not know: {error}") from None
    if kind_of_device not in _HOST:
        where = _DEVICES.get(kind_of_device, f"a device of DLPack's type {kind_of_device}")
        raise DeviceError(f"{op}: {name} is on {where}, this version reads arrays on the CPU; move it there first")
    try:
        return of_cpu(value) if is_bfloat16(value) else np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        dtype = getattr(value, "dtype", "of an unknown dtype")
        raise TypeError(
            f"{op}: {name} ({kind(value)} of {dtype}) gives no NumPy array: {error}; convert it to a dense float32 one"
        ) from None


def real_array(op: str, name: str, value: Any) -> Array:
    """`numbers` with an axis to pack."""
    x: Array = _with_axis(op, name, numbers(op, name, value))
    return x


def _with_axis(op: str, name: str, x: Any) -> Any:
    if x.ndim == 0:
        raise ValueError(f"{op}: {name} must have at least one axis to pack, got a scalar; wrap it in a list")
    return x


def first(wrong: Any) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def finite(op: str, name: str, x: Array) -> None:
    """Check for NaN and infinity; the error says where the first is."""
    if x.dtype.kind == "f" and not all_finite(x):
        where = first(~np.isfinite(x))
        raise ValueError(f"{op}: {name} must be finite, got {x[where]} at {where}")


def no_nan(op: str, name: str, x: Any) -> None:
    """Check for NaN; the error says where the first is. x may be on a GPU."""
    if x.dtype.kind == "f" and x.size and bool(np.isnan(x.max())):  # a fifth of the time of `isnan(x).any()`
        where = first(np.isnan(x))
        raise ValueError(f"{op}: {name} must hold no NaN, got one at {where}")


def float32(op: str, name: str, x: Array) -> Array:
    """Check for finite float32 numbers; the error says which number is none."""
    finite(op, name, x)
    with np.errstate(over="ignore"):
        y = x.astype(np.float32)
    if not all_finite(y):
        where = first(~np.isfinite(y))
        raise ValueError(f"{op}: {name} must fit in float32, got {x[where]} at {where}")
    return y


@cache
def memory() -> int:
    """Return the bytes of this machine's memory; 2**47, which no process can address, where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**47


def room(op: str, what: str, nbytes: int) -> None:
    """Raise MemoryError, before anything is allocated, for what is larger than this machine's memory."""
    if nbytes > memory():
        raise MemoryError(
            f"{op}: {what} needs at least {nbytes:,} bytes, this machine has {memory():,}; take it in parts"
        )


def array_room(op: str, q: QuantArray, shape: tuple[int, ...]) -> None:
    """`room` for an array of another shape with the bits and the packed axis of q."""
    at = q.axis
    outer = math.prod(shape[:at]) * math.prod(shape[at + 1 :])
    room(op, f"an array of shape {shape}", WORD.itemsize * q.bits * outer * word_count(shape[at]))


def dtype(op: str, name: str, value: Any, allowed: tuple[type, ...]) -> np.dtype[Any]:
    """Check for a NumPy dtype among a few."""
    try:
        chosen: np.dtype[Any] | None = None if value is None else np.dtype(value)
    except (TypeError, ValueError):
        chosen = None
    if chosen is None or chosen not in allowed:
        listed = ", ".join(t.__name__ for t in allowed)
        raise TypeError(f"{op}: {name} must be one of {listed}, got {value if chosen is None else chosen!s}")
    return chosen


def function(op: str, name: str, value: Any) -> Any:
    """Check for something that can be called."""
    if not callable(value):
        raise TypeError(f"{op}: {name} must be a function, got {kind(value)}")
    return value


def flag(op: str, name: str, value: Any) -> bool:
    """True or False, not what could pass for them."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{op}: {name} must be True or False, got {value!r}")
    return bool(value)


def choice(op: str, name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Check for one of a few words."""
    if not isinstance(value, str) or value not in allowed:
        listed = ", ".join(map(repr, allowed))
        raise ValueError(f"{op}: {name} must be one of {listed}, got {value!r}{likely_fix.word(value, allowed)}")
    return value
