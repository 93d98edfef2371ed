"""Read a network from an ONNX or QONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.errors import FormatError
from ..graph import Graph, Node, Value
from ..inference import MOST_INPUT
from ..operators import OPERATORS
from . import (
    blocked_weights,
    clips,
    elementwise,
    integer_operators,
    layouts,
    movement,
    pooling,
    products,
    quantizers,
    runtime_operators,
    transposed,
)
from .building import Builder
from .expanding import Expansion
from .laws import Constant, NotPerSample, Operand, Source, Tensor
from .normalizing import check_operands, normalized, shape_constant
from .reading import Model, Place, Step, read
from .tensors import RANGES, Refused, dtype_of, range_of

_LOWER: dict[str, Any] = {}
for family in (elementwise, clips, integer_operators, movement, pooling, products, quantizers, transposed):
    _LOWER.update(family.LOWER)
_LOWER.update(blocked_weights.LOWER)
_SHAPED = {op: OPERATORS[op].shape for op in _LOWER if op in OPERATORS}
_EXPAND = runtime_operators.EXPAND
_TAKEN = frozenset(
    {*_LOWER, *_EXPAND, *layouts.OPERATORS, "Shape", "Constant", "ConstantOfShape", "Dropout", "Upsample"}
)


def load_onnx(source: Any, shapes: Mapping[str, Any] | None, constants: Mapping[str, Any] | None) -> Graph:
    """Read a network from an ONNX or QONNX file; `quantarray.nn.load` has the arguments.

    Quantisers (`Quant`, `BipolarQuant`, `MultiThreshold`, `QuantizeLinear` ..) give packed codes. A product of codes
    and constant integers is exact, and scales, biases, batch norms and activations between it and the next quantiser
    become thresholds, in the order of the file. All else runs in NumPy, on integers where the file has integers.
    """
    return graph_of(read(source), shapes, constants)


def graph_of(
    model: Model,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    name: str = "network",
) -> Graph:
    """Convert a model that has been read, or was written by hand, to a graph."""
    fixed = {name: np.asarray(a) for name, a in (constants or {}).items()}
    for key in (*fixed, *(shapes or {})):
        if key not in {p.name for p in model.inputs}:
            raise ValueError(f"load: {key!r} is no input; these are {', '.join(p.name for p in model.inputs)}")
    try:
        return _Import(model, shapes or {}, fixed, True).graph(name)
    except NotPerSample:
        return _Import(model, shapes or {}, fixed, False).graph(name)


class _Import:
    """A conversion of one model to a graph."""

    def __init__(self, model: Model, shapes: Mapping[str, Any], fixed: dict[str, Any], batched: bool) -> None:
        self.model, self.refused = model, list(model.refused)
        self.builder = Builder(model.nbytes, batched, [p.name for p in model.outputs])
        self.environment: dict[str, Operand] = {n: Constant(a) for n, a in (model.constants | fixed).items()}
        self.elements: dict[str, int] = dict(model.elements)
        self.unknown: set[str] = set()
        self.takers: dict[str, list[Step]] = {}
        for step in model.steps:
            for operand in step.inputs:
                self.takers.setdefault(operand, []).append(step)
        for place in model.outputs:
            self.takers[place.name] = []  # outputs are taken by others than the file's nodes
        self.layouts = layouts.Layouts(model.steps, self.environment, self._is_taken, self._one)
        places = [p for p in model.inputs if p.name not in fixed]
        self.elements |= {p.name: p.element for p in model.inputs}
        self.inputs = [v for p in places if (v := self._input(p, shapes)) is not None]
        first = {v.shape[:1] for v in self.inputs}
        if batched and (len(first) != 1 or first == {()} or not all(self.inputs[0].shape)):
            raise NotPerSample

    def _input(self, place: Place, shapes: Mapping[str, Any]) -> Value | None:
        try:
            dtype = dtype_of(place.element)
        except Refused as error:
            self.refused.append(f"input {place.name!r}: {error}")
            self.unknown.add(place.name)
            return None
        lengths: tuple[int | str, ...] | None = place.shape
        if place.name in shapes:
            lengths = tuple(int(n) for n in shapes[place.name])
        elif lengths is not None:
            lengths = tuple(1 if i == 0 and isinstance(n, str) else n for i, n in enumerate(lengths))
        if lengths is None or any(isinstance(n, str) or n < 0 for n in lengths):
            self.refused.append(
                f"input {place.name!r}: its shape {lengths} is open; pass shapes={{{place.name!r}: (1, ..)}}"
            )
            self.unknown.add(place.name)
            return None
        shape = tuple(int(n) for n in lengths)
        count = int(np.prod(shape, dtype=object))
        if count > MOST_INPUT:
            self.refused.append(f"input {place.name!r}: {shape} has more than {MOST_INPUT} elements")
            self.unknown.add(place.name)
            return None
        self.builder.grow(count)
        name = self.builder.name(place.name)
        bounds = range_of(place.element)
        low, high = bounds if bounds is not None else (None, None)
        self.environment[place.name] = Tensor(shape, dtype, Source(name, shape, dtype, None, low, high))
        narrow = bounds if place.element in RANGES else (None, None)
        return Value(name, shape, str(dtype), self.builder.batched, *(narrow or (None, None)))

    def graph(self, name: str) -> Graph:
        """Build the graph; raise ValueError with every node that cannot be taken."""
        for step in self.model.steps:
            self._take(step)
        outputs = [self._output(p) for p in self.model.outputs]
        if self.refused:
            listed = "\n".join(f"  {line}" for line in self.refused)
            raise ValueError(f"load: {len(self.refused)} parts of the file cannot be taken:\n{listed}")
        values = [v for v in outputs if v is not None]
        if not values:
            raise FormatError("load: the model has no outputs")
        return self.builder.graph(self.inputs, values, name)

    def _take(self, step: Step) -> None:
        self.builder.step = step
        if any(n in self.unknown for n in step.inputs):
            self.unknown.update(step.outputs)
            return
        try:
            results = self._lowered(step)
        except Refused as error:
            self._refuse(step, str(error))
        except AssertionError as error:
            raise RuntimeError(
                f"load: {step.text}: an internal error of quantarray, not a fault of the file; please report it, with "
                f"the file: {error!r}"
            ) from error
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            self._refuse(step, f"its attributes and operands do not go together: {error}")
        else:
            for name, x in zip(step.outputs, results, strict=False):
                if name:  # not of a result that is left out
                    self.environment[name] = _labelled(x, step)

    def _refuse(self, step: Step, why: str) -> None:
        self.refused.append(f"{step.text}: {why}")
        self.unknown.update(step.outputs)

    def _lowered(self, step: Step) -> list[Operand]:
        if step.op not in _TAKEN:
            raise Refused("the operator is not known")
        of_images = self.layouts.lowered(step)
        return self._plain(step) if of_images is None else of_images

    def _plain(self, step: Step) -> list[Operand]:
        b = self.builder
        missing = [n for n in step.inputs if n and n not in self.environment]
        if missing:
            raise Refused(f"no node before it gives {', '.join(map(repr, missing))}")
        if any(o in self.environment for o in step.outputs if o) or not step.outputs:
            raise Refused("its output is given twice, or it has none")
        if step.op in _EXPAND:
            return self._expanded(step)
        operands = [self.environment[n] if n else None for n in step.inputs]
        step, operands = normalized(step, operands, [self.elements.get(n) if n else None for n in step.inputs])
        check_operands(step.op, operands)
        self._note_elements(step)
        if step.op == "QuantizeLinear":
            step = clips.narrowed(step, self.takers.get(step.outputs[0], []), self.environment)
        if step.op == "Shape":
            x = operands[0]
            assert x is not None
            value = shape_constant(x.shape, step.attributes)
            return [
                Constant(value, of_shape=isinstance(x, Tensor) and len(value) > 0 and b.batched and _has_first(step))
            ]
        if all(x is None or isinstance(x, Constant) for x in operands) and step.op not in quantizers.LOWER:
            return self._folded(step, operands)
        shapes = self._shapes(step, operands)
        b.check_size(shapes)
        if any(isinstance(x, Constant) and x.of_shape for x in operands) and step.op not in ("Reshape", "Resize"):
            b.per_sample(False)
        result: list[Operand] = _LOWER[step.op](b, step, operands, shapes)
        return result

    def _expanded(self, step: Step) -> list[Operand]:
        """Lower the steps that compute a step of another domain; return its results."""
        e = Expansion(step, self.environment, self._is_taken)
        _EXPAND[step.op](e)
        self.environment.update({name: Constant(a) for name, a in e.constants.items()})
        for part in e.steps:
            self.builder.step = part
            results = self._plain(part)
            if part is not e.steps[-1]:
                self.environment[part.outputs[0]] = results[0]
        return results

    def _one(self, step: Step) -> Operand:
        """Lower a step of one result."""
        return _labelled(self._plain(step)[0], self.builder.step or step)

    def _is_taken(self, name: str) -> bool:
        """Return True if a value of the file has the name, or one that was added to them."""
        return name in self.environment or name in self.takers

    def _note_elements(self, step: Step) -> None:
        """Note the element types of quantised results, which may be narrower than the dtype that holds them."""
        if step.op in ("QuantizeLinear", "QLinearConv", "QLinearMatMul"):
            at = 2 if step.op == "QuantizeLinear" else 7
            named = self.elements.get(step.inputs[at]) if len(step.inputs) > at else None
            element = named or int(step.attributes.get("output_dtype", 0)) or 2
            self.elements.update(dict.fromkeys(step.outputs, element))

    def _shapes(self, step: Step, operands: list[Operand]) -> list[tuple[int, ...]]:
        if step.op not in _SHAPED:
            x = operands[0]
            assert x is not None
            return [x.shape]
        listed = [x.shape if x is not None else None for x in operands]
        values = [x.value if isinstance(x, Constant) else None for x in operands]
        if step.op in _NEEDS_CONSTANTS and any(isinstance(x, Tensor) for x in operands[1:]):
            raise Refused(
                "what it computes the shape of its result from must be a constant; load(constants=..) fixes it"
            )
        shapes: list[tuple[int, ...]] = _SHAPED[step.op](step.attributes, listed, values)
        return [tuple(int(n) for n in s) for s in shapes]

    def _folded(self, step: Step, operands: list[Operand]) -> list[Operand]:
        """Compute constants from constants."""
        values = [x.value if isinstance(x, Constant) else None for x in operands]
        of_shape = any(isinstance(x, Constant) and x.of_shape for x in operands)
        if step.op == "Transpose" and isinstance(operands[0], Constant):
            perm = tuple(step.attributes.get("perm", range(operands[0].value.ndim)[::-1]))
            OPERATORS["Transpose"].shape({"perm": perm}, [operands[0].shape], [])
            return [products.transposed(operands[0], perm)]
        if step.op == "ConstantOfShape":
            shape, fill = (
                tuple(int(n) for n in np.asarray(values[0])),
                step.attributes.get("value", np.zeros(1, np.float32)),
            )
            self.builder.check_fold([shape])
            return [Constant(np.broadcast_to(fill.reshape(-1)[0], shape).copy(), of_shape=of_shape)]
        attributes = step.attributes
        if step.op == "Cast":
            attributes = {"to": str(dtype_of(int(attributes.get("to", 0))))}
        shapes = self._shapes(step, operands)
        self.builder.check_fold(shapes)
        with np.errstate(all="ignore"):
            got = OPERATORS[step.op].run(attributes, *values)
        results = got if isinstance(got, tuple) else (got,)
        return [self._kept(step, operands[0], np.asarray(a), of_shape) for a in results]

    def _kept(self, step: Step, x: Operand, value: Any, of_shape: bool) -> Constant:
        """Return a computed constant; a reshaped one keeps its integers and scale if it has one scale for all."""
        moved = step.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
        if moved and isinstance(x, Constant) and x.integers is not None and x.scale is not None and x.scale.size == 1:
            return Constant(value, x.integers.reshape(value.shape), x.scale.reshape(()), of_shape)
        return Constant(value, of_shape=of_shape)

    def _output(self, place: Place) -> Value | None:
        if place.name in self.unknown:
            return None
        self.layouts.transposed(place.name)
        x = self.environment.get(place.name)
        if x is None:
            self.refused.append(f"output {place.name!r}: no node gives it")
            return None
        b = self.builder
        b.step = None
        if isinstance(x, Constant):
            b.per_sample(False)
        b.nodes.append(Node("Identity", (b.dense(x),), (place.name,)))
        return Value(place.name, x.shape, str(x.dtype), b.batched)


_NEEDS_CONSTANTS = frozenset(
    "Reshape Squeeze Unsqueeze Split Slice Pad Resize Tile TopK ReduceMean ReduceSum ReduceMax ReduceMin".split()
)


def _labelled(x: Operand, step: Step) -> Operand:
    """Return the value, with `step` as the source of those functions of its chain that have none."""
    if not isinstance(x, Tensor) or all(link.source for link in x.chain):
        return x
    return replace(x, chain=tuple(k if k.source else replace(k, source=step.label) for k in x.chain))


def _has_first(step: Step) -> bool:
    return int(step.attributes.get("start", 0)) == 0
