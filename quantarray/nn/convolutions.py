"""Layers of convolutions, plain and transposed, over one to three axes of an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

from ..arrays import checks
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array
from ..core.hints import (
    Bytes,
    DataFormat,
    LineFormat,
    LinePadding,
    OutType,
    Padding,
    Pair,
    Single,
    Triple,
    Values,
    VolumeFormat,
    VolumePadding,
)
from ..ops.products import geometry
from ..ops.products.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from ..ops.products.convolution import conv2d
from ..ops.products.convolution_1d_3d import conv1d, conv3d
from .layers import check_result, check_weight, laws
from .named import named

_L = TypeVar("_L", bound="Convolution")
_USUAL = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1, "pad_value": 0}


class Convolution:
    """A convolution as a layer: packed weights, and the arguments of the function of its name."""

    axes: ClassVar[int]
    function: ClassVar[Callable[..., Any]]
    weight: QuantArray

    def __post_init__(self) -> None:
        layer: Any = self
        op = type(self).__name__
        geometry.data_format(op, layer.data_format, self.axes)
        checks.integer(op, "groups", layer.groups, 1)
        self._check_weight(layer.groups)
        padding = 0 if layer.padding == "same" else layer.padding
        geometry.check(op, layer.stride, padding, layer.dilation, self.axes)
        geometry.numbers(op, "output_padding", getattr(self, "output_padding", 0), 0, self.axes)
        checks.number(op, "pad_value", getattr(self, "pad_value", 0))
        checks.flag(op, "flip_kernel", getattr(self, "flip_kernel", False))
        checks.flag(op, "return_sum", getattr(self, "return_sum", False))
        check_result(self, op, self.weight.shape[0])

    def _check_weight(self, groups: int) -> None:
        op, at, ndim, taps = type(self).__name__, self._channels, self.axes + 2, geometry.LAYOUTS[self.axes].taps
        shape = f"[o {taps} c/groups]" if at > 1 else f"[o c/groups {taps}]"
        depthwise = isinstance(self.weight, QuantArray) and self.weight.ndim == ndim and self.weight.shape[at] == 1
        plain = at > 1 and groups == 1
        check_weight(op, self.weight, ndim, (at, 0) if depthwise else (at,), f"[o {taps} c]" if plain else shape)
        outputs = self.weight.shape[0]
        if outputs % groups:
            raise ValueError(f"{op}: groups must divide the {outputs} outputs of weight, got {groups}")

    @named
    def __call__(
        self, x: QuantArray | Bytes, residual: QuantArray | Array | None = None
    ) -> Array | QuantArray | tuple[Array, QuantArray]:
        self._check_layout(x)
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weight"}  # type: ignore[arg-type]
        if residual is not None:
            options["residual"] = residual
        result: Array | QuantArray | tuple[Array, QuantArray] = type(self).function(x, self.weight, **options)
        return result

    @property
    def _channels(self) -> int:
        """Return the axis of channels."""
        layer: Any = self
        return 1 if layer.data_format == geometry.LAYOUTS[self.axes].first else self.axes + 1

    def _check_layout(self, x: Any) -> None:
        """Raise ValueError for images of the other data_format: the weight fits the layer, so x does not."""
        at, layout, inputs = self._channels, geometry.LAYOUTS[self.axes], self._sizes[2]
        other, order = (layout.first, geometry.to_last) if at > 1 else (layout.last, geometry.to_first)
        shape, other_at = getattr(x, "shape", ()), self.axes + 2 - at
        if len(shape) == self.axes + 2 and shape[at] != inputs == shape[other_at]:
            raise ValueError(f"x {tuple(shape)} looks like {other}; pass x.transpose{order(self.axes)}")

    def compact(self: _L) -> _L:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self: _L, device: str) -> _L:
        """Return the layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))  # type: ignore[type-var]

    @property
    def _sizes(self) -> tuple[int, tuple[int, ...], int]:
        """Return outputs, lengths of a window, inputs."""
        layer: Any = self
        shape = self.weight.shape
        taps = shape[1:-1] if self._channels > 1 else shape[2:]
        return shape[0], tuple(taps), shape[self._channels] * layer.groups

    @property
    def _window(self) -> str:
        return "x".join(map(str, self._sizes[1]))

    @property
    def name(self) -> str:
        outputs, _, inputs = self._sizes
        return f"{type(self).function.__name__} {self._window} {inputs} -> {outputs}"

    @property
    def takes(self) -> str:
        return self._image(self._sizes[2])

    def _image(self, channels: int) -> str:
        letters = geometry.LAYOUTS[self.axes].letters
        return f"[n {letters} {channels}]" if self._channels > 1 else f"[n {channels} {letters}]"

    def __repr__(self) -> str:
        layer: Any = self
        usual = _USUAL | {"data_format": geometry.LAYOUTS[self.axes].last}
        others = "".join(f"{n}={v}, " for n, usually in usual.items() if (v := getattr(self, n, usually)) != usually)
        others += "bias, " * (layer.bias is not None) + "flip_kernel, " * getattr(self, "flip_kernel", False)
        result = self._image(self._sizes[0])
        return f"{type(self).__name__}({self.takes} -> {result}, {self._window}, {others}{laws(self)})"


@dataclass(frozen=True, eq=False, repr=False)
class Conv1d(Convolution):
    """`conv1d(x, weight, ...)` as a layer: x [n w c] packed, or int8/uint8, by weight [o k c/groups].

    Arguments as in `quantarray.conv1d`; errors and results as in `Conv2d`.

    >>> import quantarray as qa, numpy as np
    >>> layer = qa.nn.Conv1d(qa.encode(np.ones((2, 3, 8), int), values=(-1, 1)), bias=[0, -2], padding="same")
    >>> layer(qa.encode(np.ones((1, 5, 8), int), values=(-1, 1)))[0, :2]
    array([[16, 14],
           [24, 22]], dtype=int32)
    """

    axes = 1
    function = staticmethod(conv1d)

    weight: QuantArray
    _: KW_ONLY
    bias: Values | None = None
    stride: Single = 1
    padding: LinePadding = 0
    dilation: Single = 1
    groups: int = 1
    pad_value: float = 0
    requantize: Thresholds | None = None
    out_dtype: OutType = None
    data_format: LineFormat = "NWC"
    flip_kernel: bool = False
    return_sum: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Conv2d(Convolution):
    """`conv2d(x, weight, ...)` as a layer: x [n h w c] packed, or int8/uint8, by weight [o kh kw c/groups].

    Returns the dense result, or with `requantize` its packed codes. `layer(x, residual)` adds a shortcut before the
    thresholds, and with `return_sum` returns the sum too. Arguments as in `quantarray.conv2d`: with
    `data_format="NCHW"` x is [n c h w] and weight [o c/groups kh kw].

    Raises TypeError or ValueError for arguments that no image fits; errors of a call name the layer.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.ones((2, 3, 3, 8), int), values=(-1, 1))
    >>> layer = qa.nn.Conv2d(w, bias=[0, -2], padding=1, dilation=2)
    >>> layer(qa.encode(np.ones((1, 5, 5, 8), int), values=(-1, 1)))[0, 1, 1]
    array([72, 70], dtype=int32)
    """

    axes = 2
    function = staticmethod(conv2d)

    weight: QuantArray
    _: KW_ONLY
    bias: Values | None = None
    stride: Pair = 1
    padding: Padding = 0
    dilation: Pair = 1
    groups: int = 1
    pad_value: float = 0
    requantize: Thresholds | None = None
    out_dtype: OutType = None
    data_format: DataFormat = "NHWC"
    flip_kernel: bool = False
    return_sum: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Conv3d(Convolution):
    """`conv3d(x, weight, ...)` as a layer: x [n d h w c] packed, or int8/uint8, by weight [o kd kh kw c/groups].

    Arguments as in `quantarray.conv3d`; errors and results as in `Conv2d`.

    >>> import quantarray as qa, numpy as np
    >>> layer = qa.nn.Conv3d(qa.encode(np.ones((2, 2, 3, 3, 8), int), values=(-1, 1)), bias=[0, -2])
    >>> layer(qa.encode(np.ones((1, 2, 3, 3, 8), int), values=(-1, 1))).ravel()
    array([144, 142], dtype=int32)
    """

    axes = 3
    function = staticmethod(conv3d)

    weight: QuantArray
    _: KW_ONLY
    bias: Values | None = None
    stride: Triple = 1
    padding: VolumePadding = 0
    dilation: Triple = 1
    groups: int = 1
    pad_value: float = 0
    requantize: Thresholds | None = None
    out_dtype: OutType = None
    data_format: VolumeFormat = "NDHWC"
    flip_kernel: bool = False
    return_sum: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class ConvTranspose1d(Convolution):
    """`conv_transpose1d(x, weight, ...)` as a layer: x [n w c] packed, or int8/uint8, by weight
    [o k c/groups].

    Arguments as in `quantarray.conv_transpose1d`; errors and results as in `Conv1d`.
    """

    axes = 1
    function = staticmethod(conv_transpose1d)

    weight: QuantArray
    _: KW_ONLY
    bias: Values | None = None
    stride: Single = 1
    padding: LinePadding = 0
    output_padding: Single = 0
    dilation: Single = 1
    groups: int = 1
    requantize: Thresholds | None = None
    out_dtype: OutType = None
    data_format: LineFormat = "NWC"


@dataclass(frozen=True, eq=False, repr=False)
class ConvTranspose2d(Convolution):
    """`conv_transpose2d(x, weight, ...)` as a layer: x [n h w c] packed, or int8/uint8, by weight
    [o kh kw c/groups].

    Arguments as in `quantarray.conv_transpose2d`; errors and results as in `Conv2d`.

    >>> import quantarray as qa, numpy as np
    >>> layer = qa.nn.ConvTranspose2d(qa.encode(np.ones((2, 2, 2, 8), int), values=(-1, 1)), stride=2)
    >>> layer(qa.encode(np.ones((1, 5, 4, 8), int), values=(-1, 1))).shape
    (1, 10, 8, 2)
    """

    axes = 2
    function = staticmethod(conv_transpose2d)

    weight: QuantArray
    _: KW_ONLY
    bias: Values | None = None
    stride: Pair = 1
    padding: Padding = 0
    output_padding: Pair = 0
    dilation: Pair = 1
    groups: int = 1
    requantize: Thresholds | None = None
    out_dtype: OutType = None
    data_format: DataFormat = "NHWC"


@dataclass(frozen=True, eq=False, repr=False)
class ConvTranspose3d(Convolution):
    """`conv_transpose3d(x, weight, ...)` as a layer: x [n d h w c] packed, or int8/uint8, by weight
    [o kd kh kw c/groups].

    Arguments as in `quantarray.conv_transpose3d`; errors and results as in `Conv3d`.
    """

    axes = 3
    function = staticmethod(conv_transpose3d)

    weight: QuantArray
    _: KW_ONLY
    bias: Values | None = None
    stride: Triple = 1
    padding: VolumePadding = 0
    output_padding: Triple = 0
    dilation: Triple = 1
    groups: int = 1
    requantize: Thresholds | None = None
    out_dtype: OutType = None
    data_format: VolumeFormat = "NDHWC"
