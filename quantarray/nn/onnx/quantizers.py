"""Quantisers of QONNX and of ONNX: codes by thresholds, integers of their levels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..operators import OPERATORS
from ..operators.integer_operators import spread
from ..operators.quantizing import ROUNDING
from .building import Builder
from .laws import Constant, Link, Operand, Shape, Tensor, scaling
from .reading import Step
from .tensors import Refused

_MOST_TRUNCATED = 2**31
_INFINITE = (-math.inf, math.inf)


def constant(x: Operand, what: str) -> Array:
    """Return the value of an operand; raise Refused if it is not constant."""
    if not isinstance(x, Constant):
        raise Refused(f"its {what} must be a constant")
    return x.value


def _number(x: Operand, what: str) -> float:
    a = constant(x, what)
    if a.size != 1:
        raise Refused(f"its {what} must be one number, not {a.shape}")
    value = float(a.reshape(()))
    if not np.isfinite(value):
        raise Refused(f"its {what} is {value}")
    return value


def _positive(scale: Array) -> Array:
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise Refused("its scale must be positive")
    return scale


def _quant(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, a = operands[0], step.attributes
    assert x is not None
    for name in ("signed", "narrow"):
        if a.get(name) not in (0, 1):
            raise Refused(f"its attribute {name} must be 0 or 1, got {a.get(name)}")
    scale, zero = _positive(constant(operands[1], "scale")), constant(operands[2], "zero point")
    bits, rounding = _number(operands[3], "bit width"), str(a.get("rounding_mode", "ROUND")).upper()
    if bits != int(bits) or not 1 <= bits <= 32:
        raise Refused(f"its bit width must be an integer from 1 to 32, not {bits:g}")
    if rounding not in ROUNDING:
        raise Refused(f"its rounding mode {rounding!r} is none of {', '.join(ROUNDING)}")
    _fits(b, x, scale, zero)
    low, high = _range(int(bits), bool(a["signed"]), bool(a["narrow"]))
    if (zero != np.rint(zero)).any() or np.abs(zero.astype(np.float64)).max(initial=0) > 2**31:
        raise Refused("its zero point must be an integer below 2**31")
    if zero.size > 1 and not isinstance(x, Constant):
        raise Refused("its zero point must be one integer: only constants may have one for each channel")
    moved: Any = zero.astype(np.int64) if zero.size > 1 else int(zero.reshape(()))
    tail = (scaling(scale, np.dtype(np.float32)),)
    if bits == 1 and a["signed"]:  # QONNX has -1 and 1 for it
        shifted = b.quantised(x, Link("bipolar_of", {}, (None, scale, zero)), (-1, 1), moved, tail, np.float32)
        return [shifted]
    last = Link("quantize", {"low": low, "high": high, "rounding": rounding, "to": "int64"}, (None, scale, zero))
    return [b.quantised(x, last, range(low, high + 1), moved, tail, np.float32)]


def _fits(b: Builder, x: Tensor | Constant, *operands: Array) -> None:
    """Raise Refused if constants do not broadcast to x, NotPerSample if they differ between samples."""
    for a in operands:
        if np.broadcast_shapes(a.shape, x.shape) != x.shape:
            raise Refused(f"constants of shape {a.shape} for a value of shape {x.shape}")
        if isinstance(x, Tensor):
            b.per_sample(a.ndim < len(x.shape) or a.ndim == 0 or a.shape[0] == 1)


def _range(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    if signed:
        return -(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _bipolar(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = operands[0]
    assert x is not None
    scale = _positive(constant(operands[1], "scale"))
    _fits(b, x, scale)
    tail = (scaling(scale, np.dtype(np.float32)),)
    return [b.quantised(x, Link("bipolar", {}, (None,)), (-1, 1), 0, tail, np.float32)]


def _sign(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = operands[0]
    assert x is not None
    if x.dtype.kind != "f":
        return [*b.numpy(step, operands, shapes, x.dtype)]
    return [b.quantised(x, Link("sign", {}, (None,)), (-1, 0, 1), 0, (scaling(1.0, x.dtype),), x.dtype)]


def _multi_threshold(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, a, T = operands[0], step.attributes, constant(operands[1], "thresholds")
    assert x is not None
    scale, bias = float(a.get("out_scale", 1.0)), float(a.get("out_bias", 0.0))
    if a.get("data_layout", "NCHW") not in ("NCHW", "NC", ""):
        raise Refused(f"its layout {a['data_layout']!r} is not NCHW")
    if len(x.shape) < 2 or T.ndim != 2 or T.shape[0] not in (1, x.shape[1]) or not 1 <= T.shape[1] < 1 << 16:
        raise Refused(f"thresholds {T.shape} must be [channels, T] for {x.shape}")
    if np.isnan(T).any() or not np.isfinite([scale, bias]).all() or scale == 0:
        raise Refused("its thresholds, scale and bias must be numbers, and the scale not 0")
    shift = -bias / scale
    whole = shift == int(shift) and abs(shift) < 2**31 and (-shift) * scale == bias
    last, levels = Link("multi_threshold", {"to": "int32"}, (None, T)), range(T.shape[1] + 1)
    if whole:
        return [b.quantised(x, last, levels, int(shift), (scaling(scale, np.dtype(np.float32)),), np.float32)]
    if shift - 0.5 == int(shift - 0.5) and abs(shift) < 2**31 and scale > 0 and -shift * scale == bias:  # as bipolar is
        first = int(-2 * shift)
        last = Link("multi_threshold", {"first": first, "step": 2, "to": "int32"}, (None, T))
        levels, half = range(first, first + 2 * T.shape[1] + 1, 2), scaling(scale / 2, np.dtype(np.float32))
        return [b.quantised(x, last, levels, 0, (half,), np.float32)]
    tail = (scaling(scale, np.dtype(np.float32)), Link("Add", {}, (None, np.array(bias, np.float32))))
    return [b.quantised(x, last, levels, 0, tail, np.float32)]


def _trunc(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert QONNX's Trunc: integers of x without their lowest bits.

    Version 1 (5 operands) leaves the result in the scale of x and its zero point, and does not clip. Version 2 has a
    scale of the result, whose ratio to that of x is taken as the nearest power of two; its zero point is divided by it.
    """
    x, a = operands[0], step.attributes
    assert x is not None
    scale, zero = _positive(constant(operands[1], "scale")), constant(operands[2], "zero point")
    bits = _number(operands[3], "number of bits")
    if len(operands) > 5:
        out_scale, out_bits = _positive(constant(operands[4], "scale of the result")), _number(operands[5], "bits")
    else:
        out_bits, out_scale = _number(operands[4], "number of bits of the result"), scale
    rounding = str(a.get("rounding_mode", "FLOOR")).upper()
    if rounding not in ROUNDING or zero.size != 1 or zero != np.rint(zero):
        raise Refused("its rounding mode or its zero point is not taken")
    if not all(n == int(n) and 1 <= n <= 32 for n in (bits, out_bits)):
        raise Refused(f"its numbers of bits {bits:g} and {out_bits:g} must be integers from 1 to 32")
    _fits(b, x, scale, zero, out_scale)
    if len(operands) > 5:
        ends = _range(int(out_bits), bool(a.get("signed", 1)), bool(a.get("narrow", 0)))
        ratio = np.asarray(2.0 ** np.round(np.log2(out_scale / scale)))
        return [_truncated(b, x, (scale, zero, ratio), rounding, ends, out_scale, zero / ratio)]
    ratio = np.array(2.0 ** (bits - out_bits))
    bounds = _reached(x, scale, zero, ratio, rounding)
    if bounds is None:
        return [_truncated_floats(b, x, (scale, zero, ratio), rounding)]
    return [_truncated(b, x, (scale, zero, ratio), rounding, bounds, scale, zero)]


def _truncated(
    b: Builder, x: Tensor | Constant, operands: tuple[Array, Array, Array], rounding: str, bounds: tuple[int, int],
    out_scale: Array, out_zero: Array,
) -> Operand:  # fmt: skip
    """Return (integers - out_zero) * out_scale of integers within bounds, by (scale, zero point, ratio of scales)."""
    if out_zero.size > 1 and (out_zero != out_zero.reshape(-1)[0]).any():
        raise Refused("its scales have several ratios, and a zero point")
    low, high = bounds
    attributes = {"low": low, "high": high, "rounding": rounding, "to": "int64"}
    last = Link("truncate", attributes, (None, *operands[:2], operands[2].astype(np.float32)))
    zero = float(out_zero.reshape(-1)[0])
    moved, kind = int(zero) if zero == int(zero) else 0, np.dtype(np.float32)
    tail: tuple[Link, ...] = (scaling(out_scale, kind),)
    if moved != zero:
        subtract = Link("Sub", {}, (None, np.array(zero, kind)))
        tail = (scaling(1.0, kind), subtract, Link("Mul", {}, (None, out_scale)))
    return b.quantised(x, last, range(low, high + 1), moved, tail, kind)


def _truncated_floats(b: Builder, x: Tensor | Constant, operands: tuple[Array, Array, Array], rounding: str) -> Operand:
    """Convert a truncation in float32, to integers of any size."""
    names = [b.dense(x), *(b.constant(a.astype(np.float32)) for a in operands)]
    low, high = _INFINITE
    name = b.emit("truncate", names, b.hint, low=low, high=high, rounding=rounding, to="float32")
    scale, zero, _ = (a.astype(np.float32) for a in operands)
    shifted = b.value(name, x.shape, np.float32).then(Link("Sub", {}, (None, zero)))
    return shifted.then(Link("Mul", {}, (None, scale)))


def _reached(x: Tensor | Constant, scale: Array, zero: Array, step: Array, rounding: str) -> tuple[int, int] | None:
    """Bound the integers of a Trunc that does not clip: it never falls, so the ends of x have its ends.

    None where x is not known to be bounded.
    """
    if isinstance(x, Constant):
        ends = np.array([x.value.min(initial=0), x.value.max(initial=0)])
    elif x.pure is None or x.pure.size > 1 or (x.pure < 0).any():
        return None
    else:
        ends = (np.array(x.source.bounds) * x.pure.reshape(())).astype(np.float32)
    if scale.size > 1 or np.isnan(ends).any():
        return None
    attributes = {"low": -math.inf, "high": math.inf, "rounding": rounding, "to": "float64"}
    scale, zero = scale.reshape(()), zero.reshape(())
    low, high = OPERATORS["truncate"].run(attributes, ends, scale, zero, step.astype(np.float32))
    return (int(low), int(max(high, low + 1))) if max(-low, high) < _MOST_TRUNCATED else None


def _quantize_linear(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x = operands[0]
    assert x is not None
    low, high = step.attributes["low"], step.attributes["high"]
    if any(isinstance(c, Tensor) for c in operands[1:]):
        b.per_sample(False)
        return [*b.numpy(step, operands, [x.shape], step.attributes["held"])]
    if x.dtype.kind != "f":
        raise Refused(f"it quantises {x.dtype}, not floats")
    scale, zero = linear_operands(b, step, operands)
    attributes = {"low": low, "high": high, "to": "int64"}
    last = Link("quantize_linear", attributes, (None, scale.astype(x.dtype), zero))
    return [b.quantised(x, last, range(low, high + 1), 0, (), step.attributes["held"])]


def _dynamic(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert DynamicQuantizeLinear to NumPy: its scale and zero point are those of all samples."""
    x = operands[0]
    assert x is not None
    b.per_sample(False)
    if x.dtype != np.float32 or 0 in x.shape:
        raise Refused(f"it quantises {x.dtype} of shape {x.shape}, not float32 with elements")
    return [*b.numpy(step, operands, shapes, [np.uint8, np.float32, np.uint8])]


def linear_operands(b: Builder, step: Step, operands: list[Operand]) -> tuple[Array, Array]:
    """(scale, zero point) as they broadcast to x: one, one along an axis, or one a block of it."""
    x, a = operands[0], step.attributes
    assert x is not None
    scale = constant(operands[1], "scale")
    if scale.dtype.kind != "f":
        raise Refused(f"its scale must be floats, not {scale.dtype}")
    zero = (
        constant(operands[2], "zero point") if len(operands) > 2 and operands[2] is not None else np.zeros((), np.int64)
    )
    if not (np.isfinite(scale).all() and (scale != 0).all()):
        raise Refused("its scale must be finite and not 0")
    if zero.dtype.kind not in "iu":
        raise Refused(f"its zero point must be integers, not {zero.dtype}")
    zero = zero.astype(np.int64)
    axis, block = int(a.get("axis", 1)), int(a.get("block_size", 0))
    scale, zero = spread(scale, x.shape, axis, block), spread(zero, x.shape, axis, block)
    _fits(b, x, scale, zero)
    return scale, zero


def _dequantize_linear(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, to = operands[0], np.dtype(step.attributes["held"])
    assert x is not None
    if any(isinstance(c, Tensor) for c in operands[1:]):
        b.per_sample(False)
        return [*b.numpy(step, operands, [x.shape], to)]
    scale, zero = linear_operands(b, step, operands)
    if isinstance(x, Constant):
        whole = x.value.astype(np.int64) - zero
        return [Constant((whole * scale.astype(np.float64)).astype(to), whole, scale.astype(np.float64))]
    if zero.size == 1 and x.pure is not None and not x.chain:
        moved = minus(b, x, int(zero.reshape(())))
        if moved is not None:
            return [Tensor(x.shape, to, moved, (scaling(scale, to),))]
    return [x.then(Link("dequantize_linear", {"to": str(to)}, (None, scale.astype(np.float64), zero)), dtype=to)]


def minus(b: Builder, x: Tensor, zero: int) -> Any:
    """Subtract a zero point from the integers of x: relabel codes, pack dense ones; None if they are too wide."""
    source = x.source
    if zero == 0:
        return source
    low, high = source.low, source.high
    assert low is not None and high is not None
    new = (low - zero, high - zero)
    if max(-new[0], new[1]) >= 2**31:
        return None
    axis = 1 if len(x.shape) != 3 else 2
    if source.levels is not None:
        levels = tuple(n - zero for n in source.levels)
        name = b.emit("relabel", [source.name], f"{source.name}.moved", levels=levels)
    elif high - low < 256 and len(x.shape) >= 2:
        levels = tuple(range(new[0], new[1] + 1))
        name = b.emit("pack", [source.name], f"{source.name}.moved", levels=levels, shift=-zero, axis=axis)
        b.packed[name] = source, zero
    else:
        return None
    return type(source)(name, source.shape, np.dtype(np.int32), levels, *new)


LOWER = {
    "Quant": _quant,
    "IntQuant": _quant,
    "BipolarQuant": _bipolar,
    "Sign": _sign,
    "MultiThreshold": _multi_threshold,
    "Trunc": _trunc,
    "QuantizeLinear": _quantize_linear,
    "DynamicQuantizeLinear": _dynamic,
    "DequantizeLinear": _dequantize_linear,
}
