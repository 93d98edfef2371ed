"""Searching, sorting, sets, and the indices and masks that choose elements."""

from __future__ import annotations

from typing import Any

import numpy as np

import quantarray as qa

from ..drawing import Draw, values
from .reducing import DENSE, way, whole

PLACES = 2**22  # elements of results of which each has places for all axes


def _argument(name: str) -> Any:
    def operation(d: Draw) -> Any:
        q, all_of = d.array(), d.flag(0.3)
        axis, keepdims = None if all_of else d.axis(q), d.flag()
        call = way(d, name, q)
        return (
            lambda: call(axis=axis, keepdims=keepdims),
            lambda: getattr(np, name)(values(q), axis=axis, keepdims=keepdims),
        )

    return operation


def _sort(d: Draw) -> Any:
    q, down = d.array(vary=0.1, groups=0), d.flag()
    axis = d.axis(q)
    return (
        lambda: qa.sort(q, axis=axis, descending=down),
        lambda: np.flip(np.sort(values(q), axis=axis), axis) if down else np.sort(values(q), axis=axis),
    )


def _argsort(d: Draw) -> Any:
    q, down = d.array(most=PLACES), d.flag()
    axis = d.axis(q)
    if down:
        return lambda: qa.argsort(q, axis=axis, descending=True)
    return lambda: q.argsort(axis=axis), lambda: np.argsort(values(q), axis=axis, kind="stable")


def _searchsorted(d: Draw) -> Any:
    q = qa.sort(d.array(ndim=1, groups=0))
    d.operand(q)
    wanted, side = d.dense(np.float32, (d.length(PLACES),)), d.among("left", "right")
    return lambda: qa.searchsorted(q, wanted, side=side), lambda: np.searchsorted(values(q), wanted, side)


def _nonzero(d: Draw) -> Any:
    q = d.array(most=2**20)
    call = way(d, "nonzero", q)
    return lambda: call()


def _unique(name: str, most: int) -> Any:
    def operation(d: Draw) -> Any:
        q = d.array(most=most)
        return lambda: getattr(qa, name)(q)

    return operation


def _isin(d: Draw) -> Any:
    q, wanted, invert = d.array(), d.dense(np.int64, (5,)), d.flag()
    return lambda: qa.isin(q, wanted, invert=invert), lambda: np.isin(values(q), wanted, invert=invert)


def _contains(d: Draw) -> Any:
    q, value = d.array(), d.between(-3, 3)
    return lambda: value in q


def _index(d: Draw) -> Any:
    """Draw an index of integers, slices, None and an ellipsis."""
    ndim = d.among(1, 2, 3)
    q, key = d.array(ndim=ndim, groups=0), []
    for n in q.shape:
        kind, a, b, step = d.between(0, 3), d.choices.random(), d.choices.random(), d.among(1, 1, 2, -1, 3)
        cut = slice(int(a * n / 2), int(n - b * n / 2))
        key.append((slice(None), cut, slice(None, None, step), int(a * n) if n else slice(None))[kind])
    key = [..., *key[1:]] if d.flag(0.1) else key
    if d.flag(0.1):
        key.insert(0, None)
    key = tuple(key)
    if all(isinstance(k, int) for k in key):
        return lambda: q[key]
    return lambda: q[key], lambda: values(q)[key]


def _index_by_array(d: Draw) -> Any:
    """Draw an index of integer arrays on one axis or two, or of a mask."""
    q = d.array(ndim=d.among(1, 2, 3), groups=0, most=2**22)
    masked, both, n = d.flag(0.4), d.flag(0.3), min(d.length(2**20), 2**22 // max(1, q.size // max(1, q.shape[0])))
    if masked:
        mask = d.dense(bool, q.shape[:1])
        return lambda: q[mask], lambda: values(q)[mask]
    i = d.dense(np.int64, (n,), 0, max(q.shape[0], 1) - 1)
    j = d.dense(np.int64, (n,), 0, max(q.shape[-1], 1) - 1)
    if 0 in q.shape:
        return lambda: q[:0]
    if both and q.ndim == 2:
        return lambda: q[i, j], lambda: values(q)[i, j]
    return lambda: q[i], lambda: values(q)[i]


def _take(d: Draw) -> Any:
    q, flat = d.array(groups=0, most=2**24), d.flag(0.2)
    axis = None if flat else d.axis(q)
    length = q.size if flat else q.shape[axis]
    n = min(d.length(2**20), max(1, 2**24 // max(1, q.size // max(1, length))))
    kind, call = d.among(np.int64, np.int32, np.int16), way(d, "take", q)
    if not length:
        return lambda: call(np.zeros(0, kind), axis)
    places = d.dense(kind if length < 2**15 else np.int64, (n,), -length, length - 1)
    return lambda: call(places, axis), lambda: np.take(values(q), places, axis)


def _take_along_axis(d: Draw) -> Any:
    q = d.array(vary=0.1, groups=0, most=2**21)
    axis, same = d.axis(q), d.flag(0.3)
    n = q.shape[axis]
    shape = [1 if same else k for k in q.shape]
    shape[axis] = min(d.length(2**16), max(1, 2**21 // max(1, q.size // max(1, n))))
    if not n:
        return lambda: qa.take_along_axis(q, np.zeros([0] * q.ndim, np.int64), axis)
    places = d.dense(np.int64, tuple(shape), -n, n - 1)
    wide = tuple(shape[axis] if i == axis % q.ndim else k for i, k in enumerate(q.shape))
    return (
        lambda: qa.take_along_axis(q, places, axis),
        lambda: np.take_along_axis(values(q), np.broadcast_to(places, wide), axis),
    )


def _choose_by_mask(d: Draw) -> Any:
    """where(mask, a, b)."""
    q, packed, number = d.array(bits=4, groups=0), d.flag(), d.flag()
    mask = d.array(shape=q.shape, axis=q.axis, law=(qa.uint1, False)) if packed else d.dense(bool, q.shape)
    if number:
        other = d.between(-3, 3)
        return lambda: qa.where(mask, q, other), lambda: np.where(values(mask) != 0, values(q), other)
    other = d.alike(q) if whole(q) or q.bits < 4 else q
    return lambda: qa.where(mask, q, other), lambda: np.where(values(mask) != 0, values(q), values(other))


OPS = {
    "argmax": _argument("argmax"),
    "argmin": _argument("argmin"),
    "sort": _sort,
    "argsort": _argsort,
    "searchsorted": _searchsorted,
    "nonzero": _nonzero,
    "unique_values": _unique("unique_values", 2**26),
    "unique_counts": _unique("unique_counts", 2**26),
    "unique_inverse": _unique("unique_inverse", DENSE),
    "unique_all": _unique("unique_all", DENSE),
    "isin": _isin,
    "contains": _contains,
    "getitem": _index,
    "getitem of arrays": _index_by_array,
    "take": _take,
    "take_along_axis": _take_along_axis,
    "where": _choose_by_mask,
}
