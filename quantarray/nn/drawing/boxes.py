"""Boxes and edges of a graph, and of layers in a row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.text import short
from ..graph_summary import Row, Summary
from .svg import Box, Drawing

if TYPE_CHECKING:
    from ..graph import Graph, Node

_WINDOWS = ("size", "kernel_shape")
_MOST = 40  # characters of a name that a box shows


def of_graph(graph: Graph, values: Mapping[str, Any]) -> Drawing:
    """Draw a graph whose values have these shapes and dtypes."""
    rows = [graph._row(node, values) for node in graph.nodes]
    boxes = [Box((short(v.name, _MOST), v.text), "end") for v in graph.inputs]
    source = {v.name: i for i, v in enumerate(graph.inputs)}
    edges = []
    for node, row in zip(graph.nodes, rows, strict=True):
        edges += [(source[name], len(boxes)) for name in node.inputs if name in source]
        source.update(dict.fromkeys(node.outputs, len(boxes)))
        weight = next((graph.constants[n] for n in node.inputs[1:2] if n in graph.constants), None)
        boxes.append(_box(row, _title(node, row.op, weight), getattr(weight, "bits", None)))
    for value in graph.outputs:
        if value.name in source:
            edges.append((source[value.name], len(boxes)))
        boxes.append(Box((short(value.name, _MOST), value.text), "end"))
    return Drawing(short(graph.name, _MOST), Summary(graph.name, rows).total, boxes, edges)


def of_rows(name: str, takes: str, rows: Iterable[Row], weight_bits: Iterable[int | None]) -> Drawing:
    """Draw layers in a row."""
    rows = list(rows)
    boxes = [Box(("input", takes) if takes else ("input",), "end")]
    boxes += [_box(row, short(row.op, 2 * _MOST), bits) for row, bits in zip(rows, weight_bits, strict=True)]
    boxes.append(Box(("output",), "end"))
    edges = [(i, i + 1) for i in range(len(boxes) - 1)]
    return Drawing(short(name, _MOST), Summary(name, rows).total, boxes, edges)


def _box(row: Row, title: str, weight_bits: int | None) -> Box:
    lines = [title]
    if row.dtype:
        shape = "x".join(map(str, row.shape)) or "scalar"
        lines.append(f"{shape} {short(row.dtype, _MOST)}, {_bits(row.bits)}")
    if row.weights:
        each = "" if weight_bits is None else f" of {_bits(weight_bits)}"
        lines.append(f"{row.weights:,} weights{each}, {row.nbytes:,} bytes")
    tip = f"{row.source}: {row.macs:,} MACs" if row.macs else row.source
    return Box(tuple(lines), row.runs, short(tip, 200))


def _bits(bits: int) -> str:
    return f"{bits} bit{'s' * (bits != 1)}"


def _title(node: Node, op: str, weight: Any) -> str:
    """Add the window and stride of a convolution or pool to its name."""
    window = next((node.attributes[n] for n in _WINDOWS if n in node.attributes), None)
    if window is None and node.op in ("conv2d", "Conv") and weight is not None:
        window = weight.shape[2:]
    if window is None:
        return op
    sizes, strides = _axes(window), _axes(node.attributes.get("stride") or node.attributes.get("strides") or 1)
    name, *rest = op.split(" + ")
    title = f"{name} {'x'.join(map(str, sizes))}"
    if math.prod(strides) > 1:
        title += f" stride {'x'.join(map(str, strides if len(set(strides)) > 1 else strides[:1]))}"
    return " + ".join([title, *rest])


def _axes(value: Any) -> list[int]:
    return [int(n) for n in value] if isinstance(value, (tuple, list)) else [int(value)]
