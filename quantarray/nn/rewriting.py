"""Rewrite a graph for a plan of launches: what runs in NumPy between two kernels would part the plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..ops.manipulation.taking import take
from .chains import chained
from .graph import Graph, Node, free_name, names_of
from .inference import Kind, kinds_of
from .operators import OPERATORS

_LEAST_FACTOR = 1e-9


def rewritten(graph: Graph) -> Graph:
    """Return a graph of equal results with less work between its kernels; the graph itself if its shapes are not known.

    Single functions of elements become chains too; images are flattened in the order of their memory, and weights put
    in that order; integers are pooled before functions of them, which then have fewer elements.
    """
    try:
        kinds = kinds_of(graph, 1 if any(value.batched for value in graph.inputs) else 0)  # so that 1 is no batch
    except ValueError:  # of operands that do not go together, which a call says
        return graph
    outputs, taken = [value.name for value in graph.outputs], set(graph._slots)
    nodes, constants = _flattened(graph, kinds, taken)
    nodes, constants = chained(nodes, constants, outputs, _may_move(nodes, kinds), least=1)
    nodes, constants = _pooled_first(graph, nodes, constants, kinds, taken | names_of(nodes) | constants.keys())
    constants |= {name: graph.constants[name] for name in outputs if name in graph.constants}
    return Graph(graph.inputs, graph.outputs, nodes, constants, graph.name)


def _may_move(nodes: list[Node], kinds: Mapping[str, Kind]) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return (shape, dtype) of the dense values that may be stored as a chain gives them, channels last.

    Values that reach an operator of NumPy's, also by functions of elements that keep their order, may not: it may sum
    floats in the order of their memory. A graph read from a file has its chains already.
    """
    ordered = {
        name
        for node in nodes
        for name in node.inputs
        if (order := OPERATORS[node.op].order) == "seen"
        or (order == "rows" and len(kinds[name].shape if name in kinds else ()) != 2)
    }
    for node in reversed(nodes):
        if OPERATORS[node.op].order == "kept" and ordered.intersection(node.outputs):
            ordered.update(node.inputs)
    return {
        name: (kind.shape, kind.dtype) for name, kind in kinds.items() if kind.axis is None and name not in ordered
    }  # fmt: skip


def _flattened(graph: Graph, kinds: Mapping[str, Kind], taken: set[str]) -> tuple[list[Node], dict[str, Any]]:
    """Flatten packed images [n c ..] with their channels last, and put the weights of their readers in that order.

    In that order their words are rows already, or are cut in one pass; else they would be copied and packed again.
    """
    nodes: list[Node] = []
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
    return nodes, constants


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


def _pooled_first(
    graph: Graph, nodes: list[Node], constants: dict[str, Any], kinds: Mapping[str, Kind], taken: set[str]
) -> tuple[list[Node], dict[str, Any]]:
    """Bring max pools before chains of integers: max f(x) is f(max x) where f rises, f(min x) where it falls.

    To the bit, as what is rounded keeps its order. Of floats not: they may be NaN, which a clip ends and a pool keeps.
    """
    uses = Counter(name for node in nodes for name in node.inputs)
    uses.update(value.name for value in graph.outputs)
    makers = {node.outputs[0]: i for i, node in enumerate(nodes)}
    moved, masks = list(nodes), {}
    for i, pool in enumerate(nodes):
        at = makers.get(pool.inputs[0]) if pool.op.startswith("max_pool") and len(pool.inputs) == 1 else None
        if at is None or uses[pool.inputs[0]] > 1:
            continue
        chain, kind = nodes[at], kinds.get(nodes[at].inputs[0])
        integers = kind is not None and kind.dtype == np.int32
        falling = _falling(chain, constants, kind.shape[1]) if kind is not None and integers else None
        if falling is not None:
            name, mask = (free_name(f"{pool.outputs[0]}.{what}", taken) for what in ("integers", "falling"))
            masks[mask] = falling
            moved[at] = replace(pool, inputs=(chain.inputs[0], mask), outputs=(name,))
            moved[i] = replace(chain, inputs=(name, *chain.inputs[1:]), outputs=pool.outputs)
    return moved, constants | masks


def _falling(node: Node, constants: Mapping[str, Any], channels: int) -> Array | None:
    """Return in which channels a chain falls; None where that is not known, and for others than chains of one value."""
    if node.op != "chain" or node.attributes["gives"] != ("values",) or node.inputs[1]:
        return None
    table, scale = (constants.get(name) for name in (*node.inputs, "", "")[2:4])
    direction = np.ones(channels) if scale is None else np.sign(scale)
    if scale is not None and not _are_ordinary(scale):
        return None
    for step, k in zip(node.attributes["steps"], table if table is not None else (), strict=True):
        if not np.isfinite(k).all() or (step == "slope" and (k <= 0).any()):
            return None
        if step in ("multiply", "divide", "affine", "slope") and not _are_ordinary(k):
            return None
        if step in ("multiply", "divide", "affine"):
            direction = direction * np.sign(k)
        elif step == "subtract from":
            direction = -direction
    return None if (direction == 0).any() else direction < 0


def _are_ordinary(factors: Array) -> bool:
    """Return True for factors by which nothing becomes infinite, or a zero whose sign says what it was."""
    sizes = np.abs(factors)
    return bool(((sizes >= _LEAST_FACTOR) & (sizes <= 1 / _LEAST_FACTOR)).all())
