"""Dense results of elementwise operations: what no packed array holds, or would hold in more bytes than float32."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.blocks import SIZE, blocks
from ...backends.registry import common_device, empty, namespace
from ...core.dtypes import Array
from ...core.errors import DeviceError
from ..words.levels import is_exact

_TYPES = (
    np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.float16, np.float32, np.float64
)  # fmt: skip
_LAUNCH = 1 << 24  # elements of a block on a GPU: launches cost more than caches give
_EXACT: dict[np.ufunc, Any] = {np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul}


def dense_result(op: str, f: np.ufunc, a: Any, b: Any, out_dtype: Any) -> Array:
    """f(a, b) of values, a block at a time: exact in int64 where both are integers, else in float64, rounded once.

    Raises TypeError for floats in a type of integers, OverflowError for integers that do not fit.
    """
    dtype = checks.dtype(op, "out_dtype", out_dtype, _TYPES)
    operands = [x if isinstance(x, QuantArray) else checks.anywhere(op, "the operand", x) for x in (a, b)]
    packed = [x for x in operands if isinstance(x, QuantArray)]
    if not packed:
        checks.packed(op, "one operand", b)
    device = common_device(op, a=_placed(operands[0]), b=_placed(operands[1]))
    try:
        shape = np.broadcast_shapes(*(x.shape for x in operands))
    except ValueError:
        raise ValueError(
            f"{op}: a and b must have shapes that broadcast to one, got {operands[0].shape} and {operands[1].shape}"
        ) from None
    exact = all(is_exact(x) if isinstance(x, QuantArray) else x.dtype.kind in "biu" for x in operands)
    if dtype.kind in "iu" and not exact:
        raise TypeError(f"{op}: out_dtype must be a type of floats for results that are floats, got {dtype}")
    out = empty(device, shape, dtype)
    size = SIZE if device == "cpu" else _LAUNCH
    for block in blocks(shape, size, [x for x in packed if x.shape == shape]):
        with np.errstate(all="ignore"):
            parts = [_values(device, x, block, shape) for x in operands]
            values = _integers(op, f, *parts) if exact else f(*(part.astype(np.float64) for part in parts))
            out[block] = _checked(op, values, dtype)
    return out


def _placed(x: Any) -> Any:
    """Return an operand that has a device of its own; NumPy's arrays and numbers go to the other's."""
    return None if isinstance(x, np.ndarray) else x


def _values(device: str, x: Any, block: tuple[slice, ...], shape: tuple[int, ...]) -> Array:
    """Return the values of the part of an operand that broadcasts to a block, on a device."""
    parts = block[len(shape) - x.ndim :]
    cut = x[tuple(slice(None) if n == 1 else part for n, part in zip(x.shape, parts, strict=True))]
    values: Array = cut.dequantize() if isinstance(cut, QuantArray) else namespace(device).asarray(cut)
    return values


def _integers(op: str, f: np.ufunc, a: Array, b: Array) -> Array:
    """Return f(a, b) of integers, in int64, or where that may not hold a result or an operand as Python's integers."""
    corners = [[int(x.min()), int(x.max())] for x in (a, b) if x.size]
    if len(corners) == 2 and f in _EXACT:  # each of these functions is largest and smallest at a corner
        ends = [*corners[0], *corners[1], *(_EXACT[f](x, y) for x in corners[0] for y in corners[1])]
        if min(ends) < -(2**63) or max(ends) >= 2**63:
            if not isinstance(a, np.ndarray):
                raise DeviceError(f"{op}: integers beyond int64 are computed on the CPU alone; .to_device('cpu')")
            exact: Array = f(a.astype(object), b.astype(object))
            return exact
    whole: Array = f(a.astype(np.int64), b.astype(np.int64))
    return whole


def _checked(op: str, values: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu" and values.size:
        ends = np.iinfo(dtype)
        low, high = int(values.min()), int(values.max())
        if low < ends.min or high > ends.max:
            raise OverflowError(f"{op}: results from {low} to {high} do not fit out_dtype {dtype}; pass a wider one")
    return values
