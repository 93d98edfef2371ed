"""Operators element by element: with constants they lengthen a chain, with two values they work on integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dense
from .building import Builder
from .laws import Constant, Link, Operand, Shape, Source, Tensor, scaling
from .reading import Step
from .tensors import Refused, dtype_of

_MOST = 2**53
OPERATORS = tuple(
    "Identity Relu LeakyRelu PRelu HardTanh Clip Sigmoid HardSigmoid Elu Softplus Tanh Abs Neg Floor Ceil Round Sqrt "
    "Exp Log Reciprocal Add Sub Mul Div Pow Max Min Sum".split()
)


def _lower(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    values = [x for x in operands if isinstance(x, Tensor)]
    if step.op == "Identity" and len(operands) == 1:
        return operands
    for x in operands:
        if isinstance(x, Constant):
            b.per_sample(not x.of_shape and (len(x.shape) < len(shapes[0]) or not x.shape or x.shape[0] == 1))
    b.per_sample(all(len(x.shape) == len(shapes[0]) for x in values))
    kinds = {x.dtype for x in operands if x is not None}
    if len(kinds) > 1 and step.op != "Pow":
        raise Refused(f"its operands have different dtypes, {', '.join(sorted(map(str, kinds)))}")
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


def _cast(b: Builder, step: Step, operands: list[Operand], shapes: list[Shape]) -> list[Operand]:
    x, to = operands[0], dtype_of(int(step.attributes.get("to", 0)))
    assert isinstance(x, Tensor)
    if to == x.dtype:
        return [x]
    if to.kind == "f" and x.dtype.kind in "iu" and not x.chain:
        return [Tensor(x.shape, to, x.source, (scaling(1.0, to),))]
    return [*b.numpy(step._replace(attributes={"to": str(to)}), operands, shapes, to)]


LOWER: dict[str, Any] = {**dict.fromkeys(OPERATORS, _lower), "Cast": _cast}
SHAPE = {name: dense.SHAPE[name] for name in LOWER}
