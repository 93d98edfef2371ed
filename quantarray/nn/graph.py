"""Graph: operations in order on named values, packed where an operation has a packed form."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array
from .graph_summary import Row, Summary
from .operations import OPERATIONS, PACKED

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
        return self.op in PACKED


class Graph:
    """A network of operations on named values, such as `load` reads from an ONNX file.

        scores = graph(x)                     # one input, one output
        results = graph(left=a, right=b)      # inputs by name; several outputs are a dict by name

    inputs, outputs: `Value`s. nodes: each after those whose results it takes. constants: arrays, packed arrays and
    thresholds by name. Where the first axis of the inputs is the batch, it may have any length from 1.
    """

    def __init__(
        self,
        inputs: Iterable[Value],
        outputs: Iterable[Value],
        nodes: Iterable[Node],
        constants: Mapping[str, Any],
        name: str = "graph",
    ) -> None:
        self.inputs, self.outputs, self.nodes = tuple(inputs), tuple(outputs), tuple(nodes)
        self.constants = {n: np.asarray(a) if isinstance(a, np.generic) else a for n, a in constants.items()}
        self.name = name
        self._slots: dict[str, int] = {}
        for known in (*self.constants, *(v.name for v in self.inputs)):
            self._slots[known] = len(self._slots)
        self._steps = [self._step(node) for node in self.nodes]
        for value in self.outputs:
            if value.name not in self._slots:
                raise ValueError(f"Graph: no node gives the output {value.name!r}")
        self._initial = [*self.constants.values(), *[None] * (len(self._slots) - len(self.constants))]
        self._floats = any(node.op == "threshold" for node in self.nodes)

    def _step(self, node: Node) -> tuple[Any, dict[str, Any], tuple[int, ...], tuple[int, ...]]:
        if node.op not in OPERATIONS:
            raise ValueError(f"Graph: {node.op!r} is no operation")
        for name in node.inputs:
            if name and name not in self._slots:
                raise ValueError(f"Graph: {node.op} takes {name!r}, which no node before it gives")
        operands = tuple(self._slots[name] if name else -1 for name in node.inputs)
        for name in node.outputs:
            if name in self._slots:
                raise ValueError(f"Graph: {name!r} is given twice")
            self._slots[name] = len(self._slots)
        return OPERATIONS[node.op], dict(node.attributes), operands, tuple(self._slots[n] for n in node.outputs)

    def __call__(self, *x: Array, **named: Array) -> Array | dict[str, Array]:
        """Run the graph on inputs in order or by name; return its output, or a dict by name if it has several.

        Raises TypeError or ValueError that names the input, what it must be, what came, and the likely fix.
        """
        values = self._run(self._ready(x, named))
        if len(self.outputs) == 1:
            return np.asarray(values[self._slots[self.outputs[0].name]])
        return {value.name: values[self._slots[value.name]] for value in self.outputs}

    def trace(self, *x: Any, **named: Any) -> dict[str, Any]:
        """Return every value by name, in order: inputs, then the results of each node; packed arrays stay packed."""
        values = self._run(self._ready(x, named))
        return {name: values[at] for name, at in self._slots.items() if name not in self.constants}

    def _run(self, values: list[Any]) -> list[Any]:
        for run, attributes, operands, results in self._steps:
            got = run(attributes, *[values[i] if i >= 0 else None for i in operands])
            if len(results) == 1:
                values[results[0]] = got
            else:
                for at, array in zip(results, got, strict=True):
                    values[at] = array
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
            array = _checked(self.name, value, arrays[value.name], self._floats)
            if value.batched:
                if batch not in (None, len(array)):
                    raise ValueError(f"{self.name}: the input {value.name} has a batch of {len(array)}, others {batch}")
                batch = len(array)
            values[self._slots[value.name]] = array
        return values

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the graph to a `.qa` file (docs/qa-format.md), whole or not at all; `quantarray.nn.load` reads it.

        Reading it needs no `onnx`. Raises TypeError or ValueError for a graph whose operands do not go together.

        >>> import quantarray as qa, os, tempfile
        >>> x, y = qa.nn.Value("x", (1, 4), "float32"), qa.nn.Value("y", (1, 4), "float32")
        >>> path = os.path.join(tempfile.mkdtemp(), "net.qa")
        >>> qa.nn.Graph([x], [y], [qa.nn.Node("Relu", ("x",), ("y",))], {}).save(path)
        >>> qa.nn.load(path)
        Graph(x: float32 (n, 4) -> y: float32 (n, 4); 0 of 1 operations packed, 0 bytes of constants)
        """
        from .graph_file import save_graph

        save_graph(self, file)

    def summary(self, *x: Any, **named: Any) -> Summary:
        """Return a table of the nodes: packed or NumPy, shapes, bits, weights, MACs, bytes.

        The graph runs once, on x or on zeros of the inputs' shapes.
        """
        values = self.trace(*(x or self._zeros() if not named else x), **named)
        return Summary(self.name, [self._row(node, values) for node in self.nodes])

    def profile(self, *x: Any, **named: Any) -> Summary:
        """Return the table of `summary` with the time of each node, the fastest of five runs."""
        values = self._ready(x or self._zeros() if not named else x, named)
        times = [math.inf] * len(self._steps)
        for _ in range(_ROUNDS):
            for i, (run, attributes, operands, results) in enumerate(self._steps):
                start = time.perf_counter()
                got = run(attributes, *[values[j] if j >= 0 else None for j in operands])
                times[i] = min(times[i], time.perf_counter() - start)
                for at, array in zip(results, (got,) if len(results) == 1 else got, strict=True):
                    values[at] = array
        known = {name: values[at] for name, at in self._slots.items()}
        rows = [self._row(node, known, t) for node, t in zip(self.nodes, times, strict=True)]
        return Summary(self.name, rows)

    def _zeros(self) -> tuple[Array, ...]:
        return tuple(np.zeros(v.shape, v.dtype) + np.asarray(v.low or 0, v.dtype) for v in self.inputs)

    def _row(self, node: Node, values: Mapping[str, Any], seconds: float | None = None) -> Row:
        operands = [self.constants[n] for n in node.inputs if n in self.constants]
        weight: Any = next((a for a in operands if isinstance(a, QuantArray)), None)
        if weight is None and node.op in ("MatMul", "Conv", "Gemm"):
            weight = next((a for a in operands if isinstance(a, np.ndarray)), None)
        thresholds = any(isinstance(a, Thresholds) for a in operands)
        return Row.of(node, values[node.outputs[0]], weight, thresholds, seconds)

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


def _checked(op: str, value: Value, x: Any, numbers: bool) -> Array:
    """x as an array of the value's dtype and shape, or an error with the likely fix."""
    if isinstance(x, QuantArray):
        raise TypeError(
            f"{op}: the input {value.name} must be a dense {value.text}, got a QuantArray; .dequantize() it"
        )
    a = x if isinstance(x, np.ndarray) else np.asarray(x)
    if a.dtype.kind not in "biufV":
        raise TypeError(f"{op}: the input {value.name} must be {value.text}, got {checks.kind(x)}")
    shape, wanted = a.shape, value.shape
    fits = len(shape) == len(wanted) and (shape[1:] == wanted[1:] if value.batched else shape == wanted)
    if not fits:
        raise ValueError(f"{op}: the input {value.name} must be {value.text}, got {shape}{_likely_fix(value, shape)}")
    if value.batched and not shape[0]:
        raise ValueError(f"{op}: the input {value.name} has an empty batch, {shape}; pass at least one")
    dtype = np.dtype(value.dtype)
    if a.dtype != dtype:
        if a.dtype.kind == "V" and a.dtype.name.lstrip("u") in ("int4", "int2"):
            a = a.astype(dtype)  # of ml_dtypes
        else:
            raise TypeError(
                f"{op}: the input {value.name} must be {value.text}, got {a.dtype}{_cast(dtype, a.dtype, value.name)}"
            )
    if numbers and dtype.kind == "f" and np.isnan(a).any():
        raise ValueError(f"{op}: the input {value.name} has a NaN, which no threshold can place")
    if value.low is not None and value.high is not None and a.size and (a.min() < value.low or a.max() > value.high):
        raise ValueError(
            f"{op}: the input {value.name} must be from {value.low} to {value.high}, got {a.min()} to {a.max()}"
        )
    return a


def _likely_fix(value: Value, shape: tuple[int, ...]) -> str:
    name, wanted = value.name, value.shape
    x = name if name.isidentifier() else "x"
    if value.batched and shape == wanted[1:]:
        return f"; {x}[None] adds the batch axis"
    if len(shape) == len(wanted) == 4 and shape[1:] == (*wanted[2:], wanted[1]):
        return f"; it is NHWC, the network takes NCHW: {x}.transpose(0, 3, 1, 2)"
    if len(shape) == len(wanted) == 4 and shape[1:] == (wanted[3], *wanted[1:3]):
        return f"; it is NCHW, the network takes NHWC: {x}.transpose(0, 2, 3, 1)"
    if value.batched and shape and math.prod(shape[1:]) == math.prod(wanted[1:]):
        return f"; {x}.reshape(-1, {', '.join(map(str, wanted[1:]))})"
    return ""


def _cast(dtype: np.dtype[Any], got: np.dtype[Any], name: str) -> str:
    x = name if name.isidentifier() else "x"
    if dtype.kind == "f" and got == np.uint8:
        return f"; {x}.astype(np.{dtype}) / 255, if the network was trained on pixels from 0 to 1"
    if got.kind not in "biuf":
        return ""
    return f"; {x}.astype(np.{dtype})"
