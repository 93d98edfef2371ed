"""Thresholds as QONNX's MultiThreshold, which counts limits that a value reaches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....arrays.thresholds import Thresholds
from ....core.code_values import level_values
from ....core.dtypes import Array, Constants
from ..tensors import Refused
from .laws import by_steps
from .writer import Held, Writer

_LARGEST = float(np.finfo(np.float32).max)


def thresholded(w: Writer, v: Held, T: Thresholds, axis: int) -> Held:
    """Convert v to the values of its codes by thresholds whose channels are on `axis`."""
    axis %= len(v.shape)
    if v.rough:
        raise Refused("thresholds of sums of real numbers, whose last bit differs between orders of summation")
    if len(v.shape) < 2:
        raise Refused("thresholds of one axis have no MultiThreshold, which takes batches")
    values, scale, parts = _values(T)
    integers = parts is not None
    steps = np.diff(parts if parts is not None else values)
    limits, down = _limits_of(w, v, T, v.shape[axis])
    if len(steps) and (steps < 0).all():  # falling values: as many are not passed as rise
        down, values = ~down, values[::-1]
        parts = parts[::-1] if parts is not None else None
    rising = _rising(limits, down, v.whole)
    limits, x = rising.limits, _turned(w, v, rising, axis)
    x, back = _channels_first(w, x, len(v.shape), axis) if len(limits) > 1 else (x, None)
    law = parts if parts is not None else values
    name = by_steps(w, x, limits, law, integers)
    low, high = (int(law.min()), int(law.max())) if integers else (None, None)
    name = w.transpose(name, back) if back is not None else name
    if scale is None:
        return Held(v.shape, T.into, name, low=low, high=high)
    whole = Held(v.shape, np.dtype(np.int32), name, low=low, high=high)
    return w.scaled(whole, scale, T.into)


def _values(T: Thresholds) -> tuple[Array, float | None, Array | None]:
    """Return (value of each count, scale, integers of which the values are the products with the scale)."""
    law: Constants = T._law(1)
    values = level_values(T.into, law).reshape(len(T._codes), -1)
    if values.shape[1] > 1:
        raise Refused("constants that vary in a result of thresholds")
    counted = values[:, 0][T._codes]
    if T.into.levels is not None:
        levels = np.array(T.into.levels, np.int64)[T._codes]
        return counted, None if law.scale is None else float(law.scale.reshape(())), levels
    if T.into.kind == "uniform" and law.scale is not None and law.offset is not None:
        scale, offset = float(law.scale.reshape(())), float(law.offset.reshape(()))
        first = round(offset / scale) if scale else 0
        whole = first + T._codes.astype(np.int64)
        if scale and first * scale == offset and (np.float32(scale * whole.astype(np.float64)) == counted).all():
            return counted, scale, whole
    return counted, None, None


def _limits_of(w: Writer, v: Held, T: Thresholds, channels: int) -> tuple[Array, Array]:
    """Return (limits [channels, T], down [channels]): v > limit counts up, and counts down from T if `down`."""
    if not v.whole and v.kind != np.float32:
        raise Refused(f"thresholds of {v.kind} values")
    counted, down = T._counted(channels, not v.whole)
    limits = counted.T
    if v.whole:
        assert v.low is not None and v.high is not None
        limits = np.clip(limits, v.low - 1, v.high)
    return limits, down


class Rising(NamedTuple):
    """A table of rising limits [channels or 1, T] that `sign * v` reaches; one row if those of all channels are alike.

    sign: 1 or -1 for each row. bounded: rows with a limit of infinity that no v reaches, not even infinity.
    """

    limits: Array
    sign: Array
    bounded: Array


def _rising(limits: Array, down: Array, whole: bool) -> Rising:
    """Return limits t of `sign * v >= t` for limits of v > limit, or of v <= limit where `down`."""
    sign: Array = np.where(down, -1, 1)
    bounded: Array = np.zeros(len(down), np.bool_)
    if whole:
        limits = np.where(down[:, None], -limits, limits + 1)
    else:
        never = np.where(down[:, None], np.isnan(limits), limits == np.inf)  # every v is above a limit of NaN
        near = np.where(np.isnan(limits), -np.inf, limits).astype(np.float32)
        with np.errstate(over="ignore"):
            up, back = (np.nextafter(near, np.float32(end)) for end in (np.inf, -np.inf))
        above = np.where((near > limits) | np.isnan(limits), near, up)
        below = np.where(near > limits, back, near)
        limits = np.where(never, np.float32(np.inf), np.where(down[:, None], -below, above))
        bounded = np.asarray(never.any(axis=1))
        if (bounded & (np.isposinf(limits) & ~never).any(axis=1)).any():
            raise Refused("a threshold that only infinity passes beside one of the same channel that nothing passes")
    limits = np.sort(limits, axis=1)
    alike = all((a == a[:1]).all() for a in (limits, sign, bounded))
    return Rising(limits[:1], sign[:1], bounded[:1]) if alike else Rising(limits, sign, bounded)


def _turned(w: Writer, v: Held, rising: Rising, axis: int) -> str:
    """Return v as floats, negated in the channels that fall, and not above float32 in those that are bounded."""
    x, kind = w.real(v), np.dtype(np.float64 if w.is_wide(v) else np.float32)
    shape = (-1, *(1,) * (len(v.shape) - axis - 1)) if rising.sign.size > 1 else ()
    if (rising.sign < 0).any():
        x = w.emit("Mul", [x, w.constant(rising.sign.reshape(shape).astype(kind))])
    if rising.bounded.any():
        most = np.where(rising.bounded, _LARGEST, np.inf).reshape(shape).astype(kind)
        x = w.emit("Min", [x, w.constant(most)])
    return x


def _channels_first(w: Writer, x: str, ndim: int, axis: int) -> tuple[str, tuple[int, ...] | None]:
    """Move the channels to axis 1; return also the permutation that moves them back, None if they are there."""
    if axis == 1:
        return x, None
    if axis == 0:
        raise Refused("thresholds by channel on the first axis, which is the batch")
    perm = (0, axis, *(i for i in range(1, ndim) if i != axis))
    return w.transpose(x, perm), tuple(int(i) for i in np.argsort(perm))
