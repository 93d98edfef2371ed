"""Passes that remove nodes which nobody needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from ..graph import Graph, Node, with_nodes


class _Step(Protocol):
    """A node of a graph or of a file."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...


_N = TypeVar("_N", bound=_Step)


def live(nodes: list[_N], outputs: Iterable[str]) -> list[_N]:
    """Return the nodes that outputs need, of a graph or of a file."""
    needed, needed_nodes = set(outputs), []
    for node in reversed(nodes):
        if needed.intersection(node.outputs):
            needed_nodes.append(node)
            needed.update(node.inputs)
    return needed_nodes[::-1]


def tidied(graph: Graph) -> Graph:
    """Remove what no output needs, and copies that are outputs.

    The node that computes a value takes the name of its copy, if only that reads it.
    """
    outputs = {value.name for value in graph.outputs}
    nodes = live(list(graph.nodes), outputs)
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
    return with_nodes(graph, [replace(n, outputs=tuple(names.get(o, o) for o in n.outputs)) for n in left])


def in_order(nodes: list[Node]) -> list[Node]:
    """Return nodes, each after those whose results it takes, otherwise in the order that they have."""
    left = {name for node in nodes for name in node.outputs}
    done: list[Node] = []
    while nodes:
        later = []
        for node in nodes:
            if left.intersection(node.inputs):
                later.append(node)
            else:
                done.append(node)
                left.difference_update(node.outputs)
        nodes = later
    return done
