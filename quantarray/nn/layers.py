"""Layers of products: packed weights and the arguments of the function that uses them."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from ..arrays import checks, likely_fix
from ..arrays.array import QuantArray
from ..arrays.thresholds import Thresholds
from ..core.dtypes import Array, DType
from ..core.format import locked
from ..core.hints import Bytes, DataFormat, OutType, Padding, Pair, Values
from ..ops.products import epilogue, geometry
from ..ops.products.convolution import conv2d
from ..ops.products.matrix_product import linear
from ..ops.products.operand import bias_values, operand
from .named import named


@dataclass(frozen=True, eq=False)
class Conv2d:
    """`conv2d(x, weight, ...)` as a layer: x [n h w c] packed, or int8/uint8, by weight [o kh kw c/groups].

    Returns the dense result, or with `requantize` its packed codes. Arguments as in `quantarray.conv2d`: with
    `data_format="NCHW"` x is [n c h w] and weight [o c/groups kh kw].

    Raises TypeError or ValueError for arguments that no image fits; errors of a call name the layer.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.ones((2, 3, 3, 8), int), values=(-1, 1))
    >>> layer = qa.nn.Conv2d(w, bias=[0, -2], padding=1, dilation=2)
    >>> layer(qa.encode(np.ones((1, 5, 5, 8), int), values=(-1, 1)))[0, 1, 1]
    array([72, 70], dtype=int32)
    """

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

    def __post_init__(self) -> None:
        op = "Conv2d"
        checks.choice(op, "data_format", self.data_format, ("NHWC", "NCHW"))
        checks.integer(op, "groups", self.groups, 1)
        self._check_weight()
        geometry.check(op, self.stride, self.padding, self.dilation)
        checks.number(op, "pad_value", self.pad_value)
        checks.flag(op, "flip_kernel", self.flip_kernel)
        _check_result(self, op, self.weight.shape[0])

    def _check_weight(self) -> None:
        at, axes = (3, "[o kh kw c/groups]") if self.data_format == "NHWC" else (1, "[o c/groups kh kw]")
        depthwise = isinstance(self.weight, QuantArray) and self.weight.ndim == 4 and self.weight.shape[at] == 1
        plain = at == 3 and self.groups == 1
        _check_weight("Conv2d", self.weight, 4, (at, 0) if depthwise else (at,), "[o kh kw c]" if plain else axes)
        outputs = self.weight.shape[0]
        if outputs % self.groups:
            raise ValueError(f"Conv2d: groups must divide the {outputs} outputs of weight, got {self.groups}")

    @named
    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        self._check_layout(x)
        return conv2d(
            x,
            self.weight,
            bias=self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            pad_value=self.pad_value,
            requantize=self.requantize,
            out_dtype=self.out_dtype,
            data_format=self.data_format,
            flip_kernel=self.flip_kernel,
        )

    def _check_layout(self, x: Any) -> None:
        """Raise ValueError for images of the other data_format: the weight fits the layer, so x does not."""
        at, other, order = (3, "NCHW", (0, 2, 3, 1)) if self.data_format == "NHWC" else (1, "NHWC", (0, 3, 1, 2))
        shape, inputs = getattr(x, "shape", ()), self.weight.shape[at] * self.groups
        if len(shape) == 4 and shape[at] != inputs == shape[4 - at]:
            raise ValueError(f"x {tuple(shape)} looks like {other}; pass x.transpose{order}")

    def compact(self) -> Conv2d:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self, device: str) -> Conv2d:
        """Return the layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """Return outputs, height and width of a window, inputs."""
        channels_last = self.data_format == "NHWC"
        outputs, *rest = self.weight.shape if channels_last else [self.weight.shape[i] for i in (0, 2, 3, 1)]
        height, width, each = rest
        return outputs, height, width, each * self.groups

    @property
    def name(self) -> str:
        outputs, height, width, inputs = self._sizes
        return f"conv2d {height}x{width} {inputs} -> {outputs}"

    @property
    def takes(self) -> str:
        return _image(self._sizes[3], self.data_format)

    def __repr__(self) -> str:
        outputs, height, width, _ = self._sizes
        usual = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "pad_value": 0, "data_format": "NHWC"}
        others = "".join(f"{n}={v}, " for n, usually in usual.items() if (v := getattr(self, n)) != usually)
        others += "bias, " * (self.bias is not None) + "flip_kernel, " * self.flip_kernel
        return f"Conv2d({self.takes} -> {_image(outputs, self.data_format)}, {height}x{width}, {others}{laws(self)})"


@dataclass(frozen=True, eq=False)
class Dense:
    """`linear(x, weight, ...)` as a layer: x is flattened, channels last, to [n k] and multiplied by weight [o k].

    Arguments as in `quantarray.linear`; errors of a call name the layer.

    >>> import quantarray as qa, numpy as np
    >>> layer = qa.nn.Dense(qa.encode([[1, 1, -1, -1]], values=(-1, 1)), bias=[5])
    >>> layer(qa.encode(np.array([[[[1, 1], [-1, 1]]]]), values=(-1, 1)))
    array([[7]], dtype=int32)
    """

    weight: QuantArray
    requantize: Thresholds | None = None
    _: KW_ONLY
    bias: Values | None = None
    out_dtype: OutType = None

    def __post_init__(self) -> None:
        _check_weight("Dense", self.weight, 2, (1,), "[o k]")
        _check_result(self, "Dense", self.weight.shape[0])

    @named
    def __call__(self, x: QuantArray | Bytes) -> Array | QuantArray:
        rows, k = operand("Dense", "x", x), self.weight.shape[1]
        if rows.ndim > 2:
            if math.prod(rows.shape[1:]) != k:
                raise ValueError(f"Dense: x {rows.shape} must have the {k} elements a sample that weight takes")
            rows = rows.reshape(len(rows), k)
        return linear(rows, self.weight, bias=self.bias, requantize=self.requantize, out_dtype=self.out_dtype)

    def compact(self) -> Dense:
        """Keep the weight once: from the next call on as its kernel reads it, and no longer as words besides."""
        self.weight._keep_once()
        return self

    def to_device(self, device: str) -> Dense:
        """Return the layer with its weight on a device."""
        return replace(self, weight=self.weight.to_device(device))

    @property
    def name(self) -> str:
        outputs, inputs = self.weight.shape
        return f"dense {inputs} -> {outputs}"

    @property
    def takes(self) -> str:
        return f"[n {self.weight.shape[1]}]"

    def __repr__(self) -> str:
        others = "bias, " * (self.bias is not None)
        return f"Dense({self.takes} -> [n {self.weight.shape[0]}], {others}{laws(self)})"


def _image(channels: int, data_format: DataFormat) -> str:
    return f"[n h w {channels}]" if data_format == "NHWC" else f"[n {channels} h w]"


def laws(layer: Conv2d | Dense) -> str:
    """Describe the laws of a layer's weight and result."""
    q, T = layer.weight, layer.requantize
    scaled = " with a scale" if q.dtype.is_integer and q.scale is not None else ""
    return f"weight={_law(q.dtype)}{scaled}, out={'dense' if T is None else _law(T.into)}"


def _law(dtype: DType) -> str:
    return f"{dtype.bits}-bit {dtype}"


def _check_weight(layer: str, weight: Any, ndim: int, axes: tuple[int, ...], shape: str) -> None:
    if not isinstance(weight, QuantArray) or weight.ndim != ndim or weight.axis not in axes:
        packed = isinstance(weight, QuantArray)
        got = f"{weight.shape} packed on axis {weight.axis}" if packed else type(weight).__name__
        hint = likely_fix.layer_weight(weight, ndim) if axes[0] == ndim - 1 else ""
        where = "its last axis" if axes[0] == ndim - 1 else f"axis {axes[0]}"
        raise TypeError(
            f"{layer}: weight must be a QuantArray {shape or '[o kh kw c]'} packed on {where}, got {got}{hint}"
        )


def _check_result(layer: Conv2d | Dense, op: str, outputs: int) -> None:
    """Check what is made of the sums, and keep the bias as int64 or float32 [outputs] that cannot change."""
    epilogue.check(op, layer.requantize, outputs)
    if layer.out_dtype is not None:
        checks.dtype(op, "out_dtype", layer.out_dtype, (np.int32, np.int64, np.float32))
    if layer.bias is not None:
        bias = bias_values(op, layer.bias, outputs)
        object.__setattr__(layer, "bias", locked(np.array(bias)))
