"""Any function of the levels, summed or compared over axes in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...core.code_values import level_values
from ...core.dtypes import Array
from ...core.hints import Axes
from ..counting.histograms import Field, Job, field, fold, pair
from ..counting.reducers import Extreme, IntegerSum, RealSum
from .reductions import axes, restored

Reduction = Literal["sum", "mean", "min", "max"]
_MOST_BITS = 8  # of all arrays together: 256 pairs of codes are counted


@overload
def map_reduce(
    f: Callable[..., tuple[Any, ...]],
    *arrays: QuantArray,
    axis: Axes | None = None,
    reduce: Reduction = "sum",
    keepdims: bool = False,
) -> tuple[Array, ...]: ...
@overload
def map_reduce(
    f: Callable[..., Array],
    *arrays: QuantArray,
    axis: Axes | None = None,
    reduce: Reduction = "sum",
    keepdims: bool = False,
) -> Array: ...
def map_reduce(
    f: Callable[..., Any],
    *arrays: QuantArray,
    axis: Axes | None = None,
    reduce: Reduction = "sum",
    keepdims: bool = False,
) -> Array | tuple[Array, ...]:
    """out = the sum over `axis` of f(x), or of f(x, y) of two arrays that broadcast; no f(x) of an element is computed.

    f gets the levels, int64 or float64 arrays, not the elements: it is called once, whatever the size of the arrays,
    and the codes, or pairs of codes, are counted. It must be a function of each element by itself, written for NumPy
    arrays. It may return a tuple: all its functions share the one pass over the words.

    reduce: "sum", "mean", "min" or "max". Integer and bool results of f give int64, exact; floats give float64, not
    rounded, because they are made for computing on. Means are float64. Two arrays must be packed on the same axis and
    have at most 8 bits together.

    Mean and variance of each channel of a batch, in one call:

    >>> import numpy as np, quantarray as qa
    >>> q = qa.encode([[0, 1], [2, 3], [0, 1], [2, 3]], values=range(4))
    >>> mean, square = qa.map_reduce(lambda x: (x, x * x), q, axis=0, reduce="mean")
    >>> mean, square - mean**2
    (array([1., 2.]), array([1., 1.]))
    """
    op = "map_reduce"
    if not 1 <= len(arrays) <= 2:
        raise TypeError(f"{op}: takes a function and one array or two, got {len(arrays)}")
    checks.function(op, "f", f)
    packed = [checks.packed(op, name, q) for name, q in zip("xy", arrays, strict=False)]
    checks.choice(op, "reduce", reduce, ("sum", "mean", "min", "max"))
    keep = checks.flag(op, "keepdims", keepdims)
    bits = sum(q.bits for q in packed)
    if bits > _MOST_BITS:
        raise ValueError(f"{op}: two arrays must have at most {_MOST_BITS} bits together, got {bits}")
    joined = field(packed[0]) if len(packed) == 1 else pair(op, packed[0], packed[1], np.concatenate, bits)
    over = axes(op, len(joined.shape), axis)
    n = math.prod(joined.shape[d] for d in over)
    if not n and reduce != "sum":
        raise ValueError(f"{op}: no elements have no {reduce}: {joined.shape} over axis {axis}")
    inputs, group = _levels(joined, packed)
    mapped = f(*inputs)
    jobs = [
        _job(op, _table(op, t, inputs, packed), reduce, n) for t in (mapped if isinstance(mapped, tuple) else (mapped,))
    ]
    out = tuple(restored(result, over, keep) for result in fold(joined, over, group, jobs))
    return out if isinstance(mapped, tuple) else out[0]


def _levels(f: Field, arrays: list[QuantArray]) -> tuple[list[Array], int | None]:
    """Return levels [codes of x, codes of y, *axes], each with 1 for the other's codes, in groups that suit both."""
    varying = [q.group for q in arrays if q.group is not None]
    group = math.gcd(*varying) if varying else None
    inputs = []
    for i, q in enumerate(arrays):
        values = level_values(q.dtype, q.constants)
        dims = values.shape[1:] or (1,) * q.ndim
        values = values.reshape(len(values), *(1,) * (len(f.shape) - q.ndim), *dims)
        if values.shape[1 + f.axis] > 1 and q.group is not None and group is not None:
            starts = np.arange(0, f.shape[f.axis], group)
            values = values.take(starts // q.group, axis=1 + f.axis)
        values = values.astype(np.int64 if values.dtype == np.int64 else np.float64)
        lead = [1] * len(arrays)
        lead[i] = len(values)
        inputs.append(values.reshape(*lead, *values.shape[1:]))
    return inputs, group


def _table(op: str, result: Any, inputs: list[Array], arrays: list[QuantArray]) -> Array:
    """Tabulate a function's values of the joined codes, int64 or float64."""
    value = checks.numbers(op, "the result of f", result)
    shape = np.broadcast_shapes(*(a.shape for a in inputs))
    try:
        value = np.broadcast_to(value, shape).astype(np.float64 if value.dtype.kind == "f" else np.int64)
    except ValueError:
        raise ValueError(
            f"{op}: f must return arrays of the shape of its arguments, {shape}, got {value.shape}"
        ) from None
    for i, q in enumerate(arrays):  # codes that do not occur
        last = value.take([-1], axis=i)
        value = np.concatenate([value, np.repeat(last, 2**q.bits - value.shape[i], axis=i)], axis=i)
    # the first array's planes are the low bits of a joined code
    value = np.swapaxes(value, 0, len(arrays) - 1)
    return value.reshape(2 ** sum(q.bits for q in arrays), *value.shape[len(arrays) :])


def _job(op: str, table: Array, reduce: str, n: int) -> Job:
    real = table.dtype == np.float64
    if reduce in ("min", "max"):
        return Extreme(table, table.dtype, reduce == "max")
    over = n if reduce == "mean" else None
    if real:
        return RealSum(table, np.float64, over)
    most = max(abs(int(table.max())), abs(int(table.min()))) if table.size else 0
    if most * n >= 2**63:
        raise OverflowError(f"{op}: sums of {n} values of f up to {most} may not fit int64; let f return floats")
    return IntegerSum(table, np.int64 if over is None else np.float64, over)
