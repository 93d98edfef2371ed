"""Draft: operators in order, as an ONNX file has them, which become a graph as a file does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtypes import Array
from ..graph import Graph
from .loading import graph_of
from .reading import Model, Place, Step

_OPSET = 20
_ELEMENTS = {"float32": 1, "uint8": 2}  # ONNX's numbers of types


class Draft:
    """A list of operators, their constants and inputs."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: dict[str, Array] = {}
        self._inputs: list[Place] = []

    def input_of(self, name: str, shape: tuple[int, ...], dtype: str) -> str:
        """Add an input [n *shape]; return the name of its values, float32: bytes are divided by 255."""
        self._inputs.append(Place(name, ("n", *shape), _ELEMENTS[dtype]))
        return self.step("DequantizeLinear", f"{name}.values", name, np.float32(1 / 255)) if dtype == "uint8" else name

    def constant(self, a: Any) -> str:
        """Add a constant; return its name."""
        name = f"constant.{len(self.constants)}"
        self.constants[name] = np.asarray(a)
        return name

    def step(self, op: str, label: str, *operands: Any, **attributes: Any) -> str:
        """Add an operator on names and arrays; return the name of its result, which begins with the label."""
        names = tuple(o if isinstance(o, str) else self.constant(o) for o in operands)
        name = f"{label}.{len(self.steps)}"
        self.steps.append(Step(op, label, names, (name,), attributes, _OPSET))
        return name

    def graph_of(self, value: str, output: str, name: str = "network") -> Graph:
        """Build the graph with one output, a copy of a value."""
        self.steps.append(Step("Identity", output, (value,), (output,), {}, _OPSET))
        nbytes = sum(a.nbytes for a in self.constants.values())
        model = Model(self.steps, self._inputs, [Place(output, None, _ELEMENTS["float32"])], self.constants, {}, nbytes)
        return graph_of(model, name=name)
