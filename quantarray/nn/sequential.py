"""Layers in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..backends import ranges
from ..backends.registry import device_of, namespace
from ..ops.words.placement import asnumpy, graph
from .convolutions import Conv2d
from .fusing import fused
from .graph_summary import Row, Summary
from .layer_summary import flat, measured, name_of, row
from .layers import Dense
from .model import Model
from .named import OF_INPUTS, say_first
from .operators.record import Operator
from .pooling import AvgPool2d, GlobalAvgPool, MaxPool2d
from .steps import Step

if TYPE_CHECKING:
    from ..cuda.runtime.graph import Graph
    from .drawing.svg import Drawing
    from .faces import SequentialFace
else:

    class SequentialFace(Model):
        """A class with the methods of layers in a row that `faces`, above all that they call, attaches here."""


Layer = Callable[[Any], Any]
_MOST_NAMES = 8  # that a repr lists
_LAUNCHING = Conv2d, Dense, MaxPool2d, AvgPool2d, GlobalAvgPool  # layers that cannot change, and look at no elements


@dataclass(frozen=True, eq=False)
class Record:
    """A layer's result for one input: `bits` of an element, bytes of `output`, bytes of packed weights."""

    name: str
    shape: tuple[int, ...]
    bits: int
    nbytes: int
    weight_nbytes: int
    output: Any

    def __repr__(self) -> str:
        weights = f", {self.weight_nbytes} bytes of weights" if self.weight_nbytes else ""
        return (
            f"Record({self.name}: {self.shape}, {self.bits} bit{'s' * (self.bits > 1)}, {self.nbytes} bytes{weights})"
        )


def _step(at: int, i: int, layer: Layer) -> Step:
    """Return the step of layer i, from value `at` to the next."""

    def run(attributes: dict[str, Any], x: Any) -> Any:
        try:
            return layer(x)
        except OF_INPUTS as error:
            say_first(error, f"layer {i}, ")
            raise

    launching = type(layer) in _LAUNCHING and not getattr(layer, "return_indices", False)
    name = f"{i} {getattr(layer, '__name__', type(layer).__name__)}"
    operator = Operator(run=run, launches=launching, holds=not launching)
    return Step(name, operator, {}, (at,), (at + 1,))


class Sequential(SequentialFace):
    """A list of layers, applied in order; any callables will do, such as the `Affine` of a last batch norm.

    A convolution without thresholds, a max pool and thresholds in a row run as a convolution to codes and a pool of
    these: equal, and no integer is written.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.ones((2, 64), int), values=(-1, 1))
    >>> net = qa.nn.Sequential([qa.nn.Dense(w, qa.Thresholds([0])), qa.nn.Dense(w[:, :2])])
    >>> net(qa.encode(np.ones((1, 64), int), values=(-1, 1)))
    array([[2, 2]], dtype=int32)
    """

    def __init__(self, layers: Iterable[Layer]) -> None:
        if not np.iterable(layers):
            raise TypeError(f"Sequential: layers must be a list of callables, got {checks.kind(layers)}")
        self.layers = tuple(layers)
        for layer in self.layers:
            if not callable(layer):
                raise TypeError(f"Sequential: layers must be callable, got {type(layer).__name__}")
        self._steps = [_step(at, i, layer) for at, (i, layer) in enumerate(fused(self.layers))]
        self._initial: list[Any] = [None] * (len(self._steps) + 1)
        self._input_slots, self._output_slots = [0], [len(self._steps)]

    def __call__(self, x: Any) -> Any:
        return self._outputs_of(self._run(self._ready((x,), {})))

    def _ready(self, x: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        if len(x) != 1 or named:
            raise TypeError(f"Sequential: takes one input, without a name; got {len(x) + len(named)}")
        return [x[0], *self._initial[1:]]

    def _run(self, values: list[Any]) -> list[Any]:
        marks = ranges.nvtx() if device_of(values[0]) != "cpu" else None
        for step in self._steps:
            if marks is None:
                step(values)
            else:  # in a range of NVTX that a profiler shows, such as "0 Conv2d"
                with ranges.shown(marks, step.name):
                    step(values)
            values[step.operands[0]] = None  # memory of a value that no step takes any more
        return values

    def _outputs_of(self, values: list[Any]) -> Any:
        return values[-1]

    def _name_nan(self, error: ValueError, values: list[Any]) -> None:
        """Keep the error as it is: the layer that refused its input has said so."""

    def _zeros(self) -> tuple[Any, ...]:
        return ()  # layers do not describe their input

    def to_device(self, device: str) -> Sequential:
        """Return the layers on a device; layers without a `to_device` are taken as they are."""
        return Sequential(x.to_device(device) if hasattr(x, "to_device") else x for x in self.layers)

    def compact(self) -> Sequential:
        """Keep each weight once: from the next call on only in its kernel's layout, no longer as words too.

        Calls take as long as before and `codes()`, `dequantize()`, `save` and `digest()` of weights give what they
        gave, from words that are unpacked again each time. If two calls in turn want two layouts of a weight, each
        lays it out again. Weights on a GPU, and those of groups or windows of few channels, keep their words.

        >>> import quantarray as qa, numpy as np
        >>> w = qa.encode(np.ones((256, 4096), int), values=(-1, 1))
        >>> net, x = qa.nn.Sequential([qa.nn.Dense(w)]), qa.encode(np.ones((1, 4096), int), values=(-1, 1))
        >>> before, digest = net(x), w.digest()
        >>> held = w.nbytes + w.nbytes_cached
        >>> after = net.compact()(x)
        >>> held > 2 * w.nbytes > 1.8 * (w.nbytes + w.nbytes_cached), (after == before).all(), w.digest() == digest
        (True, np.True_, True)
        """
        for layer in self.layers:
            if hasattr(layer, "compact"):
                layer.compact()
        return self

    def graph(self, x: Any) -> Graph:
        """Capture the layers as one CUDA graph for inputs like x, which must be on the layers' GPU; see `Graph`."""
        return graph(self, x)

    def trace(self, x: Any) -> list[Record]:
        """Run the layers and keep what each of them returned."""
        records = []
        for layer in self.layers:
            x = layer(x)
            bits = x.bits if isinstance(x, QuantArray) else 8 * x.dtype.itemsize
            records.append(Record(name_of(layer), x.shape, bits, x.nbytes, _weight_nbytes(layer), x))
        return records

    def summary(self, x: Any = None) -> Summary:
        """Run the layers on x, and return a table: output, bits, weights, MACs, bytes; packed, float result or NumPy.

        Without x, as layers do not describe their input, the table has no outputs and no MACs.

        >>> import quantarray as qa, numpy as np
        >>> net = qa.nn.Sequential([qa.nn.Dense(qa.encode(np.ones((2, 64), int), values=(-1, 1)))])
        >>> print(net.summary(qa.encode(np.ones((1, 64), int), values=(-1, 1))))
        Sequential
        operation      runs    from     output  dtype  bits  weights  MACs  bytes
        dense 64 -> 2  packed  layer 0  1x2     int32    32      128   128     16
        128 weights in 16 bytes, 32.0x smaller than float32, 128 MACs; 0 of 1 in NumPy
        """
        return Summary("Sequential", self._rows(self.layers, x))

    def profile(self, x: Any) -> Summary:
        """Return the table of `summary` with the time of each layer, the fastest of five runs, and its share."""
        return Summary("Sequential", list(measured(self.layers, x, timed=True)))

    def _drawing(self, x: Any) -> Drawing:
        return self._drawn("Sequential", x)

    def _run_batch(self, x: Any) -> Any:
        return on_device_of(self, self.weights, x)

    def _drawn(self, name: str, x: Any) -> Drawing:
        from .drawing.boxes import of_rows

        layers = list(flat(self.layers))
        rows = self._rows(layers, x)
        takes = getattr(layers[0], "takes", "") if x is None and layers else "" if x is None else _kind_of(x)
        bits = [getattr(getattr(layer, "weight", None), "bits", None) for layer in layers]
        return of_rows(name, takes, rows, bits)

    @staticmethod
    def _rows(layers: Iterable[Layer], x: Any) -> list[Row]:
        if x is None:
            return [row(i, layer, None, None) for i, layer in enumerate(flat(layers))]
        return list(measured(layers, x))

    @property
    def weights(self) -> list[QuantArray]:
        """Return the layers' packed weights, in order."""
        weights = (getattr(layer, "weight", None) for layer in self.layers)
        return [weight for weight in weights if isinstance(weight, QuantArray)]

    @property
    def nbytes(self) -> int:
        """Count the bytes of the layers' packed weights."""
        return sum(weight.nbytes for weight in self.weights)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __repr__(self) -> str:
        names = [name_of(layer) for layer in self.layers]
        if len(names) > _MOST_NAMES:
            names[_MOST_NAMES - 2 : -1] = [f".. {len(names) - _MOST_NAMES + 1} more .."]
        return f"Sequential({', '.join(names)}; {self.nbytes} bytes of weights)"


def on_device_of(network: Any, weights: list[QuantArray], x: Any) -> Any:
    """Run a network on the device of its weights, on a batch from the CPU, and return its results to the CPU."""
    device = device_of(weights[0]) if weights else "cpu"
    if device == "cpu":
        return network(x if isinstance(x, QuantArray) else checks.anywhere("predict", "data", x))
    placed = x.to_device(device) if isinstance(x, QuantArray) else namespace(device).asarray(x)
    return asnumpy(network(placed))


def _kind_of(x: Any) -> str:
    return f"{x.dtype} ({', '.join(map(str, x.shape))})"


def _weight_nbytes(layer: Any) -> int:
    weight = getattr(layer, "weight", None)
    return weight.nbytes if isinstance(weight, QuantArray) else 0
