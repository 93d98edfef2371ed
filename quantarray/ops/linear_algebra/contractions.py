"""Sums of products over shared axes, brought to matrix products or to counts of pairs of codes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Any, Literal, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import common_device
from ...core.dtypes import Array
from ...core.hints import Axes, Bools, Bytes
from ..counting.histograms import Field, fold, pair
from ..counting.reducers import IntegerSum
from ..products.matrix_product import linear, matmul
from ..products.operand import bits, from_dense, is_dense, operand, result_type
from ..statistical.reductions import axes as reduced_axes
from ..statistical.reductions import exact, restored
from ..words.level_tables import levels

# Bits of two operands with uneven levels. Over the packed axis, where `matmul` is the alternative: 64 pairs of codes,
# as many as two even operands of 8 bits have pairs of planes
_MOST_BITS = 8
_MOST_BITS_PACKED = 6


@overload
def hamming(
    a: QuantArray | Bools, b: QuantArray | Bools, axis: None, *, keepdims: Literal[False] = False
) -> np.int64: ...
@overload
def hamming(a: QuantArray | Bools, b: QuantArray | Bools, axis: None, *, keepdims: Literal[True]) -> Array: ...
@overload
def hamming(a: QuantArray | Bools, b: QuantArray | Bools, axis: Axes = -1, *, keepdims: bool = False) -> Array: ...
def hamming(
    a: QuantArray | Bools, b: QuantArray | Bools, axis: Axes | None = -1, *, keepdims: bool = False
) -> Array | np.int64:
    """out = number of places along `axis` (one, several, or all for None) where the codes of a and b differ, int64.

    a, b: QuantArrays of one dtype, packed on the same axis; they broadcast along the others. Constants do not count.
    Arrays of bools are packed on their last axis, as uint1.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    >>> qa.hamming(a[:, None], a[None])
    array([[0, 1],
           [1, 0]])
    """
    op = "hamming"
    a, b = bits(op, "a", a), bits(op, "b", b)
    if a.dtype != b.dtype:
        raise TypeError(f"{op}: a and b must have one dtype, or codes mean different things, got {a.dtype}, {b.dtype}")
    f = pair(op, a, b, _differing, 1)
    over = reduced_axes(op, len(f.shape), axis)
    table = np.arange(2).reshape(2, *(1,) * len(f.shape))
    distances = fold(f, over, None, [IntegerSum(table, np.int64)])[0]
    return restored(distances, over, checks.flag(op, "keepdims", keepdims))


def _differing(words: list[Array]) -> Array:
    differing: Array = reduce(or_, words[0] ^ words[1])[None]  # CuPy's bitwise_or has no reduce
    return differing


def vecdot(a: QuantArray, b: QuantArray, *, axis: int = -1) -> Array:
    """out = sum over `axis` of a * b; other axes broadcast.

    Integer levels without a scale give int32, or int64 where the bound asks for it, over any axis. Floats give
    float32, as `matmul` does, over the packed axis. Both must be packed on the same axis.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    >>> qa.vecdot(a, qa.encode([3, 2, 0], values=range(4)))
    array([1, 5], dtype=int32)
    """
    op = "vecdot"
    a, b = checks.packed(op, "a", a), checks.packed(op, "b", b)
    f = pair(op, a, b, np.concatenate, a.bits + b.bits)
    at = checks.axis(op, axis, min(a.ndim, b.ndim)) - min(a.ndim, b.ndim) + len(f.shape)
    if axis >= 0 and a.ndim != b.ndim:
        raise ValueError(f"{op}: axis {axis} is another one in a {a.shape} than in b {b.shape}; count it from the last")
    _check_lengths(op, a, b, at - len(f.shape))
    even = all(q.dtype.step is not None for q in (a, b))
    few = a.bits + b.bits <= (_MOST_BITS_PACKED if at == f.axis else _MOST_BITS)
    if exact(a) and exact(b) and (even or few):
        return _counted(op, f, a, b, at)
    if at != f.axis:
        raise ValueError(
            f"{op}: arrays with float constants, or with uneven levels and more than {_MOST_BITS} bits together, are "
            f"summed over their packed axis {f.axis} only, got axis {at}; pack them along it"
        )
    x, w = (_packed_last(q) for q in (a, b))
    with _as_product(op):
        return _flat(matmul(x[..., None, :], w[..., None, :].transpose(*range(w.ndim - 1), w.ndim, w.ndim - 1)))


def _check_lengths(op: str, a: QuantArray, b: QuantArray, axis: int) -> None:
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f"{op}: a {a.shape} and b {b.shape} must have the same length along axis {axis}")


def _packed_last(q: QuantArray) -> QuantArray:
    return q.transpose([d for d in range(q.ndim) if d != q.axis] + [q.axis])


def _flat(out: Array) -> Array:
    return restored(out[..., 0, 0], (), False)


def _counted(op: str, f: Field, a: QuantArray, b: QuantArray, at: int) -> Array:
    """Contract by the counts of sets of a's planes joined with b's."""
    dtype = result_type(op, True, f.shape[at] * a.dtype.max_abs * b.dtype.max_abs, None, None)
    table = np.multiply.outer(levels(b).ravel(), levels(a).ravel()).reshape(-1, *(1,) * len(f.shape))
    return restored(fold(f, (at,), None, [IntegerSum(table, dtype)])[0], (at,), False)


def dot(a: QuantArray | Bytes, b: QuantArray | Bytes) -> Array:
    """Sum over the last axis of a and the last but one of b, or its only one: NumPy's dot.

    Operands and results as in `tensordot`.

    >>> import quantarray as qa
    >>> qa.dot(qa.encode([1, -1, 1], values=(-1, 1)), qa.encode([2, 1, 3], values=range(4)))
    np.int32(4)
    """
    op = "dot"
    x, y = operand(op, "a", a), operand(op, "b", b)
    if x.ndim == y.ndim == 1 and x.shape == y.shape and all(isinstance(q, QuantArray) and exact(q) for q in (x, y)):
        return vecdot(x, y)  # counts words in place; a product lays one row out as 32
    return _paired(op, x, y, [x.ndim - 1], [max(0, y.ndim - 2)])


def inner(a: QuantArray | Bytes, b: QuantArray | Bytes) -> Array:
    """Sum over the last axes of a and b: out[i.., j..] = sum_k a[i.., k] * b[j.., k].

    Operands and results as in `tensordot`.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1, 1], [1, 1, 1]], values=(-1, 1))
    >>> qa.inner(a, a)
    array([[3, 1],
           [1, 3]], dtype=int32)
    """
    op = "inner"
    x, y = operand(op, "a", a), operand(op, "b", b)
    return _paired(op, x, y, [x.ndim - 1], [y.ndim - 1])


def outer(a: QuantArray, b: QuantArray) -> Array:
    """out[i, j] = a[i] * b[j] of arrays of one axis: int32, or int64 where the bound asks for it; floats float32.

    >>> import quantarray as qa
    >>> qa.outer(qa.encode([1, -1], values=(-1, 1)), qa.encode([2, 0, 3], values=range(4)))
    array([[ 2,  0,  3],
           [-2,  0, -3]], dtype=int32)
    """
    op = "outer"
    a, b = checks.packed(op, "a", a), checks.packed(op, "b", b)
    common_device(op, a=a, b=b)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"{op}: needs arrays of one axis, got {a.shape} and {b.shape}; reshape them to (-1,)")
    both = exact(a) and exact(b)
    dtype = result_type(op, both, a.dtype.max_abs * b.dtype.max_abs if both else 0, None, None)
    checks.room(op, f"a result of shape {a.shape + b.shape}", np.dtype(dtype).itemsize * a.size * b.size)
    products: Array = a.dequantize().astype(dtype)[:, None] * b.dequantize().astype(dtype)
    return products


def tensordot(a: QuantArray | Bytes, b: QuantArray | Bytes, axes: int | tuple[Axes, Axes] = 2) -> Array:
    """Sum over pairs of axes: the last n of a and the first n of b for an integer n, or ([a's], [b's]).

    Both operands must be packed on axes that are one of the pairs; one of them may be an int8, uint8 or bool array.
    Other pairs are joined with the packed one. Results are as those of `matmul`: int32 or int64 of integer levels, else
    float32.

    >>> import quantarray as qa, numpy as np
    >>> a = qa.encode(np.ones((2, 3, 5), int), values=(-1, 1))
    >>> qa.tensordot(a, a, axes=((1, 2), (1, 2)))
    array([[15, 15],
           [15, 15]], dtype=int32)
    """
    op = "tensordot"
    x, y = operand(op, "a", a), operand(op, "b", b)
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise ValueError(f"{op}: axes must be a number or a pair (axes of a, axes of b), got {axes}")
        ours, theirs = (list(d) if isinstance(d, (tuple, list)) else [d] for d in axes)
    else:
        n = checks.integer(op, "axes", axes, 0, min(x.ndim, y.ndim))
        ours, theirs = list(range(x.ndim - n, x.ndim)), list(range(n))
    return _paired(op, x, y, ours, theirs)


def _paired(op: str, a: Any, b: Any, ours: list[Any], theirs: list[Any]) -> Array:
    """Contract pairs of axes, with the free axes of a before those of b."""
    if not a.ndim or not b.ndim:
        raise ValueError(f"{op}: operands must have at least one axis, got {a.shape} and {b.shape}")
    ours = [checks.axis(op, d, a.ndim, "an axis of a") for d in ours]
    theirs = [checks.axis(op, d, b.ndim, "an axis of b") for d in theirs]
    if len(ours) != len(theirs) or len(set(ours)) < len(ours) or len(set(theirs)) < len(theirs):
        raise ValueError(f"{op}: axes must pair each axis once, got {ours} of a and {theirs} of b")
    pairs = list(zip(ours, theirs, strict=True))
    free = [[d for d in range(q.ndim) if d not in used] for q, used in ((a, ours), (b, theirs))]
    return contract(op, a, b, pairs, [], free[0], free[1])


def contract(
    op: str,
    a: Any,
    b: Any,
    pairs: list[tuple[int, int]],
    batch: list[tuple[int, int]],
    free_a: list[int],
    free_b: list[int],
) -> Array:
    """[batch, free axes of a, free axes of b]: sums over pairs of axes, one contraction for each index of the batch."""
    common_device(op, a=a, b=b)
    if is_dense(a) and is_dense(b):
        raise TypeError(f"{op}: at least one operand must be a QuantArray; two dense arrays are NumPy's own")
    for i, j in pairs + batch:
        if a.shape[i] != b.shape[j]:
            raise ValueError(f"{op}: axis {i} of a {a.shape} and axis {j} of b {b.shape} must have the same length")
    at = _packed_pair(op, a, b, pairs)
    rest = [p for p in pairs if p != at]
    shape = (*(a.shape[i] for i, _ in batch), *(a.shape[i] for i in free_a), *(b.shape[j] for j in free_b))
    with _as_product(op):
        x = _rows(a, [i for i, _ in batch], free_a, [i for i, _ in rest], at[0])
        w = _rows(b, [j for _, j in batch], free_b, [j for _, j in rest], at[1])
        product = matmul(x, w.transpose(0, 2, 1)) if batch else linear(x, w)
    return restored(product.reshape(shape), (), False)


@contextmanager
def _as_product(op: str) -> Iterator[None]:
    """Raise errors of the matrix product that a contraction became with the name of what was called."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{op}: as a product of matrices: {error}") from None


def _packed_pair(op: str, a: Any, b: Any, pairs: list[tuple[int, int]]) -> tuple[int, int]:
    """Find the pair of axes on which the operands are packed; a dense one is packed to fit."""
    if not pairs:
        raise ValueError(
            f"{op}: sums over no axis of {a.shape} and {b.shape}, so it is no contraction; outer multiplies two arrays "
            f"of one axis, map2 any two of few bits"
        )
    for i, j in pairs:
        if (is_dense(a) or a.axis == i) and (is_dense(b) or b.axis == j):
            return i, j
    packed = ", ".join(f"{n} {q.shape} on axis {q.axis}" for n, q in (("a", a), ("b", b)) if isinstance(q, QuantArray))
    raise ValueError(
        f"{op}: sums over the axes {[i for i, _ in pairs]} of a and {[j for _, j in pairs]} of b, and both must be "
        f"packed on axes of one of these pairs, but {packed}; pass axis= to quantize or encode"
    )


def _rows(q: Any, batch: Sequence[int], free: Sequence[int], rest: Sequence[int], at: int) -> QuantArray:
    """View an operand as [free contracted], or [batch free contracted]; packed on the last axis."""
    p = q if isinstance(q, QuantArray) else from_dense(q, at)
    n, m = math.prod(q.shape[d] for d in batch), math.prod(q.shape[d] for d in free)
    k = math.prod(q.shape[d] for d in rest) * q.shape[at]
    moved = p.transpose([*batch, *free, *rest, at])
    return moved.reshape(n, m, k) if batch else moved.reshape(m, k)
