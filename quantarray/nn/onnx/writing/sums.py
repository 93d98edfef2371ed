"""Products, pools and reductions of a graph that run in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...inference import Kind
from ...operators.reducing import LAYER_NORM
from ..tensors import Refused, element_of
from .arithmetic import fits, of_type, typed
from .laws import weight
from .pooling import max_pool, sum_pool
from .writer import DOUBLE, SINGLE, Held, Writer

Kinds = list[Kind]


def _product(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write Conv, ConvTranspose or MatMul: of integers as floats that hold their sums exactly."""
    dtype = np.dtype(kinds[0].dtype)
    if dtype.kind == "f" and not any(v is not None and v.whole for v in x):
        return [typed(w, op, a, x, kinds[0])]
    if len(x) > 2 or not all(v.whole for v in x[:2]):
        raise Refused("integers and floats, or integers with a bias, have no product in ONNX")
    terms = x[0].shape[-1] if op == "MatMul" else math.prod(x[1].shape[1:])
    reach = max(x[0].reach * x[1].reach * terms, x[0].reach, x[1].reach)
    if op == "ConvTranspose":
        terms = x[1].shape[0] * math.prod(x[1].shape[2:])
        reach = max(x[0].reach * x[1].reach * terms, x[0].reach, x[1].reach)
    elif x[1].value is not None:
        reach = max(x[0].reach * int(_row_sums(op, x[1].value).max(initial=0)), x[0].reach, x[1].reach)
    if reach > DOUBLE or (dtype.kind != "f" and not fits(dtype, -reach, reach)):
        raise Refused(f"its sums may reach {reach}, more than {dtype} and float64 hold exactly")
    wide = reach > SINGLE
    value = x[1].value
    right = weight(w, value.astype(np.int64), wide) if value is not None and x[1].reach <= SINGLE else ""
    name = w.emit(op, [w.real(x[0], wide), right or w.real(x[1], wide)], **w.schema(op, a))
    if dtype.kind == "f":
        return [of_type(w.cast(name, dtype) if wide != (dtype == np.float64) else name, kinds[0])]
    return [Held(kinds[0].shape, dtype, name, wide, low=-reach, high=reach)]


def _row_sums(op: str, a: Any) -> Any:
    """Return the sum of magnitudes of the weights of each output."""
    magnitudes = np.abs(a.astype(np.float64))
    return magnitudes.sum(axis=-2 if a.ndim > 1 else 0) if op == "MatMul" else magnitudes.reshape(len(a), -1).sum(1)


def _floats(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write an operator that ONNX has for floats alone."""
    if np.dtype(kinds[0].dtype).kind != "f":
        raise Refused(f"ONNX has it for floats, not for {kinds[0].dtype}")
    return [typed(w, op, a, x, kinds[0])]


_QUANTISED = {"QLinearConv": 7, "QLinearMatMul": 7, "QuantizeLinear": 2}  # operand that is the result's zero point


def _linear(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write an operator of ONNX on 8-bit integers with scales and zero points that are computed."""
    held, at = np.dtype(kinds[0].dtype), _QUANTISED.get(op)
    names = ["" if v is None else w.typed(v) for v in x]
    if at is not None:
        names += [""] * (at + 1 - len(names))
        element = element_of(a["low"], a["high"])
        if names[at] and element is not None and x[at].value is None:
            raise Refused("its zero point, of a 2 or 4-bit type, is computed")
        zero = x[at].value if names[at] else np.zeros(x[1].shape if op == "QuantizeLinear" else (), held)
        names[at] = (names[at] or w.constant(zero)) if element is None else w.narrow(zero, element)
        if element is not None:
            return [of_type(w.cast(w.emit(op, names, **w.schema(op, a)), held), kinds[0])]
    return [of_type(w.emit(op, names, **w.schema(op, a)), kinds[0])]


def _dynamic(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    names = w.emit_all(op, [w.of_dtype(x[0], np.float32)], [f"{w.label}.{name}" for name in ("y", "scale", "zero")])
    return [of_type(name, kind) for name, kind in zip(names, kinds, strict=True)]


def _max_pool(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    attributes = w.schema("MaxPool", a)
    if op == "GlobalMaxPool":
        attributes = {"kernel_shape": list(x[0].shape[2:])}
    if len(kinds) == 1:
        y = max_pool(w, x[0], **attributes)
        y.dtype = kinds[0].dtype
        return [y]
    v = x[0]
    source = w.real(v) if v.whole else w.typed(v)
    name, at = w.emit_all("MaxPool", [source], [f"{w.label}.MaxPool", f"{w.label}.indices"], **attributes)
    largest = Held(kinds[0].shape, v.dtype, name, w.is_wide(v), low=v.low, high=v.high)
    return [largest, of_type(at, kinds[1])]


def _sum_pool(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    if not x[0].whole:
        raise Refused("sums of floats have no operator in ONNX")
    return [sum_pool(w, x[0], **a)]


def _softmax(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    shape, axis = kinds[0].shape, a.get("axis", -1)
    if not a.get("flat") or axis % len(shape) == len(shape) - 1:
        return _floats(w, op, a, x, kinds)
    flat = w.emit("Flatten", [w.typed(x[0])], axis=axis)
    name = w.emit("Reshape", [w.emit("Softmax", [flat], axis=-1), w.constant(np.array([-1, *shape[1:]], np.int64))])
    return [of_type(name, kinds[0])]


def _layer_norm(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    """Write a layer norm with its results up to the last that is used: ONNX tells them by their place."""
    dtype = np.dtype(kinds[0].dtype)
    if dtype.kind != "f":
        raise Refused(f"ONNX has it for floats, not for {dtype}")
    at = [LAYER_NORM.index(name) for name in a.get("gives", LAYER_NORM[:1])]
    hints = [f"{w.label}.{name}" for name in LAYER_NORM[: max(at) + 1]]
    operands = ["" if v is None else w.of_dtype(v, dtype) for v in x]
    names = w.emit_all(op, operands, hints, **w.schema(op, a))
    return [of_type(names[i], kind) for i, kind in zip(at, kinds, strict=True)]


def _extreme(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    source = w.real(x[0]) if x[0].whole else w.typed(x[0])
    name = w.emit(op, [source], **w.schema(op, a))
    return [Held(kinds[0].shape, np.dtype(np.int64), typed=name, low=0, high=max(x[0].shape[a.get("axis", 0)] - 1, 0))]


def _top(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    v, k = x
    if k.value is None:
        raise Refused("its k must be a constant")
    real = v.whole and v.reach <= DOUBLE  # as floats, which keep the order of integers
    names = [w.real(v) if real else w.typed(v), w.constant(k.value.astype(np.int64).reshape(1))]
    values, places = w.emit_all("TopK", names, [f"{w.label}.TopK", f"{w.label}.places"], **w.schema("TopK", a))
    held = {"real": values, "wide": w.is_wide(v)} if real else {"typed": values}
    most = max(v.shape[a.get("axis", -1)] - 1, 0)
    return [
        Held(kinds[0].shape, kinds[0].dtype, low=v.low, high=v.high, **held),
        Held(kinds[1].shape, np.dtype(np.int64), typed=places, low=0, high=most),
    ]


def _reduce(w: Writer, op: str, a: dict[str, Any], x: list[Any], kinds: Kinds) -> list[Held]:
    v = x[0]
    axes = x[1].value if len(x) > 1 and x[1] is not None else a.get("axes")
    operands = [] if axes is None else [w.constant(np.asarray(axes, np.int64).reshape(-1))]
    attributes = w.schema(op, a)
    if not v.whole:
        return [of_type(w.emit(op, [w.typed(v), *operands], **attributes), kinds[0])]
    terms = math.prod(v.shape) // max(math.prod(kinds[0].shape), 1) if op == "ReduceSum" else 1
    low, high = min(v.low * terms, v.low), max(v.high * terms, v.high)
    if op == "ReduceMean":
        raise Refused("means of integers, which are cut off to integers, have no operator in ONNX")
    if not fits(kinds[0].dtype, low, high) or max(-low, high) > DOUBLE:
        raise Refused(f"a {op} of {v.kind} that may pass {kinds[0].dtype}")
    wide = max(-low, high) > SINGLE or w.is_wide(v)
    name = w.emit(op, [w.real(v, wide), *operands], **attributes)
    return [Held(kinds[0].shape, np.dtype(kinds[0].dtype), name, wide, low=low, high=high)]


_LINEAR = "ConvInteger MatMulInteger QLinearConv QLinearMatMul QuantizeLinear DequantizeLinear".split()
WRITE: dict[str, Callable[..., list[Held]]] = {
    "Conv": _product,
    "MatMul": _product,
    "ConvTranspose": _product,
    "Gemm": _floats,
    "BatchNormalization": _floats,
    "AveragePool": _floats,
    "GlobalAveragePool": _floats,
    **dict.fromkeys(_LINEAR, _linear),
    "DynamicQuantizeLinear": _dynamic,
    "MaxPool": _max_pool,
    "GlobalMaxPool": _max_pool,
    "sum_pool": _sum_pool,
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "ArgMax": _extreme,
    "ArgMin": _extreme,
    "TopK": _top,
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"), _reduce),
}
