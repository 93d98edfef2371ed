"""Graph: operations in order on named values, packed where an operation has a packed form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..backends.registry import namespace
from ..core.dtypes import Array
from ..ops.words.placement import asnumpy
from .inputs import checked, name_nan
from .model import Model
from .operators import OPERATORS
from .steps import Step

if TYPE_CHECKING:
    from .faces import GraphFace
    from .images import Layout
else:

    class GraphFace(Model):
        """A class with the methods of a graph that `faces`, above all that they call, attaches here."""


_ROUNDS = 5  # of which `profile` takes the fastest


@dataclass(frozen=True)
class Value:
    """A named value of a graph: its shape, the first axis the batch where `batched`, and its dtype.

    `low` and `high` bound integers that have fewer values than their dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    batched: bool = True
    low: int | None = None
    high: int | None = None

    @property
    def text(self) -> str:
        """Return dtype and shape as text, with n for the batch."""
        lengths = ["n", *map(str, self.shape[1:])] if self.batched else map(str, self.shape)
        return f"{self.dtype} ({', '.join(lengths)})"


@dataclass(frozen=True, eq=False)
class Node:
    """An operation of a graph: names of its operands (values or constants, "" for an omitted one) and of its results.

    `attributes` are integers, floats, strings, and tuples of them.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""  # the node of the file that it comes from

    @property
    def packed(self) -> bool:
        """Return True if the node runs on packed arrays, False if it runs in NumPy."""
        return OPERATORS[self.op].packed


def names_of(nodes: Iterable[Node]) -> set[str]:
    """Return the names of all operands and results."""
    return {name for node in nodes for name in (*node.inputs, *node.outputs)}


def free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken yet, and take it: `name`, or `name` with marks after it."""
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def names_in(graph: Graph) -> set[str]:
    """Return the names of all values and constants of a graph."""
    return set(graph._slots)


def readers(graph: Graph) -> Counter[str]:
    """Count how often each value is read, by nodes and as an output."""
    return Counter([*(name for node in graph.nodes for name in node.inputs), *(v.name for v in graph.outputs)])


def makers(graph: Graph) -> dict[str, int]:
    """Return the place of the node that gives each value first among its results."""
    return {node.outputs[0]: i for i, node in enumerate(graph.nodes)}


def with_nodes(graph: Graph, nodes: Sequence[Node], constants: Mapping[str, Any] | None = None) -> Graph:
    """Return a graph of other nodes, and of those of the constants (by default the graph's) that are used."""
    used = {name for node in nodes for name in node.inputs} | {value.name for value in graph.outputs}
    constants = {name: a for name, a in (graph.constants if constants is None else constants).items() if name in used}
    changed = Graph(graph.inputs, graph.outputs, nodes, constants, graph.name, graph.classes)
    changed.batch_note = graph.batch_note
    return changed


def _in_order(a: Any) -> Any:
    """Return a dense constant in C order, as it is read from a file: BLAS sums floats by their order in memory."""
    return np.asarray(a, order="C") if isinstance(a, (np.ndarray, np.generic)) else a


class Graph(GraphFace):
    """A network of operations on named values, such as `load` reads from an ONNX file.

        scores = graph(x)                     # one input, one output
        results = graph(left=a, right=b)      # inputs by name; several outputs are a dict by name

    inputs, outputs: `Value`s. nodes: each after those whose results it takes. constants: arrays, packed arrays and
    thresholds by name. Where the first axis of the inputs is the batch, it may have any length from 1.
    classes: a name for each score of the output, which `save` writes too and `quantarray run` prints; may be set later.
    """

    def __init__(
        self,
        inputs: Iterable[Value],
        outputs: Iterable[Value],
        nodes: Iterable[Node],
        constants: Mapping[str, Any],
        name: str = "graph",
        classes: Iterable[str] | None = None,
    ) -> None:
        self.inputs, self.outputs, self.nodes = tuple(inputs), tuple(outputs), tuple(nodes)
        self.constants = {n: _in_order(a) for n, a in constants.items()}
        self.name = name
        self.classes = classes
        self.on_cpu: Graph = self  # the same one there
        self.device = "cpu"  # of the constants, and of what a call takes and returns
        self.batch_note = ""  # why a graph takes one length of batch alone
        self._slots: dict[str, int] = {}
        for known in (*self.constants, *(v.name for v in self.inputs)):
            if known in self._slots:
                raise ValueError(f"Graph: two of its inputs and constants have one name, {known!r}")
            self._slots[known] = len(self._slots)
        self._steps = [self._step(node) for node in self.nodes]
        for value in self.outputs:
            if value.name not in self._slots:
                raise ValueError(f"Graph: no node gives the output {value.name!r}")
        self._input_slots = [self._slots[value.name] for value in self.inputs]
        self._output_slots = [self._slots[value.name] for value in self.outputs]
        self._initial = [*self.constants.values(), *[None] * (len(self._slots) - len(self.constants))]

    def _step(self, node: Node) -> Step:
        if node.op not in OPERATORS:
            raise ValueError(f"Graph: {node.op!r} is no operation")
        for name in node.inputs:
            if name and name not in self._slots:
                raise ValueError(f"Graph: {node.op} takes {name!r}, which no node before it gives")
        operands = tuple(self._slots[name] if name else -1 for name in node.inputs)
        for name in node.outputs:
            if name in self._slots:
                raise ValueError(f"Graph: {name!r} is given twice")
            self._slots[name] = len(self._slots)
        results = tuple(self._slots[name] for name in node.outputs)
        return Step(node.op, OPERATORS[node.op], dict(node.attributes), operands, results)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Return the names of classes, if it has any."""
        return self._classes

    @classes.setter
    def classes(self, names: Iterable[str] | None) -> None:
        texts = names if names is None else () if isinstance(names, str) else tuple(names)
        if texts is not None and not (texts and all(isinstance(name, str) for name in texts)):
            raise TypeError(f"{self.name}: classes must be a list of texts or None, got {checks.kind(names)}")
        self._classes = texts
        if getattr(self, "on_cpu", self) is not self:
            self.on_cpu.classes = texts

    def __call__(self, *x: Array, **named: Array) -> Array | QuantArray | dict[str, Array | QuantArray]:
        """Run the graph on inputs in order or by name; return its output, or a dict by name if it has several.

        Outputs are NumPy arrays; an output that is codes of a `threshold` is a QuantArray.

        Raises TypeError or ValueError that names the input, what it must be, what came, and the likely fix.
        """
        values = self._ready(x, named)
        try:
            return self._outputs_of(self._run(values))
        except ValueError as error:
            self._name_nan(error, values)
            raise

    def _name_nan(self, error: ValueError, values: list[Any]) -> None:
        name_nan(self.name, error, zip(self.inputs, [values[at] for at in self._input_slots], strict=True))

    def _outputs_of(self, values: list[Any]) -> Array | QuantArray | dict[str, Array | QuantArray]:
        """Return the output among all values, or a dict by name if there are several."""
        if len(self.outputs) == 1:
            result = values[self._output_slots[0]]
            return np.asarray(result) if isinstance(result, np.generic) else result
        return {value.name: values[at] for value, at in zip(self.outputs, self._output_slots, strict=True)}

    def trace(self, *x: Any, **named: Any) -> dict[str, Any]:
        """Return every value by name, in order: inputs, then the results of each node; packed arrays stay packed."""
        values = self._run(self._ready(x, named))
        return {name: values[at] for name, at in self._slots.items() if name not in self.constants}

    def _run(self, values: list[Any]) -> list[Any]:
        for step in self._steps:
            step(values)
        return values

    def _ready(self, x: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Return a list of all values, in which only constants and checked inputs are set yet."""
        names = [value.name for value in self.inputs]
        if len(x) > len(names):
            raise TypeError(f"{self.name}: takes {len(names)} inputs, {', '.join(names)}, got {len(x)}")
        arrays = dict(zip(names, x, strict=False))
        for name, array in named.items():
            if name not in names or name in arrays:
                why = "was passed twice" if name in arrays else f"is none of {', '.join(names)}"
                raise TypeError(f"{self.name}: the input {name} {why}")
            arrays[name] = array
        values, batch = self._initial.copy(), None
        for value in self.inputs:
            if value.name not in arrays:
                raise TypeError(f"{self.name}: the input {value.name}, {value.text}, is missing")
            array = checked(self.name, value, arrays[value.name], self.batch_note, self.device)
            if value.batched:
                if batch not in (None, len(array)):
                    raise ValueError(f"{self.name}: the input {value.name} has a batch of {len(array)}, others {batch}")
                batch = len(array)
            values[self._slots[value.name]] = array
        return values

    _named_inputs = True

    @property
    def _fixed_batch(self) -> int | None:
        lengths = {value.shape[0] if value.shape else 0 for value in self.inputs if not value.batched}
        return lengths.pop() if len(lengths) == 1 else None

    def _run_batch(self, x: Any) -> Any:
        if self.device == "cpu":
            return self(**x) if isinstance(x, dict) else self(x)
        xp = namespace(self.device)
        moved = {name: xp.asarray(a) for name, a in (x if isinstance(x, dict) else {"": x}).items()}
        result = self(**moved) if isinstance(x, dict) else self(moved[""])
        return {n: asnumpy(a) for n, a in result.items()} if isinstance(result, dict) else asnumpy(result)

    def _layout(self) -> tuple[int | None, Layout | None, str]:
        from .images import of_value

        takes = ", ".join(v.text for v in self.inputs)
        if len(self.inputs) != 1 or not self.inputs[0].shape:
            return None, None, takes
        return len(self.inputs[0].shape), of_value(self.inputs[0]), takes

    @property
    def nbytes(self) -> int:
        """Count the bytes of the constants: packed weights, thresholds, arrays."""
        held = (a.values if isinstance(a, Thresholds) else a for a in self.constants.values())
        return sum(int(a.nbytes) for a in held)

    def __repr__(self) -> str:
        packed = sum(node.packed for node in self.nodes)
        takes, gives = (", ".join(f"{v.name}: {v.text}" for v in vs) for vs in (self.inputs, self.outputs))
        return (
            f"Graph({takes} -> {gives}; {packed} of {len(self.nodes)} operations packed, {self.nbytes} bytes of "
            f"constants)"
        )
