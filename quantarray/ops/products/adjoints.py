"""Adjoints of convolutions: the gradients of data and of weights, exact for integers."""

from __future__ import annotations

from ...arrays.array import QuantArray
from ...core.dtypes import Array
from ...core.hints import (
    Bytes,
    DataFormat,
    LineFormat,
    LinePadding,
    Padding,
    Pair,
    Single,
    Triple,
    VolumeFormat,
    VolumePadding,
)
from .adjoint_calls import Geometry, data_adjoint, filter_adjoint


def conv1d_data_adjoint(
    g: QuantArray | Bytes | Array,
    w: QuantArray,
    *,
    size: Single | None = None,
    stride: Single = 1,
    padding: LinePadding = 0,
    dilation: Single = 1,
    groups: int = 1,
    data_format: LineFormat = "NWC",
    flip_kernel: bool = False,
) -> Array:
    """Return the gradient of x of y = conv1d(x, w, ..), [n w c], given g [n ow o]: see `conv2d_data_adjoint`.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.array([1, -1, 1]).reshape(1, 3, 1), values=(-1, 1))
    >>> qa.conv1d_data_adjoint(np.int8([2, 1]).reshape(1, 2, 1), w, stride=2).ravel()
    array([ 2, -2,  3, -1,  1], dtype=int32)
    """
    return data_adjoint(1, g, w, size, Geometry(stride, padding, dilation, groups, data_format, flip_kernel))


def conv1d_filter_adjoint(
    x: QuantArray | Bytes | Array,
    g: QuantArray | Bytes | Array,
    *,
    size: Single,
    stride: Single = 1,
    padding: LinePadding = 0,
    dilation: Single = 1,
    groups: int = 1,
    pad_value: float = 0,
    data_format: LineFormat = "NWC",
    flip_kernel: bool = False,
) -> Array:
    """Return the gradient of w of y = conv1d(x, w, ..), [o k c/groups]: see `conv2d_filter_adjoint`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([1, -1, 1, 1, 1]).reshape(1, 5, 1), values=(-1, 1))
    >>> qa.conv1d_filter_adjoint(x, np.int8([2, 1]).reshape(1, 2, 1), size=3, stride=2).ravel()
    array([ 3, -1,  3], dtype=int32)
    """
    how = Geometry(stride, padding, dilation, groups, data_format, flip_kernel, pad_value)
    return filter_adjoint(1, x, g, size, how)


def conv2d_data_adjoint(
    g: QuantArray | Bytes | Array,
    w: QuantArray,
    *,
    size: Pair | None = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
) -> Array:
    """Return the gradient of x of y = conv2d(x, w, ..), given the gradient g of y: <g, conv2d(x, w)> = <result, x>.

        out[n, y, z, c] = sum of g[n, i, j, o] * w[o, a, b, c]    where y = i*sh + a*dh - top, z = j*sw + b*dw - left

    g: [n oh ow o], a QuantArray packed on o, or dense int8, uint8, bool or floats. w and the options are those of the
    convolution: w packed on its last axis, or depthwise on o; with `data_format="NCHW"` g is [n o oh ow] and the result
    [n c h w]. size: (height, width) of x; without it the least that give these outputs, or with padding="same" `stride`
    times the outputs. Integers are exact, int32 or int64; a scale of w may not vary along o. Floats g give floats,
    summed by a BLAS, tap by tap.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.array([1, -1, 1]).reshape(1, 1, 3, 1), values=(-1, 1))
    >>> g = qa.encode(np.array([2, 1]).reshape(1, 1, 2, 1), values=range(4))
    >>> qa.conv2d_data_adjoint(g, w, stride=2).ravel()
    array([ 2, -2,  3, -1,  1], dtype=int32)
    """
    return data_adjoint(2, g, w, size, Geometry(stride, padding, dilation, groups, data_format, flip_kernel))


def conv2d_filter_adjoint(
    x: QuantArray | Bytes | Array,
    g: QuantArray | Bytes | Array,
    *,
    size: Pair,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    pad_value: float = 0,
    data_format: DataFormat = "NHWC",
    flip_kernel: bool = False,
) -> Array:
    """Return the gradient of w of y = conv2d(x, w, ..), given the gradient g of y: <g, conv2d(x, w)> = <result, w>.

        out[o, a, b, c] = sum_{n, i, j} g[n, i, j, o] * x[n, i*sh + a*dh - top, j*sw + b*dw - left, c]

    x: [n h w c], g: [n oh ow o], QuantArrays packed on their last axes, or one of them dense: int8, uint8, bool or
    floats. size: (kh, kw), what w has. The options are those of the convolution; with `data_format="NCHW"` x is
    [n c h w], g [n o oh ow] and the result [o c/groups kh kw]. Integers are exact, int32 or int64; scales may not vary
    along n. Floats give floats, summed by a BLAS for each tap.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([1, -1, 1, 1, 1]).reshape(1, 1, 5, 1), values=(-1, 1))
    >>> g = qa.encode(np.array([2, 1]).reshape(1, 1, 2, 1), values=range(4))
    >>> qa.conv2d_filter_adjoint(x, g, size=(1, 3), stride=2).ravel()
    array([ 3, -1,  3], dtype=int32)
    """
    how = Geometry(stride, padding, dilation, groups, data_format, flip_kernel, pad_value)
    return filter_adjoint(2, x, g, size, how)


def conv3d_data_adjoint(
    g: QuantArray | Bytes | Array,
    w: QuantArray,
    *,
    size: Triple | None = None,
    stride: Triple = 1,
    padding: VolumePadding = 0,
    dilation: Triple = 1,
    groups: int = 1,
    data_format: VolumeFormat = "NDHWC",
    flip_kernel: bool = False,
) -> Array:
    """Return the gradient of x of y = conv3d(x, w, ..), [n d h w c], given g [n od oh ow o]: see `conv2d_data_adjoint`.

    >>> import quantarray as qa, numpy as np
    >>> w = qa.encode(np.array([1, -1, 1]).reshape(1, 3, 1, 1, 1), values=(-1, 1))
    >>> qa.conv3d_data_adjoint(np.int8([2, 1]).reshape(1, 2, 1, 1, 1), w, stride=(2, 1, 1)).ravel()
    array([ 2, -2,  3, -1,  1], dtype=int32)
    """
    return data_adjoint(3, g, w, size, Geometry(stride, padding, dilation, groups, data_format, flip_kernel))


def conv3d_filter_adjoint(
    x: QuantArray | Bytes | Array,
    g: QuantArray | Bytes | Array,
    *,
    size: Triple,
    stride: Triple = 1,
    padding: VolumePadding = 0,
    dilation: Triple = 1,
    groups: int = 1,
    pad_value: float = 0,
    data_format: VolumeFormat = "NDHWC",
    flip_kernel: bool = False,
) -> Array:
    """Return the gradient of w of y = conv3d(x, w, ..), [o kd kh kw c/groups]: see `conv2d_filter_adjoint`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([1, -1, 1, 1, 1]).reshape(1, 5, 1, 1, 1), values=(-1, 1))
    >>> g = np.int8([2, 1]).reshape(1, 2, 1, 1, 1)
    >>> qa.conv3d_filter_adjoint(x, g, size=(3, 1, 1), stride=(2, 1, 1)).ravel()
    array([ 3, -1,  3], dtype=int32)
    """
    how = Geometry(stride, padding, dilation, groups, data_format, flip_kernel, pad_value)
    return filter_adjoint(3, x, g, size, how)
