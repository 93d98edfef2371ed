"""Write a network to an ONNX file with QONNX's quantisers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....core.version import __version__
from ....io.files import path_of, whole
from ...passes.tidying import live
from .writer import DOMAIN, QUANTISERS, Held, Writer, Written

ENDING = ".onnx"
_MOST_BYTES = 2**31 - 2**16  # of a protobuf message


def is_onnx(file: Any) -> bool:
    """Return True if the name of a file to write ends in .onnx."""
    return isinstance(file, (str, os.PathLike)) and Path(os.fsdecode(file)).suffix == ENDING


def save_onnx(network: Any, file: Any, example: Any = None) -> None:
    """Write a Graph, Sequential or Network; `example` is an input of a Sequential, whose shape and law the file says.

    Raises ValueError that lists all parts that an ONNX file cannot hold and why, ImportError without `onnx`.
    """
    path = path_of("save", file)
    onnx = _onnx()
    from ...graph import Graph
    from .graphs import write_graph
    from .layers import write_layers

    w, inputs, outputs = write_graph(network) if isinstance(network, Graph) else write_layers(network, example)
    if w.refused:
        listed = "\n".join(f"  {line}" for line in w.refused)
        raise ValueError(f"save: {len(w.refused)} parts of the network have no form in an ONNX file:\n{listed}")
    data = _message(onnx, w, inputs, outputs).SerializeToString()
    whole("save", path, _writing(data))


def _writing(data: bytes) -> Callable[[Path], Any]:
    return lambda target: target.write_bytes(data)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise ImportError(
            "save: an ONNX file needs the package onnx; install it with pip install 'quantarray[onnx]'"
        ) from None
    return onnx


def _message(onnx: Any, w: Writer, inputs: list[tuple[str, Held, Any]], outputs: list[tuple[str, Held, Any]]) -> Any:
    """Return the model: the nodes that outputs need, the constants that these use."""
    helper = onnx.helper
    nodes = live(w.nodes, [name for name, _, _ in outputs])
    used = {name for node in nodes for name in node.inputs}
    size = sum(a.nbytes for name, a in w.tensors.items() if name in used)
    if size > _MOST_BYTES:
        raise ValueError(f"save: an ONNX file holds at most 2 GiB, the constants of this network take {size} bytes")
    tensors = [_tensor(onnx, name, a, w.elements.get(name)) for name, a in w.tensors.items() if name in used]
    ends = [[_info(helper, *value) for value in values] for values in (inputs, outputs)]
    graph = helper.make_graph([_node(helper, node) for node in nodes], "network", *ends, tensors)
    opsets = [helper.make_opsetid("", w.opset), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    )
    model.producer_name, model.producer_version = "quantarray", __version__
    return model


def _node(helper: Any, node: Written) -> Any:
    attributes = {key: a for key, a in node.attributes.items() if a is not None}
    if node.op == "Cast" and not isinstance(attributes["to"], int):
        attributes["to"] = helper.np_dtype_to_tensor_dtype(attributes["to"])
    domain = DOMAIN if node.op in QUANTISERS else ""
    return helper.make_node(node.op, node.inputs, node.outputs, node.outputs[0], None, domain, **attributes)


def _tensor(onnx: Any, name: str, a: Any, element: int | None) -> Any:
    if element is None:
        return onnx.numpy_helper.from_array(a, name)
    return onnx.helper.make_tensor(name, element, a.shape, a.reshape(-1).tolist())


def _info(helper: Any, name: str, x: Held, element: int | None) -> Any:
    """Describe an input or output; `element` is ONNX's number of its type, by default that of its dtype."""
    number = element if element is not None else helper.np_dtype_to_tensor_dtype(x.kind)
    return helper.make_tensor_value_info(name, number, x.shape)
