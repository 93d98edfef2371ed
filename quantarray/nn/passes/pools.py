"""Passes that move max pools and functions of elements past each other.

max f(x) is f(max x) in channels where f rises, and f(min x) where it falls, to the bit, as what is rounded keeps its
order. Thresholds go before a pool, so that codes are pooled and no integers are stored; other functions go after it,
and have fewer elements. Layers in a row do the first by `nn/fusing.py`, and a reader folds functions that a pool parts
from their quantiser (`nn/onnx/building.py`, `nn/torch/conversion.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..graph import Graph, Node, free_name, makers, names_in, readers, with_nodes
from ..inference import Kind
from ..operators import OPERATORS
from .thresholds import same_axis

_LEAST_FACTOR = 1e-9


def codes_pooled(graph: Graph) -> Graph:
    """Bring thresholds before a pool of a product's sums, so that codes are pooled; add masks of falling channels.

    The smallest code is taken of channels in which a larger sum passes fewer thresholds.
    """
    nodes, uses, givers, taken = graph.nodes, readers(graph), makers(graph), names_in(graph)
    moved, masks = list(nodes), {}
    for i, node in enumerate(nodes):
        at = givers.get(node.inputs[0]) if node.op == "threshold" else None
        if at is None or not nodes[at].op.startswith("max_pool") or len(nodes[at].inputs) > 1:
            continue
        pool, sums = nodes[at], nodes[at].inputs[0]
        product = nodes[givers[sums]] if sums in givers else None
        if product is None or not OPERATORS[product.op].requantizes or len(product.outputs) > 1:
            continue
        if not uses[sums] == uses[pool.outputs[0]] == 1 or not same_axis(product, node):
            continue
        law = graph.constants[node.inputs[1]]
        inputs = [pool.outputs[0]]
        if not law.greater.all():
            mask = free_name(f"{node.outputs[0]}.falling", taken)
            masks[mask] = ~law.greater
            inputs.append(mask)
        moved[at] = replace(node, inputs=(sums, node.inputs[1]), outputs=pool.outputs)
        moved[i] = replace(pool, inputs=tuple(inputs), outputs=node.outputs)
    return with_nodes(graph, moved, graph.constants | masks)


def sums_pooled(graph: Graph) -> Graph:
    """Move thresholds of a product back to after the pool of its codes, where the pool has falling channels.

    ONNX has no such pools.
    """
    nodes, constants, uses, givers, taken = graph.nodes, graph.constants, readers(graph), makers(graph), names_in(graph)
    moved: list[list[Node]] = [[node] for node in nodes]
    for i, pool in enumerate(nodes):
        at = givers.get(pool.inputs[0]) if pool.op.startswith("max_pool") and len(pool.inputs) == 2 else None
        product = nodes[at] if at is not None else None
        if (
            at is None
            or product is None
            or not OPERATORS[product.op].requantizes
            or len(product.inputs) < 3
            or not product.inputs[2]
        ):
            continue
        law, (codes,) = constants[product.inputs[2]], product.outputs
        same = np.array_equal(constants[pool.inputs[1]], ~law.greater)
        if uses[codes] > 1 or not same or (law._codes != law._ranked_codes()).any():
            continue
        name = free_name(f"{pool.outputs[0]}.sums", taken)
        last = {"axis": 1, "last": product.op == "linear"}
        levels = ("", *product.inputs[3:]) if len(product.inputs) > 3 else ()
        moved[at] = [replace(product, inputs=(*product.inputs[:2], *levels))]
        moved[i] = [
            replace(pool, inputs=(codes,), outputs=(name,)),
            Node("threshold", (name, product.inputs[2]), pool.outputs, last, pool.source),
        ]
    return with_nodes(graph, [node for part in moved for node in part])


def integers_pooled(graph: Graph, kinds: Mapping[str, Kind]) -> Graph:
    """Bring max pools before chains of integers; not of floats, which may be NaN: a clip ends it and a pool keeps it.

    kinds: of the values that chains take.
    """
    nodes, uses, givers, taken = graph.nodes, readers(graph), makers(graph), names_in(graph)
    moved, masks = list(nodes), {}
    for i, pool in enumerate(nodes):
        at = givers.get(pool.inputs[0]) if pool.op.startswith("max_pool") and len(pool.inputs) == 1 else None
        if at is None or uses[pool.inputs[0]] > 1:
            continue
        chain, kind = nodes[at], kinds.get(nodes[at].inputs[0])
        integers = kind is not None and kind.dtype == np.int32
        falling = _falling(chain, graph.constants, kind.shape[1]) if kind is not None and integers else None
        if falling is not None:
            name, mask = (free_name(f"{pool.outputs[0]}.{what}", taken) for what in ("integers", "falling"))
            masks[mask] = falling
            moved[at] = replace(pool, inputs=(chain.inputs[0], mask), outputs=(name,))
            moved[i] = replace(chain, inputs=(name, *chain.inputs[1:]), outputs=pool.outputs)
    return with_nodes(graph, moved, graph.constants | masks)


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
