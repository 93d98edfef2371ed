"""Chains of functions that are monotone in each channel, folded with the quantiser behind them into thresholds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array, integers
from .laws import Link, Tensor

MOST_LEVELS = 256
_RISING = frozenset(
    "Identity Relu Sigmoid HardTanh Clip Tanh Floor Ceil Round Softplus Exp Add bipolar sign multi_threshold Max Min "
    "Sum Sign MaxPool".split()
)
_SLOPES = {"LeakyRelu": 0.01, "HardSigmoid": 0.2, "Elu": 1.0}


def direction(link: Link) -> Array | None:
    """1 where the function rises or stays, -1 where it falls; None where it does neither or is not known."""
    others = [a for a in link.operands if a is not None]
    if any(a.dtype.kind == "f" and np.isnan(a).any() for a in others):
        return None
    first = link.operands[0] is None
    if link.op in _RISING:
        return np.ones((), int)
    if link.op in _SLOPES:
        return np.ones((), int) if link.attributes.get("alpha", _SLOPES[link.op]) >= 0 else None
    if link.op == "PRelu":
        return np.ones((), int) if first and (others[0] >= 0).all() else None
    if link.op == "Neg":
        return -np.ones((), int)
    if link.op == "Sub":
        return np.ones((), int) if first else -np.ones((), int)
    if link.op == "BatchNormalization":
        gamma, _, _, var = others
        rank = link.attributes["rank"]
        ok = (var + link.attributes.get("epsilon", 1e-5) > 0).all() and all(np.isfinite(a).all() for a in others)
        return _sign(gamma).reshape(1, -1, *(1,) * (rank - 2)) if ok else None
    if link.op in ("Mul", "scale", "Div") or link.op in (
        "quantize",
        "bipolar_of",
        "quantize_linear",
        "dequantize_linear",
        "truncate",
    ):
        factor = others[0]
        divides = link.op not in ("Mul", "scale", "dequantize_linear")
        fine = np.isfinite(factor).all() and first | (link.op == "Mul") and not (divides and (factor == 0).any())
        return _sign(factor) if fine else None
    return None


def _sign(a: Array) -> Array:
    return np.where(a < 0, -1, 1)


def thresholds(x: Tensor, last: Link, levels: Sequence[int]) -> tuple[Thresholds, int] | None:
    """(thresholds, axis of the channels) whose codes are those of `last` after x's chain; None where none are.

    `last` gives the integers `levels`, in even steps. What a pool of the chain takes the largest of are codes then,
    so functions after it must rise.
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

    def rank(v: Array) -> Array:
        for link in (*x.chain, last):
            v = v if link.op == "MaxPool" else link(v)
        return (v.astype(np.int64) - levels[0]) // step

    source = x.source
    with np.errstate(all="ignore"):
        values = _search(rank, len(levels) - 1, np.broadcast_to(rising, shape), source.whole, _ends(source))
    limits = np.moveaxis(values, axis, -1).reshape(len(levels) - 1, channels).T
    up = np.broadcast_to(rising, shape).reshape(-1) > 0
    into = integers(*levels)
    if channels == 1:
        one = bool(up[0])
        return Thresholds(limits[0], per_channel=False, greater=one, strict=one, into=into), axis
    return Thresholds(limits, greater=up, strict=up, into=into), axis


def _ends(source: Any) -> tuple[int, int]:
    if source.whole:
        return int(source.low), int(source.high)
    top = int(np.float32(np.finfo(np.float32).max).view(np.int32))
    return -top, top


def _rising(chain: tuple[Link, ...], ndim: int) -> tuple[Array | None, int]:
    """(1 or -1 by channel, the channels' axis); None where a function turns, or varies along more than one axis."""
    total, pooled, varying = np.ones((), int), False, set()
    for link in chain:
        way = direction(link)
        if way is None or (pooled and (way < 0).any()):
            return None, 0
        pooled = pooled or link.op == "MaxPool"
        total = total * way
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
    if link.op == "BatchNormalization":
        return [(s[0], *(1,) * (ndim - 2)) for s in others]
    if link.op == "multi_threshold":
        return [(s[0], *(1,) * (ndim - 2)) for s in others]
    return others


def _varies(chain: tuple[Link, ...], rising: Array, axis: int, ndim: int) -> bool:
    return rising.size > 1 or any(n > 1 for link in chain for shape in _shapes(link, ndim) for n in shape)


def _search(rank: Callable[[Array], Array], count: int, rising: Array, whole: bool, ends: tuple[int, int]) -> Array:
    """Find the last value before each rank, [count, *channels], by bisection; falling channels search negated values.

    A value passes the result t by `value > t` in rising channels and by `value <= t` in falling ones.
    """
    first, last = ends
    flip = np.broadcast_to(rising, (count, *rising.shape[1:]))
    wanted = np.arange(1, count + 1).reshape(-1, *(1,) * (rising.ndim - 1))
    # keys of falling channels are negated values, from -last to -first
    low = np.where(flip > 0, first, -last) - 1
    high = np.where(flip > 0, last, -first) + 1
    bottom, top = low + 1, high - 1
    while (open_ := high - low > 1).any():
        middle = np.clip((low + high) // 2, bottom, top)
        passed = rank(_value(flip * middle, whole)) >= wanted
        high, low = np.where(open_ & passed, middle, high), np.where(open_ & ~passed, middle, low)
    # rising: passes where v > low. Falling: -v >= high, so v <= -high
    at = np.where(flip > 0, low, -high)
    if whole:
        return at
    inside = _value(np.clip(at, first, last), False)
    return np.where(at < first, -np.inf, np.where(at >= last, np.inf, inside)).astype(np.float32)


def _value(key: Array, whole: bool) -> Array:
    if whole:
        return key
    magnitude = np.abs(key).astype(np.int32).view(np.float32)
    return np.where(key < 0, -magnitude, magnitude)
