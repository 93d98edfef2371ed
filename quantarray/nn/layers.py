"""Layers: packed weights and the arguments of the function that uses them."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from ..array import QuantArray
from ..ops import checks
from ..ops.convolution import conv2d
from ..ops.linalg import linear
from ..ops.operand import operand
from ..ops.pooling import max_pool2d
from ..thresholds import Thresholds


@dataclass(frozen=True, eq=False)
class Conv2d:
    """`conv2d(x, weight, ...)` as a layer: x [n h w c] packed, or int8/uint8, by weight [o kh kw c].

    Returns the dense result, or with `requantize` its packed codes. Arguments as in `quantarray.conv2d`.
    """

    weight: QuantArray
    _: KW_ONLY
    stride: Any = 1
    padding: Any = 0
    pad_value: float = 0
    requantize: Thresholds | None = None

    def __post_init__(self) -> None:
        _check_weight("Conv2d", self.weight, 4, "[o kh kw c]")

    def __call__(self, x: Any) -> Any:
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
        outputs, height, width, _ = self.weight.shape
        return f"conv2d {height}x{width}, {outputs}"


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

    def __call__(self, x: Any) -> Any:
        x, k = operand("Dense", "x", x), self.weight.shape[1]
        if x.ndim > 2:
            if math.prod(x.shape[1:]) != k:
                raise ValueError(f"Dense: x {x.shape} must have the {k} elements a sample that weight takes")
            x = x.reshape(len(x), k)
        return linear(x, self.weight, requantize=self.requantize)

    def compact(self) -> Dense:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self, device: str) -> Dense:
        """The layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))

    @property
    def name(self) -> str:
        return f"dense, {self.weight.shape[0]}"


@dataclass(frozen=True, eq=False)
class MaxPool2d:
    """`max_pool2d(x, size, ...)` as a layer."""

    size: Any
    stride: Any = None
    padding: Any = 0

    def __post_init__(self) -> None:
        checks.pair("MaxPool2d", "size", self.size, 1)

    def __call__(self, x: QuantArray) -> QuantArray:
        return max_pool2d(x, self.size, stride=self.stride, padding=self.padding)

    @property
    def name(self) -> str:
        height, width = checks.pair("MaxPool2d", "size", self.size, 1)
        return f"max_pool2d {height}x{width}"


def _check_weight(layer: str, weight: Any, ndim: int, axes: str) -> None:
    if not isinstance(weight, QuantArray) or weight.ndim != ndim or weight.axis != ndim - 1:
        packed = isinstance(weight, QuantArray)
        got = f"{weight.shape} packed on axis {weight.axis}" if packed else type(weight).__name__
        raise TypeError(f"{layer}: weight must be a QuantArray {axes} packed on its last axis, got {got}")
