"""Operators element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .quantizing import numbers
from .record import (
    Attributes,
    Constants,
    Interval,
    Operands,
    Operator,
    Shapes,
    Step,
    array,
    by_factor,
    common,
    falls,
    named,
    rises,
)

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # ONNX's defaults, exact in float32
_erf_of_each = np.frompyfunc(math.erf, 1, 1)  # NumPy has no erf; the results are Python's floats


def _relu(a: Attributes, x: Array) -> Array:
    return array(np.maximum(x, x.dtype.type(0)))


def _leaky_relu(a: Attributes, x: Array) -> Array:
    return np.where(x < 0, x * x.dtype.type(a.get("alpha", 0.01)), x)


def _prelu(a: Attributes, x: Array, slope: Array) -> Array:
    return np.where(x < 0, x * slope, x)


def _hard_tanh(a: Attributes, x: Array) -> Array:
    low, high = a.get("min_val", -1.0), a.get("max_val", 1.0)
    return array(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))


def _clip(a: Attributes, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    if low is not None:
        x = np.maximum(x, low.astype(x.dtype))
    return x if high is None else np.minimum(x, high.astype(x.dtype))


def _sigmoid(a: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    small = np.exp(-np.abs(wide))
    return array(np.where(wide >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype))


def _hard_sigmoid(a: Attributes, x: Array) -> Array:
    kind = x.dtype.type
    y = x * kind(a.get("alpha", 0.2)) + kind(a.get("beta", 0.5))
    return array(np.minimum(np.maximum(y, kind(0)), kind(1)))


def _hard_swish(a: Attributes, x: Array) -> Array:
    kind = x.dtype.type
    return array(x * np.maximum(kind(0), np.minimum(kind(1), x * kind(1 / 6) + kind(0.5))))


def _elu(a: Attributes, x: Array) -> Array:
    wide = x.astype(np.float64)
    return array(np.where(wide < 0, a.get("alpha", 1.0) * np.expm1(np.minimum(wide, 0)), wide).astype(x.dtype))


def _selu(a: Attributes, x: Array) -> Array:
    """gamma * x where x > 0, else gamma * alpha * (exp(x) - 1), rounded in the steps of ONNX's reference.

    alpha and gamma are float32, as files store them, so that float16 is multiplied in float32.
    """
    alpha, gamma = np.float32(a.get("alpha", _SELU_ALPHA)), np.float32(a.get("gamma", _SELU_GAMMA))
    below = alpha * np.expm1(np.where(x > 0, x.dtype.type(0), x))
    return array((np.where(x > 0, x, below) * gamma).astype(x.dtype))


def _erf(a: Attributes, x: Array) -> Array:
    """Compute erf of each element in float64; all but float64 pass through float32, as in ONNX's reference.

    So erf(4), which float32 rounds to 1, is 1 of integers too.
    """
    wide = np.float64 if x.dtype == np.float64 else np.float32
    return np.asarray(np.asarray(_erf_of_each(x), wide).astype(x.dtype))


def _softplus(a: Attributes, x: Array) -> Array:
    return array(np.logaddexp(x.astype(np.float64), 0.0).astype(x.dtype))


def _mish(a: Attributes, x: Array) -> Array:
    """x * tanh(log(1 + exp(x))), each function rounded to x's dtype, as ONNX defines it."""
    return array(x * np.tanh(np.logaddexp(x.dtype.type(0), x)))


def _gelu(a: Attributes, x: Array) -> Array:
    """x / 2 * (1 + erf(x / sqrt(2))), or of tanh(sqrt(2 / pi) * (x + 0.044715 x**3)), rounded in ONNX's steps."""
    kind = x.dtype.type
    half, one = kind(0.5), kind(1)
    if a.get("approximate", "none") == "none":
        return array(half * x * (one + _erf(a, x / np.sqrt(kind(2)))))
    cubed = kind(np.float32(0.044715)) * np.power(x, kind(3))
    return array(half * x * (one + np.tanh(np.sqrt(kind(np.float32(2 / math.pi))) * (x + cubed))))


def _divide(a: Attributes, x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return array(x / y)
    quotient, zero = np.floor_divide(x, y), y == 0
    towards_zero = quotient + ((x % np.where(zero, 1, y) != 0) & ((x < 0) != (y < 0)))
    return array(towards_zero.astype(x.dtype))


def _power(a: Attributes, x: Array, y: Array) -> Array:
    if x.dtype == y.dtype == np.float32 and y.size == 1 and y.reshape(-1)[0] == 0.5:
        return np.sqrt(x)
    return array(np.power(x, y).astype(x.dtype))


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
    if (
        isinstance(x, np.ndarray)
        and to == np.float32
        and x.dtype.kind in "iu"
        and x.dtype.itemsize <= 2
        and _fits(scale)
    ):
        values = x.astype(to)
        values *= scale.astype(to)
        return array(values)
    return array((x * scale).astype(to))


def _fits(scale: Array) -> bool:
    """Return True if float32 holds every scale."""
    return bool(scale.dtype == np.float32 or (scale.astype(np.float32) == scale).all())


def _affine(a: Attributes, x: Array, factor: Array, offset: Array) -> Array:
    """x * factor + offset in float64, rounded once: a fused multiply-add of float32."""
    return array((x.astype(np.float64) * factor + offset).astype(x.dtype))


def _unary(f: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda a, x: array(f(x)).astype(x.dtype, copy=False)


def _binary(f: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda a, x, y: array(f(x, y))


def _gelu_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    if a.get("approximate", "none") not in ("none", "tanh"):
        raise ValueError(f"approximate is {a['approximate']!r}, 'none' and 'tanh' are taken")
    return shapes


def _divided(a: Attributes, dtypes: list[Any]) -> Any:
    return np.result_type(*dtypes) if dtypes[0].kind == "f" else dtypes[0]


# As functions of one value


def _slope_rises(default: float) -> Callable[[Attributes, Operands], Array | None]:
    return lambda a, operands: rises(a, operands) if a.get("alpha", default) >= 0 else None


def _prelu_rises(a: Attributes, operands: Operands) -> Array | None:
    slope = operands[1]
    return rises(a, operands) if slope is not None and (slope >= 0).all() else None


def _subtracted(a: Attributes, operands: Operands) -> Array:
    return rises(a, operands) if operands[0] is None else falls(a, operands)


def _step(name: str, reverse: str | None) -> Callable[[Attributes, bool, list[Any]], list[Step] | None]:
    """Return the step of a function of a value and a constant: `reverse` where the constant is the first operand."""

    def steps(a: Attributes, first: bool, operands: list[Any]) -> list[Step] | None:
        k, step = operands[1] if first else operands[0], name if first else reverse
        return [(step, k)] if step is not None and k.dtype == np.float32 else None

    return steps


def _leaky_step(a: Attributes, first: bool, operands: list[Any]) -> list[Step]:
    return [("slope", np.float32(a.get("alpha", 0.01)))]


def _clip_steps(a: Attributes, first: bool, operands: list[Any]) -> list[Step] | None:
    low, high = [*operands[1:], None, None][:2]
    steps: list[Step] = [] if low is None else [("max", low)]
    return [*steps, *([] if high is None else [("min", high)])] if first else None


def _hard_tanh_steps(a: Attributes, first: bool, operands: list[Any]) -> list[Step]:
    return [("max", np.float32(a.get("min_val", -1.0))), ("min", np.float32(a.get("max_val", 1.0)))]


def _affine_steps(a: Attributes, first: bool, operands: list[Any]) -> list[Step] | None:
    if not first or any(k is None or k.dtype != np.float32 for k in operands[1:]):
        return None
    return [("affine", operands[1]), ("offset", operands[2])]


# Bounds of integers


def _sum_bounds(bounds: list[Interval]) -> Interval:
    return sum(low for low, _ in bounds), sum(high for _, high in bounds)


def _product_bounds(bounds: list[Interval]) -> Interval:
    ends = [i * j for i in bounds[0] for j in bounds[1]]
    return min(ends), max(ends)


def _rising_bounds(f: Callable[..., Any]) -> Callable[[list[Interval]], Interval]:
    """Return the bounds of a function that rises in each of its operands."""
    return lambda bounds: (int(f(*(low for low, _ in bounds))), int(f(*(high for _, high in bounds))))


OPERATORS = {
    "Identity": Operator(run=lambda a, x: x, direction=rises, bounds=lambda b: b[0], order="kept"),
    "Relu": Operator(
        run=_relu,
        direction=rises,
        steps=lambda a, first, operands: [("max", np.float32(0))],
        bounds=_rising_bounds(lambda v: max(v, 0)),
        order="kept",
    ),
    "LeakyRelu": Operator(run=_leaky_relu, direction=_slope_rises(0.01), steps=_leaky_step, order="kept"),
    "PRelu": Operator(run=_prelu, dtype=common, direction=_prelu_rises, steps=_step("slope", None), order="kept"),
    "HardTanh": Operator(run=_hard_tanh, direction=rises, steps=_hard_tanh_steps, order="kept"),
    "Clip": Operator(run=_clip, direction=rises, steps=_clip_steps, order="kept"),
    "Sign": Operator(run=_unary(np.sign), direction=rises, bounds=_rising_bounds(lambda v: (v > 0) - (v < 0))),
    "Sigmoid": Operator(run=_sigmoid, direction=rises),
    "HardSigmoid": Operator(run=_hard_sigmoid, direction=_slope_rises(0.2)),
    "HardSwish": Operator(run=_hard_swish),  # it falls, then rises
    "Elu": Operator(run=_elu, direction=_slope_rises(1.0)),
    "Selu": Operator(run=_selu),  # np.expm1 of float32 falls by an ulp in some 77 of 1e9 places
    "Erf": Operator(
        run=_erf, direction=rises, gpu=False
    ),  # no bounds: files would compute it on floats, whose erf is no integer
    "Softplus": Operator(run=_softplus, direction=rises),
    "Tanh": Operator(run=_unary(np.tanh), direction=rises),
    "Mish": Operator(run=_mish),  # it falls, then rises
    "Gelu": Operator(run=_gelu, shape=_gelu_shape, gpu=False),  # it falls, then rises
    "Abs": Operator(run=_unary(np.abs), bounds=lambda b: (max(b[0][0], -b[0][1], 0), max(-b[0][0], b[0][1]))),
    "Neg": Operator(run=_unary(np.negative), direction=falls, bounds=lambda b: (-b[0][1], -b[0][0])),
    "Floor": Operator(run=_unary(np.floor), direction=rises),
    "Ceil": Operator(run=_unary(np.ceil), direction=rises),
    "Round": Operator(run=_unary(np.rint), direction=rises),
    "Sqrt": Operator(run=_unary(np.sqrt)),
    "Exp": Operator(run=_unary(np.exp), direction=rises),
    "Log": Operator(run=_unary(np.log)),
    "Reciprocal": Operator(run=_unary(lambda x: 1 / x)),
    "Add": Operator(
        run=_binary(np.add), dtype=common, direction=rises, steps=_step("add", "add"), bounds=_sum_bounds, order="kept"
    ),
    "Sub": Operator(
        run=_binary(np.subtract),
        dtype=common,
        direction=_subtracted,
        steps=_step("subtract", "subtract from"),
        bounds=lambda b: (b[0][0] - b[1][1], b[0][1] - b[1][0]),
        order="kept",
    ),
    "Mul": Operator(
        run=_binary(np.multiply),
        dtype=common,
        direction=by_factor(either=True),
        steps=_step("multiply", "multiply"),
        bounds=_product_bounds,
        order="kept",
    ),
    "Div": Operator(
        run=_divide, dtype=_divided, direction=by_factor(divides=True), steps=_step("divide", None), order="kept"
    ),
    "Pow": Operator(run=_power, host=(1,)),
    "Max": Operator(
        run=lambda a, *x: array(reduce(np.maximum, x)),
        dtype=common,
        direction=rises,
        bounds=_rising_bounds(lambda *v: max(v)),
    ),
    "Min": Operator(
        run=lambda a, *x: array(reduce(np.minimum, x)),
        dtype=common,
        direction=rises,
        bounds=_rising_bounds(lambda *v: min(v)),
    ),
    "Sum": Operator(run=_sum, dtype=common, direction=rises, bounds=_sum_bounds),
    "Cast": Operator(run=_cast, dtype=named("to"), needs=("to",)),
    "scale": Operator(run=_scale, dtype=named("to", "float32"), direction=by_factor(), order="kept"),
    "affine": Operator(run=_affine, direction=by_factor(), steps=_affine_steps, order="kept"),
}
