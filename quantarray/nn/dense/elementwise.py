"""Operators element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .quantizing import numbers

Attributes = dict[str, Any]


def _relu(a: Attributes, x: Array) -> Array:
    return np.asarray(np.maximum(x, x.dtype.type(0)))


def _leaky_relu(a: Attributes, x: Array) -> Array:
    return np.where(x < 0, x * x.dtype.type(a.get("alpha", 0.01)), x)


def _prelu(a: Attributes, x: Array, slope: Array) -> Array:
    return np.where(x < 0, x * slope, x)


def _hard_tanh(a: Attributes, x: Array) -> Array:
    low, high = a.get("min_val", -1.0), a.get("max_val", 1.0)
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))


def _clip(a: Attributes, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    if low is not None:
        x = np.maximum(x, low.astype(x.dtype))
    return x if high is None else np.minimum(x, high.astype(x.dtype))


def _sigmoid(a: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    small = np.exp(-np.abs(wide))
    return np.asarray(np.where(wide >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype))


def _hard_sigmoid(a: Attributes, x: Array) -> Array:
    kind = x.dtype.type
    y = x * kind(a.get("alpha", 0.2)) + kind(a.get("beta", 0.5))
    return np.asarray(np.minimum(np.maximum(y, kind(0)), kind(1)))


def _elu(a: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(np.where(wide < 0, a.get("alpha", 1.0) * np.expm1(np.minimum(wide, 0)), wide).astype(x.dtype))


def _softplus(a: Attributes, x: Array) -> Array:
    return np.asarray(np.logaddexp(x.astype(np.float64), 0.0).astype(x.dtype))


def _divide(a: Attributes, x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    quotient, zero = np.floor_divide(x, y), y == 0
    towards_zero = quotient + ((x % np.where(zero, 1, y) != 0) & ((x < 0) != (y < 0)))
    return np.asarray(towards_zero.astype(x.dtype))


def _power(a: Attributes, x: Array, y: Array) -> Array:
    if x.dtype == y.dtype == np.float32 and y.size == 1 and y.reshape(-1)[0] == 0.5:
        return np.sqrt(x)
    return np.asarray(np.power(x, y).astype(x.dtype))


def _cast(a: Attributes, x: Array) -> Array:
    return (numbers("Cast", x) if np.dtype(a["to"]).kind in "iu" else x).astype(a["to"])


def _sum(a: Attributes, *arrays: Array) -> Array:
    total = arrays[0]
    for x in arrays[1:]:
        total = total + x
    return total


def _scale(a: Attributes, x: Array, scale: Array) -> Array:
    """x * scale in float64, rounded once; 16 by 24 bits, whose float64 product is exact, in float32."""
    to = np.dtype(a.get("to", np.float32))
    if to == np.float32 and x.dtype.kind in "iu" and x.dtype.itemsize <= 2 and _fits(scale):
        values = x.astype(to)
        values *= scale.astype(to)
        return np.asarray(values)
    return np.asarray((x * scale).astype(to))


def _fits(scale: Array) -> bool:
    """Return True if float32 holds every scale."""
    return bool(scale.dtype == np.float32 or (scale.astype(np.float32) == scale).all())


def _affine(a: Attributes, x: Array, factor: Array, offset: Array) -> Array:
    """x * factor + offset in float64, rounded once: a fused multiply-add of float32."""
    return np.asarray((x.astype(np.float64) * factor + offset).astype(x.dtype))


def _unary(f: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda a, x: np.asarray(f(x)).astype(x.dtype, copy=False)


def _binary(f: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda a, x, y: np.asarray(f(x, y))


RUN: dict[str, Callable[..., Any]] = {
    "Identity": lambda a, x: x,
    "Relu": _relu,
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "HardTanh": _hard_tanh,
    "Clip": _clip,
    "Sign": _unary(np.sign),
    "Sigmoid": _sigmoid,
    "HardSigmoid": _hard_sigmoid,
    "Elu": _elu,
    "Softplus": _softplus,
    "Tanh": _unary(np.tanh),
    "Abs": _unary(np.abs),
    "Neg": _unary(np.negative),
    "Floor": _unary(np.floor),
    "Ceil": _unary(np.ceil),
    "Round": _unary(np.rint),
    "Sqrt": _unary(np.sqrt),
    "Exp": _unary(np.exp),
    "Log": _unary(np.log),
    "Reciprocal": _unary(lambda x: 1 / x),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _divide,
    "Pow": _power,
    "Max": lambda a, *x: np.asarray(np.maximum.reduce(np.broadcast_arrays(*x))),
    "Min": lambda a, *x: np.asarray(np.minimum.reduce(np.broadcast_arrays(*x))),
    "Sum": _sum,
    "Cast": _cast,
    "scale": _scale,
    "affine": _affine,
}


def _broadcast(a: Attributes, shapes: list[tuple[int, ...]], constants: list[Array | None]) -> list[tuple[int, ...]]:
    return [np.broadcast_shapes(*(s for s in shapes if s is not None))]


SHAPE = dict.fromkeys(RUN, _broadcast)
