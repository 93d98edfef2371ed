"""Pooling by the mean."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Unpack, overload

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.launched import on_gpu
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.hints import (
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
from ...kernels.windows import Window, lifted
from . import dense_pooling, depthwise_plan, epilogue, geometry, pool_windows
from .depthwise_job import DepthwiseJob, Weights
from .operand import lower, reach
from .options import AvgPoolOptions

_FEW = 1 << 20  # weights of 1, 10 MiB as kernels have them, that are kept for the next call


@overload
def avg_pool1d(
    x: QuantArray | Array,
    size: Single,
    *,
    requantize: None = None,
    **options: Unpack[AvgPoolOptions[Single, LinePadding, LineFormat]],
) -> Array: ...
@overload
def avg_pool1d(
    x: QuantArray | Array,
    size: Single,
    *,
    requantize: Thresholds,
    **options: Unpack[AvgPoolOptions[Single, LinePadding, LineFormat]],
) -> QuantArray: ...
@overload
def avg_pool1d(
    x: QuantArray | Array,
    size: Single,
    *,
    requantize: Thresholds | None,
    **options: Unpack[AvgPoolOptions[Single, LinePadding, LineFormat]],
) -> Array | QuantArray: ...
def avg_pool1d(
    x: QuantArray | Array,
    size: Single,
    *,
    stride: Single | None = None,
    padding: LinePadding = 0,
    dilation: Single = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    requantize: Thresholds | None = None,
    data_format: LineFormat = "NWC",
) -> Any:
    """Return the mean of the values in each window of lines x [n w c]: `avg_pool2d` of images of one row.

    Arguments as in `avg_pool2d`; `data_format="NCW"` has x [n c w].

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([-1, 1, 1, 1, -1]).reshape(1, 5, 1), values=(-1, 1))
    >>> qa.avg_pool1d(x, 2, ceil_mode=True).ravel()
    array([ 0.,  1., -1.], dtype=float32)
    """
    pool = stride, padding, dilation, ceil_mode, data_format
    return on_gpu(_avg_pool, x, 1, size, pool, count_include_pad, requantize)


@overload
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    requantize: None = None,
    **options: Unpack[AvgPoolOptions[Pair, Padding, DataFormat]],
) -> Array: ...
@overload
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    requantize: Thresholds,
    **options: Unpack[AvgPoolOptions[Pair, Padding, DataFormat]],
) -> QuantArray: ...
@overload
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    requantize: Thresholds | None,
    **options: Unpack[AvgPoolOptions[Pair, Padding, DataFormat]],
) -> Array | QuantArray: ...
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    requantize: Thresholds | None = None,
    data_format: DataFormat = "NHWC",
) -> Any:
    """Return the mean of the values in each window; padded places do not count.

    The result is float32, the exact sum divided in float64 and rounded once, or with `requantize` the codes of exactly
    that. Floats of a dense array are summed in float64, along the height of a window first; those of float64 give
    float64. Arguments as in `max_pool2d`. With `count_include_pad=True` padded places count as zeros; places that a
    window of `ceil_mode` has after the padding do not. OverflowError for dense integers whose sum may pass 2**53.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([-1, 1, 1, 1]).reshape(1, 2, 2, 1), values=(-1, 1))
    >>> qa.avg_pool2d(x, 2).ravel()
    array([0.5], dtype=float32)
    >>> qa.avg_pool2d(x, 2, padding=1, count_include_pad=True)[0, :, :, 0]
    array([[-0.25,  0.25],
           [ 0.25,  0.25]], dtype=float32)
    """
    pool = stride, padding, dilation, ceil_mode, data_format
    return on_gpu(_avg_pool, x, 2, size, pool, count_include_pad, requantize)


@overload
def avg_pool3d(
    x: QuantArray | Array,
    size: Triple,
    *,
    requantize: None = None,
    **options: Unpack[AvgPoolOptions[Triple, VolumePadding, VolumeFormat]],
) -> Array: ...
@overload
def avg_pool3d(
    x: QuantArray | Array,
    size: Triple,
    *,
    requantize: Thresholds,
    **options: Unpack[AvgPoolOptions[Triple, VolumePadding, VolumeFormat]],
) -> QuantArray: ...
@overload
def avg_pool3d(
    x: QuantArray | Array,
    size: Triple,
    *,
    requantize: Thresholds | None,
    **options: Unpack[AvgPoolOptions[Triple, VolumePadding, VolumeFormat]],
) -> Array | QuantArray: ...
def avg_pool3d(
    x: QuantArray | Array,
    size: Triple,
    *,
    stride: Triple | None = None,
    padding: VolumePadding = 0,
    dilation: Triple = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    requantize: Thresholds | None = None,
    data_format: VolumeFormat = "NDHWC",
) -> Any:
    """Return the mean of the values in each window of volumes x [n d h w c].

    Arguments as in `avg_pool2d` and `max_pool3d`; `data_format="NCDHW"` has x [n c d h w].

    >>> import quantarray as qa, numpy as np
    >>> qa.avg_pool3d(np.arange(8).reshape(1, 2, 2, 2, 1), (2, 1, 2)).ravel()
    array([2.5, 4.5], dtype=float32)
    """
    pool = stride, padding, dilation, ceil_mode, data_format
    return on_gpu(_avg_pool, x, 3, size, pool, count_include_pad, requantize)


def _avg_pool(
    x: Any, axes: int, size: Any, options: tuple[Any, ...], count_include_pad: Any, requantize: Thresholds | None
) -> Any:
    op, (stride, padding, dilation, ceil_mode, data_format) = f"avg_pool{axes}d", options
    pool = pool_windows.prepare(op, x, size, stride, padding, dilation, ceil_mode, data_format, axes, count_include_pad)
    q, window, shape = pool.x, pool.window, pool.shape
    geometry.room(op, window, shape, epilogue.check(op, requantize, shape[-1]))
    if isinstance(q, QuantArray):
        a = lower(op, "x", q)
        means = _means if window.taps * shape[-1] <= _FEW else _means.__wrapped__
        return pool.ordered(means(q.device, a.terms.tobytes(), window, requantize, shape)(q, a))
    if requantize is not None and q.dtype == np.float64:
        raise TypeError(f"{op}: requantize takes float32 results, x is float64; pass x.astype(np.float32)")
    result = dense_pooling.mean(op, q, window)
    return pool.ordered(result if requantize is None else requantize(result))


@lru_cache(maxsize=16)
def _means(
    device: str, terms: bytes, window: Window, requantize: Thresholds | None, shape: tuple[int, ...]
) -> depthwise_plan.Channelwise:
    """Prepare a convolution with weights of 1 and a division, for x of these terms."""
    channels, x_terms = shape[-1], np.frombuffer(terms, np.int64).reshape(-1, 4)
    ones = np.broadcast_to(np.int64(1), (1, window.taps, channels))
    weights, real = Weights(ones, np.ones((1, channels)), np.zeros(channels)), np.dtype(np.float32)
    single = len(x_terms) == 1 and window.taps * reach(x_terms) < 2**31
    why = "" if single else "x is a sum of several terms, or sums of codes may pass 2**31"
    job = DepthwiseJob(
        device, channels, x_terms, weights, lifted(window), real, 0, None, requantize, shape, why, mean=True
    )
    return depthwise_plan.prepare(job)
