"""Arrays joined: words side by side along unpacked axes, bits one after the other along the packed one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import common_device, namespace
from ...core.format import WORD_BITS
from ..words.bit_rows import Run, lay, words_axis
from ..words.dtype_functions import cast, common_dtype
from .constants_of_parts import joined_constants
from .indexing import index
from .reshaping import ravel


def concatenate(arrays: Sequence[QuantArray], axis: int | None = 0) -> QuantArray:
    """Join arrays one after the other along an axis; with None all of their elements in C order.

    They are packed on one axis and have equal lengths along all others. Dtype: theirs where it is one; of different
    integer levels the first dtype that has all of them, or one with all in ascending order, of at most 256. Equal
    constants stay as they are; others vary along the axis, an entry an element, which along the packed axis they can
    only in groups. Raises ValueError where no law holds all arrays, or where they are packed on different axes.

    >>> import quantarray as qa
    >>> a, b = qa.encode([[1, -1]], values=(-1, 1)), qa.encode([[0, 1]], values=(-1, 0, 1))
    >>> c = qa.concatenate([a, b])
    >>> c.dtype, c.dequantize().tolist()
    (quantarray.ternary, [[1, -1], [0, 1]])
    """
    return concatenated("concatenate", _listed("concatenate", arrays), axis)


def concat(arrays: Sequence[QuantArray], axis: int | None = 0) -> QuantArray:
    """`concatenate` by the array API's name.

    >>> import quantarray as qa
    >>> a = qa.encode([1, -1], values=(-1, 1))
    >>> qa.concat([a, a[:1]]).dequantize().tolist()
    [1, -1, 1]
    """
    return concatenated("concat", _listed("concat", arrays), axis)


def stack(arrays: Sequence[QuantArray], axis: int = 0) -> QuantArray:
    """Join arrays of one shape along a new axis; laws and constants join as in `concatenate`.

    >>> import quantarray as qa
    >>> a = qa.encode([1, -1], values=(-1, 1))
    >>> qa.stack([a, a[::-1]]).dequantize().tolist()
    [[1, -1], [-1, 1]]
    """
    op = "stack"
    listed = _listed(op, arrays)
    if len({q.shape for q in listed}) > 1:
        raise ValueError(f"{op}: needs arrays of one shape, got {', '.join(str(q.shape) for q in listed)}")
    d = checks.axis(op, axis, listed[0].ndim + 1)
    key = (*(slice(None),) * d, None)
    return concatenated(op, [index(q, key, op) for q in listed], d)


def vstack(arrays: Sequence[QuantArray]) -> QuantArray:
    """Join arrays along axis 0, those of one axis as one row each.

    >>> import quantarray as qa
    >>> a = qa.encode([1, -1], values=(-1, 1))
    >>> qa.vstack([a, qa.stack([a, a])]).dequantize().tolist()
    [[1, -1], [1, -1], [1, -1]]
    """
    op = "vstack"
    return concatenated(op, [index(q, None, op) if q.ndim == 1 else q for q in _listed(op, arrays)], 0)


def hstack(arrays: Sequence[QuantArray]) -> QuantArray:
    """Join arrays along axis 1, those of one axis along it.

    >>> import quantarray as qa
    >>> a = qa.encode([[1, -1]], values=(-1, 1))
    >>> qa.hstack([a, a]).dequantize().tolist()
    [[1, -1, 1, -1]]
    """
    listed = _listed("hstack", arrays)
    return concatenated("hstack", listed, 0 if listed[0].ndim == 1 else 1)


def _listed(op: str, arrays: Any) -> list[QuantArray]:
    if isinstance(arrays, QuantArray):  # NumPy joins its rows; nobody who writes this means it
        raise TypeError(f"{op}: needs a list of arrays, got one QuantArray; put it in a list")
    if not np.iterable(arrays):
        raise TypeError(f"{op}: needs a list of arrays, got {checks.kind(arrays)}")
    listed = [checks.packed(op, f"arrays[{i}]", q) for i, q in enumerate(arrays)]
    if not listed:
        raise ValueError(f"{op}: needs at least one array")
    common_device(op, **{f"arrays[{i}]": q for i, q in enumerate(listed)})
    return listed


def concatenated(op: str, arrays: list[QuantArray], axis: int | None) -> QuantArray:
    if axis is None:
        arrays, axis = [ravel(q) for q in arrays], 0
    first = arrays[0]
    d = checks.axis(op, axis, first.ndim)
    rest = {q.shape[:d] + q.shape[d + 1 :] for q in arrays if q.ndim == first.ndim}
    if len({q.ndim for q in arrays}) > 1 or len(rest) > 1:
        shapes = ", ".join(str(q.shape) for q in arrays)
        raise ValueError(f"{op}: needs shapes that are equal but for axis {d}, got {shapes}")
    if len({q.axis for q in arrays}) > 1:
        axes = ", ".join(str(q.axis) for q in arrays)
        raise ValueError(f"{op}: needs arrays packed on one axis, got axes {axes}; repack(q, axis) packs another")
    dtype = common_dtype(op, [q.dtype for q in arrays])
    arrays = [cast(q, dtype) for q in arrays]
    return joined(op, arrays, d)


def joined(op: str, arrays: list[QuantArray], d: int) -> QuantArray:
    """Join arrays of one dtype and packed axis, equal but for the length of axis d, one after the other along it."""
    first = arrays[0]
    constants = joined_constants(op, arrays, d)
    length, xp = sum(q.shape[d] for q in arrays), namespace(first.device)
    shape = (*first.shape[:d], length, *first.shape[d + 1 :])
    checks.array_room(op, first, shape)
    if d != first.axis:
        words = xp.concatenate([q.words for q in arrays], axis=words_axis(first, d))
    elif all(q.shape[d] % WORD_BITS == 0 for q in arrays[:-1]):
        words = xp.concatenate([q.words for q in arrays], axis=-1)
    else:
        words = lay(first.device, [(q.words, Run(0, 1, q.shape[d])) for q in arrays])
    scheme = first.scheme if len({q.scheme for q in arrays}) == 1 else None
    return QuantArray(words, first.dtype, shape, first.axis, constants, scheme)
