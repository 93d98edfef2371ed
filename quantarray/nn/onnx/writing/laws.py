"""Quantisers of QONNX for integer levels: of constant weights, of inputs, and of counts of limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....core.dtypes import Array, DType
from ..tensors import Refused
from .writer import SINGLE, Held, Writer, even, range_of

_MOST_STEPS = 255  # thresholds of one MultiThreshold that uneven levels may take
_FEW_STEPS = 16  # thresholds of a MultiThreshold that `load` turns into codes at any place in the graph


def weight(w: Writer, integers: Array, wide: bool) -> str:
    """Write constant integers through BipolarQuant, or through the Quant of fewest bits that has them."""
    low, high = int(integers.min(initial=0)), int(integers.max(initial=0))
    if max(-low, high) > SINGLE:
        raise Refused(f"weights up to {max(-low, high)} are not exact in float32")
    values = w.constant(integers.astype(np.float32), f"{w.label}.weight")
    one = w.constant(np.float32(1))
    if integers.size and (np.abs(integers) == 1).all():
        name = w.emit("BipolarQuant", [values, one])
    else:
        name = _quant(w, values, *_width(low, high))
    return w.cast(name, np.float64) if wide else name


def _width(low: int, high: int) -> tuple[int, int, int]:
    """Return (bits, signed, narrow) of the smallest range of Quant that holds low to high."""
    if low >= 0:
        return max(high.bit_length(), 1), 0, 0
    bits = max((-low - 1).bit_length() + 1, high.bit_length() + 1, 2)
    return bits, 1, int(low > -(1 << (bits - 1)))


def _quant(w: Writer, x: str, bits: int, signed: int, narrow: int) -> str:
    """Emit a Quant of scale 1 and zero point 0."""
    constants = [w.constant(np.float32(n)) for n in (1, 0, bits)]
    return w.emit("Quant", [x, *constants], signed=signed, narrow=narrow, rounding_mode="ROUND")


def ranged(w: Writer, x: str, kind: Any, ends: tuple[int, int], rounding: str, zero: int) -> str:
    """Write round(clip(x + zero, *ends)) - zero for a float tensor of dtype `kind`, by a Quant of scale 1."""
    low, high = ends
    bits, signed, narrow = _width(low, high)
    if max(bits, zero, -zero) > SINGLE or bits > 32:
        raise Refused(f"integers from {low} to {high} with a zero point of {zero}, which no Quant has")
    first, last = _limits(bits, signed, narrow)
    if zero and ends != (first, last):
        raise Refused(f"integers from {low} to {high} with a zero point, which no Quant has")
    if low > first:
        x = w.emit("Max", [x, w.constant(np.array(low, kind))])
    if high < last:
        x = w.emit("Min", [x, w.constant(np.array(high, kind))])
    constants = [w.constant(np.float32(n)) for n in (1, zero, bits)]
    return w.emit("Quant", [x, *constants], signed=signed, narrow=narrow, rounding_mode=rounding)


def bounded(w: Writer, x: str, shape: tuple[int, ...], dtype: DType) -> Held:
    """Quantise the float32 tensor x, whose values are levels of an integer dtype, so that its law is in the file."""
    assert dtype.levels is not None
    levels = tuple(sorted(dtype.levels))
    low, high = levels[0], levels[-1]
    if max(-low, high) > SINGLE:
        raise Refused(f"levels up to {max(-low, high)} are not exact in float32")
    row = len(levels) == high - low + 1
    bits, signed, narrow = _width(low, high)
    if levels == (-1, 1):
        name = w.emit("BipolarQuant", [x, w.constant(np.float32(1))])
    elif row and (low, high) == _limits(bits, signed, narrow):
        name = _quant(w, x, bits, signed, narrow)
    elif len(levels) > 1 and len(shape) > 1:
        name = _steps(w, x, np.array(levels[1:], np.float32)[None], np.array(levels))
    else:
        name = x
    return Held(shape, dtype, name, low=low, high=high)


def _limits(bits: int, signed: int, narrow: int) -> tuple[int, int]:
    return (-(1 << (bits - 1)) + narrow, (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1 - narrow)


def by_steps(w: Writer, x: str, limits: Array, law: Array, integers: bool) -> str:
    """Return law[number of limits that x reaches]: by the steps of one MultiThreshold, or looked up."""
    if integers:
        steps = np.diff(law)
        total = int(np.abs(steps).sum()) // even(law)
        if len(steps) and (steps > 0).all() and np.abs(law).max() <= SINGLE and total <= max(_MOST_STEPS, len(steps)):
            return _steps(w, x, limits, law)
    return looked_up(w, counted(w, x, limits), law)


def _steps(w: Writer, x: str, limits: Array, law: Array) -> str:
    """Emit the MultiThreshold of rising integers; limits of uneven steps are repeated."""
    if law.tolist() == [-1, 1] and limits.shape[0] == 1 and limits[0, 0] == 0:
        return w.emit("BipolarQuant", [x, w.constant(np.float32(1))])
    step = even(law)
    repeated = np.repeat(limits, np.diff(law) // step, axis=1)
    return counted(w, x, repeated, step, int(law[0]))


def counted(w: Writer, x: str, limits: Array, step: int = 1, first: int = 0) -> str:
    """Return first + step * how many limits [channels or 1, T] each value reaches, as float32."""
    narrow = limits.astype(np.float32)
    held = narrow if (narrow == limits).all() else limits.astype(np.float64)
    last = first + step * limits.shape[1]
    bits, signed, _ = _width(min(first, 0), last)
    return w.emit(
        "MultiThreshold",
        [x, w.constant(held, f"{w.label}.thresholds")],
        out_scale=float(step),
        out_bias=float(first),
        out_dtype="BIPOLAR" if (first, last, step) == (-1, 1, 2) else f"{'' if signed else 'U'}INT{bits}",
    )


def looked_up(w: Writer, count: str, table: Array) -> str:
    """Return table[count] as float32."""
    held = table.astype(_smallest(table)) if table.dtype.kind in "iu" else table.astype(np.float32)
    if held.dtype.kind in "iu" and np.abs(table).max() > SINGLE:
        raise Refused("levels that float32 does not hold exactly")
    name = w.emit("Gather", [w.constant(held, f"{w.label}.levels"), w.cast(count, np.int32)], axis=0)
    return name if held.dtype.kind == "f" else w.cast(name, np.float32)


def _smallest(a: Array) -> Any:
    for name in ("int8", "uint8", "int32"):
        low, high = range_of(name)
        if low is not None and high is not None and low <= a.min() and a.max() <= high:
            return name
    return "int64"


def shifted(w: Writer, x: Held, shift: int, dtype: Any) -> Held:
    """Add a number to integers."""
    assert x.low is not None and x.high is not None
    if x.shifted is not None and x.shifted[1] == -shift:
        return replace(x.shifted[0], dtype=dtype)
    if not shift:
        return replace(x, dtype=dtype)
    low, high = x.low + shift, x.high + shift
    small = next((k for k in (np.uint8, np.int8) if _within(k, x.low, x.high) and _within(k, -shift, -shift)), None)
    wide = w.is_wide(x)
    if high - low <= _FEW_STEPS and len(x.shape) > 1:
        name = _steps(w, w.real(x), np.arange(x.low + 1, x.high + 1)[None], np.arange(low, high + 1))
        wide = False
    elif small is not None:
        constants = [w.constant(np.float32(1)), w.constant(small(-shift))]
        name, wide = w.emit("DequantizeLinear", [w.of_dtype(x, small), *constants]), False
    else:
        wide = wide or max(-low, high) > SINGLE
        kind = np.float64 if wide else np.float32
        name = w.emit("Add", [w.real(x, wide), w.constant(kind(shift))])
    return Held(x.shape, dtype, name, wide, low=low, high=high)


def _within(kind: Any, low: int, high: int) -> bool:
    info = np.iinfo(kind)
    return bool(info.min <= low and high <= info.max)


def mapped(w: Writer, x: Held, levels: Array, values: Array, dtype: Any) -> Held:
    """Return for each of the levels of x, integers, its value."""
    order = np.argsort(levels)
    rising, law = levels[order], values[order]
    integers = law.dtype.kind in "iu"
    low, high = (int(law.min()), int(law.max())) if integers else (None, None)
    steps, shift = np.diff(law), int(law[0] - rising[0]) if integers else 0
    if integers and (law - rising == shift).all():
        name = w.real(x)
        if shift:
            name = w.emit("Add", [name, w.constant(np.float64(shift) if w.is_wide(x) else np.float32(shift))])
        return Held(x.shape, dtype, name, w.is_wide(x), low=low, high=high)
    if len(steps) == 0 or len(x.shape) < 2:
        raise Refused("a function of one level, or of one axis")
    name = by_steps(w, w.real(x), rising[1:][None], law, integers)
    return Held(x.shape, dtype, name, low=low, high=high)
