"""Operators that move elements, on the tensor that holds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...inference import Kind
from ..tensors import Refused
from .arithmetic import elementwise, of_type
from .writer import Held, Writer, constant_of

Kinds = list[Kind]


def _moved(w: Writer, op: str, x: Held, rest: list[Any], kinds: Kinds, attributes: dict[str, Any]) -> list[Held]:
    """Write an operator whose results have elements of x alone; `rest` are constants, "" for an omitted one."""
    constants = [c if isinstance(c, str) else w.constant(c) for c in rest]
    while constants and not constants[-1]:
        constants.pop()
    real = bool(x.real) or (x.value is not None and x.whole)
    source = w.real(x) if real else w.typed(x)
    wide = real and w.is_wide(x)
    hints = [f"{w.label}.{op}"] * len(kinds)
    names = w.emit_all(op, [source, *constants], hints, **w.schema(op, attributes))
    held = [("", name) if not real else (name, "") for name in names]
    return [Held(k.shape, k.dtype, r, wide, t, x.low, x.high) for k, (r, t) in zip(kinds, held, strict=True)]


def _integers(*names: str) -> Callable[[dict[str, Any], list[Any]], list[Any]]:
    """Return the function that gives operands, which attributes may hold, as int64 constants."""

    def of(a: dict[str, Any], x: list[Any]) -> list[Any]:
        return [_constant(x[i + 1]) if len(x) > i + 1 and x[i + 1] is not None else _ints(a.get(n))
                for i, n in enumerate(names)]  # fmt: skip

    return of


def _constant(x: Held) -> Any:
    if x.value is None:
        raise Refused("its operands beside the first must be constants")
    return x.value


def _ints(a: Any) -> Any:
    return "" if a is None else np.asarray(a, np.int64).reshape(-1)


def _by(operands: Callable[..., list[Any]], op: str = "", **fixed: Any) -> Callable[..., list[Held]]:
    def write(w: Writer, name: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
        return _moved(w, op or name, x[0], operands(a, x), kinds, {**a, **fixed})

    return write


def _reshape(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    shape = _integers("shape")(a, x)
    allowzero = 1 if op == "reshape" else a.get("allowzero", 0)
    return _moved(w, "Reshape", x[0], shape, kinds, {"allowzero": allowzero})


def _concat(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Join values: integers as floats, others in the dtype of the result."""
    kind = kinds[0]
    if all(v.whole for v in x):
        wide = any(map(w.is_wide, x))
        name = w.emit("Concat", [w.real(v, wide) for v in x], axis=a.get("axis", 1))
        low, high = min(v.low for v in x), max(v.high for v in x)
        return [Held(kind.shape, kind.dtype, name, wide, low=low, high=high)]
    dtype = np.float32 if not isinstance(kind.dtype, np.dtype) else kind.dtype
    name = w.emit("Concat", [w.of_dtype(v, dtype) for v in x], axis=a.get("axis", 1))
    return [Held(kind.shape, kind.dtype, typed=name)]


def _split(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    axis = a.get("axis", 0)
    sizes = np.array([k.shape[axis] for k in kinds], np.int64)
    return _moved(w, "Split", x[0], [sizes], kinds, {"axis": axis})


def split(w: Writer, x: Held, lengths: Any, axis: int, kinds: Kinds) -> list[Held]:
    """Cut a value along an axis into parts of some lengths."""
    return _moved(w, "Split", x, [_ints(lengths)], kinds, {"axis": axis})


def _pad(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    pads, value, axes = (*_integers("pads")(a, x), *x[2:3], *x[3:4], None, None)[:3]
    constant = _constant(value) if isinstance(value, Held) else np.asarray(a.get("value", 0))
    fill = float(constant.reshape(-1)[0])
    v = x[0]
    at = "" if axes is None else _constant(axes)
    if a.get("mode", "constant") != "constant":
        return _moved(w, "Pad", v, [pads, "", at], kinds, a)
    if v.whole and not fill.is_integer():
        raise Refused(f"integers padded with {fill}")
    if v.whole:  # as floats, which `load` pads as integers
        wide = w.is_wide(v)
        v = Held(v.shape, v.dtype, w.real(v, wide), wide, low=min(v.low, int(fill)), high=max(v.high, int(fill)))
    kind = np.dtype(np.float64 if v.wide else np.float32) if v.whole else v.kind
    return _moved(w, "Pad", v, [pads, np.asarray(fill, kind), at], kinds, a)


def _resize(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    rest = ["" if v is None else _constant(v) for v in (*x[1:], None, None, None)][:3]
    v = x[0]
    if a.get("mode", "nearest") != "nearest":  # which gives no integers
        operands = [w.typed(v), *(c if isinstance(c, str) else w.constant(c) for c in rest)]
        return [of_type(w.emit("Resize", operands, **w.schema("Resize", a)), kinds[0])]
    if a.get("coordinate_transformation_mode") == "tf_crop_and_resize" and v.whole:
        outside = int(a.get("extrapolation_value", 0.0))
        v = replace(v, low=min(v.low, outside), high=max(v.high, outside))
    return _moved(w, "Resize", v, rest, kinds, a)


def _interpolate(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write a sum of elements at places along an axis times weights: of integers as floats that hold them."""
    places, weights = (_constant(v) for v in x[1:])
    axis, kind = int(a["axis"]), np.dtype(kinds[0].dtype)
    column = (-1, *(1,) * (len(x[0].shape) - axis % len(x[0].shape) - 1))
    total = None
    for at, weight in zip(places, weights, strict=True):
        (part,) = _moved(w, "Gather", x[0], [at.astype(np.int64)], [kinds[0]], {"axis": axis})
        (part,) = elementwise(w, "Mul", {}, [part, constant_of(weight.astype(kind).reshape(column))], kinds)
        total = part if total is None else elementwise(w, "Add", {}, [total, part], kinds)[0]
    assert total is not None
    return [total]


def _tile(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    return _moved(w, "Tile", x[0], [_ints(_constant(x[1]))], kinds, {})


def _gather(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write Gather: elements of x at constant places, or rows of a constant table at places that are computed."""
    table, at = x
    axis = a.get("axis", 0)
    if at.value is not None:
        return _moved(w, "Gather", table, [at.value.astype(np.int64)], kinds, {"axis": axis})
    if table.value is None:
        raise Refused("its table or its indices must be constant")
    index = np.int32 if -(2**31) <= at.low and at.high < 2**31 else np.int64
    name = w.emit("Gather", [w.constant(table.value, f"{w.label}.table"), w.of_dtype(at, index)], axis=axis)
    return [Held(kinds[0].shape, kinds[0].dtype, typed=name, low=table.low, high=table.high)]


def _shape(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    name = w.emit("Shape", [w.real(x[0]) if x[0].real else w.typed(x[0])], **w.schema("Shape", a))
    return [Held(kinds[0].shape, np.dtype(np.int64), typed=name, low=0, high=2**31)]


def _none(a: dict[str, Any], x: list[Any]) -> list[Any]:
    return []


WRITE: dict[str, Callable[..., list[Held]]] = {
    "reshape": _reshape,
    "Reshape": _reshape,
    "transpose": _by(_none, "Transpose"),
    "concat": _concat,
    "Concat": _concat,
    "Split": _split,
    "Squeeze": _by(_integers("axes")),
    "Unsqueeze": _by(_integers("axes")),
    "Slice": _by(_integers("starts", "ends", "axes", "steps")),
    "Pad": _pad,
    "Resize": _resize,
    "interpolate": _interpolate,
    "Gather": _gather,
    "Tile": _tile,
    "Shape": _shape,
    **dict.fromkeys(("Flatten", "Transpose", "DepthToSpace", "SpaceToDepth"), _by(_none)),
}
