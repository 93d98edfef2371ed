"""The array API's extension `linalg`, of it what low-bit arrays have: products, diagonals and norms.

Factorisations and inverses have no low-bit results: NumPy's take `.dequantize()`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

import numpy as np

from .arrays import checks
from .arrays.array import QuantArray
from .core.dtypes import Array
from .core.hints import Axes
from .core.refusals import reason
from .ops.counting.histograms import field, fold
from .ops.counting.reducers import RootOfSum
from .ops.linear_algebra.contractions import outer, tensordot, vecdot
from .ops.manipulation.along import take_along_axis
from .ops.manipulation.views import matrix_transpose
from .ops.products.matrix_product import matmul
from .ops.statistical import map_reduce, reductions
from .ops.words.level_tables import level_table, mapped

__all__ = [
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers would take every name for an attribute

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason(f'linalg.{name}')}")


def diagonal(q: QuantArray, *, offset: int = 0) -> QuantArray:
    """out[.., i] = q[.., i, i + offset] of matrices in the last two axes; offset < 0: q[.., i - offset, i].

    Raises ValueError where constants vary along the last axis.

    >>> import quantarray as qa
    >>> qa.linalg.diagonal(qa.encode([[1, 2], [3, 0]], values=range(4))).dequantize()
    array([1, 0], dtype=int32)
    """
    op = "diagonal"
    q = _matrices(op, q)
    k = checks.integer(op, "offset", offset, -(2**62), 2**62)
    rows, columns = q.shape[-2:]
    first, count = max(0, -k), max(0, min(rows + min(0, k), columns - max(0, k)))
    part = q[..., first : first + count, :] if count < rows else q
    places = (np.arange(count) + max(0, k)).reshape(*(1,) * (q.ndim - 2), count, 1)
    result: QuantArray = take_along_axis(part, places, -1)[..., 0]
    return result


def trace(q: QuantArray, *, offset: int = 0) -> Array:
    """out = sum of the diagonal of the last two axes; types as of `sum`.

    >>> import quantarray as qa
    >>> qa.linalg.trace(qa.encode([[1, 2], [3, 3]], values=range(4)))
    np.int32(4)
    """
    return reductions.sum(diagonal(_matrices("trace", q), offset=offset), -1)


@overload
def vector_norm(
    q: QuantArray, *, axis: None = None, keepdims: Literal[False] = False, ord: float = 2
) -> np.float32: ...
@overload
def vector_norm(q: QuantArray, *, axis: None = None, keepdims: Literal[True], ord: float = 2) -> Array: ...
@overload
def vector_norm(q: QuantArray, *, axis: Axes, keepdims: bool = False, ord: float = 2) -> Array: ...
def vector_norm(
    q: QuantArray, *, axis: Axes | None = None, keepdims: bool = False, ord: float = 2
) -> Array | np.float32:
    """out = (sum |value|^ord)^(1/ord) over axes, float32; ord inf and -inf: the largest and smallest |value|, 0: how
    many are not 0.

    Levels are powers in float64, summed there from counts, and the root is rounded once.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.encode([[3, 4], [0, 2]], values=range(5))
    >>> qa.linalg.vector_norm(q, axis=1), qa.linalg.vector_norm(q, ord=1), qa.linalg.vector_norm(q, ord=np.inf)
    (array([5., 2.], dtype=float32), np.float32(9.0), np.float32(4.0))
    """
    op = "vector_norm"
    q = checks.packed(op, "q", q)
    if not isinstance(ord, (int, float, np.integer, np.floating)) or isinstance(ord, bool) or math.isnan(ord):
        raise TypeError(f"{op}: ord must be a number, got {ord!r}")
    over = reductions.axes(op, q.ndim, axis)
    if math.isinf(ord):
        largest = map_reduce.map_reduce(_magnitude, q, axis=over, reduce="max" if ord > 0 else "min", keepdims=keepdims)
        return largest.astype(np.float32)
    if ord == 0:
        return reductions.count_nonzero(q, over, keepdims=keepdims).astype(np.float32)
    keep = checks.flag(op, "keepdims", keepdims)

    def power(values: Array) -> Array:
        with np.errstate(divide="ignore"):
            return _magnitude(values) ** float(ord)

    job = RootOfSum(mapped(power, level_table(q)), float(ord))
    norm: Array = reductions.restored(fold(field(q), over, q.group, [job])[0], over, keep)
    return norm


def matrix_norm(q: QuantArray, *, keepdims: bool = False, ord: float | Literal["fro"] = "fro") -> Array:
    """Compute the norm of matrices in the last two axes, float32: "fro", the root of all squares; ord 1 and -1 the
    largest and smallest sum of a column's magnitudes, inf and -inf of a row's.

    The spectral norms (2, -2, "nuc") need a decomposition: NumPy's takes .dequantize().

    >>> import quantarray as qa
    >>> q = qa.encode([[3, 4], [0, 2]], values=range(5))
    >>> qa.linalg.matrix_norm(q, ord=1), qa.linalg.matrix_norm(q[:1])
    (np.float32(6.0), np.float32(5.0))
    """
    op = "matrix_norm"
    q = _matrices(op, q)
    if ord == "fro":
        return vector_norm(q, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(
            f"{op}: ord must be 'fro', 1, -1, inf or -inf, got {ord!r}; np.linalg.matrix_norm takes .dequantize()"
        )
    if 0 in q.shape[-2:]:
        raise ValueError(f"{op}: matrices {q.shape[-2:]} without elements have no largest or smallest sum")
    sums = vector_norm(q, axis=-2 if abs(ord) == 1 else -1, keepdims=True, ord=1)
    norms: Array = (np.max if ord > 0 else np.min)(sums, axis=(-2, -1), keepdims=keepdims)
    return norms


def _matrices(op: str, q: Any) -> QuantArray:
    q = checks.packed(op, "q", q)
    if q.ndim < 2:
        raise ValueError(f"{op}: needs at least two axes, got the shape {q.shape}")
    result: QuantArray = q
    return result


def _magnitude(values: Array) -> Array:
    return np.abs(values.astype(np.float64))
