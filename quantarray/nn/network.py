"""Trained networks from files of plain integers."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..backends.registry import device_of, namespace, settle
from ..core.dtypes import Array, DType, arithmetic, integers
from ..core.forks import cached_property
from ..core.hints import Bytes
from ..io.plain import PlainLayer, PlainNetwork, read_plain
from ..ops.creation.creation import encode
from ..ops.products.operand import is_dense
from ..ops.words.conversion import pack_codes
from ..ops.words.placement import graph
from .convolutions import Conv2d
from .graph_summary import Summary
from .images import of_shape
from .inputs import likely_fix
from .layer_summary import measured
from .layers import Dense
from .model import Model
from .pooling import MaxPool2d
from .sequential import Layer, Sequential, on_device_of

if TYPE_CHECKING:
    from ..cuda.runtime.graph import Graph
    from .drawing.svg import Drawing
    from .faces import NetworkFace
    from .images import Layout
else:

    class NetworkFace(Model):
        """A class with the methods of a network that `faces`, above all that they call, attaches here."""


MAX_PACKED_LEVELS = 16  # inputs of more levels stay 8-bit integers: packing would save less than half


@dataclass(frozen=True, eq=False)
class Network(NetworkFace):
    """A trained network: packed `layers`, and in `plain` what its file holds besides (samples, labels)."""

    layers: Sequential
    plain: PlainNetwork
    _tables: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # the input table on each device

    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        """Compute integer scores of raw inputs (uint8, see `encode_input`) or of encoded inputs.

        A network whose last layer has thresholds returns a QuantArray.
        """
        scores: Array | QuantArray = self.layers(self._encoded(x))
        return scores

    def _encoded(self, x: QuantArray | Bytes) -> Any:
        """Encode raw inputs; refuse an empty batch."""
        encoded: Any = x if self._is_encoded(x) else self.encode_input(x)
        if encoded.ndim and not encoded.shape[0]:
            raise ValueError(f"{self.plain.name}: x has an empty batch, {encoded.shape}; pass at least one")
        return encoded

    def _is_encoded(self, x: Any) -> bool:
        return isinstance(x, QuantArray) or (is_dense(x) and x.dtype == np.int8)

    def to_device(self, device: str) -> Network:
        """Return the network on a device; inputs must be there too, and scores are returned there.

        >>> import quantarray as qa
        >>> from importlib.resources import files
        >>> network = qa.nn.load_network(files("quantarray") / "data" / "digits.npz").to_device("cpu")
        """
        return replace(self, layers=self.layers.to_device(device))

    def compact(self) -> Network:
        """Keep each weight once, as `Sequential.compact` does."""
        self.layers.compact()
        return self

    def graph(self, x: Any) -> Graph:
        """Capture the network, with the encoding of raw inputs, as one CUDA graph for inputs of x's shape and dtype.

        x must be on the network's GPU. The graph is launched as a whole, and the next call overwrites its result; see
        `Graph`. It does not check that the input table has an entry for each byte of an input.
        """
        encoded = self._is_encoded(x)
        return graph(self.layers if encoded else lambda raw: self.layers(self._looked_up(raw)), x)

    def summary(self, x: Any = None) -> Summary:
        """Return a table of the layers: output, bits, weights, MACs, bytes; packed, float result or NumPy.

        The network runs once, on x, raw or encoded, or on the first of its samples.
        """
        return self._summary(x, False)

    def profile(self, x: Any = None) -> Summary:
        """Return the table of `summary` with the time of each layer, the fastest of five runs, and its share."""
        return self._summary(x, True)

    def _summary(self, x: Any, timed: bool) -> Summary:
        return Summary(self.plain.name, list(measured(self.layers, self._example(x), timed)))

    def _example(self, x: Any) -> Any:
        """Encode x, by default the first sample, or zeros where there is none."""
        if x is None:
            sample = self.plain.input[:1]
            x = sample if len(sample) else np.zeros((1, *sample.shape[1:]), np.uint8)
            device = device_of(self.layers.weights[0]) if self.layers.weights else "cpu"
            x = x if device == "cpu" else namespace(device).asarray(x)
        return x if self._is_encoded(x) else self.encode_input(x)

    def _run_batch(self, x: Any) -> Any:
        return on_device_of(self, self.layers.weights, x)

    def _layout(self) -> tuple[int | None, Layout | None, str]:
        shape = self.plain.input.shape
        return len(shape), of_shape(shape[1:], len(self.plain.input_table)), str(("N", *shape[1:]))

    def _drawing(self, x: Any) -> Drawing:
        return self.layers._drawn(self.plain.name, self._example(x))

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

        Inputs of at most 16 levels become a QuantArray, others an int8 or uint8 array. Images may have another height
        and width where no layer is dense. Raises TypeError for other dtypes, ValueError for other shapes, and for bytes
        that the table does not have.
        """
        op = "encode_input"
        a = checks.anywhere(op, "x", x)
        if a.dtype != np.uint8:
            whole = a.dtype.kind in "iub"
            fix = "; x.astype(np.uint8), if all values are from 0 to 255" if whole else ""
            raise TypeError(f"{op}: needs uint8, the network's raw input, got {checks.kind(a)}{fix}")
        self._check_shape(op, a.shape)
        entries = len(self.plain.input_table)
        if entries < 256 and a.size and int(a.max()) >= entries:  # waits for x on a GPU; most tables have all bytes
            raise ValueError(
                f"{op}: x must be from 0 to {entries - 1}, as the input table has {entries} entries, "
                f"got the byte {a.max()}"
            )
        return self._looked_up(a)

    def _check_shape(self, op: str, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless raw inputs of this shape are the network's."""
        plain = self.plain
        wanted = (1, *plain.input.shape[1:])
        if plain.layers[0].op == "dense":  # any axes, which are flattened
            fits = len(shape) >= 2 and math.prod(shape[1:]) == math.prod(wanted[1:])
        else:
            any_size = all(layer.op != "dense" for layer in plain.layers)
            fits = len(shape) == 4 and (shape[3] == wanted[3] if any_size else shape[1:] == wanted[1:])
        if not fits:
            raise ValueError(f"{op}: x must be {('N', *wanted[1:])}, got {shape}{likely_fix('x', shape, wanted)}")

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
    levels = tuple(int(v) for v in np.unique(values))
    if levels in ((-1,), (1,)):
        return integers(-1, 1)
    low, step = arithmetic(levels)
    return integers(range(low, levels[-1] + 1, step))
