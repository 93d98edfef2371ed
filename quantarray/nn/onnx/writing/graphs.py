"""Graphs as ONNX nodes: the order of the graph, its inputs and outputs, and its packed operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays.array import QuantArray
from ....arrays.thresholds import Thresholds
from ...graph import Graph, Node, Value
from ...inference import Kind, inferred
from ...passes.chains import unchained
from ...passes.pools import sums_pooled
from ..tensors import Refused, element_of
from . import arithmetic, movement, quantising, sums
from .laws import mapped, shifted
from .layers import reshaped
from .pooling import extreme_pool, pool_attributes
from .products import convolution, matrix, padded, product, transposed_convolution
from .thresholds import thresholded
from .writer import OPSETS, SINGLE, Held, Writer, constant_of, range_of

Ends = list[tuple[str, Held, Any]]


def write_graph(graph: Graph) -> tuple[Writer, Ends, Ends]:
    """Write a graph under the names of its inputs and outputs."""
    graph = sums_pooled(unchained(graph))
    try:
        kinds = inferred(graph)
    except ValueError as error:
        raise ValueError(f"save: the graph has no form in a file: {error}") from error
    w = Writer(tuple(v.name for v in (*graph.inputs, *graph.outputs)))
    values: dict[str, Any] = {n: constant_of(a) if isinstance(a, np.ndarray) else a for n, a in graph.constants.items()}
    inputs = [_input(w, value, values) for value in graph.inputs]
    for node in graph.nodes:
        w.label = node.outputs[0]
        if all(name in values for name in node.inputs if name):
            _write(w, node, values, kinds)
    outputs: Ends = []
    for value in graph.outputs:
        w.label = "output"
        if value.name in {v.name for v in graph.inputs}:
            w.refused.append(f"the output {value.name!r} is an input")
        elif value.name in values:
            x = values[value.name]
            w.copy(w.typed(x), value.name)
            outputs.append((value.name, _open(x, value), None))
    return w, inputs, outputs


def _open(x: Held, value: Value) -> Held:
    """Return x with the shape that the file states: a batch has any length."""
    shape: Any = ("n", *x.shape[1:]) if value.batched else x.shape
    return replace(x, shape=shape)


def _input(w: Writer, value: Value, values: dict[str, Any]) -> tuple[str, Held, Any]:
    """Add an input, of a 2 or 4-bit type if it has the range of one."""
    dtype = np.dtype(value.dtype)
    low, high = (value.low, value.high) if value.low is not None else range_of(dtype)
    x = Held(value.shape, dtype, typed=value.name, low=low, high=high)
    element = None if value.low is None else element_of(low, high)
    if element is not None:
        w.label, w.opset = value.name, max(w.opset, OPSETS[element])
        x = replace(x, typed=w.cast(value.name, dtype))
    values[value.name] = x
    return value.name, _open(x, value), element


def _write(w: Writer, node: Node, values: dict[str, Any], kinds: dict[str, Kind]) -> None:
    """Write a node, or note why it has no form."""
    operands = [values[name] if name else None for name in node.inputs]
    results = [kinds[name] for name in node.outputs]
    try:
        write = WRITE.get(node.op)
        if write is None:
            raise Refused("the operation has no form in ONNX")
        written = write(w, node.op, dict(node.attributes), operands, results)
        for x in written:
            x.rough = x.rough or any(isinstance(v, Held) and v.rough for v in operands)
        values.update(zip(node.outputs, written, strict=True))
    except (Refused, TypeError, ValueError, OverflowError) as error:
        source = f", from {node.source!r}" if node.source else ""
        w.refused.append(f"{node.op} {node.outputs[0]!r}{source}: {error}")


# packed operations


def _linear(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    x, requantize = _looked_up(w, x), x[2] if len(x) > 2 else None
    return [_counted(w, product(w, x[0], x[1], matrix(w, x[0], x[1]), None, _sums(kinds, requantize)), requantize, -1)]


def _dequantized_linear(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write a MatMul by the weight's values."""
    return sums.WRITE["MatMul"](w, "MatMul", {}, [x[0], constant_of(x[1].dequantize().astype(np.float32).T)], kinds)


def _looked_up(w: Writer, x: list[Any]) -> list[Any]:
    """Return the operands of a product with the values of codes of uneven levels."""
    if len(x) < 4 or x[3] is None:
        return x
    codes, levels = x[0], x[3]
    table = w.constant(np.asarray(levels.value, np.float32))
    name = w.emit("Gather", [table, w.of_dtype(codes, np.dtype(np.int64))], axis=0)
    return [Held(codes.shape, np.dtype(np.float32), name), *x[1:]]


def _conv(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    x, weight, requantize = _looked_up(w, x), x[1], x[2] if len(x) > 2 else None
    image = shifted(w, x[0], -a["zero"], np.dtype(np.int32)) if "zero" in a else x[0]
    image, p = convolution(w, image, weight.shape[0], weight.shape[2:], tuple(range(weight.ndim)), a)
    return [_counted(w, product(w, image, weight, p, None, _sums(kinds, requantize)), requantize, 1)]


def _conv_transpose(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    image, weight, requantize = x[0], x[1], x[2] if len(x) > 2 else None
    if a["groups"] != 1 or len(x) > 3:
        raise Refused(
            "a transposed convolution of uneven levels"
            if len(x) > 3
            else "a transposed convolution in groups of channels"
        )
    p = transposed_convolution(w, kinds[0].shape, weight.shape[2:], a)
    return [_counted(w, product(w, image, weight, p, None, _sums(kinds, requantize)), requantize, 1)]


def _add_residual(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    values, residual, requantize = (*x, None)[:3]
    low, high = values.low, values.high
    if low is None or high is None or residual.low is None or residual.high is None:
        raise Refused("a shortcut of real numbers")
    low, high = low + residual.low, high + residual.high
    wide = max(-low, high, values.reach, residual.reach) > SINGLE
    name = w.emit("Add", [w.real(values, wide), w.real(residual, wide)])
    total = Held(values.shape, np.dtype(np.int64), name, wide, low=low, high=high)
    counted = [] if requantize is None else [thresholded(w, total, requantize, a["axis"])]
    if requantize is None or a.get("return_sum", False):
        return [replace(total, dtype=kinds[0].dtype), *counted]
    return counted


def _channel_shuffle(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    n, c, *image = x[0].shape
    groups = a["groups"]
    split = reshaped(w, x[0], (n, groups, c // groups, *image))
    return [reshaped(w, w.permuted(split, (0, 2, 1, *range(3, len(image) + 3))), (n, c, *image))]


def _sums(kinds: list[Kind], requantize: Thresholds | None) -> Any:
    return kinds[0].dtype if requantize is None else None


def _counted(w: Writer, sums: Held, T: Thresholds | None, axis: int) -> Held:
    return sums if T is None else thresholded(w, sums, T, axis)


def _max_pool(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    more = a.get("dilation", 1), a.get("ceil_mode", False)
    attributes = pool_attributes(x[0].shape[2:], a["size"], a["stride"], a["padding"], *more)
    falling = _value(x[1]) if len(x) > 1 and x[1] is not None else np.zeros(1, np.bool_)
    return [extreme_pool(w, x[0], falling, **attributes)]


def _value(x: Held) -> Any:
    if x.value is None:
        raise Refused("its second operand must be a constant")
    return x.value


def _pad(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    top, left, bottom, right = a["pads"]
    return [replace(padded(w, x[0], ((top, bottom), (left, right)), a["value"]), dtype=kinds[0].dtype)]


def _split(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    return movement.split(w, x[0], a["split"], a["axis"], kinds)


def _threshold(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    return [thresholded(w, x[0], x[1], a["axis"])]


def _pack(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    low, high = range_of(kinds[0].dtype)
    return [replace(shifted(w, x[0], a["shift"], kinds[0].dtype), low=low, high=high)]


def _relabel(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    before, after = (np.array(d.levels, np.int64) for d in (x[0].dtype, kinds[0].dtype))
    if (after - before == after[0] - before[0]).all():
        return [shifted(w, x[0], int(after[0] - before[0]), kinds[0].dtype)]
    return [mapped(w, x[0], before, after, kinds[0].dtype)]


def _look_up(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    """Write a Gather from the values of a table, by the codes of one packed value or of two."""
    places, times = "", 1
    for q in (x[0], *x[2:3]):
        low = np.int64(q.dtype.levels[0])
        codes = w.emit("Sub", [w.of_dtype(q, np.int64), w.constant(low)])
        places = w.emit("Add", [places, w.emit("Mul", [codes, w.constant(np.int64(times))])]) if places else codes
        times <<= q.dtype.bits
    values = w.constant(_value(x[1]).astype(np.float32) + np.float32(a["low"]))
    return [
        Held(kinds[0].shape, kinds[0].dtype, w.emit("Gather", [values, places], axis=0), low=a["low"], high=a["high"])
    ]


def _codes(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    levels = np.array(x[0].dtype.levels, np.int64)
    return [mapped(w, x[0], levels, np.arange(len(levels)), np.dtype(np.uint8))]


def _unpack(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
    return [replace(x[0], dtype=kinds[0].dtype)]


def _dense_only(write: Callable[..., list[Held]]) -> Callable[..., list[Held]]:
    """Return the function, which refuses packed constants and thresholds as operands."""

    def checked(w: Writer, op: str, a: Any, x: list[Any], kinds: list[Kind]) -> list[Held]:
        if any(isinstance(v, (QuantArray, Thresholds)) for v in x):
            raise Refused("a packed constant where values are taken")
        return write(w, op, a, x, kinds)

    return checked


WRITE: dict[str, Callable[..., list[Held]]] = {
    "linear": _linear,
    "dequantized_linear": _dequantized_linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _max_pool),
    "add_residual": _add_residual,
    "channel_shuffle": _channel_shuffle,
    "pad": _pad,
    "split": _split,
    "threshold": _threshold,
    "pack": _pack,
    "relabel": _relabel,
    "look_up": _look_up,
    "codes": _codes,
    "unpack": _unpack,
}
for family in (arithmetic, movement, quantising, sums):
    WRITE.update({op: _dense_only(write) for op, write in family.WRITE.items()})
