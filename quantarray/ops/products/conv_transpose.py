"""Transposed convolutions of lines, images and volumes."""

from __future__ import annotations

from typing import Any, Unpack, overload

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.hints import (
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
from .conv_transpose_prepare import Transposed, convolve_transposed
from .options import TransposedOptions


@overload
def conv_transpose1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: None = None,
    **options: Unpack[TransposedOptions[Single, LinePadding, LineFormat]],
) -> Array: ...
@overload
def conv_transpose1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    **options: Unpack[TransposedOptions[Single, LinePadding, LineFormat]],
) -> QuantArray: ...
@overload
def conv_transpose1d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds | None,
    **options: Unpack[TransposedOptions[Single, LinePadding, LineFormat]],
) -> Array | QuantArray: ...
def conv_transpose1d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Single = 1,
    padding: LinePadding = 0,
    output_padding: Single = 0,
    dilation: Single = 1,
    groups: int = 1,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: LineFormat = "NWC",
    flip_kernel: bool = False,
    out: Array | None = None,
) -> Any:
    """Convolve transposed over lines x [n w c]: arguments and results as in `conv_transpose2d` and `conv1d`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([1, -1, 1]).reshape(1, 3, 1), values=(-1, 1))
    >>> qa.conv_transpose1d(x, qa.encode(np.ones((1, 3, 1), int), values=(-1, 1)), stride=2).ravel()
    array([ 1,  1,  0, -1,  0,  1,  1], dtype=int32)
    """
    options = Transposed(
        stride, padding, output_padding, dilation, groups, requantize, out_dtype, data_format, flip_kernel
    )
    return convolve_transposed(1, x, w, bias, options, out)


@overload
def conv_transpose2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: None = None,
    **options: Unpack[TransposedOptions[Pair, Padding, DataFormat]],
) -> Array: ...
@overload
def conv_transpose2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    **options: Unpack[TransposedOptions[Pair, Padding, DataFormat]],
) -> QuantArray: ...
@overload
def conv_transpose2d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds | None,
    **options: Unpack[TransposedOptions[Pair, Padding, DataFormat]],
) -> Array | QuantArray: ...
def conv_transpose2d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
    out: Array | None = None,
) -> Any:
    """Convolve transposed: add each pixel times w to the outputs around its place, as decoders and generators do.

        out[n, y*sh + a*dh - top, z*sw + b*dw - left, o] += x[n, y, z, c] * w[o, a, b, c]    for all y, z, a, b, c

    and bias[o] is added once. x and w as in `conv2d`: w [o kh kw c/groups], or with `data_format="NCHW"`
    [o c/groups kh kw]; the weights [c o kh kw] of PyTorch and ONNX are these by `w.swapaxes(0, 1)`, where groups = 1.
    padding: what is cut off the result, an integer, (height, width), ((top, bottom), (left, right)), "valid" for
    nothing, or "same" for `stride` outputs a pixel. `output_padding` outputs follow. A side of the result has
    (n - 1) * stride + (k - 1) * dilation + 1 - before - after + output_padding outputs. flip_kernel: w is turned over
    along its taps, so that this is the adjoint of a `conv2d` that flips them.

    Results as in `conv2d`, by its kernels: each phase of the stride is a convolution at stride 1, so that no zeros are
    multiplied.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([1, -1, 1, 1]).reshape(1, 2, 2, 1), values=(-1, 1))
    >>> w = qa.encode(np.ones((1, 3, 3, 1), int), values=(-1, 1))
    >>> qa.conv_transpose2d(x, w, stride=2, padding=1)[0, :, :, 0]
    array([[ 1,  0, -1],
           [ 2,  2,  0],
           [ 1,  2,  1]], dtype=int32)
    """
    options = Transposed(
        stride, padding, output_padding, dilation, groups, requantize, out_dtype, data_format, flip_kernel
    )
    return convolve_transposed(2, x, w, bias, options, out)


@overload
def conv_transpose3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: None = None,
    **options: Unpack[TransposedOptions[Triple, VolumePadding, VolumeFormat]],
) -> Array: ...
@overload
def conv_transpose3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds,
    **options: Unpack[TransposedOptions[Triple, VolumePadding, VolumeFormat]],
) -> QuantArray: ...
@overload
def conv_transpose3d(
    x: QuantArray | Bytes,
    w: QuantArray,
    *,
    requantize: Thresholds | None,
    **options: Unpack[TransposedOptions[Triple, VolumePadding, VolumeFormat]],
) -> Array | QuantArray: ...
def conv_transpose3d(
    x: Any,
    w: QuantArray,
    *,
    bias: Values | None = None,
    stride: Triple = 1,
    padding: VolumePadding = 0,
    output_padding: Triple = 0,
    dilation: Triple = 1,
    groups: int = 1,
    requantize: Thresholds | None = None,
    out_dtype: OutType = None,
    data_format: VolumeFormat = "NDHWC",
    flip_kernel: bool = False,
    out: Array | None = None,
) -> Any:
    """Convolve transposed over volumes x [n d h w c]: arguments and results as in `conv_transpose2d` and `conv3d`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([1, -1]).reshape(1, 2, 1, 1, 1), values=(-1, 1))
    >>> qa.conv_transpose3d(x, qa.encode(np.ones((1, 2, 1, 2, 1), int), values=(-1, 1)))[0, :, 0, :, 0]
    array([[ 1,  1],
           [ 0,  0],
           [-1, -1]], dtype=int32)
    """
    options = Transposed(
        stride, padding, output_padding, dilation, groups, requantize, out_dtype, data_format, flip_kernel
    )
    return convolve_transposed(3, x, w, bias, options, out)
