"""Operators element by element: with constants they lengthen a chain, with two values they work on integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .building import Builder
from .laws import Constant, Link, Operand, Shape, Source, Tensor, check_dtypes, scaling
from .reading import Step
from .tensors import Refused, dtype_of

_MOST = 2**53
_EXACT = {"float16": 2**11, "float32": 2**24, "float64": 2**53}  # up to which integers are exact
_FUNCTIONS = tuple(
    "Identity Relu LeakyRelu PRelu HardTanh Clip Sigmoid HardSigmoid HardSwish Elu Selu Erf Softplus Tanh Mish Gelu "
    "Abs Neg Floor Ceil Round Sqrt Exp Log Reciprocal Add Sub Mul Div Pow Max Min Sum".split()
)

_COMPARED = "Greater GreaterOrEqual Less LessOrEqual Equal And Or Xor Not Where".split()


def _lower(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    values = [x for x in operands if isinstance(x, Tensor)]
    if step.op == "Identity" and len(operands) == 1:
        return operands
    check_samples(b, operands, shapes[0])
    if step.op != "Pow":
        check_dtypes(operands)
    if len(values) == 1 and values[0].dtype.kind == "f" and values[0].shape == shapes[0]:
        others = tuple(x.value if isinstance(x, Constant) else None for x in operands if x is not None)
        if len(others) == len(operands):
            return [values[0].then(Link(step.op, step.attributes, others))]
        if step.op == "Clip":
            return [values[0].then(link) for link in [_clip(operands)]]
    exact = _integers(b, step.op, operands, shapes[0])
    if exact is not None:
        return [exact]
    return [*b.numpy(step, operands, shapes, next(x.dtype for x in operands if x is not None))]


def check_samples(b: Builder, operands: list[Operand], shape: Shape) -> None:
    """Raise NotPerSample if operands that broadcast to a shape do not treat the samples of a batch alike."""
    for x in operands:
        if isinstance(x, Constant):
            b.per_sample(not x.of_shape and (len(x.shape) < len(shape) or not x.shape or x.shape[0] == 1))
    b.per_sample(all(len(x.shape) == len(shape) for x in operands if isinstance(x, Tensor)))


def _clip(operands: list[Operand]) -> Link:
    """Return the Min or Max that equals a Clip with one bound."""
    bounds = [x.value if isinstance(x, Constant) else None for x in operands[1:]]
    if bounds[0] is None:
        return Link("Min", {}, (None, bounds[1]))
    return Link("Max", {}, (None, bounds[0]))


def _integers(b: Builder, op: str, operands: list[Operand], shape: Shape) -> Tensor | None:
    """Compute the exact sum, difference or product of two values that are integers times a scale; None if inexact."""
    if op not in ("Add", "Sub", "Mul") or len(operands) != 2:
        return None
    x, y = operands
    if not isinstance(x, Tensor) or not isinstance(y, Tensor) or x.dtype.kind != "f":
        return None
    if x.pure is None or y.pure is None or x.pure.size > 1 or y.pure.size > 1:
        return None
    left, right = float(x.pure.reshape(())), float(y.pure.reshape(()))
    if op == "Mul":
        ends = [i * j for i in x.source.bounds for j in y.source.bounds]
        return _emit(b, "Mul", (x, y), (1, 1), ends, left * right, shape)
    scale = min(abs(left), abs(right))
    if scale == 0:
        return None
    each = (left / scale, right / scale)
    if any(f != round(f) or abs(f) > 2**20 or f * scale != s for f, s in zip(each, (left, right), strict=True)):
        return None
    factors = (round(each[0]), round(each[1]))
    sign = -1 if op == "Sub" else 1
    ends = [factors[0] * i + sign * factors[1] * j for i in x.source.bounds for j in y.source.bounds]
    return _emit(b, op, (x, y), factors, ends, scale, shape)


def _emit(
    b: Builder, op: str, values: tuple[Tensor, Tensor], factors: tuple[int, int], ends: list[int], scale: float,
    shape: Shape,
) -> Tensor | None:  # fmt: skip
    low, high = min(ends), max(ends)
    if max(-low, high) >= _MOST:
        return None
    held = "int32" if -(2**31) <= low and high < 2**31 else "int64"
    if op == "Add" and factors == (1, 1) and held == "int32" and values[0].source.shape == values[1].source.shape:
        return _shortcut(b, values, low, high, scale, shape)
    names = []
    for x, factor in zip(values, factors, strict=True):
        name = b.integers(x)
        has = "int32" if x.source.levels is not None else str(x.source.dtype)
        if has != held:
            name = b.emit("Cast", [name], f"{name}.{held}", to=held)
        if factor != 1:
            name = b.emit("Mul", [name, b.constant(np.array(factor, held))], f"{name}.times")
        names.append(name)
    name = b.emit(op, names, f"{b.hint}.integers")
    dtype = values[0].dtype
    return Tensor(shape, dtype, Source(name, shape, np.dtype(held), None, low, high), (scaling(scale, dtype),))


def _shortcut(b: Builder, values: tuple[Tensor, Tensor], low: int, high: int, scale: float, shape: Shape) -> Tensor:
    """Add two values by the packed operation, which reads codes as they are; the wider one is the first."""
    first, second = (x.source for x in values)
    if first.levels is not None or (second.levels is None and second.dtype.itemsize > first.dtype.itemsize):
        first, second = second, first
    names = [first.name, second.name]
    for i, source in enumerate((first, second)):
        if source.levels is None and source.dtype.name not in ("int8", "uint8", "int16", "int32"):
            names[i] = b.emit("Cast", [source.name], f"{source.name}.int32", to="int32")
    channels = 1 if len(shape) > 3 or b.maker(first.name).startswith("conv") else len(shape) - 1
    name = b.emit("add_residual", names, f"{b.hint}.integers", axis=channels)
    dtype = values[0].dtype
    return Tensor(shape, dtype, Source(name, shape, np.dtype(np.int32), None, low, high), (scaling(scale, dtype),))


def _cast(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, to = operands[0], dtype_of(int(step.attributes.get("to", 0)))
    assert isinstance(x, Tensor)
    if to == x.dtype:
        return [x]
    if to.kind == "f" and x.dtype.kind in "iu" and not x.chain:
        return [Tensor(x.shape, to, x.source, (scaling(1.0, to),))]
    integers = _unscaled(x, to)
    if integers is not None:
        return [b.integer_value(x, to)] if to.kind in "iu" else [integers]
    return [*b.numpy(step._replace(attributes={"to": str(to)}), operands, shapes, to)]


def _unscaled(x: Tensor, to: np.dtype[Any]) -> Tensor | None:
    """Return floats that are integers of scale 1 in another dtype that holds them all; None if they are no such."""
    if x.dtype.kind != "f" or x.pure is None or x.pure.size > 1 or x.pure.reshape(()) != 1:
        return None
    (low, high), most = x.source.bounds, min(_EXACT.get(x.dtype.name, 0), _EXACT.get(to.name, _MOST))
    if max(-low, high) > most or (to.kind in "iu" and not (np.iinfo(to).min <= low and high <= np.iinfo(to).max)):
        return None
    return Tensor(x.shape, to, x.source, (scaling(1.0, to),)) if to.kind in "iuf" else None


def _compared(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    """Convert a comparison, an operator on bools, or a choice by a bool, to NumPy."""
    check_samples(b, operands, shapes[0])
    bools = operands if step.op in ("And", "Or", "Xor", "Not") else operands[:1] if step.op == "Where" else []
    others = operands[1:] if step.op == "Where" else operands
    for x in bools:
        if x is not None and x.dtype != np.bool_:
            raise Refused(f"it takes bools, not {x.dtype}")
    check_dtypes(others)
    kind = next(x.dtype for x in others if x is not None)
    return [*b.numpy(step, operands, shapes, kind if step.op == "Where" else np.bool_)]


LOWER: dict[str, Any] = {**dict.fromkeys(_FUNCTIONS, _lower), "Cast": _cast, **dict.fromkeys(_COMPARED, _compared)}
