"""A pass that flattens packed images in the order of their memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...arrays.array import QuantArray
from ...ops.manipulation.taking import take
from ..graph import Graph, Node, free_name, names_in, with_nodes
from ..inference import Kind


def flattened(graph: Graph, kinds: Mapping[str, Kind]) -> Graph:
    """Flatten packed images [n c ..] with their channels last, and put the weights of their readers in that order.

    In that order their words are rows already, or are cut in one pass; else they would be copied and packed again.
    """
    nodes, taken = list[Node](), names_in(graph)
    constants = dict(graph.constants)
    images: dict[str, tuple[int, ...]] = {}  # shapes of those whose elements come in another order
    for node in graph.nodes:
        if node.op == "reshape" and _is_flattened(graph, node, kinds):
            shape, last = kinds[node.inputs[0]].shape, free_name(f"{node.outputs[0]}.last", taken)
            order = (0, *range(2, len(shape)), 1)
            nodes.append(Node("transpose", node.inputs, (last,), {"perm": order}, node.source))
            images[node.outputs[0]] = shape[1:]
            node = Node("reshape", (last,), node.outputs, node.attributes, node.source)
        elif node.inputs and node.inputs[0] in images:
            name = free_name(f"{node.outputs[0]}.{node.inputs[1]}", taken)
            constants[name] = _in_order(constants[node.inputs[1]], images[node.inputs[0]])
            inputs = (node.inputs[0], name, *node.inputs[2:])
            node = Node(node.op, inputs, node.outputs, node.attributes, node.source)
        nodes.append(node)
    return with_nodes(graph, nodes, constants)


def _is_flattened(graph: Graph, node: Node, kinds: Mapping[str, Kind]) -> bool:
    """Return True if a reshape gives rows of whole images, which only products by constant weights read."""
    before, after = kinds[node.inputs[0]], kinds[node.outputs[0]]
    rows = before.shape[:1] + (math.prod(before.shape[1:]),)
    if before.axis != 1 or after.shape != rows or math.prod(before.shape[2:]) == 1:
        return False
    readers = [one for one in graph.nodes if node.outputs[0] in one.inputs]
    return node.outputs[0] not in {v.name for v in graph.outputs} and all(
        one.op == "linear" and one.inputs.count(node.outputs[0]) == 1 and _can_turn(graph.constants.get(one.inputs[1]))
        for one in readers
    )


def _can_turn(w: Any) -> bool:
    """Return True for packed weights [o k] with equal constants along k."""
    return isinstance(w, QuantArray) and w.ndim == 2 and w.axis == 1 and not w.constants.varies(1)


def _in_order(w: QuantArray, image: tuple[int, ...]) -> QuantArray:
    """Return weights [o k] of images [c ..] for the same images with their channels last."""
    places = np.arange(math.prod(image)).reshape(image)
    return take(w, np.moveaxis(places, 0, -1).ravel(), axis=1)
