"""Calls that put elements in another order, or several times: flipped, rolled, stacked, repeated, looked up, sorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..onnx import movement, pooling
from ..onnx.laws import Constant, Operand, Shape
from ..onnx.tensors import Refused
from .conversion import Conversion
from .recording import Call

_LEAST = np.iinfo(np.int64).min


def _moved(c: Conversion, call: Call, op: str, operands: list[Operand], shapes: list[Shape], **a: Any) -> list[Operand]:
    """Return the results of an operator of ONNX that moves elements."""
    step = c.step(call, op, **a)
    c.builder.step = step
    results: list[Operand] = movement.LOWER[op](c.builder, step, operands, shapes)
    return results


def _cut(c: Conversion, call: Call, x: Operand, axis: int, first: int, last: int, by: int = 1) -> Operand:
    """Return x[first:last:by] along an axis; last is not counted from the end."""
    assert x is not None
    length = len(range(first, last, by))
    numbers = [Constant(np.array([n])) for n in (first, _LEAST if last < 0 else last, axis, by)]
    return _moved(c, call, "Slice", [x, *numbers], [(*x.shape[:axis], length, *x.shape[axis + 1 :])])[0]


def _reshaped(c: Conversion, call: Call, x: Operand, shape: Shape) -> Operand:
    return _moved(c, call, "Reshape", [x], [shape])[0]


def _flip(c: Conversion, call: Call) -> None:
    x: Operand = c.settle(call.args[0])
    for axis in call.args[1]:
        at = int(axis) % len(call.args[0].shape)
        x = _cut(c, call, x, at, call.args[0].shape[at] - 1, -1, -1)
    c.put(call.results[0], x)


def _roll(c: Conversion, call: Call) -> None:
    value, shifts, axes = (*call.args, ())[:3]
    if not axes:
        raise Refused("a roll of all elements, over the batch too, is not taken; pass dims=")
    x: Operand = c.settle(value)
    for shift, axis in zip(shifts, axes, strict=True):
        at, shape = int(axis) % len(value.shape), value.shape
        first = -int(shift) % shape[at] if shape[at] else 0
        if first:
            parts = [_cut(c, call, x, at, first, shape[at]), _cut(c, call, x, at, 0, first)]
            x = _moved(c, call, "Concat", parts, [shape], axis=at)[0]
    c.put(call.results[0], x)


def _stack(c: Conversion, call: Call) -> None:
    values, result = call.args[0], call.results[0]
    at = int(call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % len(result.shape)
    if not all(v.depends for v in values):
        raise Refused("a stack of values and constants is not taken; use torch.cat")
    shape = (*result.shape[:at], 1, *result.shape[at + 1 :])
    parts = [_reshaped(c, call, c.settle(v), shape) for v in values]
    c.put(result, _moved(c, call, "Concat", parts, [result.shape], axis=at)[0])


def _unbind(c: Conversion, call: Call) -> None:
    x = call.args[0]
    at = int(call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)) % len(x.shape)
    source = c.settle(x)
    for i, result in enumerate(call.results):
        c.put(result, _reshaped(c, call, _cut(c, call, source, at, i, i + 1), result.shape))


def _repeat(c: Conversion, call: Call) -> None:
    x, counts = call.args[0], [int(n) for n in call.args[1]]
    wide = (*(1,) * (len(counts) - len(x.shape)), *x.shape)
    value: Operand = c.settle(x)
    if wide != x.shape:
        value = _reshaped(c, call, value, wide)
    c.put(call.results[0], _moved(c, call, "Tile", [value, Constant(np.array(counts))], [call.results[0].shape])[0])


def _pixel_unshuffle(c: Conversion, call: Call) -> None:
    x, by = call.args[0], int(call.args[1])
    n, channels, height, width = x.shape
    wide = (n, channels, height // by, by, width // by, by)
    perm = (0, 1, 3, 5, 2, 4)
    apart = _reshaped(c, call, c.settle(x), wide)
    turned = _moved(c, call, "Transpose", [apart], [tuple(wide[i] for i in perm)], perm=perm)[0]
    c.put(call.results[0], _reshaped(c, call, turned, call.results[0].shape))


def _embedding(c: Conversion, call: Call) -> None:
    table, at = call.args[:2]
    if table.depends or not at.depends:
        raise Refused("it looks rows up in a table that depends on the input")
    c.put(call.results[0], _moved(c, call, "Gather", [c.constant(table), c.settle(at)], [call.results[0].shape])[0])


# Along an axis


def _top(c: Conversion, call: Call, count: int, axis: int, largest: bool) -> None:
    x, shape = call.args[0], call.results[0].shape
    step = c.step(call, "TopK", axis=axis % len(x.shape), largest=int(largest), sorted=1)
    step = step._replace(outputs=(call.path or call.op, f"{call.path or call.op}.places"))
    c.builder.step = step
    operands = [c.settle(x), Constant(np.array([count]))]
    for result, value in zip(call.results, pooling.LOWER["TopK"](c.builder, step, operands, [shape] * 2), strict=True):
        c.put(result, value)


def _topk(c: Conversion, call: Call) -> None:
    args: tuple[Any, ...] = (*call.args, *(-1, True)[len(call.args) - 2 :])
    _, count, axis, largest = args[:4]
    axis, largest = call.kwargs.get("dim", axis), call.kwargs.get("largest", largest)
    _top(c, call, int(count), int(axis), bool(largest))


def _sort(c: Conversion, call: Call) -> None:
    args: tuple[Any, ...] = (*call.args, *(-1, False)[len(call.args) - 1 :])
    x, axis, descending = args[:3]
    axis, descending = call.kwargs.get("dim", axis), call.kwargs.get("descending", descending)
    _top(c, call, x.shape[int(axis)], int(axis), bool(descending))


LOWER: dict[str, Any] = {
    "flip": _flip,
    "roll": _roll,
    "stack": _stack,
    "unbind": _unbind,
    "repeat": _repeat,
    "pixel_unshuffle": _pixel_unshuffle,
    "embedding": _embedding,
    "topk": _topk,
    "sort": _sort,
}
