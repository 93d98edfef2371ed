"""A pass that lets convolutions pad by themselves."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, readers, with_nodes


def merged_pads(graph: Graph) -> Graph:
    """Merge pads of codes into the convolution after them, if nothing else reads them: it pads by itself."""
    uses = readers(graph)
    pads = {n.outputs[0]: n for n in graph.nodes if n.op == "pad" and uses[n.outputs[0]] == 1}
    merged, gone = [], set()
    for node in graph.nodes:
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
    return with_nodes(graph, [node for node in merged if node.outputs[0] not in gone])
