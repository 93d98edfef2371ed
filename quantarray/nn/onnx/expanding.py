"""Operators of other domains as steps of ONNX's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...core.dtypes import Array
from .laws import Operand, Shape
from .reading import Step

FLOAT32 = 1  # ONNX's number of the type
_OPSET = 21


class Expansion:
    """A step of another domain as steps of ONNX's operators, with the constants that they take."""

    def __init__(self, step: Step, environment: Mapping[str, Operand], taken: Callable[[str], bool]) -> None:
        self.step, self._environment, self._taken = step, environment, taken
        self.steps: list[Step] = []
        self.constants: dict[str, Array] = {}

    @property
    def attributes(self) -> dict[str, Any]:
        return self.step.attributes

    @property
    def result(self) -> str:
        """Return the name of the result, which the last step gives."""
        return self.step.outputs[0]

    def name(self, at: int) -> str:
        """Return the name of an operand; an empty string if it is left out."""
        return self.step.inputs[at] if at < len(self.step.inputs) else ""

    def operand(self, at: int) -> Operand:
        """Return an operand of the step; None if it is left out."""
        return self._environment.get(self.name(at))

    def shape(self, at: int) -> Shape:
        """Return the shape of an operand, which must not be left out."""
        return self._environment[self.name(at)].shape  # type: ignore[union-attr]

    def add(self, op: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """Add a step on names and constants; return the name of its result."""
        names = tuple(a if isinstance(a, str) else self._constant(a) for a in inputs)
        output = output or self._fresh(op)
        self.steps.append(Step(op, self.step.name, names, (output,), attributes, _OPSET))
        return output

    def copy(self, op: str) -> None:
        """Add a step with the operands, results and attributes of the step that is expanded."""
        self.steps.append(self.step._replace(op=op, opset=_OPSET))

    def to_channels_first(self, x: str) -> str:
        """Add an image [n .. c] as [n c ..]; its rank is that of the first operand."""
        rank = len(self.shape(0))
        return self.add("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))

    def to_channels_last(self, x: str, output: str = "") -> str:
        """Add an image [n c ..] as [n .. c]."""
        return self.add("Transpose", x, perm=(0, *range(2, len(self.shape(0))), 1), output=output)

    def _constant(self, a: Any) -> str:
        name = self._fresh("constant")
        self.constants[name] = np.asarray(a)
        return name

    def _fresh(self, hint: str) -> str:
        """Return a name that no value of the file or of these steps has."""
        name = f"{self.result}.{hint}"
        mine = {*self.constants, *(output for step in self.steps for output in step.outputs)}
        while name in mine or self._taken(name):
            name += "_"
        return name
