"""Quantisers of a graph that run in NumPy, as their arithmetic followed by QONNX's quantisers of scale 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...inference import Kind
from ..tensors import Refused
from .arithmetic import WRITE as ARITHMETIC
from .arithmetic import of_type
from .laws import counted, ranged, shifted
from .writer import SINGLE, Held, Writer

Kinds = list[Kind]


def _divided(w: Writer, x: Held, scale: Held, zero: Held | None) -> tuple[str, np.dtype[Any]]:
    """Write x / scale + zero in the dtypes in which the operation computes them; return (name, dtype)."""
    kind = np.dtype(np.result_type(x.kind, _value(scale)))
    name = w.of_dtype(x, kind)
    if not (_value(scale) == 1).all():
        name = w.emit("Div", [name, w.of_dtype(scale, kind)])
    if zero is not None and (_value(zero) != 0).any():
        total = np.dtype(np.result_type(kind, _value(zero)))
        name = name if total == kind else w.cast(name, total)
        name, kind = w.emit("Add", [name, w.of_dtype(zero, total)]), total
    return name, kind


def _at_least_single(w: Writer, name: str, kind: np.dtype[Any]) -> tuple[str, np.dtype[Any]]:
    """Convert float16, whose values float32 has, to the float32 of QONNX's quantisers; return (name, dtype)."""
    return (name, kind) if kind.itemsize > 2 else (w.cast(name, np.float32), np.dtype(np.float32))


def _value(x: Held) -> Any:
    if x.value is None:
        raise Refused("its scale and zero point must be constants")
    return x.value


def _quantize(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write round(clip(x / scale + zero, low, high)); the Quant adds one zero point, and subtracts it again."""
    zero = _value(x[2])
    wide = np.result_type(x[0].kind, _value(x[1]), zero).itemsize > 2  # else a Quant would add in float32
    inside = zero.size == 1 and wide
    name, kind = _at_least_single(w, *_divided(w, x[0], x[1], None if inside else x[2]))
    shape, dtype, low, high = kinds[0].shape, np.dtype(kinds[0].dtype), a["low"], a["high"]
    at = int(zero.reshape(())) if inside else 0
    if inside and at != zero:
        raise Refused(f"its zero point {zero} is no integer")
    out = ranged(w, name, kind, (low, high), a["rounding"], at)
    less = Held(shape, dtype, out, False, low=low - at, high=high - at)
    less = _exact(w, less)
    if not at:
        return [less]
    y = shifted(w, less, at, dtype)
    y.shifted = (less, at)
    return [y]


def _exact(w: Writer, x: Held) -> Held:
    """Return integers in float64 if float32 does not hold all of their range."""
    return x if x.reach <= SINGLE else replace(x, real=w.cast(x.real, np.float64), wide=True)


def _quantize_linear(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write clip(rint(x / scale) + zero, low, high)."""
    name, kind = _divided(w, x[0], x[1], None)
    if (_value(x[2]) != 0).any():
        name, kind = _at_least_single(w, w.emit("Round", [name]), kind)
        name = w.emit("Add", [name, w.of_dtype(x[2], kind)])
    name, kind = _at_least_single(w, name, kind)
    out = ranged(w, name, kind, (a["low"], a["high"]), "ROUND", 0)
    return [_exact(w, Held(kinds[0].shape, np.dtype(kinds[0].dtype), out, low=a["low"], high=a["high"]))]


def _quantize_affine(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write clip(rint(x * factor + offset)), the sum in float64, rounded once."""
    total = ARITHMETIC["affine"](w, "affine", {}, x, [kinds[0]._replace(dtype=x[0].kind)])[0]
    name, kind = _at_least_single(w, w.typed(total), np.dtype(x[0].kind))
    out = ranged(w, name, kind, (a["low"], a["high"]), "ROUND", 0)
    return [_exact(w, Held(kinds[0].shape, np.dtype(kinds[0].dtype), out, low=a["low"], high=a["high"]))]


def _bipolar(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write 1 where x, or x / scale + zero, is at least 0, else -1."""
    name = _divided(w, x[0], x[1], x[2])[0] if op == "bipolar_of" else w.real(x[0])
    out = w.emit("BipolarQuant", [name, w.constant(np.float32(1))])  # float32, whatever x is
    return [Held(kinds[0].shape, np.dtype(np.int8), out, low=-1, high=1)]


def _sign(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    signs, wide = w.emit("Sign", [w.real(x[0])]), w.is_wide(x[0])
    return [Held(kinds[0].shape, np.dtype(np.int8), signs, wide, low=-1, high=1)]


def _dequantize(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write (x - zero) * scale in float64, rounded once."""
    v, scale, zero, dtype = x[0], _value(x[1]), _value(x[2]), np.dtype(kinds[0].dtype)
    if not v.whole:
        raise Refused("it takes integers")
    if zero.size == 1:
        v = shifted(w, v, -int(zero.reshape(())), np.dtype(np.int64))
        if dtype == np.float32 and v.shape == kinds[0].shape:
            return [w.scaled(v, scale, dtype)]
        name = w.of_dtype(v, np.float64)
    else:
        name = w.emit("Sub", [w.of_dtype(v, np.float64), w.of_dtype(x[2], np.float64)])
    name = w.emit("Mul", [name, w.constant(scale.astype(np.float64))])
    return [of_type(name if dtype == np.float64 else w.cast(name, dtype), kinds[0])]


def _truncate(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write clip(rounding(rint(x / scale + zero) / step), low, high)."""
    name, kind = _divided(w, x[0], x[1], x[2])
    total = np.dtype(np.result_type(kind, _value(x[3])))
    name = w.emit("Round", [name])
    name = w.emit("Div", [name if total == kind else w.cast(name, total), w.of_dtype(x[3], total)])
    name, kind = _at_least_single(w, name, total)
    out = ranged(w, name, kind, (a["low"], a["high"]), a["rounding"], 0)
    return [_exact(w, Held(kinds[0].shape, np.dtype(kinds[0].dtype), out, low=a["low"], high=a["high"]))]


def _multi_threshold(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    T, first, step = _value(x[1]), a.get("first", 0), a.get("step", 1)
    name = counted(w, w.real(x[0]) if x[0].whole else w.typed(x[0]), T, step, first)
    return [Held(kinds[0].shape, np.dtype(kinds[0].dtype), name, low=first, high=first + step * T.shape[1])]


WRITE: dict[str, Callable[..., list[Held]]] = {
    "quantize": _quantize,
    "quantize_linear": _quantize_linear,
    "quantize_affine": _quantize_affine,
    "bipolar": _bipolar,
    "bipolar_of": _bipolar,
    "sign": _sign,
    "dequantize_linear": _dequantize,
    "truncate": _truncate,
    "multi_threshold": _multi_threshold,
}
