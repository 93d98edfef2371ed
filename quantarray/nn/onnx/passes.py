"""Passes over a graph that has been read: merge thresholds into products, remove dead nodes and copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..graph import Node

_FUSED = ("linear", "conv2d")


def finished(nodes: list[Node], constants: Mapping[str, Any], outputs: list[str]) -> tuple[list[Node], dict[str, Any]]:
    """Return the nodes that outputs need, with thresholds inside products, and the constants that they use."""
    nodes = _renamed(_live(nodes, outputs), outputs)
    nodes = _fused(nodes, outputs)
    used = {name for node in nodes for name in node.inputs}
    return nodes, {name: a for name, a in constants.items() if name in used}


def _live(nodes: list[Node], outputs: list[str]) -> list[Node]:
    needed, kept = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]


def _renamed(nodes: list[Node], outputs: list[str]) -> list[Node]:
    """Remove a copy that is an output: the node that computes the value takes its name, if only the copy reads it."""
    uses = Counter(name for node in nodes for name in node.inputs)
    given = {name for node in nodes for name in node.outputs if node.op != "Identity"}
    names = {
        node.inputs[0]: node.outputs[0]
        for node in nodes
        if node.op == "Identity"
        and node.outputs[0] in outputs
        and node.inputs[0] in given
        and uses[node.inputs[0]] == 1
    }
    left = [n for n in nodes if not (n.op == "Identity" and n.inputs[0] in names)]
    return [replace(n, outputs=tuple(names.get(o, o) for o in n.outputs)) for n in left]


def _fused(nodes: list[Node], outputs: list[str]) -> list[Node]:
    """Merge thresholds into the product before them, as its `requantize`, if nothing else reads its result."""
    uses = Counter(name for node in nodes for name in node.inputs)
    makers = {node.outputs[0]: i for i, node in enumerate(nodes)}
    fused = list(nodes)
    gone = set()
    for i, node in enumerate(nodes):
        if node.op != "threshold":
            continue
        at = makers.get(node.inputs[0])
        product = fused[at] if at is not None else None
        if at is None or product is None or product.op not in _FUSED or uses[node.inputs[0]] > 1:
            continue
        if node.inputs[0] in outputs or not _same_axis(product, node):
            continue
        fused[at] = replace(
            product, inputs=(*product.inputs, node.inputs[1]), outputs=node.outputs, source=product.source
        )
        gone.add(i)
    return [node for i, node in enumerate(fused) if i not in gone]


def _same_axis(product: Node, node: Node) -> bool:
    """Return True if thresholds and product have their channels on the same axis."""
    return bool(node.attributes["axis"] == 1) if product.op == "conv2d" else bool(node.attributes["last"])
