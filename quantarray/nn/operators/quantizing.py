"""Quantisers: codes of values as integers, and the values of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arrays import checks
from ...backends.registry import contiguous, device_of, empty, kernel, namespace, zeros
from ...core.dtypes import Array
from ...core.recordings import is_set
from .movement import order_in_memory
from .record import Attributes, Constants, Operator, Shapes, always, array, by_factor, named, of_broadcast, rises


def numbers(op: str, x: Array, name: str = "x") -> Array:
    """Return x; raise ValueError that names the first NaN, which has no code."""
    if isinstance(x, np.ndarray):  # a GPU is not waited for
        checks.no_nan(op, name, x)
    return x


def _half_up(x: Array) -> Array:
    """Round to the nearest integer, halves away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def _half_down(x: Array) -> Array:
    """Round to the nearest integer, halves towards zero."""
    return np.sign(x) * np.ceil(np.abs(x) - 0.5)


ROUNDING: dict[str, Callable[[Array], Array]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": _half_up,
    "HALF_DOWN": _half_down,
}


def _quantize(a: Attributes, x: Array, scale: Array, zero: Array) -> Array:
    """round(clip(x / scale + zero, low, high)), integers, as QONNX's Quant has it."""
    result = _at_once(a, x, scale, zero, CLIPPED) if ROUNDING[a["rounding"]] is np.rint else None
    if result is not None:
        return result
    y = np.clip(numbers("Quant", x / scale + zero), a["low"], a["high"])
    return array(ROUNDING[a["rounding"]](y).astype(a["to"]))


def _quantize_linear(a: Attributes, x: Array, scale: Array, zero: Array) -> Array:
    """clip(rint(x / scale) + zero, low, high), integers, as ONNX's QuantizeLinear has it."""
    result = _at_once(a, x, scale, zero, ROUNDED)
    if result is not None:
        return result
    y = np.rint(numbers("QuantizeLinear", x / scale)).astype(np.float64) + zero
    return array(np.clip(y, a["low"], a["high"]).astype(a["to"]))


def _quantize_affine(a: Attributes, x: Array, factor: Array, offset: Array) -> Array:
    """clip(rint(x * factor + offset), low, high), integers: the product and its sum in float64, rounded to x's dtype.

    So PyTorch quantises, by a fused multiply-add.
    """
    result = _at_once(a, x, factor, offset, FUSED)
    if result is not None:
        return result
    y = (x.astype(np.float64) * factor + offset).astype(x.dtype)
    return array(np.clip(np.rint(numbers("quantize", y)), a["low"], a["high"]).astype(a["to"]))


def _at_once(a: Attributes, x: Array, scale: Array, zero: Array, form: int) -> Array | None:
    """Return float32 of a CPU rounded to bytes by one step, by a kernel; None for others, and for NaN.

    So a network's input is rounded inside of its compiled call.
    """
    kind = np.dtype(a["to"])
    ends = _BYTES.get(kind.name)
    if type(x) is not np.ndarray or x.dtype != np.float32 or ends is None or not x.size:
        return None
    constants = [np.asarray(k) for k in (scale, zero)]
    if any(k.size != 1 or k.ndim > x.ndim for k in constants) or constants[0].dtype != np.float32:
        return None
    single = [k.astype(np.float32).reshape(1) for k in constants]
    low, high = np.float32(a["low"]), np.float32(a["high"])
    if not ends[0] <= low <= high <= ends[1] or low % 1 or high % 1 or single[1][0] % 1 or abs(single[1][0]) > 255:
        return None
    if form == CLIPPED and constants[1].dtype != np.float32:  # NumPy adds in float64 then
        return None
    order = order_in_memory(x)
    dense = contiguous(x.transpose(order))
    out, nan = empty("cpu", dense.shape, kind), zeros("cpu", (_PIECES,), np.bool_)
    kernel("cpu", "round_values")(dense.reshape(-1), *single, low, high, form, nan, out.reshape(-1))
    return None if is_set(nan) else out.transpose(np.argsort(order))


CLIPPED, ROUNDED, FUSED = range(3)  # forms of `round_values`
_BYTES = {"int8": (-128, 127), "uint8": (0, 255)}
_PIECES = 8  # ranges of values, one after the other taken by threads


def _bipolar(a: Attributes, x: Array) -> Array:
    return np.where(numbers("BipolarQuant", x) >= 0, np.int8(1), np.int8(-1))


def _bipolar_of(a: Attributes, x: Array, scale: Array, zero: Array) -> Array:
    """1 where x / scale + zero is at least 0, else -1."""
    return np.where(numbers("Quant", x / scale + zero) >= 0, np.int8(1), np.int8(-1))


def _sign(a: Attributes, x: Array) -> Array:
    return np.sign(numbers("Sign", x)).astype(np.int8)


def _dequantize(a: Attributes, x: Array, scale: Array, zero: Array) -> Array:
    """(x - zero) * scale, rounded once."""
    return array(((x.astype(np.float64) - zero) * scale).astype(a["to"]))


def _multi_threshold(a: Attributes, x: Array, thresholds: Array) -> Array:
    """Count how many thresholds [channels or 1, T] of its channel, axis 1, each value reaches: first + step * count."""
    flat = numbers("MultiThreshold", x).reshape(*x.shape[:2], -1)
    count = namespace(device_of(x)).zeros(flat.shape, np.int32)
    for t in thresholds.T:
        count += flat >= t.reshape(1, -1, 1)
    values: Array = (count * a.get("step", 1) + a.get("first", 0)).astype(a.get("to", "int32"))
    return values.reshape(x.shape)


def _trunc(a: Attributes, x: Array, scale: Array, zero: Array, step: Array) -> Array:
    """clip(rounding(round(x / scale + zero) / step), low, high): integers of x without their lowest bits."""
    y = ROUNDING["ROUND"](numbers("Trunc", x / scale + zero)) / step
    return array(np.clip(ROUNDING[a["rounding"]](y), a["low"], a["high"]).astype(a.get("to", "int64")))


def _counted(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    """Return the shape of x, which thresholds [channels or 1, T] fit."""
    x, thresholds = shapes
    if len(x) < 2 or len(thresholds) != 2 or thresholds[0] not in (1, x[1]):
        raise ValueError(f"thresholds {thresholds} do not fit {x}")
    return [x]


def _quantizer(run: Callable[..., Any], **known: Any) -> Operator:
    return Operator(run=run, direction=by_factor(divides=True), **known)


OPERATORS = {
    "quantize": _quantizer(
        _quantize,
        dtype=named("to"),
        needs=("low", "high", "rounding", "to"),
        order="kept",
        launches=True,
        rows=of_broadcast,
    ),
    "quantize_linear": _quantizer(
        _quantize_linear,
        dtype=named("to"),
        needs=("low", "high", "to"),
        order="kept",
        launches=True,
        rows=of_broadcast,
    ),
    "quantize_affine": Operator(
        run=_quantize_affine,
        direction=by_factor(),
        dtype=named("to"),
        needs=("low", "high", "to"),
        order="kept",
        launches=True,
        rows=of_broadcast,
    ),
    "bipolar": Operator(run=_bipolar, dtype=always("int8"), direction=rises),
    "bipolar_of": _quantizer(_bipolar_of, dtype=always("int8")),
    "sign": Operator(run=_sign, dtype=always("int8"), direction=rises),
    "dequantize_linear": Operator(run=_dequantize, dtype=named("to"), needs=("to",), direction=by_factor()),
    "multi_threshold": Operator(
        run=_multi_threshold,
        shape=_counted,
        dtype=named("to", "int32"),
        direction=rises,
        of_images=True,
        broadcasts=False,
    ),
    "truncate": _quantizer(_trunc, dtype=named("to", "int64"), needs=("low", "high", "rounding")),
}
