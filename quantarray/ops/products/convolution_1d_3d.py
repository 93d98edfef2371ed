"""Convolution of lines and of volumes."""

from __future__ import annotations

from typing import Any, Literal, Unpack, overload

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.hints import Bytes, LineFormat, LinePadding, OutType, Single, Triple, Values, VolumeFormat, VolumePadding
from .conv_job import Options, Shortcut
from .convolution import convolve
from .options import ConvOptions


@overload
def conv1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: None = None,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Single, LinePadding, LineFormat]],
) -> Array: ...
@overload
def conv1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Single, LinePadding, LineFormat]],
) -> QuantArray: ...
@overload
def conv1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    residual: QuantArray | Array,
    return_sum: Literal[True],
    **options: Unpack[ConvOptions[Single, LinePadding, LineFormat]],
) -> tuple[Array, QuantArray]: ...
@overload
def conv1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds | None,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Single, LinePadding, LineFormat]],
) -> Array | QuantArray: ...
def conv1d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Single = 1,
    padding: LinePadding = 0,
    dilation: Single = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: LineFormat = "NWC",
    flip_kernel: bool = False,
    residual: QuantArray | Array | None = None,
    return_sum: bool = False,
    out: Array | None = None,
) -> Any:
    """1-D convolution of packed arrays: `conv2d` of images of one row.

        out[n, j, o] = sum_{b, c} x[n, j*stride + b*dilation - before, c] * w[o, b, c] + bias[o]

    x: QuantArray [n w c] packed on c, or an int8/uint8 array. w: QuantArray [o k c/groups] packed on its last axis;
    with groups = c packed on o. `data_format="NCW"` has x [n c w] and w [o c/groups k], packed on the same axes.
    padding: an integer, (before, after), "same" or "valid". Other arguments and results as in `conv2d`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.ones((1, 4, 64), int), values=(-1, 1))
    >>> w = qa.encode(np.ones((1, 3, 64), int), values=(-1, 1))
    >>> qa.conv1d(x, w, padding=(2, 0)).ravel()
    array([ 64, 128, 192, 192], dtype=int32)
    """
    options = Options(stride, padding, dilation, groups, pad_value, requantize, out_dtype, data_format, flip_kernel)
    return convolve(1, x, w, bias, options, out, Shortcut(residual, return_sum))


@overload
def conv3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: None = None,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Triple, VolumePadding, VolumeFormat]],
) -> Array: ...
@overload
def conv3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Triple, VolumePadding, VolumeFormat]],
) -> QuantArray: ...
@overload
def conv3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    residual: QuantArray | Array,
    return_sum: Literal[True],
    **options: Unpack[ConvOptions[Triple, VolumePadding, VolumeFormat]],
) -> tuple[Array, QuantArray]: ...
@overload
def conv3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds | None,
    residual: QuantArray | Array | None = None,
    return_sum: Literal[False] = False,
    **options: Unpack[ConvOptions[Triple, VolumePadding, VolumeFormat]],
) -> Array | QuantArray: ...
def conv3d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Triple = 1,
    padding: VolumePadding = 0,
    dilation: Triple = 1,
    groups: int = 1,
    pad_value: float = 0,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: VolumeFormat = "NDHWC",
    flip_kernel: bool = False,
    residual: QuantArray | Array | None = None,
    return_sum: bool = False,
    out: Array | None = None,
) -> Any:
    """3-D convolution of packed arrays, as of videos and scans.

        out[n, f, i, j, o] = sum_{e, a, b, c} x[n, f*sd + e*dd - front, i*sh + a*dh - top, j*sw + b*dw - left, c]
                             * w[o, e, a, b, c] + bias[o]

    x: QuantArray [n d h w c] packed on c, or an int8/uint8 array. w: QuantArray [o kd kh kw c/groups] packed on its
    last axis; with groups = c packed on o. `data_format="NCDHW"` has x [n c d h w] and w [o c/groups kd kh kw], packed
    on the same axes. stride, dilation: an integer or (depth, height, width). padding: an integer, one for each axis,
    ((front, back), (top, bottom), (left, right)), "same" or "valid". Other arguments and results as in `conv2d`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.ones((1, 2, 3, 3, 64), int), values=(-1, 1))
    >>> w = qa.encode(np.ones((1, 2, 3, 3, 64), int), values=(-1, 1))
    >>> qa.conv3d(x, w, padding=(0, 1, 1))[0, 0, :, :, 0]
    array([[ 512,  768,  512],
           [ 768, 1152,  768],
           [ 512,  768,  512]], dtype=int32)
    """
    options = Options(stride, padding, dilation, groups, pad_value, requantize, out_dtype, data_format, flip_kernel)
    return convolve(3, x, w, bias, options, out, Shortcut(residual, return_sum))
