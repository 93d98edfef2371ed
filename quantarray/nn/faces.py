"""Methods of networks for files, compiled calls, tables and pictures, attached when the package is imported."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from inspect import isfunction
from typing import Any

import numpy as np

from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..backends.registry import namespace, settle
from ..core.dtypes import Array
from ..core.progress import Progress
from . import graph, network, sequential
from .devices import on_device
from .drawing.boxes import of_graph
from .drawing.svg import Drawing
from .file import save_network, save_sequential
from .graph import Graph, Node
from .graph_file import save_graph
from .graph_summary import Row, Summary
from .inference import kinds_of
from .model import Model
from .onnx.writing.saving import is_onnx, save_onnx
from .operators import OPERATORS
from .passes import for_plan
from .plan.prepared import Prepared

_ROUNDS = 5  # of which `profile` takes the fastest


class GraphFace(Model):
    """A mixin of methods of `Graph`."""

    def to_device(self: Any, device: str) -> Graph:
        """Return the graph on a device, "cpu", "cuda" or "cuda:1"; inputs must be there too, and results are.

        Weights are moved once; `predict` and `qa.on` move inputs and results. Packed operations, and products and pools
        of floats, run by kernels in the CPU's order, so integers and codes are the CPU's; functions such as exp are
        CuPy's, and floats that are reduced are summed in another order. A NaN that a quantiser meets on a GPU is no
        error, as nothing waits for the GPU.

        Raises DeviceError that lists the operations that no GPU runs (docs/gpu-operators.md), or says what is missing.

        >>> import quantarray as qa
        >>> net = qa.nn.models.lfc()
        >>> net.to_device("cpu") is net
        True
        """
        return on_device(self.on_cpu, device)

    def prepared(self: Any, *, reuse: bool = False) -> Prepared:
        """Return the graph with its packed operations in compiled calls; results equal the graph's.

        On a GPU each form of inputs is captured as a CUDA graph at its first call; the last eight stay.

        The second call with inputs of one form plans it, which takes up to some seconds. With `reuse` an output is
        valid until the thread's next call, which overwrites it.

        >>> import quantarray as qa, numpy as np
        >>> net = qa.nn.models.cnv(seed=1)
        >>> fast, images = net.prepared(), np.zeros((1, 3, 32, 32), np.uint8)
        >>> bool((fast(images) == net(images)).all() and (fast(images) == net(images)).all())
        True
        """
        planned = for_plan(self.on_cpu)
        return Prepared(self.name, on_device(planned, self.device), reuse)

    def save(self: Any, file: str | os.PathLike[str]) -> None:
        """Write the graph to a `.qa` file (docs/qa-format.md) or as QONNX to a `.onnx` file, whole or not at all.

        `quantarray.nn.load` reads both, to equal values; reading a `.qa` file needs no `onnx`. A `.onnx` file has the
        quantisers of QONNX and the operators of ONNX: products sum integers in float32, or in float64 where they may
        pass 2**24.

        Raises TypeError or ValueError for a graph whose operands do not go together, ValueError that lists all
        operations that ONNX cannot hold and why, ImportError for a `.onnx` file without `onnx`.

        >>> import quantarray as qa, os, tempfile
        >>> x, y = qa.nn.Value("x", (1, 4), "float32"), qa.nn.Value("y", (1, 4), "float32")
        >>> path = os.path.join(tempfile.mkdtemp(), "net.qa")
        >>> qa.nn.Graph([x], [y], [qa.nn.Node("Relu", ("x",), ("y",))], {}).save(path)
        >>> qa.nn.load(path)
        Graph(x: float32 (n, 4) -> y: float32 (n, 4); 0 of 1 operations packed, 0 bytes of constants)
        """
        if is_onnx(file):
            save_onnx(self.on_cpu, file)
        else:
            save_graph(self.on_cpu, file)

    def summary(self: Any, *x: Any, **named: Any) -> Summary:
        """Return a table of the nodes: packed, float result or NumPy, shapes, bits, weights, MACs, bytes.

        The graph runs once, on x or on zeros of the inputs' shapes.
        """
        values = self.trace(*(x or self._zeros() if not named else x), **named)
        return Summary(self.name, [self._row(node, values) for node in self.nodes], self.nbytes)

    def profile(self: Any, *x: Any, **named: Any) -> Summary:
        """Return the table of `summary` with the time of each node, the fastest of five runs."""
        values = self._ready(x or self._zeros() if not named else x, named)
        times = [math.inf] * len(self._steps)
        with Progress(_ROUNDS * len(times), "runs of a node") as bar:
            for done in range(_ROUNDS * len(times)):
                bar.update(done)
                i = done % len(times)
                settle(self.device)
                start = time.perf_counter()
                self._steps[i](values)
                settle(self.device)
                times[i] = min(times[i], time.perf_counter() - start)
        known = {name: values[at] for name, at in self._slots.items()}
        rows = [self._row(node, known, t) for node, t in zip(self.nodes, times, strict=True)]
        return Summary(self.name, rows, self.nbytes)

    def _drawing(self: Any, x: Any) -> Drawing:

        return of_graph(self, kinds_of(self) if x is None else self.trace(x))

    def _zeros(self: Any) -> tuple[Array, ...]:
        xp = namespace(self.device)
        return tuple(xp.full(v.shape, v.low or 0, v.dtype) for v in self.inputs)

    def _row(self: Any, node: Node, values: Mapping[str, Any], seconds: float | None = None) -> Row:
        operands = [self.constants[n] for n in node.inputs if n in self.constants]
        weight: Any = next((a for a in operands if isinstance(a, QuantArray)), None)
        if weight is None and OPERATORS[node.op].weights is not None:
            weight = next((a for a in operands if isinstance(a, np.ndarray)), None)
        thresholds = any(isinstance(a, Thresholds) for a in operands)
        results = [values[name] for name in node.outputs]
        return Row.of(node, results, weight, thresholds, seconds)


class SequentialFace(Model):
    """A mixin of methods of `Sequential`."""

    def save(self: Any, file: str | os.PathLike[str], x: Any = None) -> None:
        """Write the layers to a `.qa` file (docs/qa-format.md), or as QONNX to a `.onnx` file, whole or not at all.

        x: a batch that the first layer takes, needed for a `.onnx` file alone, which states shapes and dtypes. A packed
        x becomes an input of its values, float32, that the file quantises. `quantarray.nn.load` reads `.qa` files to
        equal layers, and `.onnx` files to a `Graph` that gives the same values as the layers.

        Raises TypeError or ValueError for layers that have no form in a file, such as functions; `Map(f, of=dtype)`
        has one.

        >>> import quantarray as qa, os, tempfile
        >>> net = qa.nn.Sequential([qa.nn.MaxPool2d(2), qa.nn.Dense(qa.encode([[1, -1]], values=(-1, 1)))])
        >>> path = os.path.join(tempfile.mkdtemp(), "net.qa")
        >>> net.save(path)
        >>> qa.nn.load(path)
        Sequential(max_pool2d 2x2, dense 2 -> 1; 8 bytes of weights)
        """
        if is_onnx(file):
            save_onnx(self, file, x)
        elif x is not None:
            raise ValueError(f"save: x is for a .onnx file, which states the input; got the file {os.fspath(file)!r}")
        else:
            save_sequential(self, file)

    def prepared(self: Any, *, reuse: bool = False) -> Prepared:
        """Return the layers as one compiled call on the CPU; with `reuse` a result is valid until the next call."""
        return Prepared("Sequential", self, reuse)


class NetworkFace(Model):
    """A mixin of methods of `Network`."""

    def save(self: Any, file: str | os.PathLike[str]) -> None:
        """Write the network to a `.qa` file, whole or not at all: weights packed, thresholds, samples and class names.

        `quantarray.nn.load` reads it; the network that it gives has the same integers. A name that ends in `.onnx`
        writes a QONNX file of raw inputs, uint8, without samples and names; it loads as a `Graph` of the same integers.
        """
        if is_onnx(file):
            save_onnx(self, file)
        else:
            save_network(self, file)

    def prepared(self: Any, *, reuse: bool = False) -> Prepared:
        """Return the network as one compiled call on the CPU, as `Sequential.prepared` does."""
        return Prepared(self.plain.name, self.layers, reuse, self._encoded)


def _attach() -> None:
    for module, face in ((graph, GraphFace), (sequential, SequentialFace), (network, NetworkFace)):
        stand_in = vars(module)[face.__name__]
        for name, method in vars(face).items():
            if isfunction(method):
                setattr(stand_in, name, method)
                method.__qualname__ = f"{face.__name__.removesuffix('Face')}.{name}"


_attach()
