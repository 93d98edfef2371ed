"""Layers in a row, and trained networks from files of plain integers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..backends import ranges
from ..backends.registry import device_of, namespace, settle
from ..core.dtypes import Array, DType, arithmetic, integers
from ..core.forks import cached_property
from ..core.hints import Bytes
from ..io.plain import PlainLayer, PlainNetwork, read_plain
from ..ops.creation.creation import encode
from ..ops.products.operand import is_dense
from ..ops.words.conversion import pack_codes
from ..ops.words.placement import graph
from .layers import Conv2d, Dense
from .named import OF_INPUTS, say_first
from .pooling import MaxPool2d

if TYPE_CHECKING:
    from ..cuda.runtime.graph import Graph

Layer = Callable[[Any], Any]
_MOST_NAMES = 8  # that a repr lists
MAX_PACKED_LEVELS = 16  # inputs of more levels stay 8-bit integers: packing would save less than half


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


def _shown(marks: Any, i: int, layer: Layer, x: Any) -> Any:
    """Apply a layer in a range of NVTX that a profiler shows, such as "0 Conv2d"."""
    with ranges.shown(marks, f"{i} {getattr(layer, '__name__', type(layer).__name__)}"):
        return layer(x)


class Sequential:
    """A list of layers, applied in order; any callables will do, such as the `Affine` of a last batch norm.

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

    def __call__(self, x: Any) -> Any:
        marks = ranges.nvtx() if device_of(x) != "cpu" else None
        i = 0
        try:
            for i, layer in enumerate(self.layers):
                x = layer(x) if marks is None else _shown(marks, i, layer, x)
        except OF_INPUTS as error:
            say_first(error, f"layer {i}, ")
            raise
        return x

    def to_device(self, device: str) -> Sequential:
        """Return the layers on a device; layers without a `to_device` are taken as they are."""
        return Sequential(x.to_device(device) if hasattr(x, "to_device") else x for x in self.layers)

    def compact(self) -> Sequential:
        """Keep each weight once: from the next call on as its kernel reads it, and no longer as words besides.

        Calls take as long as before and `codes()`, `dequantize()`, `save` and `digest()` of weights give what they
        gave, from words that are made anew each time. Where two calls in turn want two layouts of a weight, each lays
        it out again. Weights on a GPU, and those of groups or windows of few channels, keep their words.

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

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the layers to a `.qa` file (docs/qa-format.md), whole or not at all; `quantarray.nn.load` reads it.

        Raises TypeError for layers that have no form in a file, such as functions; `Map(f, of=dtype)` has one.

        >>> import quantarray as qa, os, tempfile
        >>> net = qa.nn.Sequential([qa.nn.MaxPool2d(2), qa.nn.Dense(qa.encode([[1, -1]], values=(-1, 1)))])
        >>> path = os.path.join(tempfile.mkdtemp(), "net.qa")
        >>> net.save(path)
        >>> qa.nn.load(path)
        Sequential(max_pool2d 2x2, dense 2 -> 1; 8 bytes of weights)
        """
        from .file import save_sequential

        save_sequential(self, file)

    def graph(self, x: Any) -> Graph:
        """Capture the layers as one CUDA graph for inputs like x, which must lie on the layers' GPU; see `Graph`."""
        return graph(self, x)

    def trace(self, x: Any) -> list[Record]:
        """Run the layers and keep what each of them returned."""
        records = []
        for layer in self.layers:
            x = layer(x)
            bits = x.bits if isinstance(x, QuantArray) else 8 * x.dtype.itemsize
            records.append(Record(_name(layer), x.shape, bits, x.nbytes, _weight_nbytes(layer), x))
        return records

    @property
    def weights(self) -> list[QuantArray]:
        """Return the layers' packed weights, in order."""
        found = (getattr(layer, "weight", None) for layer in self.layers)
        return [weight for weight in found if isinstance(weight, QuantArray)]

    @property
    def nbytes(self) -> int:
        """Count the bytes of the layers' packed weights."""
        return sum(weight.nbytes for weight in self.weights)

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __repr__(self) -> str:
        names = [_name(layer) for layer in self.layers]
        if len(names) > _MOST_NAMES:
            names[_MOST_NAMES - 2 : -1] = [f".. {len(names) - _MOST_NAMES + 1} more .."]
        return f"Sequential({', '.join(names)}; {self.nbytes} bytes of weights)"


def _name(layer: Any) -> str:
    """Return the name of a layer or of a function; without one, that of its class."""
    return str(getattr(layer, "name", getattr(layer, "__name__", type(layer).__name__)))


def _weight_nbytes(layer: Any) -> int:
    weight = getattr(layer, "weight", None)
    return weight.nbytes if isinstance(weight, QuantArray) else 0


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network: packed `layers`, and in `plain` what its file holds besides (samples, labels)."""

    layers: Sequential
    plain: PlainNetwork
    _tables: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # the input table on each device

    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        """Compute integer scores of raw inputs (uint8, see `encode_input`) or of encoded inputs.

        A network whose last layer has thresholds returns a QuantArray.
        """
        scores: Array | QuantArray = self.layers(x if self._is_encoded(x) else self.encode_input(x))
        return scores

    def _is_encoded(self, x: Any) -> bool:
        return isinstance(x, QuantArray) or (is_dense(x) and x.dtype == np.int8)

    def to_device(self, device: str) -> Network:
        """Return the network on a device; inputs must lie there too, and scores are returned there.

        >>> import quantarray as qa
        >>> from importlib.resources import files
        >>> network = qa.nn.load_network(files("quantarray") / "data" / "digits.npz").to_device("cpu")
        """
        return replace(self, layers=self.layers.to_device(device))

    def compact(self) -> Network:
        """Keep each weight once, as `Sequential.compact` does."""
        self.layers.compact()
        return self

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the network to a `.qa` file, whole or not at all: weights packed, thresholds, samples and class names.

        `quantarray.nn.load` reads it; the network that it gives has the same integers.
        """
        from .file import save_network

        save_network(self, file)

    def graph(self, x: Any) -> Graph:
        """Capture the network, with the encoding of raw inputs, as one CUDA graph for inputs of x's shape and dtype.

        x must lie on the network's GPU. The graph is launched as a whole, and the next call overwrites its result; see
        `Graph`. It does not check that the input table has an entry for each byte of an input.
        """
        encoded = self._is_encoded(x)
        return graph(self.layers if encoded else lambda raw: self.layers(self._looked_up(raw)), x)

    @cached_property
    def _input_law(self) -> tuple[DType | None, Array]:
        """(dtype, code of each byte), or (None, value of each byte) where inputs stay 8-bit integers."""
        table = self.plain.input_table
        pools_first = self.plain.layers[0].op == "max_pool2d"  # packed codes, which it reads by words
        if len(np.unique(table)) > MAX_PACKED_LEVELS and not pools_first:
            return None, table.astype(np.int8 if table.max() < 128 else np.uint8)
        dtype = smallest_dtype(table)
        assert dtype.levels is not None and dtype.step is not None
        return dtype, ((table - dtype.levels[0]) // dtype.step).astype(np.uint8)

    @cached_property
    def _codes_are_bytes(self) -> bool:
        table = self._input_law[1]
        return table.dtype == np.uint8 and bool((table == np.arange(len(table))).all())

    def encode_input(self, x: Any) -> Array | QuantArray:
        """Convert raw bytes, uint8 [n ..], to the input of the first layer: value = input_table[x].

        Inputs of at most 16 levels become a QuantArray, others an int8 or uint8 array. Raises TypeError for
        other dtypes, ValueError for bytes that the table does not have.
        """
        op = "encode_input"
        a = checks.anywhere(op, "x", x)
        if a.dtype != np.uint8:
            raise TypeError(f"{op}: needs uint8, the network's raw input, got {checks.kind(a)}")
        flat, needed = self.plain.layers[0].op == "dense", self.plain.input.shape[1:]
        if (a.ndim < 2) if flat else (a.ndim != 4):
            raise ValueError(f"{op}: x must be {('N', *needed)}, got {a.shape}; x[None] adds an axis for one input")
        entries = len(self.plain.input_table)
        if entries < 256 and a.size and int(a.max()) >= entries:  # waits for x on a GPU; most tables have all bytes
            raise ValueError(f"{op}: the input table has {entries} entries, got the byte {a.max()}")
        return self._looked_up(a)

    def _looked_up(self, a: Any) -> Array | QuantArray:
        """Look up raw bytes in the input table, on their device and without waiting for it."""
        if self.plain.layers[0].op == "dense" and a.ndim > 2:
            a = a.reshape(len(a), math.prod(a.shape[1:]))  # before packing, while it is free
        dtype, table = self._input_law
        device = device_of(a)
        if device not in self._tables:
            self._tables[device] = namespace(device).asarray(table)
            settle(device)
        values = a if self._codes_are_bytes else namespace(device).take(self._tables[device], a)
        if dtype is None:
            return cast(Array, values)
        return QuantArray(pack_codes(values, -1, dtype.bits), dtype, values.shape, values.ndim - 1)

    def __repr__(self) -> str:
        into, out = (f"[n {' '.join(map(str, s))}]" for s in (self.plain.input.shape[1:], self.plain.layers[-1].shape))
        return f"Network({self.plain.name!r}, uint8 {into} -> {out}, {self.layers!r})"


def load_network(file: str | os.PathLike[str]) -> Network:
    """Read a network of plain integers (docs/plain-format.md) and pack it.

    Raises FormatError for damaged, foreign and inconsistent files.

    >>> import quantarray as qa
    >>> from importlib.resources import files
    >>> network = qa.nn.load_network(files("quantarray") / "data" / "digits.npz")
    >>> scores = network(network.plain.input[:3])
    >>> scores.argmax(axis=1), network.plain.labels[:3]
    (array([2, 0, 4]), array([2, 0, 4], dtype=uint8))
    """
    plain = read_plain(file)
    return Network(Sequential(layer_of(spec) for spec in plain.layers), plain)


def layer_of(spec: PlainLayer, weight: QuantArray | None = None) -> Layer:
    """Build the layer that a plain layer describes; `weight` is its packed weight, if it is packed already."""
    if spec.op == "max_pool2d":
        return MaxPool2d(spec.size, spec.stride, (spec.pad, spec.pad))
    assert spec.weight is not None
    weight = encode(spec.weight, values=smallest_dtype(spec.weight)) if weight is None else weight
    if spec.op == "dense":
        return Dense(weight, _thresholds(spec))
    return Conv2d(
        weight,
        stride=spec.stride,
        padding=(spec.pad, spec.pad),
        pad_value=spec.pad_value,
        requantize=_thresholds(spec),
    )


def _thresholds(spec: PlainLayer) -> Thresholds | None:
    if spec.thresholds is None or spec.values is None:
        return None
    invert = np.zeros(len(spec.thresholds), np.bool_) if spec.invert is None else spec.invert
    # T - #(acc > t) is #(acc <= t): inverting turns both the direction and the strictness around
    return Thresholds(
        spec.thresholds,
        greater=~invert,
        strict=invert != spec.strict,
        into=integers(*spec.values),
        by_rank=False,
    )


def smallest_dtype(values: Array) -> DType:
    """Find the evenly spaced integer levels of fewest bits that hold all values.

    >>> import numpy as np
    >>> smallest_dtype(np.array([1, -1, -1])), smallest_dtype(np.array([4, -2]))
    (quantarray.bipolar, quantarray.integers(-2, 4))
    """
    found = tuple(int(v) for v in np.unique(values))
    if found in ((-1,), (1,)):
        return integers(-1, 1)
    low, step = arithmetic(found)
    return integers(range(low, found[-1] + 1, step))
