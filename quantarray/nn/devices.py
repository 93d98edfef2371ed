"""Graphs on a GPU: which operations run there, and which constants go there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..backends.registry import known_device, namespace
from ..core.errors import DeviceError
from .graph import Graph, Node
from .operators import OPERATORS

_MOST_NAMES = 5  # of operations that an error lists


def on_device(graph: Graph, device: str) -> Graph:
    """Return a graph on the CPU with its constants on a GPU.

    Raises DeviceError that lists the operations that no GPU runs, before anything is moved.
    """
    device = known_device(f"{graph.name}.to_device", device)
    if device == "cpu":
        return graph
    missing = [f"{node.op} of {node.outputs[0]!r}" for node in graph.nodes if not OPERATORS[node.op].gpu]
    missing += [
        f"{node.op} of {node.outputs[0]!r}, for its operand {node.inputs[i]!r} is computed"
        for node in graph.nodes
        for i in OPERATORS[node.op].host
        if i < len(node.inputs) and node.inputs[i] and node.inputs[i] not in graph.constants
    ]
    if missing:
        more = ", .." * (len(missing) > _MOST_NAMES)
        raise DeviceError(
            f"{graph.name}.to_device: these operations run on the CPU alone: {', '.join(missing[:_MOST_NAMES])}{more}; "
            f"run the network there, or load a file without them (docs/gpu-operators.md)"
        )
    constants = _Constants(graph, device)
    nodes = [Node(n.op, constants.operands(n), n.outputs, n.attributes, n.source) for n in graph.nodes]
    result = Graph(graph.inputs, graph.outputs, nodes, constants.placed, graph.name, graph.classes)
    result.batch_note, result.device, result.on_cpu = graph.batch_note, device, graph
    return result


class _Constants:
    """A table of constants: each on the CPU, on the GPU, or on both under two names, as those that read it want it."""

    def __init__(self, graph: Graph, device: str) -> None:
        self.placed: dict[str, Any] = {}
        self._constants, self._device, self._names = graph.constants, device, dict[tuple[str, bool], str]()
        self._values = {name for node in graph.nodes for name in node.outputs}.union(v.name for v in graph.inputs)
        for value in graph.outputs:
            if value.name in self._constants:
                self._name(value.name, moves=True)

    def operands(self, node: Node) -> tuple[str, ...]:
        """Return the operands of a node by the names of those that it reads."""
        operator, names = OPERATORS[node.op], []
        for i, name in enumerate(node.inputs):
            a = self._constants.get(name)
            table = operator.packed and not isinstance(a, QuantArray)  # of which kernels keep a copy
            moves = not (isinstance(a, Thresholds) or table or i in operator.host)
            names.append(name if a is None else self._name(name, moves))
        return tuple(names)

    def _name(self, name: str, moves: bool) -> str:
        """Return the name of a constant that is on the GPU if it `moves`; place it there with its first reader."""
        known = self._names.get((name, moves))
        if known is not None:
            return known
        other = name
        while other in self.placed or (other != name and (other in self._constants or other in self._values)):
            other += "_"
        self.placed[other] = self._moved(self._constants[name]) if moves else self._constants[name]
        self._names[name, moves] = other
        return other

    def _moved(self, a: Any) -> Any:
        if isinstance(a, QuantArray):
            return a.to_device(self._device)
        return namespace(self._device).asarray(a) if isinstance(a, np.ndarray) else a
