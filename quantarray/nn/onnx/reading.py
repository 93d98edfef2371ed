"""Read a model: its nodes with attributes as Python values, its constants as arrays, its inputs and outputs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array
from ...core.errors import FormatError
from .tensors import Refused, array_of, is_external

_STANDARD = ("", "ai.onnx")
_QONNX = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general", "qonnx.custom_op", "finn")


class Step(NamedTuple):
    """A node of an ONNX file; `op` has the domain before it unless ONNX or QONNX defines the operator."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int

    @property
    def label(self) -> str:
        """Return the name of the node; without one, that of its operator."""
        return self.name or self.op

    @property
    def text(self) -> str:
        """Describe the node for an error: its operator, and its name or its results."""
        return f"{self.op} {self.name!r}" if self.name else f"{self.op} -> {', '.join(self.outputs)}"


class Place(NamedTuple):
    """An input or output of a file: lengths are integers, or names where the file leaves them open.

    Files of other programs also have -1 for an open length.
    """

    name: str
    shape: tuple[int | str, ...] | None
    element: int  # ONNX's number of the type


@dataclass(frozen=True)
class Model:
    """A file, read."""

    steps: list[Step]
    inputs: list[Place]
    outputs: list[Place]
    constants: dict[str, Array]
    elements: dict[str, int]  # ONNX's number of the type of each constant
    nbytes: int
    refused: list[str] = field(default_factory=list)


def read(source: Any) -> Model:
    """Read a path, bytes, or an `onnx.ModelProto`; FormatError where it is none."""
    proto, size = _proto(source)
    folder = Path(source).parent if isinstance(source, (str, os.PathLike)) else None
    return _Reader(proto, folder).model(size)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ImportError(
            "load: an ONNX file needs the package onnx; install it with pip install 'quantarray[onnx]'"
        ) from None
    return onnx


def _proto(source: Any) -> tuple[Any, int]:
    onnx = _onnx()
    from google.protobuf.message import DecodeError

    if isinstance(source, onnx.ModelProto):
        return source, source.ByteSize()
    if not isinstance(source, (str, os.PathLike, bytes)):
        raise TypeError(f"load: needs a path, bytes or an onnx.ModelProto, got {type(source).__name__}")
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"load: not an ONNX model, or a damaged one: {error}") from error
    return proto, len(data)


def _text(name: Any) -> str:
    """Return a name of a file; raise FormatError if it is not UTF-8, for which protobuf gives bytes."""
    if not isinstance(name, str):
        raise FormatError(f"load: a damaged ONNX model: the name {name!r} is not UTF-8")
    return name


class _Reader:
    """A reading of a model, whose large constants may be in other files of its folder."""

    def __init__(self, proto: Any, folder: Path | None) -> None:
        self.proto, self.folder = proto, folder
        self.constants: dict[str, Array] = {}
        self.elements: dict[str, int] = {}
        self.refused: list[str] = []
        self.opsets = {_text(o.domain): int(o.version) for o in proto.opset_import}

    def model(self, size: int) -> Model:
        """Return all that the model holds; `size` is that of its own file."""
        graph = self.proto.graph
        for tensor in graph.initializer:
            self._keep(_text(tensor.name), tensor)
        if graph.sparse_initializer:
            self.refused.append("sparse tensors are not taken")
        if not graph.node and not graph.output:
            raise FormatError("load: not an ONNX model: it has no graph")
        steps = []
        for node in graph.node:
            step = self._step(node)
            if step.op == "Constant":
                self._constant(node, step)
            else:
                steps.append(step)
        inputs = [_place(i) for i in graph.input if i.name not in self.constants]
        outputs = [_place(o) for o in graph.output]
        outside = [t for t in graph.initializer if is_external(t) and t.name in self.constants]
        size += sum(self.constants[t.name].nbytes for t in outside)
        return Model(steps, inputs, outputs, self.constants, self.elements, size, self.refused)

    def _keep(self, name: str, tensor: Any) -> None:
        try:
            a, self.elements[name] = array_of(tensor, self.folder), int(tensor.data_type)
        except Refused as error:
            self.refused.append(f"constant {name!r}: {error}")
            return
        self.constants[name] = a
        if a.dtype.kind == "f" and np.isnan(a).any():
            self.refused.append(f"constant {name!r}: it has a NaN")

    def _step(self, node: Any) -> Step:
        attributes = {}
        for a in node.attribute:
            try:
                attributes[_text(a.name)] = self._attribute(a)
            except (Refused, UnicodeDecodeError) as error:
                self.refused.append(f"{node.op_type} {node.name!r}: attribute {a.name!r}: {error}")
        op, name, domain = _text(node.op_type), _text(node.name), _text(node.domain)
        version = self.opsets.get(domain, self.opsets.get("", 0) if domain in _STANDARD else 1)
        if domain not in (*_STANDARD, *_QONNX):
            op = f"{domain}.{op}"
        return Step(op, name, tuple(map(_text, node.input)), tuple(map(_text, node.output)), attributes, version)

    def _attribute(self, a: Any) -> Any:
        """Return an attribute as an integer, a float, a string, a tuple of these, or an array."""
        kind = a.type
        if kind == 1:
            return float(a.f)
        if kind == 2:
            return int(a.i)
        if kind == 3:
            return a.s.decode()
        if kind == 4:
            return array_of(a.t, self.folder)
        if kind == 6:
            return tuple(float(v) for v in a.floats)
        if kind == 7:
            return tuple(int(v) for v in a.ints)
        if kind == 8:
            return tuple(v.decode() for v in a.strings)
        raise Refused("graphs and types in attributes are not taken")

    def _constant(self, node: Any, step: Step) -> None:
        for a in node.attribute:
            if a.name == "value":
                self._keep(step.outputs[0], a.t)
                return
            if a.name in ("value_int", "value_ints", "value_float", "value_floats") and a.name in step.attributes:
                whole = "int" in a.name
                self.constants[step.outputs[0]] = np.array(step.attributes[a.name], np.int64 if whole else np.float32)
                self.elements[step.outputs[0]] = 7 if whole else 1
                return
        self.refused.append(f"{step.text}: a constant of no dense tensor")


def _place(info: Any) -> Place:
    tensor, name = info.type.tensor_type, _text(info.name)
    if not info.type.HasField("tensor_type"):
        return Place(name, None, 0)
    shape: tuple[int | str, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(
            int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else (_text(d.dim_param) or "?")
            for d in tensor.shape.dim
        )
    return Place(name, shape, int(tensor.elem_type))
