"""Networks in `.qa` files: layers as a JSON document and arrays; graphs in graph_file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import checks
from ..arrays.affine import Affine
from ..arrays.array import QuantArray
from ..arrays.canonical import dtype_header, dtype_of_header
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType
from ..core.errors import FormatError
from ..io.document import Document, only, read_as, write_document
from ..io.plain import PlainLayer, checked_meta, plain_network
from ..io.thresholds import dense, thresholds_document, thresholds_of
from .convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .graph import Graph
from .graph_file import graph_of
from .joining import Add, ChannelShuffle, Concat, Split
from .layers import Dense
from .mapping import Map, Threshold
from .network import Network, layer_of
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from .sequential import Sequential

_LAYERS: dict[str, Any] = {
    layer.__name__: layer
    for layer in (
        *(Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d),
        *(Add, ChannelShuffle, Concat, Dense, GlobalAvgPool, Split, Threshold),
        *(AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d),
    )
}


# Arguments that layers of earlier versions lack in their files
_LATER = {"dilation", "ceil_mode", "return_indices", "count_include_pad", "falling", "return_sum"}


def load_stored(path: Path) -> Sequential | Network | Graph:
    """Read the `.qa` file that `save` wrote, whose weights stay in the mapped file."""
    network: Sequential | Network | Graph = read_as("load", path, _built(path))
    return network


def _built(path: Path) -> Callable[[Document], Sequential | Network | Graph]:
    """Return the function that builds the network of a document at `path`."""

    def build(document: Document) -> Sequential | Network | Graph:
        only("load", document, ("sequential", "plain network", "graph"))
        if document.kind == "graph":
            return graph_of(document)
        if document.kind == "sequential":
            return _sequential(document.content, document.arrays)
        return _network(path, document)

    return build


# layers in a row


def save_sequential(network: Sequential, file: str | os.PathLike[str]) -> None:
    """Write a `Sequential`."""
    arrays: dict[str, Any] = {}
    write_document("save", file, "sequential", _layers_document(network, "", arrays), arrays)


def _layers_document(network: Sequential, prefix: str, arrays: dict[str, Any]) -> dict[str, Any]:
    return {"layers": [_layer_document(layer, f"{prefix}{i}", arrays) for i, layer in enumerate(network)]}


def _layer_document(layer: Any, name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return a layer as a JSON object, and add its arrays under names that begin with `name`."""
    kind = type(layer).__name__
    if type(layer) is Sequential:
        return {"layer": kind, **_layers_document(layer, f"{name}.", arrays)}
    if type(layer) is Thresholds:
        return {"layer": kind, "thresholds": _value(layer, f"{name}.thresholds", arrays)}
    if type(layer) is Affine or (type(layer) is Map and layer.values is not None):
        parts = ("scale", "offset") if type(layer) is Affine else ("of", "values")
        return {"layer": kind} | {p: _value(getattr(layer, p), f"{name}.{p}", arrays) for p in parts}
    if _LAYERS.get(kind) is not type(layer):
        hint = "pass of= to evaluate it" if type(layer) is Map else "Map(f, of=dtype) holds the values of a function"
        raise TypeError(f"save: layer {name} ({layer!r:.80}) has no form in a file; {hint}")
    held = {f.name: getattr(layer, f.name) for f in fields(layer)}
    return {"layer": kind} | {n: _value(value, f"{name}.{n}", arrays) for n, value in held.items()}


def _value(value: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Return an argument of a layer as JSON."""
    if isinstance(value, (QuantArray, np.ndarray)):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, Thresholds):
        return {"thresholds": thresholds_document(value, name, arrays)}
    if isinstance(value, DType):
        return {"dtype": dtype_header(value)}
    if isinstance(value, (tuple, list)):
        return [_value(v, name, arrays) for v in value]
    if value is None or isinstance(value, (bool, str)):
        return value
    if not isinstance(value, (int, float, np.number)):  # as of out_dtype, which is the only argument that is a type
        return np.dtype(value).name
    number = checks.number("save", name, value)
    return int(number) if isinstance(number, int) else number


def _sequential(document: Any, arrays: dict[str, Any]) -> Sequential:
    layers = document.get("layers") if isinstance(document, dict) else None
    if not isinstance(layers, list) or document.keys() != {"layers"}:
        raise FormatError(f"its document must have one key, 'layers', a list, got {document!r:.80}")
    return Sequential(_layer(i, layer, arrays) for i, layer in enumerate(layers))


def _layer(i: int, document: Any, arrays: dict[str, Any]) -> Any:
    """Rebuild a layer; FormatError if the object describes none."""
    kind = str(document.get("layer")) if isinstance(document, dict) else "None"
    if kind == "Sequential":
        return _sequential({n: v for n, v in document.items() if n != "layer"}, arrays)
    names = {"Thresholds": {"thresholds"}, "Affine": {"scale", "offset"}, "Map": {"of", "values"}}.get(kind)
    later: set[str] = set()  # arguments that files of earlier versions lack
    if names is None:
        if kind not in _LAYERS:
            raise FormatError(f"layer {i}: there is no layer {kind!r:.40}")
        names = {f.name for f in fields(_LAYERS[kind])}
        later = names & (_LATER | ({"requantize"} if kind.startswith("MaxPool") else set()))
    if not names - later <= document.keys() - {"layer"} <= names:
        raise FormatError(f"layer {i} ({kind}): needs the keys {sorted(names)}, got {sorted(document)!r:.200}")
    held = {n: _argument(document[n], arrays) for n in sorted(names & document.keys())}
    try:
        if kind == "Thresholds":
            return _thresholds(held["thresholds"])
        if kind == "Affine":
            return Affine(**held)
        return _map(**held) if kind == "Map" else _LAYERS[kind](**held)
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"layer {i} ({kind}): {error}") from error


def _argument(value: Any, arrays: dict[str, Any]) -> Any:
    """Rebuild an argument of a layer."""
    if isinstance(value, list):
        return tuple(_argument(v, arrays) for v in value)
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        if "thresholds" in value:
            return thresholds_of(value["thresholds"], arrays)
        if "dtype" in value and isinstance(value["dtype"], dict):
            return dtype_of_header(value["dtype"])
        if "array" in value and isinstance(value["array"], str) and value["array"] in arrays:
            return arrays[value["array"]]
    raise FormatError(f"there is no such array or value: {value!r:.80}")


def _thresholds(value: Any) -> Thresholds:
    if not isinstance(value, Thresholds):
        raise TypeError(f"thresholds must be thresholds, got {checks.kind(value)}")
    return value


def _map(of: Any, values: Any) -> Map:
    if not isinstance(values, np.ndarray) or not isinstance(of, DType):
        raise TypeError("needs a dtype and an array of values")

    def stored(levels: Array) -> Array:
        return values

    return Map(stored, of)


# networks of plain integers


def save_network(network: Network, file: str | os.PathLike[str]) -> None:
    """Write a `Network`: the meta object of docs/plain-format.md, and its arrays, of which weights are packed."""
    plain = network.plain
    arrays: dict[str, Any] = {"input": plain.input, "input_table": plain.input_table, "expected": plain.expected}
    if plain.labels is not None:
        arrays["labels"] = plain.labels
    layers = [
        _plain_document(i, layer, spec, arrays)
        for i, (layer, spec) in enumerate(zip(network.layers, plain.layers, strict=True))
    ]
    meta = {"name": plain.name, "layers": layers, "input": plain.input_text, "expected": plain.expected_text}
    if plain.classes is not None:
        meta["classes"] = plain.classes
    write_document("save", file, "plain network", meta, arrays)


def _plain_document(i: int, layer: Any, spec: PlainLayer, arrays: dict[str, Any]) -> dict[str, Any]:
    if spec.op == "max_pool2d":
        return {"op": spec.op, "size": spec.size, "stride": spec.stride, "pad": spec.pad}
    named = {"weight": layer.weight, "threshold": spec.thresholds, "invert": spec.invert}
    names = {part: None if a is None else f"{part}{i}" for part, a in named.items()}
    arrays.update({f"{part}{i}": a for part, a in named.items() if a is not None})
    keys = {
        "op": spec.op,
        **names,
        "values": spec.values,
        "strict": spec.strict,
        "stride": spec.stride,
        "pad": spec.pad,
    }
    return keys | {"pad_value": spec.pad_value} if spec.op == "conv2d" else keys


def _network(path: Path, document: Document) -> Network:
    """Build the network of a document, with the same checks as for a `.npz`."""
    meta = checked_meta(document.content)
    arrays = {name: _unpacked(name, a) for name, a in document.arrays.items()}
    plain = plain_network(path, meta, arrays)
    layers = []
    for i, (spec, described) in enumerate(zip(plain.layers, meta["layers"], strict=True)):
        weight = document.arrays.get(described.get("weight"))
        if isinstance(weight, np.ndarray):
            raise FormatError(f"layer {i}: its weight must be packed")
        layers.append(layer_of(spec, weight))
    return Network(Sequential(layers), plain)


def _unpacked(name: str, a: Array | QuantArray) -> Array:
    """Return a dense array as it is, and a packed weight as int8."""
    if not isinstance(a, QuantArray):
        return dense(name, {name: a})
    if a.constants.shapes or a.dtype.levels is None or a.axis != a.ndim - 1 or a.dtype.max_abs > 128:
        raise FormatError(f"its weight {name!r:.80} must have 8-bit integer levels and be packed on its last axis")
    values = a.dequantize()
    if values.size and (values.min() < -128 or values.max() > 127):
        raise FormatError(f"its weight {name!r:.80} must have values from -128 to 127")
    return values.astype(np.int8)
