"""Operators element by element: on exact integers as floats, else on the tensors of their dtypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...inference import Kind
from ...operators import OPERATORS
from ..tensors import Refused
from .laws import shifted
from .writer import DOUBLE, SINGLE, Held, Writer, range_of


def fits(dtype: Any, low: int, high: int) -> bool:
    """Return True if an integer dtype holds low to high."""
    first, last = range_of(dtype)
    return first is not None and last is not None and first <= low and high <= last


def elementwise(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write an operator: of integers as floats that hold them and the result exactly, if there are such."""
    shape, dtype = kinds[0].shape, np.dtype(kinds[0].dtype)
    bounds = OPERATORS[op].bounds
    if bounds is not None and dtype.kind in "iu" and all(v.whole for v in x):
        low, high = bounds([(v.low, v.high) for v in x])
        reach = max(-low, high, *(v.reach for v in x))
        if op in ("Add", "Sub") and (moved := _moved(w, op, x, dtype)) is not None and moved.shape == shape:
            return [moved]
        if reach <= DOUBLE and fits(dtype, low, high):
            wide = reach > SINGLE
            name = w.emit(op, [w.real(v, wide) for v in x])
            return [Held(shape, dtype, name, wide, low=low, high=high)]
    return [typed(w, op, a, x, kinds[0])]


def _moved(w: Writer, op: str, x: list[Held], dtype: Any) -> Held | None:
    """Return x plus or minus one constant integer that was subtracted or added before; None if it is no such sum."""
    value = x[1].value
    if value is None or value.size != 1 or x[0].shifted is None:
        return None
    shift = int(value.reshape(())) * (1 if op == "Add" else -1)
    return shifted(w, x[0], shift, dtype) if x[0].shifted[1] == -shift else None


def typed(w: Writer, op: str, a: dict[str, Any], x: list[Any], kind: Kind) -> Held:
    """Write an operator on tensors of one dtype, that of the result."""
    names = ["" if v is None else w.of_dtype(v, kind.dtype) for v in x]
    return of_type(w.emit(op, names, **w.schema(op, a)), kind)


def of_type(name: str, kind: Kind) -> Held:
    """Return the value in a tensor of its own dtype."""
    dtype = np.dtype(kind.dtype)
    low, high = range_of(dtype)
    return Held(kind.shape, dtype, typed=name, low=low, high=high)


def _hard_tanh(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    kind = np.dtype(kinds[0].dtype).type
    low, high = (w.constant(kind(a.get(name, n))) for name, n in (("min_val", -1.0), ("max_val", 1.0)))
    name = w.emit("Max", [w.of_dtype(x[0], kind), low])
    return [of_type(w.emit("Min", [name, high]), kinds[0])]


def _clip(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write Clip as Max and Min: of a lower bound above the upper one, ONNX's Clip is not defined."""
    y = x[0]
    for name, bound in zip(("Max", "Min"), x[1:], strict=False):
        if bound is not None:
            dtype = np.dtype(kinds[0].dtype)
            if bound.value is not None and bound.value.dtype != dtype:
                raise Refused(f"a bound of {bound.value.dtype} for values of {dtype}")
            y = elementwise(w, name, {}, [y, bound], kinds)[0]
    return [y]


def _pow(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    return [of_type(w.emit("Pow", [w.typed(v) for v in x]), kinds[0])]


def _cast(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    v, dtype = x[0], np.dtype(kinds[0].dtype)
    if v.whole and dtype.kind in "iu" and fits(dtype, v.low, v.high):
        typed_as = v.typed if v.typed and v.kind == dtype else ""
        if v.real or typed_as:
            return [replace(v, dtype=dtype, typed=typed_as)]
    if v.whole and dtype.kind == "f" and v.reach <= SINGLE:
        return [of_type(w.of_dtype(v, dtype), kinds[0])]
    name = w.typed(v)
    return [of_type(name if v.kind == dtype else w.cast(name, dtype), kinds[0])]


def _scale(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write x * scale in float64, rounded once."""
    v, scale, dtype = x[0], x[1].value, np.dtype(kinds[0].dtype)
    if scale is None:
        raise Refused("its scale must be a constant")
    if v.whole and dtype == np.float32 and v.shape == kinds[0].shape:
        return [w.scaled(v, scale, dtype)]
    name = w.emit("Mul", [w.of_dtype(v, np.float64), w.constant(scale.astype(np.float64))])
    return [of_type(name if dtype == np.float64 else w.cast(name, dtype), kinds[0])]


def _affine(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write x * factor + offset in float64, rounded once."""
    wide = [w.of_dtype(v, np.float64) for v in x]
    name = w.emit("Add", [w.emit("Mul", wide[:2]), wide[2]])
    dtype = np.dtype(kinds[0].dtype)
    return [of_type(name if dtype == np.float64 else w.cast(name, dtype), kinds[0])]


def _compared(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write a comparison, of integers as floats that hold them if there are such."""
    if all(v.whole and v.reach <= DOUBLE for v in x):
        wide = any(map(w.is_wide, x))
        names = [w.real(v, wide) for v in x]
    else:
        names = [w.of_dtype(v, np.result_type(*(v.kind for v in x))) for v in x]
    return [of_type(w.emit(op, names), kinds[0])]


def _logical(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    return [of_type(w.emit(op, [w.typed(v) for v in x]), kinds[0])]


def _where(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    parts = [w.typed(x[0]), *(w.of_dtype(v, kinds[0].dtype) for v in x[1:])]
    return [of_type(w.emit(op, parts), kinds[0])]


def _bucketize(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write the number of limits below x as a sum of comparisons; all are below a NaN."""
    dtype = np.result_type(x[0].kind, x[1].kind)
    each = w.emit("Unsqueeze", [w.of_dtype(x[0], dtype), w.constant(np.array([-1]))])
    name = w.emit("Less" if a.get("right") else "LessOrEqual", [each, w.of_dtype(x[1], dtype)])
    name = w.cast(w.emit("Not", [name]), np.int64)
    return [of_type(w.emit("ReduceSum", [name, w.constant(np.array([-1]))], keepdims=0), kinds[0])]


_PLAIN = (
    "Identity Relu LeakyRelu PRelu Sign Sigmoid HardSigmoid HardSwish Elu Selu Erf Softplus Tanh Mish Gelu Abs Neg "
    "Floor Ceil Round Sqrt Exp Log Reciprocal Add Sub Mul Div Max Min Sum"
).split()
WRITE: dict[str, Callable[..., list[Held]]] = {
    **dict.fromkeys(_PLAIN, elementwise),
    **dict.fromkeys("Greater GreaterOrEqual Less LessOrEqual Equal".split(), _compared),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), _logical),
    "Where": _where,
    "bucketize": _bucketize,
    "HardTanh": _hard_tanh,
    "Clip": _clip,
    "Pow": _pow,
    "Cast": _cast,
    "scale": _scale,
    "affine": _affine,
}
