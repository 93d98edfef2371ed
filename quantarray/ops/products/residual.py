"""A shortcut added to a result, before thresholds if there are any."""

from __future__ import annotations

import math
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import common_device, contiguous, device_of, empty, kernel, moveaxis, zeros
from ...core.code_values import level_values
from ...core.dtypes import Array
from ...core.recordings import is_set
from ...kernels.operands import Shortcut
from ..words.conversion import dequantize
from . import calls, epilogue
from .lanes import GroupLanes

_SHORTCUTS = ("int8", "uint8", "int16", "int32", "float32")
_VALUES = ("int8", "uint8", "int16", "int32", "int64", "float32")


@overload
def add_residual(
    x: QuantArray | Array,
    residual: QuantArray | Array,
    *,
    requantize: None = None,
    return_sum: Literal[False] = False,
    axis: SupportsIndex = -1,
) -> Array: ...
@overload
def add_residual(
    x: QuantArray | Array,
    residual: QuantArray | Array,
    *,
    requantize: Thresholds,
    return_sum: Literal[False] = False,
    axis: SupportsIndex = -1,
) -> QuantArray: ...
@overload
def add_residual(
    x: QuantArray | Array,
    residual: QuantArray | Array,
    *,
    requantize: Thresholds,
    return_sum: Literal[True],
    axis: SupportsIndex = -1,
) -> tuple[Array, QuantArray]: ...
def add_residual(
    x: Any,
    residual: Any,
    *,
    requantize: Thresholds | None = None,
    return_sum: bool = False,
    axis: SupportsIndex = -1,
) -> Any:
    """x + residual, element by element, or the codes of it: `T(x + residual)`; with `return_sum` both.

    x: a dense result of integers or float32, or a packed array. residual: of x's shape, packed, int8, uint8, int16,
    int32 or float32. axis: that of the channels, along which packed operands are packed. Sums of integers are int32
    (int64 of int64 x), exact; OverflowError where int32 does not hold one. With float32 on a side, or a packed array of
    real levels, a sum is rounded once to float32. Thresholds are compared with that sum; NaN is a ValueError, on a CPU.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.encode([[1, -1, 1]], values=(-1, 1))
    >>> qa.add_residual(np.int32([[5, -5, -1]]), q)
    array([[ 6, -6,  0]], dtype=int32)
    >>> total, bits = qa.add_residual(np.int32([[5, -5, -1]]), q, requantize=qa.Thresholds([0]), return_sum=True)
    >>> bits.dequantize()
    array([[ 1, -1, -1]], dtype=int32)
    """
    op = "add_residual"
    a, b = (
        v if isinstance(v, QuantArray) else checks.anywhere(op, n, v) for n, v in (("x", x), ("residual", residual))
    )
    at = checks.axis(op, axis, a.ndim)
    check(op, b, a.shape, at, requantize, return_sum)
    if isinstance(a, QuantArray):
        a = dequantize(a)
    elif a.dtype.name not in _VALUES:
        raise TypeError(f"{op}: x must be packed or one of {', '.join(_VALUES)}, got {checks.kind(a)}")
    a = a.astype(np.int32) if a.dtype.itemsize < 4 else a
    common_device(op, x=a, residual=b)
    return added(op, moveaxis(a, at, -1), b, at, requantize, return_sum)


def check(
    op: str, residual: Any, shape: tuple[int, ...], at: int, requantize: Any, return_sum: Any, name: str = "residual"
) -> None:
    """Raise an error for a shortcut that does not fit a result whose channels are axis `at`."""
    epilogue.check(op, requantize, shape[at])
    if checks.flag(op, "return_sum", return_sum) and requantize is None:
        raise TypeError(f"{op}: return_sum=True needs requantize=; without it the sum is the result")
    packed = isinstance(residual, QuantArray)
    if not packed and getattr(residual, "dtype", np.dtype(object)).name not in _SHORTCUTS:
        raise TypeError(f"{op}: {name} must be packed or one of {', '.join(_SHORTCUTS)}, got {checks.kind(residual)}")
    if residual.shape != shape:
        raise ValueError(f"{op}: {name} must have the shape of the result, {shape}, got {residual.shape}")
    if packed and residual.axis != at:
        raise ValueError(f"{op}: {name} must be packed on its channels, axis {at}, got axis {residual.axis}")


def added(op: str, values: Any, residual: Any, at: int, requantize: Thresholds | None, return_sum: bool,
          out: Any = None, reach: int | None = None) -> Any:  # fmt: skip
    """Add a checked shortcut, whose channels are axis `at`, to values with channels last; results in its order of axes.

    values: an array, or a `Product`, which is computed in the same pass where a kernel can. `out` [.. channels], of the
    dtype of the sums, gets them; it may be the memory of `values`. reach: a bound of integer values, if one is known:
    if it and the shortcut's dtype show that sums fit int32, they are not checked, which would wait for a GPU.
    """
    shape, device = values.shape, device_of(values)
    numbers, levels = _operand(residual, at, shape)
    dtype = sum_dtype(values.dtype, residual)
    real = dtype == np.float32
    exact = np.dtype(np.float64 if real else np.int64)
    bounds = np.array([-np.inf, np.inf]) if real else np.array([np.iinfo(dtype).min, np.iinfo(dtype).max])
    shortcut = Shortcut(numbers, levels.astype(exact), bounds)
    sums = empty(device, (0, 0), dtype)
    if requantize is None or return_sum:
        sums = empty(device, shape, dtype) if out is None else out
        sums = sums.reshape(-1, shape[-1])
    packed = calls.packed(device, requantize, shape)
    words = empty(device, (0, 0, 0)) if packed is None else packed.empty("add_shortcut").reshape(packed.rows)
    last = epilogue.finish(requantize, shape[-1], real, lanes=GroupLanes(shape[-1]))
    checked = dtype == np.int32 and not _fits(reach, residual)
    over = zeros(device, (1,), np.int64) if checked or device == "cpu" else empty(device, (0,), np.int64)
    if math.prod(shape) and isinstance(values, calls.Product):
        kernel(device, "conv_added")(values.left, values.call.fixed, shortcut, last, sums, over, words)
    elif math.prod(shape):
        rows = contiguous(values).reshape(-1, shape[-1])
        kernel(device, "add_shortcut")(rows, shortcut, last, sums, over, words)
    if checked and is_set(over):
        if isinstance(values, calls.Product):  # which is not sure, see `conv_added`
            return added(op, values(), residual, at, requantize, return_sum, out)
        fix = "; pass out_dtype=np.int64" if op.startswith("conv") else "; convert x with .astype(np.int64)"
        raise OverflowError(f"{op}: a sum with residual does not fit {dtype}{fix}")
    if real and packed is not None and device == "cpu" and is_set(over):  # a GPU is not waited for
        checks.no_nan(op, "the sum with residual", added(op, values, residual, at, None, False))
    total: Any = None
    if sums.size or requantize is None or return_sum:
        total = moveaxis(sums.reshape(shape), -1, at)
    if packed is None:
        return total
    codes = packed(words.reshape(packed.words))
    if at != len(shape) - 1:
        codes = codes.transpose([*range(at), len(shape) - 1, *range(at, len(shape) - 1)])
    return (total, codes) if return_sum else codes


def of_32_bits(residual: Any) -> bool:
    """True where each value of a shortcut is an int32 or a float32."""
    return not isinstance(residual, QuantArray) or not residual.dtype.is_integer or residual.dtype.max_abs < 2**31


def _fits(reach: int | None, residual: Any) -> bool:
    """True where integers up to `reach` and a shortcut of integers have int32 sums by their dtypes alone."""
    if isinstance(residual, QuantArray):
        largest = residual.dtype.max_abs
    else:
        largest = -int(np.iinfo(residual.dtype).min) or int(np.iinfo(residual.dtype).max)
    return reach is not None and reach + largest < 2**31


def sum_dtype(dtype: np.dtype[Any], residual: Any) -> np.dtype[Any]:
    """Return the dtype of sums of values and a shortcut: float32 where one of them is real, or that of the values."""
    if isinstance(residual, QuantArray):
        real = not residual.dtype.is_integer or bool(residual.constants.shapes)
    else:
        real = residual.dtype == np.float32
    return np.dtype(np.float32) if real else dtype


def _operand(residual: Any, at: int, shape: tuple[int, ...]) -> tuple[Any, Array]:
    """Return a shortcut as the kernel takes it, [rows channels] or [planes rows words], and the values of its codes.

    Of values that are not codes, one 0 of the dtype that sums are compared in.
    """
    if isinstance(residual, QuantArray):
        last = at == residual.ndim - 1
        q = residual if last else residual.transpose([*(d for d in range(residual.ndim) if d != at), at])
        levels = level_values(q.dtype, q.constants)
        if levels.size == len(levels):
            whole = q.dtype.is_integer and not q.constants.shapes
            kind = np.int64 if whole else np.float64
            words = contiguous(q.words)
            by_code = levels.reshape(-1) if whole else levels.reshape(-1).astype(np.float32)
            return words.reshape(len(words), math.prod(shape[:-1]), words.shape[-1]), by_code.astype(kind)
        values = dequantize(q)  # constants vary from place to place
    else:
        values = moveaxis(residual, at, -1)
    kind = np.float64 if values.dtype == np.float32 else np.int64
    return contiguous(values).reshape(-1, shape[-1]), np.zeros(1, kind)
