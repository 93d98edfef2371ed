"""Graphs in `.qa` files: values and nodes as a JSON document, constants as arrays."""

from __future__ import annotations

import math
import os
from dataclasses import fields
from typing import Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.errors import FormatError
from ..io.document import Document, write_document
from ..io.thresholds import thresholds_document, thresholds_of
from .graph import Graph, Node, Value
from .inference import inferred

_VALUE, _NODE = (tuple(f.name for f in fields(kind)) for kind in (Value, Node))
_DTYPES = ("bool", *(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")


def save_graph(graph: Graph, file: str | os.PathLike[str]) -> None:
    """Write a `Graph`, after the checks with which it is read."""
    arrays: dict[str, Any] = {}
    content = {
        "name": graph.name,
        "classes": None if graph.classes is None else list(graph.classes),
        "inputs": [_value_document(v) for v in graph.inputs],
        "outputs": [_value_document(v) for v in graph.outputs],
        "nodes": [_node_document(node, f"node{i}", arrays) for i, node in enumerate(graph.nodes)],
        "constants": [
            {"name": name, **_constant_document(name, a, f"constant{i}", arrays)}
            for i, (name, a) in enumerate(graph.constants.items())
        ],
    }
    try:
        inferred(graph)
    except ValueError as error:
        raise ValueError(f"save: the graph has no form in a file: {error}") from error
    write_document("save", file, "graph", content, arrays)


def _value_document(value: Value) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _VALUE} | {"shape": list(value.shape)}


def _node_document(node: Node, name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    attributes = {key: _attribute(v, f"{name}.{key}", arrays) for key, v in node.attributes.items()}
    return {
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attributes": attributes,
        "source": node.source,
    }


def _constant_document(name: str, value: Any, key: str, arrays: dict[str, Any]) -> dict[str, Any]:
    if isinstance(value, Thresholds):
        return {"thresholds": thresholds_document(value, key, arrays)}
    if not isinstance(value, (QuantArray, np.ndarray)):
        raise TypeError(f"save: the constant {name!r} must be an array or thresholds, got {checks.kind(value)}")
    arrays[key] = value
    return {"array": key}


def _attribute(value: Any, key: str, arrays: dict[str, Any]) -> Any:
    """Return an attribute of a node as JSON, which has no infinities."""
    if isinstance(value, (tuple, list)):
        return [_attribute(v, f"{key}.{i}", arrays) for i, v in enumerate(value)]
    if isinstance(value, np.ndarray):
        arrays[key] = value
        return {"array": key}
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"save: the attribute {key} has no form in a file, got {checks.kind(value)}")
    return value


def graph_of(document: Document) -> Graph:
    """Rebuild a graph, and check it: operators, names, shapes and dtypes; FormatError if it is none."""
    content, arrays = document.content, document.arrays
    parts = _object(content, ("name", "classes", "inputs", "outputs", "nodes", "constants"))
    inputs, outputs = ([_value(v) for v in _list(parts[n])] for n in ("inputs", "outputs"))
    nodes = [_node(node, arrays) for node in _list(parts["nodes"])]
    constants: dict[str, Any] = {}
    for entry in _list(parts["constants"]):
        name, value = _constant(entry, arrays)
        if name in constants:
            raise FormatError(f"two of its constants have the name {name!r:.80}")
        constants[name] = value
    if not outputs:
        raise FormatError("it has no outputs")
    classes = parts["classes"] if parts["classes"] is None else [_text(name) for name in _list(parts["classes"])]
    if classes == []:
        raise FormatError("its classes must have names, or be null")
    graph = Graph(inputs, outputs, nodes, constants, _text(parts["name"]), classes)
    inferred(graph)
    return graph


def _value(document: Any) -> Value:
    """Rebuild an input or output."""
    parts = _object(document, _VALUE)
    shape, dtype, bounds = _list(parts["shape"]), parts["dtype"], (parts["low"], parts["high"])
    if not all(type(n) is int and n >= 0 for n in shape) or dtype not in _DTYPES or type(parts["batched"]) is not bool:
        raise FormatError(f"it has an input or output that is none: {document!r:.200}")
    if not all(n is None or type(n) is int for n in bounds) or (bounds[0] is None) != (bounds[1] is None):
        raise FormatError(f"bounds of an input or output must be two integers, got {bounds!r:.80}")
    return Value(_text(parts["name"]), tuple(shape), dtype, parts["batched"], *bounds)


def _node(document: Any, arrays: dict[str, Any]) -> Node:
    """Rebuild a node."""
    parts = _object(document, _NODE)
    inputs, outputs = (tuple(_text(name) for name in _list(parts[n])) for n in ("inputs", "outputs"))
    if not outputs or "" in outputs or not isinstance(parts["attributes"], dict):
        raise FormatError(f"it has a node without outputs or attributes: {document!r:.200}")
    attributes = {key: _rebuilt(value, arrays) for key, value in parts["attributes"].items()}
    return Node(_text(parts["op"]), inputs, outputs, attributes, _text(parts["source"]))


def _constant(document: Any, arrays: dict[str, Any]) -> tuple[str, Any]:
    """Rebuild a constant, and return its name too."""
    kind = "thresholds" if isinstance(document, dict) and "thresholds" in document else "array"
    parts = _object(document, ("name", kind))
    if kind == "thresholds":
        return _text(parts["name"]), thresholds_of(parts[kind], arrays)
    return _text(parts["name"]), _array(parts[kind], arrays)


def _rebuilt(value: Any, arrays: dict[str, Any]) -> Any:
    """Rebuild an attribute of a node."""
    if isinstance(value, list):
        return tuple(_rebuilt(v, arrays) for v in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"} and value["float"] in ("inf", "-inf", "nan"):
        return float(value["float"])
    return _array(_object(value, ("array",))["array"], arrays)


def _array(name: Any, arrays: dict[str, Any]) -> Any:
    if not isinstance(name, str) or name not in arrays:
        raise FormatError(f"there is no array {name!r:.80}")
    return arrays[name]


def _object(value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != set(keys):
        raise FormatError(f"there must be an object with the keys {sorted(keys)}, got {value!r:.200}")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"there must be a list, got {value!r:.80}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise FormatError(f"there must be a text, got {value!r:.80}")
    return value
