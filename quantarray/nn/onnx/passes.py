"""Passes over a graph that has been read: merge thresholds into products, remove dead nodes and copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from ..graph import Node, free_name, names_of
from ..operators import OPERATORS


class _Step(Protocol):
    """A node of a graph or of a file."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...


_N = TypeVar("_N", bound=_Step)


def finished(nodes: list[Node], constants: Mapping[str, Any], outputs: list[str]) -> tuple[list[Node], dict[str, Any]]:
    """Return the nodes that outputs need, with thresholds inside products, and the constants that they use."""
    nodes = _renamed(live(nodes, outputs), outputs)
    nodes, masks = _pooled_codes(nodes, constants, outputs)
    nodes, constants = _padded(_fused(nodes, outputs), outputs), {**constants, **masks}
    used = {name for node in nodes for name in node.inputs}
    return nodes, {name: a for name, a in constants.items() if name in used}


def live(nodes: list[_N], outputs: Iterable[str]) -> list[_N]:
    """Return the nodes that outputs need, of a graph or of a file."""
    needed, needed_nodes = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed_nodes.append(node)
            needed.update(node.inputs)
    return needed_nodes[::-1]


def _renamed(nodes: list[Node], outputs: list[str]) -> list[Node]:
    """Remove a copy that is an output: the node that computes the value takes its name, if only the copy reads it."""
    uses = Counter(name for node in nodes for name in node.inputs)
    computed = {name for node in nodes for name in node.outputs if node.op != "Identity"}
    names = {
        node.inputs[0]: node.outputs[0]
        for node in nodes
        if node.op == "Identity"
        and node.outputs[0] in outputs
        and node.inputs[0] in computed
        and uses[node.inputs[0]] == 1
    }
    left = [n for n in nodes if not (n.op == "Identity" and n.inputs[0] in names)]
    return [replace(n, outputs=tuple(names.get(o, o) for o in n.outputs)) for n in left]


def _pooled_codes(
    nodes: list[Node], constants: Mapping[str, Any], outputs: list[str]
) -> tuple[list[Node], dict[str, Any]]:
    """Bring thresholds before a pool of a product's sums, so that codes are pooled; add masks of falling channels.

    The smallest code is taken of channels in which a larger sum passes fewer thresholds.
    """
    uses = Counter(name for node in nodes for name in node.inputs)
    makers = {node.outputs[0]: i for i, node in enumerate(nodes)}
    moved, masks, taken = list(nodes), {}, names_of(nodes).union(constants)
    for i, node in enumerate(nodes):
        at = makers.get(node.inputs[0]) if node.op == "threshold" else None
        if at is None or not nodes[at].op.startswith("max_pool") or len(nodes[at].inputs) > 1:
            continue
        pool, sums = nodes[at], nodes[at].inputs[0]
        product = nodes[makers[sums]] if sums in makers else None
        alone = uses[sums] == uses[pool.outputs[0]] == 1 and not {sums, pool.outputs[0]} & set(outputs)
        if product is None or not OPERATORS[product.op].requantizes or len(product.outputs) > 1:
            continue
        if not alone or not _same_axis(product, node):
            continue
        law = constants[node.inputs[1]]
        inputs = [pool.outputs[0]]
        if not law.greater.all():
            mask = free_name(f"{node.outputs[0]}.falling", taken)
            masks[mask] = ~law.greater
            inputs.append(mask)
        moved[at] = replace(node, inputs=(sums, node.inputs[1]), outputs=pool.outputs)
        moved[i] = replace(pool, inputs=tuple(inputs), outputs=node.outputs)
    return moved, masks


def sums_pooled(nodes: list[Node], constants: Mapping[str, Any], outputs: list[str]) -> list[Node]:
    """Move thresholds of a product back to after the pool of its codes: the inverse of `finished`, for pools with
    falling channels, which ONNX does not have.
    """
    uses = Counter(name for node in nodes for name in node.inputs)
    makers = {node.outputs[0]: i for i, node in enumerate(nodes)}
    moved: list[list[Node]] = [[node] for node in nodes]
    taken = names_of(nodes).union(constants)
    for i, pool in enumerate(nodes):
        at = makers.get(pool.inputs[0]) if pool.op.startswith("max_pool") and len(pool.inputs) == 2 else None
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
        if uses[codes] > 1 or codes in outputs or not same or (law._codes != law._ranked_codes()).any():
            continue
        name = free_name(f"{pool.outputs[0]}.sums", taken)
        last = {"axis": 1, "last": product.op == "linear"}
        levels = ("", *product.inputs[3:]) if len(product.inputs) > 3 else ()
        moved[at] = [replace(product, inputs=(*product.inputs[:2], *levels))]
        moved[i] = [
            replace(pool, inputs=(codes,), outputs=(name,)),
            Node("threshold", (name, product.inputs[2]), pool.outputs, last, pool.source),
        ]
    return [node for part in moved for node in part]


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
        if at is None or product is None or not OPERATORS[product.op].requantizes or not _same_axis(product, node):
            continue
        if uses[node.inputs[0]] > 1 or node.inputs[0] in outputs:
            if product.op == "add_residual" and len(product.outputs) == 1:  # which gives the sum and its codes
                names, how = (node.inputs[0], *node.outputs), {**product.attributes, "return_sum": True}
                taken = (*product.inputs, node.inputs[1])
                fused[at] = replace(product, inputs=taken, outputs=names, attributes=how)
                gone.add(i)
            continue
        taken = (*product.inputs[:2], node.inputs[1], *product.inputs[3:])  # without the levels of x
        fused[at] = replace(product, inputs=taken, outputs=node.outputs, source=product.source)
        gone.add(i)
    return [node for i, node in enumerate(fused) if i not in gone]


def _padded(nodes: list[Node], outputs: list[str]) -> list[Node]:
    """Merge pads of codes into the convolution after them, if nothing else reads them: it pads by itself."""
    uses = Counter(name for node in nodes for name in node.inputs)
    pads = {n.outputs[0]: n for n in nodes if n.op == "pad" and uses[n.outputs[0]] == 1 and n.outputs[0] not in outputs}
    merged, gone = [], set()
    for node in nodes:
        pad = pads.get(node.inputs[0]) if node.op == "conv2d" else None
        if pad is None or any(map(any, node.attributes["padding"])):
            merged.append(node)
            continue
        top, left, bottom, right = pad.attributes["pads"]
        attributes = {
            **node.attributes,
            "padding": ((top, bottom), (left, right)),
            "pad_value": pad.attributes["value"],
        }
        merged.append(replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), attributes=attributes))
        gone.add(pad.outputs[0])
    return [node for node in merged if node.outputs[0] not in gone]


def _same_axis(product: Node, node: Node) -> bool:
    """Return True if thresholds and product have their channels on the same axis."""
    axis = product.attributes.get("axis", 1)  # of a sum with a shortcut
    return bool(node.attributes["last"]) if product.op == "linear" else bool(node.attributes["axis"] == axis)
