"""A pass over nodes: functions of elements in a row, with a shortcut's sum and thresholds, become one node `chain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...ops.products.chain import takes
from ..graph import Graph, Node, free_name, names_in, readers, with_nodes
from ..operators import OPERATORS
from ..operators.record import Step

Shapes = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
_FLOAT = np.dtype(np.float32)
_MOST_CODES = 16  # levels of fused thresholds: each compares a row once more
_IMAGE = 4
_RANKS = (2, _IMAGE)


@dataclass(eq=False)
class _Group:
    """A group of nodes that become one: x times `scale`, then `steps`; one may add `other` times `other_scale`."""

    x: str
    tail: str  # the value of the last node
    shape: tuple[int, ...]
    scale: Array | None = None
    other: str = ""
    other_scale: Array | None = None
    steps: list[Step] = field(default_factory=list)
    at: list[int] = field(default_factory=list)  # places of its nodes, ascending
    thresholds: str = ""
    codes: str = ""


def chained(graph: Graph, shapes: Shapes, least: int = 2) -> Graph:
    """Return the graph with chains fused.

    shapes: (shape, dtype) of dense values by name; a value without an entry is not fused. Results are equal to the bit:
    the kernel takes the same steps in float32 in the same order. Of rows [n c] fewer nodes than `least` stay in NumPy:
    a call of a kernel from Python takes longer than they do.
    """
    nodes, constants, uses = graph.nodes, dict(graph.constants), readers(graph)
    groups = _grouped(nodes, constants, uses, shapes)
    _attach_thresholds(nodes, constants, groups, shapes, _IMAGE if least > 1 else min(_RANKS))
    taken = names_in(graph).union(shapes)
    places: dict[int, Node | None] = {}
    for group in groups.values():
        if group.codes or len(group.at) >= least or len(group.shape) > 2:
            dense = bool(group.steps or group.scale is not None) and uses[group.tail] > bool(group.codes)
            gives = ["values"] * dense + ["codes"] * bool(group.codes)
            if not gives:  # nobody reads it
                continue
            if group.codes:
                places[next(i for i, n in enumerate(nodes) if n.outputs[0] == group.codes)] = None
            places.update(dict.fromkeys(group.at[:-1]))
            places[group.at[-1]] = _node(nodes[group.at[-1]].source, group, gives, constants, taken)
    new = [places.get(i, node) for i, node in enumerate(nodes)]
    return with_nodes(graph, [node for node in new if node is not None], constants)


def _grouped(
    nodes: Sequence[Node], constants: Mapping[str, Any], uses: Counter[str], shapes: Shapes
) -> dict[str, _Group]:
    """Collect groups by their tails: a node joins that of its operand if nothing else reads the operand."""
    groups: dict[str, _Group] = {}
    for i, node in enumerate(nodes):
        name = node.outputs[0]
        shape, dtype = shapes.get(name, ((), None))
        if dtype != _FLOAT or len(shape) not in _RANKS:
            continue
        variable = [n for n in node.inputs if n and n not in constants]
        if node.op == "Add" and len(variable) == 2 and all(_alike(n, shape, shapes) for n in variable):
            group = _summed(variable, groups, uses, shape)
        else:
            group = _extended(node, variable, constants, groups, uses, shape, shapes)
        if group is not None:
            if groups.get(group.tail) is group:  # not one whose result others read, which stays
                del groups[group.tail]
            group.tail = name
            group.at = sorted([*group.at, i])
            groups[name] = group
    return groups


def _alike(name: str, shape: tuple[int, ...], shapes: Shapes) -> bool:
    return shapes.get(name) == (shape, _FLOAT)


def _summed(
    operands: list[str], groups: dict[str, _Group], uses: Counter[str], shape: tuple[int, ...]
) -> _Group | None:
    """Return the group of one operand with the other's sum; addition is commutative, NaN apart."""
    if operands[0] == operands[1]:
        return None
    free = [n for n in operands if n in groups and uses[n] == 1 and not groups[n].other]
    first = max(free, key=lambda n: len(groups[n].steps), default=operands[0])
    second = operands[1] if first == operands[0] else operands[0]
    group = groups[first] if free else _Group(first, first, shape)
    group.other = second
    if second in free and not groups[second].steps:  # only a scale
        scaled = groups.pop(second)
        group.other, group.other_scale = scaled.x, scaled.scale
        group.at = sorted([*group.at, *scaled.at])
    group.steps.append(("add other", 0.0))
    return group


def _extended(
    node: Node, variable: list[str], constants: Mapping[str, Any], groups: dict[str, _Group], uses: Counter[str],
    shape: tuple[int, ...], shapes: Shapes,
) -> _Group | None:  # fmt: skip
    """Return the group of a node's operand with the node's steps, or a new one; None if it is no such function."""
    if len(variable) != 1 or node.inputs.count(variable[0]) > 1:
        return None
    x = variable[0]
    operands = [None if n == x else constants[n] if n else None for n in node.inputs]
    if node.op == "scale":
        return _scaled(x, operands[1], node, shape) if _starts(x, shape, shapes) else None
    build = OPERATORS[node.op].steps
    steps = None if build is None else build(dict(node.attributes), node.inputs.index(x) == 0, operands)
    if not steps or any(_by_channel(k, shape) is None for _, k in steps) or not _starts(x, shape, shapes):
        return None
    group = groups[x] if x in groups and uses[x] == 1 else _Group(x, x, shape)
    group.steps += steps
    return group


def _starts(x: str, shape: tuple[int, ...], shapes: Shapes) -> bool:
    """Return True if a chain may take x: integers or float32, of the shape that its steps give."""
    known, dtype = shapes.get(x, (None, None))
    return known == shape and dtype is not None and (dtype.kind in "iu" or dtype == _FLOAT)


def _scaled(x: str, scale: Any, node: Node, shape: tuple[int, ...]) -> _Group | None:
    by_channel = _by_channel(scale, shape, np.float64)
    if by_channel is None or np.dtype(node.attributes.get("to", "float32")) != _FLOAT:
        return None
    return _Group(x, x, shape, scale=by_channel)


def _by_channel(k: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> Array | None:
    """Return a constant as one number a channel (axis 1); None if it varies along another axis, or holds a NaN."""
    a = np.asarray(k)
    if np.isnan(a).any():
        return None
    if set(a.shape[len(shape) :]) == {1}:  # one for each channel, for rows [n c]
        a = a.reshape(a.shape[: len(shape)])
    wide = a.reshape((1,) * (len(shape) - a.ndim) + a.shape) if a.ndim <= len(shape) else None
    if wide is None or wide.size != wide.shape[1] or wide.shape[1] not in (1, shape[1]):
        return None
    return np.broadcast_to(wide.reshape(-1), shape[1]).astype(dtype)


def _attach_thresholds(
    nodes: Sequence[Node], constants: Mapping[str, Any], groups: dict[str, _Group], shapes: Shapes, least_rank: int
) -> None:
    """Let each group encode its result by the first thresholds on it; floats of so many axes get a group for them."""
    for i, node in enumerate(nodes):
        if node.op != "threshold" or node.attributes["axis"] != 1:
            continue
        T: Thresholds = constants[node.inputs[1]]
        x, (shape, dtype) = node.inputs[0], shapes.get(node.inputs[0], ((), None))
        if dtype != _FLOAT or not takes(T) or T.into.n_levels > _MOST_CODES:
            continue
        group = groups.get(x)
        if group is None and len(shape) in _RANKS and len(shape) >= least_rank:
            group = groups[x] = _Group(x, x, shape, at=[i])
        if group is not None and not group.codes:
            group.thresholds, group.codes = node.inputs[1], node.outputs[0]


def _node(source: str, group: _Group, gives: list[str], constants: dict[str, Any], taken: set[str]) -> Node:
    """Return the node of a group; add its constants, of names that are not taken yet."""

    def constant(a: Array | None, what: str) -> str:
        if a is None:
            return ""
        name = free_name(f"{group.tail}.chain.{what}", taken)  # the chain that gives x may have the name of its value
        constants[name] = a
        return name

    rows = [_by_channel(k, group.shape) for _, k in group.steps]
    table = np.array(rows, np.float32).reshape(len(rows), group.shape[1])
    names = constant(table, "constants"), constant(group.scale, "scale"), constant(group.other_scale, "other_scale")
    results = [group.tail] * ("values" in gives) + [group.codes] * bool(group.codes)
    attributes = {
        "steps": tuple(step for step, _ in group.steps),
        "gives": tuple(gives),
        "rank": len(group.shape),
    }
    return Node("chain", (group.x, group.other, *names, group.thresholds), tuple(results), attributes, source)


def unchained(graph: Graph) -> Graph:
    """Return a graph in which each chain is its steps again, as other programs have them; with equal results."""
    if not any(node.op == "chain" for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    constants = dict(graph.constants)
    taken = names_in(graph)
    for node in graph.nodes:
        nodes += _steps_of(node, constants, taken) if node.op == "chain" else [node]
    return with_nodes(graph, nodes, constants)


def _steps_of(node: Node, constants: dict[str, Any], taken: set[str]) -> list[Node]:
    """Return the nodes that a chain replaces; add their constants, all under names that are not taken yet."""
    x, other, table, scale, other_scale, thresholds = (*node.inputs, *[""] * (6 - len(node.inputs)))
    nodes: list[Node] = []

    def add(op: str, *operands: str, **attributes: Any) -> str:
        name = free_name(f"{node.outputs[0]}.{len(nodes)}", taken)
        nodes.append(Node(op, operands, (name,), attributes, node.source))
        return name

    def constant(a: Any) -> str:
        name = free_name(f"{node.outputs[0]}.constant{len(constants)}", taken)
        constants[name] = a
        return name

    def scaled(name: str, scale: str) -> str:
        operands = (name, constant(constants[scale].reshape(wide))) if scale else (name,)
        return add("scale" if scale else "Cast", *operands, to="float32")

    wide = (-1, *(1,) * (node.attributes["rank"] - 2))
    v, other = scaled(x, scale), scaled(other, other_scale) if other else ""
    steps = iter(zip(node.attributes["steps"], constants[table] if table else (), strict=True))
    for step, k in steps:
        operand = other if step == "add other" else constant(np.ascontiguousarray(k.reshape(wide)))
        if step == "affine":
            _, offset = next(steps)
            v = add("affine", v, operand, constant(np.ascontiguousarray(offset.reshape(wide))))
        else:
            op, first = _OPERATORS[step]
            v = add(op, v, operand) if first else add(op, operand, v)
    gives = dict(zip(node.attributes["gives"], node.outputs, strict=True))
    if "codes" in gives:
        attributes = {"axis": 1, "last": node.attributes["rank"] == 2}
        nodes.append(Node("threshold", (v, thresholds), (gives["codes"],), attributes, node.source))
    if "values" in gives:
        nodes.append(Node("Identity", (v,), (gives["values"],), {}, node.source))
    return nodes


_OPERATORS = {  # ONNX's operator of each step, and whether the value is its first operand
    "add": ("Add", True),
    "subtract": ("Sub", True),
    "subtract from": ("Sub", False),
    "multiply": ("Mul", True),
    "divide": ("Div", True),
    "max": ("Max", True),
    "min": ("Min", True),
    "slope": ("PRelu", True),
    "add other": ("Add", True),
}
