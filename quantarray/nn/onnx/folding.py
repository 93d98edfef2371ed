"""Chains of functions that are monotone in each channel, folded with the quantiser after them into thresholds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array, integers
from ...ops.products.folding import Domain, last_before
from .laws import Link, Tensor

MOST_LEVELS = 256


def direction(link: Link) -> Array | None:
    """1 where the function rises or stays, -1 where it falls; None where it does neither or is not known."""
    if any(a is not None and a.dtype.kind == "f" and np.isnan(a).any() for a in link.operands):
        return None
    rule = link.operator.direction
    return None if rule is None else rule(link.attributes, link.operands)


def thresholds(x: Tensor, last: Link, levels: Sequence[int]) -> tuple[Thresholds, int] | None:
    """(thresholds, axis of the channels) whose codes are those of `last` after x's chain; None where none are.

    `last` gives the integers `levels`, in even steps. What a pool of the chain takes the largest of are codes then, or
    the smallest where functions after it fall: `falling`.
    """
    if len(x.shape) < 2 or not 2 <= len(levels) <= MOST_LEVELS:
        return None
    rising, axis = _rising((*x.chain, last), len(x.shape))
    if rising is None:
        return None
    shape = [1] * len(x.shape)
    channels = x.shape[axis] if _varies((*x.chain, last), rising, axis, len(x.shape)) else 1
    shape[axis] = channels
    step = levels[1] - levels[0]

    def before(v: Array) -> Array:
        for link in x.chain:
            v = v if link.op == "MaxPool" else link(v)
        return v

    def rank(v: Array) -> Array:
        return (last(before(v)).astype(np.int64) - levels[0]) // step

    ends, kind = (x.source.bounds, np.int64) if x.source.whole else ((-np.inf, np.inf), np.float32)
    with np.errstate(all="ignore"):
        if any(np.isnan(before(np.full(shape, end, kind))).any() for end in ends):
            return None  # as of 0 * inf: some values have no code
        return searched(rank, levels, np.broadcast_to(rising, shape), axis, x.source), axis


def searched(
    rank: Callable[[Array], Array],
    levels: Sequence[int],
    rising: Array,
    axis: int,
    source: Any,
    most: float = float(np.finfo(np.float32).max),
) -> Thresholds:
    """Return the thresholds of a function that gives the index of a level, by bisection over values of the source.

    rising: 1 or -1, [1 .. channels .. 1], the direction of the function in each channel of `axis`.
    most: the largest magnitude of floats that is tried; beyond it the function stays.
    """
    domain, channels = _domain(source, most), rising.shape[axis]
    keys = last_before(rank, len(levels) - 1, rising[0] > 0, domain)
    values = domain.limit(keys)
    if source.whole:  # numbers that int32 holds where sums do, also of levels that none reaches
        most = max(-domain.first, domain.last, 2**31 - 1)
        values = np.clip(values, -most - 1, most)
    limits = np.moveaxis(values, axis, -1).reshape(len(levels) - 1, channels).T
    up, into = rising.reshape(-1) > 0, integers(*levels)
    if channels == 1:
        one = bool(up[0])
        return Thresholds(limits[0], per_channel=False, greater=one, strict=one, into=into)
    return Thresholds(limits, greater=up, strict=up, into=into)


def falling(after: Sequence[Link], channels: int) -> Array | None:
    """bool[channels]: those whose value falls by the functions after a pool; None where there are none."""
    total = np.ones((), int)
    for link in after:
        sign = direction(link)
        assert sign is not None
        total = total * sign
    down = np.broadcast_to((total < 0).reshape(-1), channels)
    return down.copy() if down.any() else None


def _domain(source: Any, most: float) -> Domain:
    if source.whole:
        return Domain(int(source.low), int(source.high), np.dtype(np.int64))
    top = int(np.float32(most).view(np.int32))
    return Domain(-top, top, np.dtype(np.float32))


def _rising(chain: tuple[Link, ...], ndim: int) -> tuple[Array | None, int]:
    """(1 or -1 by channel, the channels' axis); None where a function turns, or varies along more than one axis.

    Functions around a pool may vary along the channels only, whose largest or smallest codes it then takes.
    """
    total, pooled, varying = np.ones((), int), False, set()
    for link in chain:
        sign = direction(link)
        if sign is None:
            return None, 0
        pooled = pooled or link.op == "MaxPool"
        total = total * sign
        for shape in _shapes(link, ndim):
            if len(shape) > ndim:
                return None, 0
            varying |= {ndim - len(shape) + i for i, n in enumerate(shape) if n > 1}
    if len(varying) > 1 or 0 in varying or (pooled and varying - {1}):
        return None, 0
    axis = varying.pop() if varying else (1 if ndim >= 4 else ndim - 1)
    return total, axis


def _shapes(link: Link, ndim: int) -> list[tuple[int, ...]]:
    """Return the shapes of a function's constants as they broadcast to a value of `ndim` axes."""
    others = [a.shape for a in link.operands if a is not None]
    if link.operator.of_images:
        return [(s[0], *(1,) * (ndim - 2)) for s in others]
    return others


def _varies(chain: tuple[Link, ...], rising: Array, axis: int, ndim: int) -> bool:
    return rising.size > 1 or any(n > 1 for link in chain for shape in _shapes(link, ndim) for n in shape)
