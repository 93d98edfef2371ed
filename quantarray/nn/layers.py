"""Layers: packed weights and the arguments of the function that uses them."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, overload

from ..arrays import checks, likely_fix
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType
from ..core.hints import Bytes, Padding, Pair
from ..ops.products.convolution import conv2d
from ..ops.products.matrix_product import linear
from ..ops.products.operand import operand
from ..ops.products.pooling import max_pool2d


@dataclass(frozen=True, eq=False)
class Conv2d:
    """`conv2d(x, weight, ...)` as a layer: x [n h w c] packed, or int8/uint8, by weight [o kh kw c].

    Returns the dense result, or with `requantize` its packed codes. Arguments as in `quantarray.conv2d`.
    """

    weight: QuantArray
    _: KW_ONLY
    stride: Pair = 1
    padding: Padding = 0
    pad_value: float = 0
    requantize: Thresholds | None = None

    def __post_init__(self) -> None:
        _check_weight("Conv2d", self.weight, 4, "[o kh kw c]")

    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        return conv2d(
            x,
            self.weight,
            stride=self.stride,
            padding=self.padding,
            pad_value=self.pad_value,
            requantize=self.requantize,
        )

    def compact(self) -> Conv2d:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self, device: str) -> Conv2d:
        """The layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))

    @property
    def name(self) -> str:
        outputs, height, width, inputs = self.weight.shape
        return f"conv2d {height}x{width} {inputs} -> {outputs}"

    def __repr__(self) -> str:
        outputs, height, width, inputs = self.weight.shape
        usual = {"stride": 1, "padding": 0, "pad_value": 0}
        others = "".join(f"{n}={v}, " for n, usually in usual.items() if (v := getattr(self, n)) != usually)
        return f"Conv2d([n h w {inputs}] -> [n h w {outputs}], {height}x{width}, {others}{laws(self)})"


@dataclass(frozen=True, eq=False)
class Dense:
    """`linear(x, weight)` as a layer: x is flattened, channels last, to [n k] and multiplied by weight [o k].

    >>> import quantarray as qa, numpy as np
    >>> layer = qa.nn.Dense(qa.encode([[1, 1, -1, -1]], values=(-1, 1)))
    >>> layer(qa.encode(np.array([[[[1, 1], [-1, 1]]]]), values=(-1, 1)))
    array([[2]], dtype=int32)
    """

    weight: QuantArray
    requantize: Thresholds | None = None

    def __post_init__(self) -> None:
        _check_weight("Dense", self.weight, 2, "[o k]")

    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        rows, k = operand("Dense", "x", x), self.weight.shape[1]
        if rows.ndim > 2:
            if math.prod(rows.shape[1:]) != k:
                raise ValueError(f"Dense: x {rows.shape} must have the {k} elements a sample that weight takes")
            rows = rows.reshape(len(rows), k)
        return linear(rows, self.weight, requantize=self.requantize)

    def compact(self) -> Dense:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self, device: str) -> Dense:
        """The layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))

    @property
    def name(self) -> str:
        outputs, inputs = self.weight.shape
        return f"dense {inputs} -> {outputs}"

    def __repr__(self) -> str:
        outputs, inputs = self.weight.shape
        return f"Dense([n {inputs}] -> [n {outputs}], {laws(self)})"


@dataclass(frozen=True, eq=False)
class MaxPool2d:
    """`max_pool2d(x, size, ...)` as a layer, of packed arrays or dense results."""

    size: Pair
    stride: Pair | None = None
    padding: Padding = 0

    def __post_init__(self) -> None:
        checks.pair("MaxPool2d", "size", self.size, 1)

    @overload
    def __call__(self, x: QuantArray) -> QuantArray: ...
    @overload
    def __call__(self, x: Array) -> Array: ...
    def __call__(self, x: QuantArray | Array) -> QuantArray | Array:
        return max_pool2d(x, self.size, stride=self.stride, padding=self.padding)

    @property
    def name(self) -> str:
        height, width = checks.pair("MaxPool2d", "size", self.size, 1)
        return f"max_pool2d {height}x{width}"

    def __repr__(self) -> str:
        height, width = checks.pair("MaxPool2d", "size", self.size, 1)
        others = {"stride": self.stride, "padding": self.padding or None}
        return f"MaxPool2d({height}x{width}{''.join(f', {n}={v}' for n, v in others.items() if v is not None)})"


def laws(layer: Conv2d | Dense) -> str:
    """The laws of a layer's weight and result."""
    q, T = layer.weight, layer.requantize
    scaled = " with a scale" if q.dtype.is_integer and q.scale is not None else ""
    return f"weight={_law(q.dtype)}{scaled}, out={'dense' if T is None else _law(T.into)}"


def _law(dtype: DType) -> str:
    return f"{dtype.bits}-bit {dtype}"


def _check_weight(layer: str, weight: Any, ndim: int, axes: str) -> None:
    if not isinstance(weight, QuantArray) or weight.ndim != ndim or weight.axis != ndim - 1:
        packed = isinstance(weight, QuantArray)
        got = f"{weight.shape} packed on axis {weight.axis}" if packed else type(weight).__name__
        hint = likely_fix.layer_weight(weight, ndim)
        raise TypeError(f"{layer}: weight must be a QuantArray {axes} packed on its last axis, got {got}{hint}")
