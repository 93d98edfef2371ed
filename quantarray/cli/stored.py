"""Describe a file: an array, arrays, tensors of a model, layers in a row, a graph, or a network of plain integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import nn
from ..arrays.array import QuantArray
from ..arrays.size_text import size_text
from ..core.errors import FormatError
from ..core.text import short, table
from ..io.container import load
from ..io.document import read_document
from ..io.foreign import kind_of
from . import output

ENDINGS = (".npz", ".safetensors", ".qa", ".gguf", ".onnx")


def describe(path: Path, as_json: bool) -> None:
    """Print what a file holds, as text or as JSON."""
    if path.suffix not in ENDINGS:
        kind = kind_of(path)
        it = f"; it is {kind}" if kind else ""
        raise ValueError(f"info: the file must end in {', '.join(ENDINGS)}, got {str(path)!r}{it}")
    if path.suffix == ".onnx":
        network: Any = nn.load(path)
        facts, text = _of_graph(path, network)
    else:
        facts, text = {".qa": _of_document, ".gguf": _of_gguf}.get(path.suffix, _of_others)(path)
    output.print_json(facts) if as_json else print(text)


def _of_others(path: Path) -> tuple[Any, str]:
    """Return facts and text on a `.npz` or `.safetensors` file."""
    try:
        facts = container(load(path))
    except FormatError as not_container:
        try:
            network = nn.load_network(path)
        except FormatError as not_plain:
            raise FormatError(f"info: {output.neither(path, not_container, not_plain)}") from not_plain
        return _of_plain(network)
    return facts, f"{path}\n{output.lines(facts)}"


def _of_document(path: Path) -> tuple[Any, str]:
    """Return facts and text on a `.qa` file, with its size and checksum."""
    document, size = read_document("info", path), path.stat().st_size
    facts = {"kind": document.kind, "file bytes": size, "checksum": document.digest}
    last = f"file: {output.amount(size)}, checksum {document.digest}"
    holds: Any = load(path) if document.kind in ("array", "arrays") else nn.load(path)
    if isinstance(holds, nn.Network):
        more, text = _of_plain(holds)
    elif isinstance(holds, nn.Graph):
        more, text = _of_graph(path, holds)
    elif isinstance(holds, nn.Sequential):
        more, text = _of_layers(path, holds)
    elif isinstance(holds, QuantArray):
        more = container(holds)
        text = f"{path}\n{output.lines(more)}"
    else:
        more, text = _of_arrays(path, holds)
    return facts | more, f"{text}\n{last}"


def container(q: QuantArray) -> dict[str, Any]:
    """Return the fields of an array's repr."""
    constants = {name: list(a.shape) for name, a, _ in q.constants.items()}
    return {
        "shape": list(q.shape),
        "dtype": str(q.dtype),
        "bits": q.bits,
        "axis": q.axis,
        "group": q.group,
        "constants": constants,
        "bytes": q.nbytes,
        "float32 bytes": 4 * q.size,
        "size": size_text(q),
        "digest": q.digest(),
    }


def _of_arrays(path: Path, arrays: dict[str, Any]) -> tuple[dict[str, Any], str]:
    rows: list[dict[str, Any]] = [
        {"name": name, "shape": list(a.shape), "dtype": str(a.dtype), "bytes": int(a.nbytes)}
        for name, a in arrays.items()
    ]
    lines = [[r["name"], " x ".join(map(str, r["shape"])), r["dtype"], f"{r['bytes']:,}"] for r in rows]
    return {"arrays": rows}, f"{path}: arrays\n" + table(["array", "shape", "dtype", "bytes"], lines)


def _of_gguf(path: Path) -> tuple[dict[str, Any], str]:
    """Describe the tensors and the metadata of a GGUF file, or of all parts of a split one."""
    file = load(path)
    rows: list[dict[str, Any]] = [
        {"name": name, "type": t.type, "shape": list(t.shape), "bytes": t.nbytes, "file": t.file.name}
        for name, t in file.tensors.items()
    ]
    metadata = {key: _short(value) for key, value in file.metadata.items()}
    size = sum(r["bytes"] or 0 for r in rows)
    lines = [
        [r["name"], " x ".join(map(str, r["shape"])), r["type"], "?" if r["bytes"] is None else f"{r['bytes']:,}"]
        for r in rows
    ]
    texts = [
        f"{path}: {len(rows)} tensors, {output.amount(size)}",
        table(["tensor", "shape", "type", "bytes"], lines),
        *[f"{key}: {short(str(value))}" for key, value in metadata.items()],
    ]
    return {"metadata": metadata, "tensors": rows}, "\n".join(texts)


def _short(value: Any) -> Any:
    """Replace an array, such as a vocabulary, by its type and length."""
    if isinstance(value, list):
        return f"{len(value)} texts"
    return f"{value.size} {value.dtype}" if isinstance(value, np.ndarray) else value


def _of_layers(path: Path, network: nn.Sequential) -> tuple[dict[str, Any], str]:
    """Describe layers without the shapes of their outputs: the file does not describe an input."""
    rows = []
    for layer in network:
        T, weight = getattr(layer, "requantize", None), getattr(layer, "weight", None)
        packed = weight if isinstance(weight, QuantArray) else None
        rows.append(
            {
                "name": getattr(layer, "name", type(layer).__name__),
                "bits": None if T is None else T.into.bits,
                "weight_bits": None if packed is None else packed.bits,
                "weight_bytes": 0 if packed is None else packed.nbytes,
            }
        )
    lines = [
        [f"{i} {r['name']}", r["bits"] or "-", r["weight_bits"] or "-", f"{r['weight_bytes']:,}"]
        for i, r in enumerate(rows)
    ]
    lines.append(["all", "", "", f"{network.nbytes:,}"])
    text = table(["layer", "bits", "weight bits", "weight bytes"], lines)
    return {"layers": rows}, f"{path}: {len(rows)} layers\n{text}"


def _of_graph(path: Path, graph: nn.Graph) -> tuple[dict[str, Any], str]:
    """Describe a graph: its inputs and outputs, and the rows of its summary."""
    summary = graph.summary()
    ends = {
        side: [{"name": v.name, "shape": list(v.shape), "dtype": v.dtype, "batched": v.batched} for v in values]
        for side, values in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    rows = [{name: v for name, v in row._asdict().items() if name != "seconds"} for row in summary.rows]
    takes, gives = (", ".join(f"{v.name}: {v.text}" for v in values) for values in (graph.inputs, graph.outputs))
    classes = f"\nclasses: {', '.join(graph.classes)}" if graph.classes else ""
    facts = {"network": graph.name, "classes": graph.classes, **ends, "nodes": rows}
    return facts, f"{path}: {takes} -> {gives}\n{summary}{classes}"


def _of_plain(network: nn.Network) -> tuple[dict[str, Any], str]:
    """Describe a network of plain integers and its inputs."""
    plain, rows = network.plain, output.layer_rows(network)
    facts = {"network": plain.name, "input": list(plain.input.shape[1:]), "samples": len(plain.input)}
    texts = [
        output.heading(plain),
        output.layer_table(rows),
        f"samples: {len(plain.input)}, {'with' if plain.labels is not None else 'without'} labels",
        *([f"input: {plain.input_text}"] if plain.input_text else []),
    ]
    return facts | {"classes": plain.classes, "layers": rows}, "\n".join(texts)
