"""Pooling."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, overload

import numpy as np

from ...arrays import checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...backends.registry import contiguous, empty, kernel
from ...core.code_values import level_ranks
from ...core.dtypes import Array
from ...core.hints import DataFormat, Padding, Pair
from ...kernels.windows import Window, plan
from ..words.conversion import recode
from . import dense_pooling, depthwise_plan, epilogue, geometry
from .depthwise_job import DepthwiseJob, Weights
from .operand import lower, reach

_FEW = 1 << 20  # weights of 1, 10 MiB as kernels have them, that are kept for the next call


@overload
def max_pool2d(
    x: QuantArray, size: Pair, *, stride: Pair | None = None, padding: Padding = 0, data_format: DataFormat = "NHWC"
) -> QuantArray: ...
@overload
def max_pool2d(
    x: Array, size: Pair, *, stride: Pair | None = None, padding: Padding = 0, data_format: DataFormat = "NHWC"
) -> Array: ...
def max_pool2d(
    x: Any, size: Pair, *, stride: Pair | None = None, padding: Padding = 0, data_format: DataFormat = "NHWC"
) -> Any:
    """Return the largest value in each window: codes of the same law, none of them decoded, or a dense array.

        out[n, i, j, c] = max_{a, b} x[n, i*sh + a - top, j*sw + b - left, c]

    x: QuantArray [n h w c] (or [n c h w]) packed on c, whose values are compared by rank, so unordered bases, tables
    and negative scales give the right maximum; or a dense array of integers, floats or bools, such as the result of
    `conv2d`, which gives its own dtype. A window with a NaN gives NaN. size, stride (= size by default): an integer or
    (height, width). padding as in `conv2d`; padded places never win, and a window of nothing else is refused.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.arange(16).reshape(1, 4, 4, 1) % 7, values=range(8))
    >>> qa.max_pool2d(x, 2).dequantize()[0, :, :, 0]
    array([[5, 6],
           [6, 4]], dtype=int32)
    >>> qa.max_pool2d(np.arange(8).reshape(1, 2, 4, 1) - 9, 2).ravel()
    array([-4, -2])
    """
    op = "max_pool2d"
    q, window = _prepare(op, x, size, stride, padding, data_format)
    packed, shape = isinstance(q, QuantArray), (q.shape[0], *window.output, q.shape[3])
    geometry.room(op, window, shape, q.dtype if packed else None)
    made = _max_of_codes(q, window, shape) if packed else dense_pooling.largest(q, window)
    return made.transpose(0, 3, 1, 2) if data_format == "NCHW" else made


def _max_of_codes(q: QuantArray, window: Window, shape: tuple[int, ...]) -> QuantArray:
    ranks = _ranks(q)
    words = _pool(q, q.words if ranks is None else recode(q, ranks, q.bits), window)
    made = QuantArray(words, q.dtype, shape, 3, q.constants)
    if ranks is not None:
        words = recode(made, np.argsort(ranks, axis=0), q.bits)
        made = QuantArray(words, q.dtype, shape, 3, q.constants)
    return made


@overload
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    requantize: None = None,
    data_format: DataFormat = "NHWC",
) -> Array: ...
@overload
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    requantize: Thresholds,
    data_format: DataFormat = "NHWC",
) -> QuantArray: ...
@overload
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    requantize: Thresholds | None,
    data_format: DataFormat = "NHWC",
) -> Array | QuantArray: ...
def avg_pool2d(
    x: QuantArray | Array,
    size: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    requantize: Thresholds | None = None,
    data_format: DataFormat = "NHWC",
) -> Any:
    """Return the mean of the values in each window; padded places do not count.

    The result is float32, the exact sum divided in float64 and rounded once, or with `requantize` the codes of exactly
    that. Floats of a dense array are summed in float64, along the height of a window first; those of float64 give
    float64. Arguments as in `max_pool2d`. OverflowError for dense integers whose sum may pass 2**53.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([-1, 1, 1, 1]).reshape(1, 2, 2, 1), values=(-1, 1))
    >>> qa.avg_pool2d(x, 2).ravel()
    array([0.5], dtype=float32)
    """
    op = "avg_pool2d"
    q, window = _prepare(op, x, size, stride, padding, data_format)
    channels = q.shape[3]
    shape = (q.shape[0], *window.output, channels)
    geometry.room(op, window, shape, epilogue.check(op, requantize, channels))
    if isinstance(q, QuantArray):
        a = lower(op, "x", q)
        means = _means if window.taps * channels <= _FEW else _means.__wrapped__
        made = means(q.device, a.terms.tobytes(), window, requantize, shape)(q, a)
    else:
        if requantize is not None and q.dtype == np.float64:
            raise TypeError(f"{op}: requantize takes float32 results, x is float64; pass x.astype(np.float32)")
        made = dense_pooling.mean(op, q, window)
        made = made if requantize is None else requantize(made)
    return made.transpose(0, 3, 1, 2) if data_format == "NCHW" else made


@lru_cache(maxsize=16)
def _means(
    device: str, terms: bytes, window: Window, requantize: Thresholds | None, shape: tuple[int, ...]
) -> depthwise_plan.Channelwise:
    """Prepare a convolution with weights of 1 and a division, for x of these terms."""
    channels, x_terms = shape[3], np.frombuffer(terms, np.int64).reshape(-1, 4)
    ones = np.broadcast_to(np.int64(1), (1, window.taps, channels))
    weights, real = Weights(ones, np.ones((1, channels)), np.zeros(channels)), np.dtype(np.float32)
    single = len(x_terms) == 1 and window.taps * reach(x_terms) < 2**31
    why = "" if single else "x is a sum of several terms, or sums of codes may pass 2**31"
    job = DepthwiseJob(device, channels, x_terms, weights, window, real, 0, None, requantize, shape, why, mean=True)
    return depthwise_plan.prepare(job)


def _prepare(op: str, x: Any, size: Any, stride: Any, padding: Any, data_format: str) -> tuple[Any, Window]:
    """Return (the array with channels last, the checked window)."""
    checks.choice(op, "data_format", data_format, ("NHWC", "NCHW"))
    q = x if isinstance(x, QuantArray) else checks.anywhere(op, "x", x)
    _check_axes(op, q, data_format)
    q = q.transpose(0, 2, 3, 1) if data_format == "NCHW" else q
    kernel_size = checks.pair(op, "size", size, 1)
    height, width = q.shape[1:3]
    window = geometry.window(op, (height, width), kernel_size, kernel_size if stride is None else stride, padding)
    if window.padding_only:
        raise ValueError(f"{op}: padding {window.pads} leaves windows of {kernel_size} without a single element")
    return q, window


def _check_axes(op: str, q: Any, data_format: str) -> None:
    """Raise an error where x is no image, or where its constants vary from place to place."""
    at, hint = 3 if data_format == "NHWC" else 1, "; x[None] adds the batch axis" if q.ndim == 3 else ""
    if not isinstance(q, QuantArray):
        if q.ndim != 4:
            axes = "n h w c" if at == 3 else "n c h w"
            raise ValueError(f"{op}: {data_format} needs x [{axes}], got {checks.kind(q)}{hint}")
        return
    if q.ndim != 4 or q.axis != at:
        hint = hint or likely_fix.packed_axis(q, data_format)
        raise ValueError(
            f"{op}: {data_format} needs x with 4 axes packed on axis {at}, got shape {q.shape} packed on axis {q.axis}"
            f"{hint}"
        )
    for name, a, lead in q.constants.items():
        if any(a.shape[lead + d] > 1 for d in range(1, 4) if d != at):
            raise ValueError(f"{op}: the {name} of x varies inside the image {q.shape}, so a window has no one law")


def _ranks(q: QuantArray) -> Array | None:
    """Return the rank of each code's value, [n_levels, *q's axes]; None where the code is its rank."""
    if q.dtype.ascending and not q.constants.shapes:
        return None
    ranks = level_ranks(q.dtype, q.constants)
    one = (1,) * q.ndim
    ranks = ranks.reshape(len(ranks), *(ranks.shape[1:] or one))
    return None if (ranks == np.arange(len(ranks)).reshape(-1, *one)).all() else ranks


def _pool(q: QuantArray, words: Array, window: Window) -> Array:
    """Return words [bits n oh ow word] of the largest codes in the windows of words [bits n h w word]."""
    count = words.shape[-1]
    out = empty(q.device, (q.bits, q.shape[0] * window.pixels, count))
    if out.size:
        flat = contiguous(words).reshape(q.bits, -1)
        kernel(q.device, "max_pool")(flat, plan(window, count, 1, 1), out)
    return out.reshape(q.bits, q.shape[0], *window.output, count)
