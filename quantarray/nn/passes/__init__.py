"""Passes: functions from a graph to a graph of equal results, and the rows of them that importers and plans apply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graph import Graph
from ..inference import Kind, kinds_of
from ..operators import OPERATORS
from .chains import Shapes, chained
from .flattening import flattened
from .pads import merged_pads
from .pools import codes_pooled, integers_pooled
from .thresholds import merged_thresholds
from .tidying import tidied


def finished(graph: Graph, shapes: Shapes) -> Graph:
    """Return the graph that an importer has read, with thresholds and pads in products, and functions in chains.

    shapes: (shape, dtype) of dense values by name.
    """
    for change in (tidied, codes_pooled, merged_thresholds, merged_pads):
        graph = change(graph)
    return chained(graph, shapes)


def for_plan(graph: Graph) -> Graph:
    """Return the graph for a plan of launches, with less work of NumPy's between kernels, which would part the plan.

    Single functions of elements become chains too; images are flattened in the order of their memory, and weights put
    in that order; integers are pooled before functions of them, which then have fewer elements. The graph itself if its
    shapes are not known.
    """
    try:
        kinds = kinds_of(graph, 1 if any(value.batched for value in graph.inputs) else 0)  # so that 1 is no batch
    except ValueError:  # of operands that do not go together, which a call says
        return graph
    flat = flattened(graph, kinds)
    return integers_pooled(chained(flat, _may_move(flat, kinds), least=1), kinds)


def _may_move(graph: Graph, kinds: Mapping[str, Kind]) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return (shape, dtype) of the dense values that may be stored as a chain gives them, channels last.

    Values that reach an operator of NumPy's, also by functions of elements that keep their order, may not: it may sum
    floats in the order of their memory. A graph read from a file has its chains already.
    """
    ordered = {
        name
        for node in graph.nodes
        for name in node.inputs
        if (order := OPERATORS[node.op].order) == "seen"
        or (order == "rows" and len(kinds[name].shape if name in kinds else ()) != 2)
    }
    for node in reversed(graph.nodes):
        if OPERATORS[node.op].order == "kept" and ordered.intersection(node.outputs):
            ordered.update(node.inputs)
    return {name: (kind.shape, kind.dtype) for name, kind in kinds.items() if kind.axis is None and name not in ordered}
