"""A pass that lets products apply the thresholds after them."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Node, makers, readers, with_nodes
from ..operators import OPERATORS


def merged_thresholds(graph: Graph) -> Graph:
    """Merge thresholds into the product before them, as its `requantize`, if nothing else reads its result."""
    uses, givers, fused, gone = readers(graph), makers(graph), list(graph.nodes), set()
    for i, node in enumerate(graph.nodes):
        if node.op != "threshold":
            continue
        at = givers.get(node.inputs[0])
        product = fused[at] if at is not None else None
        if at is None or product is None or not OPERATORS[product.op].requantizes or not same_axis(product, node):
            continue
        if uses[node.inputs[0]] > 1:
            if product.op == "add_residual" and len(product.outputs) == 1:  # which gives the sum and its codes
                names, how = (node.inputs[0], *node.outputs), {**product.attributes, "return_sum": True}
                taken = (*product.inputs, node.inputs[1])
                fused[at] = replace(product, inputs=taken, outputs=names, attributes=how)
                gone.add(i)
            continue
        taken = (*product.inputs[:2], node.inputs[1], *product.inputs[3:])  # without the levels of x
        fused[at] = replace(product, inputs=taken, outputs=node.outputs, source=product.source)
        gone.add(i)
    return with_nodes(graph, [node for i, node in enumerate(fused) if i not in gone])


def same_axis(product: Node, node: Node) -> bool:
    """Return True if thresholds and product have their channels on the same axis."""
    axis = product.attributes.get("axis", 1)  # of a sum with a shortcut
    return bool(node.attributes["last"]) if product.op == "linear" else bool(node.attributes["axis"] == axis)
