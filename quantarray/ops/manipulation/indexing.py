"""Indexing: views along unpacked axes, runs of bits along the packed one, arrays of indices."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.exchange import is_on_gpu
from ...backends.registry import to_host
from ...core.dtypes import Array, Constants, uint1
from ..words.bit_rows import Run, cut, derived, run_constants
from .repacking import repack
from .taking import take_along

_NEAR = 512  # values that are unpacked to read one: consumers such as torch.tensor([q, q]) read one after the other


def getitem(q: QuantArray, key: Any) -> Any:
    """See `QuantArray.__getitem__`."""
    items = _expanded("index", q, key)
    arrays = [i for i, item in enumerate(items) if isinstance(item, np.ndarray)]
    if arrays:
        return _with_arrays(q, items, arrays, _side_by_side(key))
    if all(isinstance(item, int) for item in items if item is not None) and None not in items:
        return _element(q, items)
    return _basic("index", q, items)


def index(q: QuantArray, key: Any, op: str = "index") -> QuantArray:
    """Index by keys that leave an axis, for other functions."""
    return _basic(op, q, _expanded(op, q, key))


def _element(q: QuantArray, items: list[Any]) -> Any:
    """Return one element as a NumPy scalar, int32 or float32."""
    i = items[q.axis]
    if q.ndim == 1 and q.group is None and q.device == "cpu":
        start = i - i % _NEAR
        q._near = start, _basic("index", q, [slice(start, min(start + _NEAR, len(q)))]).dequantize()
        return q._near[1][i - start]
    slices: list[Any] = [slice(i, i + 1) if d == q.axis else item for d, item in enumerate(items)]
    return _basic("index", q, slices).dequantize()[0]


def _basic(op: str, q: QuantArray, items: list[Any]) -> QuantArray:
    """Index by integers, slices and None, one item for each axis in order. `...` was expanded before."""
    checks.dimensions(op, sum(not isinstance(item, int) for item in items))
    names = [i for i, item in enumerate(items) if item is not None]
    packed = names[q.axis]
    if isinstance(items[packed], int):
        return _row(op, q, items, packed)
    if q.constants.super_blocks and packed == len(items) - 1 and any(item != slice(None) for item in items[:-1]):
        if items[-1] != slice(None):  # rows first: super-blocks are decoded where the packed axis is cut
            rows = _basic(op, q, [*items[:-1], slice(None)])
            return _basic(op, rows, [slice(None)] * (rows.ndim - 1) + items[-1:])
    runs = [_run(item, n) if isinstance(item, slice) else None for item, n in zip(_named(items), q.shape, strict=True)]
    run = runs[q.axis]
    assert run is not None
    shape: list[int] = []
    axis = -1
    for i, item in enumerate(items):
        if i == packed:
            axis = len(shape)
        if not isinstance(item, int):
            run_of_axis = None if item is None else runs[names.index(i)]
            shape.append(1 if run_of_axis is None else run_of_axis.size)
    key = [item for i, item in enumerate(items) if i != packed]
    words = cut(q, q.words[(slice(None), *key)], run)
    return derived(q, words, tuple(shape), axis, _basic_constants(op, q, items, run))


def _basic_constants(op: str, q: QuantArray, items: list[Any], run: Run) -> Constants:
    along = run_constants(op, q, [run])

    def change(a: Array, lead: int) -> Array:
        key: list[Any] = [slice(None)] * lead
        d = 0
        for item in items:
            if item is None:
                key.append(None)
                continue
            whole = d == q.axis or (a.shape[lead + d] == 1 and (q.shape[d] != 1 or isinstance(item, slice)))
            key.append((0 if isinstance(item, int) else slice(None)) if whole else item)
            d += 1
        return np.asarray(a[tuple(key)])

    return along.map(change, along.group, rows=along is q.constants and items[-1] is not None)


def _row(op: str, q: QuantArray, items: list[Any], packed: int) -> QuantArray:
    """Index by an integer on the packed axis: that one element, packed along the last axis left."""
    others = list(items)
    others[packed] = slice(items[packed], items[packed] + 1)
    thin = _basic(op, q, others)
    last = max(d for d in range(thin.ndim) if d != thin.axis)
    return _basic(op, repack(thin, last), [0 if d == thin.axis else slice(None) for d in range(thin.ndim)])


def _run(item: slice, length: int) -> Run:
    start, stop, step = item.indices(length)
    return Run(start, step, len(range(start, stop, step)))


def _named(items: list[Any]) -> list[Any]:
    return [item for item in items if item is not None]


def _with_arrays(q: QuantArray, items: list[Any], arrays: list[int], side_by_side: bool) -> QuantArray:
    """Index by arrays: first by all other items, then by the arrays.

    As in NumPy, arrays broadcast, integers beside them count as arrays, and the arrays' axes come first unless the
    arrays are adjacent in the key.
    """
    try:
        listed = np.broadcast_arrays(*(items[i] for i in arrays))
    except ValueError:
        shapes = ", ".join(str(items[i].shape) for i in arrays)
        raise IndexError(f"index: arrays of indices must broadcast, got the shapes {shapes}") from None
    basic = [slice(None) if i in arrays else item for i, item in enumerate(items)]
    axes = [sum(not isinstance(item, int) for item in basic[:i]) for i in arrays]
    merged, indices = _merged(_basic("index", q, basic), axes, listed)
    taken = take_along("index", merged, indices, axes[0])
    if side_by_side:
        return taken
    new_axes = range(axes[0], axes[0] + indices.ndim)
    return taken.transpose(*new_axes, *(d for d in range(taken.ndim) if d not in new_axes))


def _side_by_side(key: Any) -> bool:
    """True unless a slice, None or ..., even one of no axis, is between integers and arrays of a key."""
    apart = [
        item is None or item is ... or isinstance(item, slice) for item in (key if isinstance(key, tuple) else [key])
    ]
    return not any(apart[apart.index(False) : len(apart) - apart[::-1].index(False)])


def _merged(q: QuantArray, axes: list[int], indices: Sequence[Array]) -> tuple[QuantArray, Array]:
    """Merge several indexed axes to one at the place of the first, and the indices along it."""
    if len(axes) == 1:
        return q, indices[0]
    order = sorted(range(len(axes)), key=lambda i: axes[i] == q.axis)  # the packed one ends what is merged
    first, rest = axes[0], [d for d in range(q.ndim) if d not in axes]
    moved = q.transpose(*rest[:first], *(axes[i] for i in order), *rest[first:])
    flat = np.zeros(indices[0].shape, np.int64)
    for i in order:
        flat = flat * q.shape[axes[i]] + indices[i]
    after = moved.shape[first + len(axes) :]
    length = math.prod(moved.shape[first : first + len(axes)])
    return moved.reshape(*moved.shape[:first], length, *after), flat


def _expanded(op: str, q: QuantArray, key: Any) -> list[Any]:
    """Expand the key to a list of integers that are not negative, slices, arrays of indices, and None."""
    items = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexError(f"{op}: at most one ... in an index")
    items = [_as_array(op, item, q) for item in items]
    named = sum(_axes_of(item) for item in items)
    if named > q.ndim:
        raise IndexError(f"{op}: too many indices: the array has {q.ndim} axes, {named} were named")
    fill = [slice(None)] * (q.ndim - named)
    items = items[: dots[0]] + fill + items[dots[0] + 1 :] if dots else items + fill
    expanded: list[Any] = []
    d = 0
    for item in items:
        expanded.extend([None] if item is None else _one_index(op, q, item, d))
        d += _axes_of(item)
    return expanded


def _as_array(op: str, item: Any, q: QuantArray) -> Any:
    """Turn lists, tuples, ranges, packed masks and arrays on a GPU into NumPy arrays; all else stays."""
    if isinstance(item, QuantArray):
        return _as_mask(op, item)
    if is_on_gpu(item):
        return checks.numbers_beside(op, "the index", item, q)
    if not isinstance(item, (list, tuple, range)):
        return item
    try:
        a = np.asarray(item)
    except ValueError:
        raise _not_an_index(op, item) from None
    return a if a.size else a.astype(np.int64)


def _as_mask(op: str, mask: QuantArray) -> Array:
    """Return a bool array of a uint1 array, as comparisons give them; other codes would be taken for indices."""
    if mask.dtype != uint1 or mask.scale is not None:
        raise TypeError(
            f"{op}: a packed mask must be a uint1 array without a scale, got {mask.dtype}; comparisons such as q > 0 "
            f"or q != 0 make one, and .dequantize() of integers gives indices"
        )
    flags: Array = to_host(mask.codes()).astype(np.bool_)
    return flags


def _axes_of(item: Any) -> int:
    """Count the axes that an item of a key indexes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == np.bool_ and item.ndim else 1


def _one_index(op: str, q: QuantArray, item: Any, d: int) -> list[Any]:
    """Check a slice, an integer or an array; a mask becomes an array for each of its axes."""
    if isinstance(item, slice):
        try:
            item.indices(q.shape[d])
        except (TypeError, ValueError) as error:
            raise type(error)(f"{op}: {item} for axis {d} of {q.shape}: {error}") from None
        return [item]
    if isinstance(item, np.ndarray) and item.ndim:
        return _indices(op, q, item, d)
    try:
        if isinstance(item, bool):
            raise TypeError
        n = operator.index(item)
    except TypeError:
        raise _not_an_index(op, item) from None
    if not -q.shape[d] <= n < q.shape[d]:
        raise IndexError(f"{op}: {n} is out of bounds for axis {d} of length {q.shape[d]}")
    return [n % q.shape[d]]


def _indices(op: str, q: QuantArray, a: Array, d: int) -> list[Any]:
    """int64 indices that are not negative, of an array of integers or a mask."""
    if checks.is_masked(a) or a.dtype.kind not in "iub":
        raise _not_an_index(op, a)
    if a.dtype != np.bool_:
        return [checks.indices(op, a, q.shape[d], d)]
    if a.shape != q.shape[d : d + a.ndim]:
        raise IndexError(f"{op}: a mask from axis {d} on must have the shape {q.shape[d : d + a.ndim]}, got {a.shape}")
    return list(np.nonzero(a))


def _not_an_index(op: str, item: Any) -> TypeError:
    return TypeError(
        f"{op}: packed arrays take integers, slices, ..., None, arrays of integers and masks, got {checks.kind(item)}; "
        f".dequantize() gives NumPy's array, .codes() that of codes"
    )
