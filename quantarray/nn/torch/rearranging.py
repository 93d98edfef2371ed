"""Calls that put elements in another order, or several times: flipped, rolled, stacked, repeated, looked up."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..onnx import movement, pooling
from ..onnx.laws import Constant, Operand, Shape
from ..onnx.tensors import Refused
from .conversion import Conversion, dtype_of
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


def _extreme(c: Conversion, call: Call) -> None:
    """Convert max or min along an axis, which gives the places too; of equal elements the first."""
    if call.overload != "dim":
        raise Refused(f"aten.{call.op} of all elements, over the batch too, is not taken; pass dim=1")
    x, axis, keep = (*call.args, False)[:3]
    at, whole = int(axis) % len(x.shape), bool(call.kwargs.get("keepdim", keep))
    wide = (*x.shape[:at], 1, *x.shape[at + 1 :])
    step = c.step(call, "TopK", axis=at, largest=int(call.op == "max"), sorted=1)
    step = step._replace(outputs=(call.path or call.op, f"{call.path or call.op}.places"))
    c.builder.step = step
    extremes = pooling.LOWER["TopK"](c.builder, step, [c.settle(x), Constant(np.array([1]))], [wide] * 2)
    for result, value in zip(call.results, extremes, strict=True):
        c.put(result, value if whole else _reshaped(c, call, value, result.shape))


def _layer_norm(c: Conversion, call: Call) -> None:
    """Convert a layer norm; its statistics are not taken."""
    x, lengths, weight, bias, epsilon = call.args[:5]
    result, dtype = call.results[0], dtype_of(call.results[0])
    scale = Constant(np.ones(lengths, dtype)) if weight is None else c.constant(weight)
    operands = [c.settle(x), scale, None if bias is None else c.constant(bias)]
    step = c.step(call, "LayerNormalization", axis=len(x.shape) - len(lengths), epsilon=float(epsilon), gives=("Y",))
    c.builder.step = step
    c.put(result, pooling.LOWER["LayerNormalization"](c.builder, step, operands, [result.shape])[0])
    c.absent.update((r.index, "the statistics of a layer norm are not taken") for r in call.results[1:])


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
    **dict.fromkeys(("max", "min"), _extreme),
    "native_layer_norm": _layer_norm,
}
