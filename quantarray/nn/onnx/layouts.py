"""Images whose channels are last, as QONNX's domain channels_last has them, computed as images [n c ..].

A result [n .. c] is noted as an image [n c ..], and transposed where a step needs it so. Functions of elements, and
operators of channels last, take the image instead. So sums, norms and quantisers stay together, and are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import elementwise
from .laws import Constant, Operand, Shape
from .reading import Step
from .tensors import Refused

_OPSET = 21
_OPERATORS = {f"qonnx.custom_op.channels_last.{op}": op for op in ("Conv", "MaxPool", "BatchNormalization")}
_ALONG = frozenset(("QuantizeLinear", "DequantizeLinear"))  # their scales are along an axis that they name
_FUNCTIONS = frozenset((*elementwise.LOWER, "Clip", "Dropout", "Quant", "IntQuant", "BipolarQuant", "Sign", "Trunc"))
Lower = Callable[[Step], Operand]


class Layouts:
    """A table of the values [n .. c] of a file that are computed as images [n c ..], by the names of both."""

    def __init__(
        self, steps: Sequence[Step], environment: dict[str, Operand], taken: Callable[[str], bool], lower: Lower
    ) -> None:
        self._environment, self._taken, self._lower = environment, taken, lower
        self._channels_last = any(step.op in _OPERATORS for step in steps)
        self.images: dict[str, str] = {}

    def lowered(self, step: Step) -> list[Operand] | None:
        """Lower a step on images [n c ..]; None if it takes none. An empty list where its result is one."""
        if any(name in self.images for name in step.outputs):
            raise Refused("its output is given twice")
        if step.op in _OPERATORS or (step.op == "MultiThreshold" and step.attributes.get("data_layout") == "NHWC"):
            self._of_channels(step)
            return []
        images = [name for name in step.inputs if name in self.images]
        if not images and self._channels_last and self._turns(step):
            self.images[step.outputs[0]] = step.inputs[0]
            return []
        if not images:
            return None
        if step.op == "Transpose" and len(step.inputs) == 1:
            image = self._environment[self.images[images[0]]]
            if image is not None and tuple(step.attributes.get("perm", ())) == _to_first(len(image.shape)):
                return [image]
        if self._is_function(step, images):
            self._function(step, len(self._shape(images[0])))
            return []
        for name in images:
            self.transposed(name)
        return None

    def transposed(self, name: str) -> None:
        """Compute a value [n .. c] as the file has it, if it is noted as an image and not yet computed so."""
        if name in self.images and name not in self._environment:
            perm = _to_last(len(self._shape(name)))
            step = Step("Transpose", "", (self.images[name],), (self._fresh(name),), {"perm": perm}, _OPSET)
            self._environment[name] = self._lower(step)

    def _turns(self, step: Step) -> bool:
        """Return True for a Transpose of an image [n c ..] to [n .. c]."""
        x = self._environment.get(step.inputs[0]) if step.op == "Transpose" else None
        return x is not None and len(x.shape) > 2 and tuple(step.attributes.get("perm", ())) == _to_last(len(x.shape))

    def _of_channels(self, step: Step) -> None:
        """Compute an operator of channels last by that of images; the kernel of a convolution is [outputs .. c]."""
        if len([name for name in step.outputs if name]) != 1:
            raise Refused("its second result is not taken")
        count = 2 if _OPERATORS.get(step.op) == "Conv" else 1
        names = tuple(self._image(name) if i < count else name for i, name in enumerate(step.inputs))
        attributes = {k: v for k, v in step.attributes.items() if k != "data_layout"}
        self._note(step._replace(op=_OPERATORS.get(step.op, step.op), inputs=names, attributes=attributes))

    def _is_function(self, step: Step, images: list[str]) -> bool:
        """Return True for a function of elements of images of one rank, and of constants."""
        constants = [self._environment.get(name) for name in step.inputs if name and name not in images]
        rank = len(self._shape(images[0]))
        if len([name for name in step.outputs if name]) != 1 or any(len(self._shape(n)) != rank for n in images):
            return False
        if not all(isinstance(c, Constant) and len(c.shape) <= rank for c in constants):
            return False
        return step.op in _FUNCTIONS or (step.op in _ALONG and all(c is None or c.shape == () for c in constants))

    def _function(self, step: Step, rank: int) -> None:
        names = []
        for name in step.inputs:
            c = self._environment.get(name)
            if name in self.images:
                names.append(self.images[name])
            elif isinstance(c, Constant) and c.value.size > 1:
                wide = c.value.reshape((1,) * (rank - c.value.ndim) + c.shape)
                names.append(self._fresh(name))
                self._environment[names[-1]] = Constant(np.transpose(wide, _to_first(rank)), of_shape=c.of_shape)
            else:
                names.append(name)
        self._note(step._replace(inputs=tuple(names)))

    def _note(self, step: Step) -> None:
        """Lower a step whose result is an image, under a name of its own."""
        name = self._fresh(step.outputs[0])
        self._environment[name] = self._lower(step._replace(outputs=(name,)))
        self.images[step.outputs[0]] = name

    def _image(self, name: str) -> str:
        """Return the name of a value [n .. c] as [n c ..]."""
        if name in self.images:
            return self.images[name]
        x, first = self._environment.get(name), self._fresh(name)
        if x is None:
            raise Refused(f"no node before it gives {name!r}")
        perm = _to_first(len(x.shape))
        self._environment[first] = self._lower(Step("Transpose", "", (name,), (first,), {"perm": perm}, _OPSET))
        return first

    def _shape(self, name: str) -> Shape:
        x = self._environment[self.images[name]]
        assert x is not None
        return x.shape

    def _fresh(self, name: str) -> str:
        name = f"{name}.image"
        while self._taken(name):
            name += "_"
        return name


def _to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


OPERATORS = frozenset(_OPERATORS)
