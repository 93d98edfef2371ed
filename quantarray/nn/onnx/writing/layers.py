"""Layers in a row as ONNX nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays import checks
from ....arrays.affine import Affine
from ....arrays.array import QuantArray
from ....arrays.thresholds import Thresholds
from ....core.dtypes import Array, DType
from ....ops.products import geometry
from ...convolutions import Conv1d, Conv2d, Conv3d
from ...layers import Dense
from ...mapping import Map, Threshold
from ...network import Network
from ...pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from ...sequential import Sequential
from ..tensors import Refused
from .laws import bounded, looked_up, mapped
from .pooling import extreme_pool, mean_pool, pool_attributes
from .products import convolution, matrix, product
from .thresholds import thresholded
from .writer import Held, Writer, range_of

Ends = list[tuple[str, Held, Any]]


def write_layers(network: Any, example: Any) -> tuple[Writer, Ends, Ends]:
    """Write a Network, or a Sequential for inputs like `example`."""
    w = Writer(("x", "y"))
    w.label = "input"
    if isinstance(network, Network):
        first, x = _raw_input(w, network)
        layers = network.layers
    else:
        first, x = _input(w, example)
        layers = network
    y = _row(w, layers, x, "layer ")
    if y is None:
        return w, [], []
    w.label = "output"
    w.copy(w.typed(y), "y")
    return w, [("x", _open(first), None)], [("y", _open(y), None)]


def _open(x: Held) -> Any:
    """Return the value with a first axis of any length."""
    return replace(x, shape=("n", *x.shape[1:]))  # type: ignore[arg-type]


def _input(w: Writer, example: Any) -> tuple[Held, Held]:
    """Return (the file's input, the value that the first layer takes)."""
    if example is None:
        raise ValueError(
            "save: layers in a row do not say what they take, and an ONNX file does; pass an input of the first layer, "
            "network.save(file, x)"
        )
    if not isinstance(example, QuantArray):
        a = checks.anywhere("save", "x", example)
        if a.dtype.kind not in "iuf" or a.ndim < 2:
            raise TypeError(f"save: x must be a batch of integers or floats, got {checks.kind(example)}")
        low, high = range_of(a.dtype)
        x = Held(a.shape, a.dtype, typed="x", low=low, high=high)
        return x, x
    q = example
    if q.ndim < 2:
        raise ValueError(f"save: x must be a batch, got the shape {q.shape}")
    first = Held(q.shape, np.dtype(np.float32), "x")
    if q.dtype.levels is None or q.constants.shapes:
        return first, Held(q.shape, q.dtype, "x")
    return first, bounded(w, "x", q.shape, q.dtype)


def _raw_input(w: Writer, network: Network) -> tuple[Held, Held]:
    """Return (bytes of a Network, their values by its input table)."""
    plain = network.plain
    shape, table = plain.input.shape, plain.input_table.astype(np.int64)
    shape = (max(shape[0], 1), *shape[1:])
    first = Held(shape, np.dtype(np.uint8), typed="x", low=0, high=255)
    dtype, _ = network._input_law
    low, high = int(table.min()), int(table.max())
    if (table == np.arange(len(table))).all() and len(table) == 256:
        return first, first
    if dtype is None or (np.diff(table) < 0).any():
        value = looked_up(w, "x", table)
        return first, Held(shape, np.dtype(np.int32), value, low=low, high=high)
    levels = np.array(dtype.levels)
    T = Thresholds([int(np.argmax(table >= v)) - 1 for v in levels[1:]], per_channel=False, into=dtype)
    return first, thresholded(w, first, T, len(shape) - 1)


def _row(w: Writer, layers: Sequential, x: Held | None, prefix: str) -> Held | None:
    """Write layers in order; note those that have no form, and return None after one whose result is not known."""
    for i, layer in enumerate(layers):
        w.label = f"{prefix}{i}"
        if type(layer) is Sequential:
            x = _row(w, layer, x, f"{w.label}.")
            continue
        write = _WRITE.get(type(layer))
        if write is None:
            w.refused.append(f"{w.label}: {type(layer).__name__} {layer!r:.80} has no form in ONNX here")
            x = None
        elif x is not None:
            try:
                x = write(w, layer, x)
            except (Refused, TypeError, ValueError, OverflowError) as error:
                w.refused.append(f"{w.label}, {layer!r:.120}: {error}")
                x = None
    return x


def _first(w: Writer, x: Held, data_format: str) -> Held:
    """Bring channels to axis 1, as ONNX has images."""
    if len(x.shape) != len(data_format):
        raise Refused(f"it takes images {data_format}, got the shape {x.shape}")
    return w.permuted(x, geometry.to_first(len(x.shape) - 2)) if data_format.endswith("C") else x


def _back(w: Writer, y: Held, data_format: str) -> Held:
    return w.permuted(y, geometry.to_last(len(y.shape) - 2)) if data_format.endswith("C") else y


def _conv(w: Writer, layer: Any, operand: Held) -> Held:
    x = _first(w, operand, layer.data_format)
    last = layer.data_format.endswith("C")
    weight = layer.weight if not getattr(layer, "flip_kernel", False) else _flipped(layer.weight, layer.data_format)
    order = geometry.to_first(layer.axes) if last else tuple(range(layer.axes + 2))
    outputs, kernel, inputs = layer._sizes
    if x.shape[1] != inputs:
        raise Refused(f"it takes {inputs} channels, got the shape {operand.shape}")
    image, p = convolution(w, x, outputs, kernel, order, vars(layer))
    bias = None if layer.bias is None else np.asarray(layer.bias)
    y = product(w, image, weight, p, bias, layer.out_dtype)
    y.rough = y.rough or (image is not x and bool(weight.constants.shapes))  # borders have terms of their own
    return _back(w, _codes(w, y, layer.requantize, 1), layer.data_format)


def _flipped(q: QuantArray, data_format: str) -> QuantArray:
    at = (1, 2) if data_format == "NHWC" else (2, 3)
    index = tuple(slice(None, None, -1) if i in at else slice(None) for i in range(4))
    return q[index]


def _codes(w: Writer, y: Held, T: Thresholds | None, axis: int) -> Held:
    return y if T is None else thresholded(w, y, T, axis)


def _dense(w: Writer, layer: Dense, x: Held) -> Held:
    if len(x.shape) > 2:
        x = reshaped(w, x, (x.shape[0], int(np.prod(x.shape[1:]))))
    if x.shape[-1] != layer.weight.shape[1]:
        raise Refused(f"it takes {layer.weight.shape[1]} elements, got the shape {x.shape}")
    bias = None if layer.bias is None else np.asarray(layer.bias)
    y = product(w, x, layer.weight, matrix(w, x, layer.weight), bias, layer.out_dtype)
    return _codes(w, y, layer.requantize, len(y.shape) - 1)


def reshaped(w: Writer, x: Held, shape: tuple[int, ...], batched: bool = True) -> Held:
    """Reshape a value; the batch may have any length."""
    target = w.constant(np.array((-1, *shape[1:]) if batched else shape, np.int64))
    real, typed = (w.emit("Reshape", [n, target], allowzero=1) if n else "" for n in (x.real, x.typed))
    value = None if x.value is None else x.value.reshape(shape)
    parts = None if x.scaled is None else (reshaped(w, x.scaled[0], shape, batched), x.scaled[1])
    return Held(shape, x.dtype, real, x.wide, typed, x.low, x.high, value, parts, rough=x.rough)


def _window(layer: Any, x: Held) -> dict[str, Any]:
    image = x.shape[2:]
    return pool_attributes(image, layer.size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)


def _max_pool(w: Writer, layer: Any, operand: Held) -> Held:
    if layer.return_indices:
        raise Refused("it returns indices too")
    x = _first(w, operand, layer.data_format)
    y = extreme_pool(w, x, np.asarray(layer.falling), **_window(layer, x))
    return _back(w, _codes(w, y, layer.requantize, 1), layer.data_format)


def _avg_pool(w: Writer, layer: Any, operand: Held) -> Held:
    x = _first(w, operand, layer.data_format)
    more = {"count_include_pad": 1} if layer.count_include_pad else {}
    y = mean_pool(w, x, **_window(layer, x), **more)
    return _back(w, _codes(w, y, layer.requantize, 1), layer.data_format)


def _global_pool(w: Writer, layer: GlobalAvgPool, operand: Held) -> Held:
    x = _first(w, operand, layer.data_format)
    y = mean_pool(w, x, kernel_shape=list(x.shape[2:]))
    return reshaped(w, _codes(w, y, layer.requantize, 1), x.shape[:2])


def _threshold(w: Writer, layer: Threshold, x: Held) -> Held:
    return thresholded(w, _dense_result(x), layer.thresholds, layer.axis)


def _thresholds(w: Writer, layer: Thresholds, x: Held) -> Held:
    return thresholded(w, _dense_result(x), layer, -1)


def _dense_result(x: Held) -> Held:
    if isinstance(x.dtype, DType):
        raise Refused("it takes a dense result, not codes")
    return x


def _map(w: Writer, layer: Map, x: Held) -> Held:
    if not isinstance(x.dtype, DType) or x.dtype.levels is None or not x.whole:
        raise Refused("it maps codes of integer levels only")
    of = x.dtype if layer.of is None else layer.of  # whose levels are in the order of the values
    levels = np.array(of.levels, np.int64)
    values: Array = layer.values if layer.values is not None else np.asarray(layer.f(levels))
    results = values.astype(np.int64 if values.dtype.kind in "iub" else np.float32)
    if results.dtype.kind == "f":
        return mapped(w, x, levels, results, np.dtype(np.float32))
    return mapped(w, x, levels, results, _integers(results))


def _integers(values: Array) -> DType:
    from ....core.dtypes import integers

    return integers(*(int(v) for v in np.unique(values)))


def _affine(w: Writer, layer: Affine, x: Held) -> Held:
    product_of = w.emit("Mul", [w.real(x, True), w.constant(layer.scale)])
    total = w.emit("Add", [product_of, w.constant(layer.offset)])
    return Held(x.shape, np.dtype(np.float64), total, True)


_WRITE: dict[type, Any] = {
    **dict.fromkeys((Conv1d, Conv2d, Conv3d), _conv),
    Dense: _dense,
    **dict.fromkeys((MaxPool1d, MaxPool2d, MaxPool3d), _max_pool),
    **dict.fromkeys((AvgPool1d, AvgPool2d, AvgPool3d), _avg_pool),
    GlobalAvgPool: _global_pool,
    Threshold: _threshold,
    Thresholds: _thresholds,
    Map: _map,
    Affine: _affine,
}
