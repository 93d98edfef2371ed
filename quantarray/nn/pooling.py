"""Layers of pools over lines, images and volumes, and over whole images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar

import numpy as np

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array
from ..core.format import locked
from ..core.hints import (
    DataFormat,
    Flags,
    LineFormat,
    LinePadding,
    Padding,
    Pair,
    Single,
    Triple,
    VolumeFormat,
    VolumePadding,
)
from ..ops.products import geometry
from ..ops.products.average_pooling import avg_pool1d, avg_pool2d, avg_pool3d
from ..ops.products.pooling import max_pool1d, max_pool2d, max_pool3d
from .named import named


class Pool:
    """A pool as a layer: the arguments of the function of its name."""

    axes: ClassVar[int]
    function: ClassVar[Callable[..., Any]]

    def __post_init__(self) -> None:
        layer: Any = self
        op = type(self).__name__
        size = geometry.numbers(op, "size", layer.size, 1, self.axes)
        stride = size if layer.stride is None else layer.stride
        geometry.check(op, stride, layer.padding, layer.dilation, self.axes)
        geometry.data_format(op, layer.data_format, self.axes)
        falling = checks.numbers(op, "falling", getattr(layer, "falling", False))
        if falling.dtype != np.bool_ or falling.ndim > 1:
            raise ValueError(f"{op}: falling must be a bool or one a channel, got {checks.kind(falling)}")
        if falling.ndim:
            object.__setattr__(layer, "falling", locked(falling.copy()))
        for flag in ("ceil_mode", "return_indices", "count_include_pad"):
            checks.flag(op, flag, getattr(layer, flag, False))
        check_thresholds(op, "requantize", layer.requantize, optional=True)

    def _pooled(self, x: Any) -> Any:
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "size"}  # type: ignore[arg-type]
        return type(self).function(x, self.size, **options)  # type: ignore[attr-defined]

    @property
    def _window(self) -> str:
        layer: Any = self
        return "x".join(map(str, geometry.numbers(type(self).__name__, "size", layer.size, 1, self.axes)))

    @property
    def name(self) -> str:
        return f"{type(self).function.__name__} {self._window}"

    @property
    def takes(self) -> str:
        layer: Any = self
        return image_text(layer.data_format)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._window}{others_text(self)})"


class _MaxPool(Pool):
    @named
    def __call__(self, x: QuantArray | Array) -> QuantArray | Array | tuple[QuantArray | Array, Array]:
        result: QuantArray | Array | tuple[QuantArray | Array, Array] = self._pooled(x)
        return result


class _AvgPool(Pool):
    @named
    def __call__(self, x: QuantArray | Array) -> Array | QuantArray:
        result: Array | QuantArray = self._pooled(x)
        return result


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool1d(_MaxPool):
    """`max_pool1d(x, size, ...)` as a layer, of packed arrays or dense results; a pair with `return_indices`."""

    axes = 1
    function = max_pool1d

    size: Single
    stride: Single | None = None
    padding: LinePadding = 0
    _: KW_ONLY
    dilation: Single = 1
    ceil_mode: bool = False
    return_indices: bool = False
    falling: Flags = False
    requantize: Thresholds | None = None
    data_format: LineFormat = "NWC"


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool2d(_MaxPool):
    """`max_pool2d(x, size, ...)` as a layer, of packed arrays or dense results; a pair with `return_indices`.

    In a `Sequential`, a convolution of integers before it and thresholds after it run as one: the convolution gives
    codes, and these are pooled.
    """

    axes = 2
    function = max_pool2d

    size: Pair
    stride: Pair | None = None
    padding: Padding = 0
    _: KW_ONLY
    dilation: Pair = 1
    ceil_mode: bool = False
    return_indices: bool = False
    falling: Flags = False
    requantize: Thresholds | None = None
    data_format: DataFormat = "NHWC"


@dataclass(frozen=True, eq=False, repr=False)
class MaxPool3d(_MaxPool):
    """`max_pool3d(x, size, ...)` as a layer, of packed arrays or dense results; a pair with `return_indices`."""

    axes = 3
    function = max_pool3d

    size: Triple
    stride: Triple | None = None
    padding: VolumePadding = 0
    _: KW_ONLY
    dilation: Triple = 1
    ceil_mode: bool = False
    return_indices: bool = False
    falling: Flags = False
    requantize: Thresholds | None = None
    data_format: VolumeFormat = "NDHWC"


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool1d(_AvgPool):
    """`avg_pool1d(x, size, ...)` as a layer: float32 means, or with `requantize` their codes."""

    axes = 1
    function = avg_pool1d

    size: Single
    stride: Single | None = None
    padding: LinePadding = 0
    _: KW_ONLY
    dilation: Single = 1
    ceil_mode: bool = False
    count_include_pad: bool = False
    requantize: Thresholds | None = None
    data_format: LineFormat = "NWC"


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool2d(_AvgPool):
    """`avg_pool2d(x, size, ...)` as a layer: float32 means, or with `requantize` their codes.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.AvgPool2d(2)(qa.encode(np.array([-1, 1, 1, 1]).reshape(1, 2, 2, 1), values=(-1, 1))).ravel()
    array([0.5], dtype=float32)
    """

    axes = 2
    function = avg_pool2d

    size: Pair
    stride: Pair | None = None
    padding: Padding = 0
    _: KW_ONLY
    dilation: Pair = 1
    ceil_mode: bool = False
    count_include_pad: bool = False
    requantize: Thresholds | None = None
    data_format: DataFormat = "NHWC"


@dataclass(frozen=True, eq=False, repr=False)
class AvgPool3d(_AvgPool):
    """`avg_pool3d(x, size, ...)` as a layer: float32 means, or with `requantize` their codes."""

    axes = 3
    function = avg_pool3d

    size: Triple
    stride: Triple | None = None
    padding: VolumePadding = 0
    _: KW_ONLY
    dilation: Triple = 1
    ceil_mode: bool = False
    count_include_pad: bool = False
    requantize: Thresholds | None = None
    data_format: VolumeFormat = "NDHWC"


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
        check_thresholds("GlobalAvgPool", "requantize", self.requantize, optional=True)

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
        return image_text(self.data_format)

    def __repr__(self) -> str:
        return f"GlobalAvgPool({others_text(self).removeprefix(', ')})"


def check_thresholds(op: str, name: str, value: Any, optional: bool = False) -> None:
    """Raise TypeError for what is no `Thresholds`."""
    if not isinstance(value, Thresholds) and not (optional and value is None):
        raise TypeError(f"{op}: {name} must be a Thresholds{' or None' * optional}, got {checks.kind(value)}")


def image_text(data_format: str) -> str:
    """Write the axes of images of a data format.

    >>> image_text("NCHW")
    '[n c h w]'
    """
    return f"[{' '.join(data_format.lower())}]"


def others_text(layer: Any) -> str:
    """Write the arguments that have other values than their defaults, and the codes of the result."""
    others = "".join(
        f", {f.name}={v}"
        for f in fields(layer)
        if f.name not in ("size", "falling", "requantize") and (v := getattr(layer, f.name)) != f.default
    )
    others += ", falling" * bool(np.any(getattr(layer, "falling", False)))
    T = getattr(layer, "requantize", None)
    return others if T is None else f"{others}, out={T.into.bits}-bit {T.into}"
