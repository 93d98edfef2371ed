"""Run the trained networks inside the `qonnx` wheel with its own executor, where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import quantarray as qa

EXECUTED = "output codes of 1 image, with those of QONNX's executor"


def networks() -> Iterator[tuple[str, Any, Any, Any, str]]:
    """Yield name, network, image, QONNX's results, and what they are, of each super-resolution network."""
    spec = find_spec("qonnx")
    if spec is None or spec.origin is None:
        return
    from onnx import TensorProto, numpy_helper
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    folder = Path(spec.origin).parent / "data" / "onnx" / "bsd300x3-espcn"
    for path in sorted(folder.glob("*/quant_model.onnx")):
        model = ModelWrapper(str(path)).transform(InferShapes())  # the file states no shapes between nodes
        network = qa.nn.load(model.model)
        stored = (folder / "test_data" / "input_0.pb").read_bytes()
        x = numpy_helper.to_array(TensorProto.FromString(stored)).astype(np.float32)
        (expected,) = execute_onnx(model, {network.inputs[0].name: x}).values()
        yield f"espcn-{path.parent.name}", network, x, expected, EXECUTED
