"""Layers without weights: pooling, thresholds, functions of levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, overload

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType
from ..core.format import locked
from ..core.hints import DataFormat, Padding, Pair
from ..ops.elementwise.mapping import map as map_levels
from ..ops.products import geometry
from ..ops.products.pooling import avg_pool2d, max_pool2d
from .named import named


@dataclass(frozen=True, eq=False)
class MaxPool2d:
    """`max_pool2d(x, size, ...)` as a layer, of packed arrays or dense results."""

    size: Pair
    stride: Pair | None = None
    padding: Padding = 0
    _: KW_ONLY
    data_format: DataFormat = "NHWC"

    def __post_init__(self) -> None:
        _check_window(self)

    @overload
    def __call__(self, x: QuantArray) -> QuantArray: ...
    @overload
    def __call__(self, x: Array) -> Array: ...
    @named
    def __call__(self, x: QuantArray | Array) -> QuantArray | Array:
        return max_pool2d(x, self.size, stride=self.stride, padding=self.padding, data_format=self.data_format)

    @property
    def name(self) -> str:
        return f"max_pool2d {_size(self)}"

    @property
    def takes(self) -> str:
        return _image(self.data_format)

    def __repr__(self) -> str:
        return f"MaxPool2d({_size(self)}{_others(self)})"


@dataclass(frozen=True, eq=False)
class AvgPool2d:
    """`avg_pool2d(x, size, ...)` as a layer: float32 means, or with `requantize` their codes.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.AvgPool2d(2)(qa.encode(np.array([-1, 1, 1, 1]).reshape(1, 2, 2, 1), values=(-1, 1))).ravel()
    array([0.5], dtype=float32)
    """

    size: Pair
    stride: Pair | None = None
    padding: Padding = 0
    _: KW_ONLY
    requantize: Thresholds | None = None
    data_format: DataFormat = "NHWC"

    def __post_init__(self) -> None:
        _check_window(self)
        _check_thresholds("AvgPool2d", "requantize", self.requantize, optional=True)

    @named
    def __call__(self, x: QuantArray | Array) -> Array | QuantArray:
        return avg_pool2d(
            x,
            self.size,
            stride=self.stride,
            padding=self.padding,
            requantize=self.requantize,
            data_format=self.data_format,
        )

    @property
    def name(self) -> str:
        return f"avg_pool2d {_size(self)}"

    @property
    def takes(self) -> str:
        return _image(self.data_format)

    def __repr__(self) -> str:
        return f"AvgPool2d({_size(self)}{_others(self)})"


@dataclass(frozen=True, eq=False)
class GlobalAvgPool:
    """A mean of each channel over the image, [n h w c] -> [n c]: `avg_pool2d` with a window of the whole image.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.GlobalAvgPool()(qa.encode(np.arange(8).reshape(1, 2, 2, 2), values=range(8)))
    array([[3., 4.]], dtype=float32)
    """

    _: KW_ONLY
    requantize: Thresholds | None = None
    data_format: DataFormat = "NHWC"

    def __post_init__(self) -> None:
        checks.choice("GlobalAvgPool", "data_format", self.data_format, ("NHWC", "NCHW"))
        _check_thresholds("GlobalAvgPool", "requantize", self.requantize, optional=True)

    @named
    def __call__(self, x: QuantArray | Array) -> Array | QuantArray:
        q: Any = x if isinstance(x, QuantArray) else checks.anywhere("GlobalAvgPool", "x", x)
        first = 1 if self.data_format == "NHWC" else 2
        image = q.ndim == 4  # of other x, avg_pool2d says what is wrong
        size = (q.shape[first], q.shape[first + 1]) if image else (1, 1)
        means: Any = avg_pool2d(q, size, requantize=self.requantize, data_format=self.data_format)
        by_channel: Array | QuantArray = means[:, 0, 0] if first == 1 else means[:, :, 0, 0]
        return by_channel

    @property
    def name(self) -> str:
        return "global_avg_pool"

    @property
    def takes(self) -> str:
        return _image(self.data_format)

    def __repr__(self) -> str:
        return f"GlobalAvgPool({_others(self).removeprefix(', ')})"


@dataclass(frozen=True, eq=False)
class Threshold:
    """`thresholds(x, axis)` as a layer: the codes of a dense result, such as a residual sum, whose channels are `axis`.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.Threshold(qa.Thresholds([0, 5]))(np.array([[-3], [3], [9]])).codes().ravel()
    array([0, 1, 2], dtype=uint8)
    """

    thresholds: Thresholds
    axis: int = -1

    def __post_init__(self) -> None:
        _check_thresholds("Threshold", "thresholds", self.thresholds)
        checks.integer("Threshold", "axis", self.axis, -(2**31), 2**31)

    @named
    def __call__(self, x: Any) -> QuantArray:
        return self.thresholds(x, self.axis)

    @property
    def name(self) -> str:
        into = self.thresholds.into
        return f"threshold -> {into.bits}-bit {into}"

    @property
    def takes(self) -> str:
        channels = self.thresholds.channels
        return f"a dense result of {'any number of' if channels is None else channels} channels on axis {self.axis}"

    def __repr__(self) -> str:
        return f"Threshold({self.thresholds!r}{'' if self.axis == -1 else f', axis={self.axis}'})"


@dataclass(frozen=True, eq=False)
class Map:
    """`map(f, x)` as a layer: f of every element of a packed array, evaluated once a level.

    of: the integer dtype of the layer's inputs. With it f is evaluated when the layer is made, and no more: such a
    layer can be saved, as its values; other inputs are refused.

    >>> import quantarray as qa
    >>> square = qa.nn.Map(lambda v: v * v, of=qa.ternary)
    >>> square(qa.encode([-1, 0, 1], values=(-1, 0, 1))).dequantize(), square.values
    (array([1, 0, 1], dtype=int32), array([1, 0, 1]))
    """

    f: Callable[[Array], Any]
    of: DType | None = None
    values: Array | None = field(default=None, init=False, repr=False)  # of each level of `of`

    def __post_init__(self) -> None:
        checks.function("Map", "f", self.f)
        if self.of is None:
            return
        if not isinstance(self.of, DType) or self.of.levels is None:
            raise TypeError(f"Map: of must be an integer dtype, such as quantarray.uint2, got {self.of!r}")
        values = checks.numbers("Map", "the result of f", self.f(np.array(self.of.levels, np.int64)))
        if values.shape != (self.of.n_levels,):
            raise ValueError(f"Map: f must give one number for each of {self.of.n_levels} levels, got {values.shape}")
        checks.finite("Map", "the result of f", values)
        object.__setattr__(self, "values", locked(values.copy()))

    @named
    def __call__(self, x: QuantArray) -> QuantArray:
        q = checks.packed("Map", "x", x)
        if self.of is None:
            return map_levels(self.f, q)
        if q.dtype != self.of or q.constants.shapes:
            scaled = " with constants" if q.constants.shapes else ""
            raise ValueError(f"Map: x must be {self.of}, got {q.dtype}{scaled}; without of= a Map takes any dtype")
        return map_levels(lambda levels: self.values.reshape(levels.shape), q)  # type: ignore[union-attr]

    @property
    def name(self) -> str:
        return f"map {getattr(self.f, '__name__', type(self.f).__name__)}"

    @property
    def takes(self) -> str:
        return f"a packed array{'' if self.of is None else f' of {self.of}'}"

    def __repr__(self) -> str:
        return f"Map({self.name.removeprefix('map ')}{'' if self.of is None else f', of={self.of}'})"


def _check_window(layer: MaxPool2d | AvgPool2d) -> None:
    op = type(layer).__name__
    size = checks.pair(op, "size", layer.size, 1)
    geometry.check(op, size if layer.stride is None else layer.stride, layer.padding)
    checks.choice(op, "data_format", layer.data_format, ("NHWC", "NCHW"))


def _check_thresholds(op: str, name: str, value: Any, optional: bool = False) -> None:
    if not isinstance(value, Thresholds) and not (optional and value is None):
        raise TypeError(f"{op}: {name} must be a Thresholds{' or None' * optional}, got {checks.kind(value)}")


def _size(layer: MaxPool2d | AvgPool2d) -> str:
    height, width = checks.pair(type(layer).__name__, "size", layer.size, 1)
    return f"{height}x{width}"


def _image(data_format: DataFormat) -> str:
    return "[n h w c]" if data_format == "NHWC" else "[n c h w]"


def _others(layer: Any) -> str:
    """Write the arguments that have other values than their defaults."""
    usual = {"stride": None, "padding": 0, "data_format": "NHWC"}
    others = "".join(f", {n}={v}" for n, usually in usual.items() if (v := getattr(layer, n, usually)) != usually)
    T = getattr(layer, "requantize", None)
    return others if T is None else f"{others}, out={T.into.bits}-bit {T.into}"
