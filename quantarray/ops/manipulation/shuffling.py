"""Channels in another order: those of groups, dealt out in turns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, SupportsIndex, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...backends.registry import device_of, namespace
from ...core.dtypes import Array
from .taking import take_along


@overload
def channel_shuffle(x: QuantArray, groups: SupportsIndex, axis: SupportsIndex = -1) -> QuantArray: ...
@overload
def channel_shuffle(x: Array, groups: SupportsIndex, axis: SupportsIndex = -1) -> Array: ...
def channel_shuffle(x: Any, groups: SupportsIndex, axis: SupportsIndex = -1) -> Any:
    """Deal the channels of groups out in turns, as ShuffleNet does: channel j * groups + g is channel j of group g.

    x: a QuantArray, whose bits are moved without being decoded, or a dense array. axis: that of the channels, which
    must be a multiple of groups; for [n c h w] it is 1. Raises ValueError where they are not.

    >>> import quantarray as qa, numpy as np
    >>> qa.channel_shuffle(qa.encode([0, 1, 2, 3, 4, 5], values=range(8)), 2).codes()
    array([0, 3, 1, 4, 2, 5], dtype=uint8)
    >>> qa.channel_shuffle(np.arange(6), 3)
    array([0, 2, 4, 1, 3, 5])
    """
    op = "channel_shuffle"
    q = x if isinstance(x, QuantArray) else checks.anywhere(op, "x", x)
    at, parts = checks.axis(op, axis, q.ndim), checks.integer(op, "groups", groups, 1)
    channels = q.shape[at]
    if channels % parts:
        raise ValueError(f"{op}: {channels} channels (axis {at} of {q.shape}) are no multiple of {parts} groups")
    order = _order(channels, parts)
    if isinstance(q, QuantArray):
        return take_along(op, q, order, at)
    xp = namespace(device_of(q))
    return xp.take(q, xp.asarray(order), axis=at)


@lru_cache(maxsize=64)
def _order(channels: int, groups: int) -> Array:
    return np.ascontiguousarray(np.arange(channels).reshape(groups, -1).T).reshape(-1)
