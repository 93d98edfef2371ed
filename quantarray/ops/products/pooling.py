"""Pooling by the largest value."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, Unpack, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.launched import on_gpu
from ...arrays.thresholds import Thresholds
from ...backends.registry import contiguous, empty, kernel, namespace
from ...core.code_values import level_ranks, level_values
from ...core.dtypes import Array
from ...core.hints import (
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
from ...kernels.windows import Window, classes, plan, tap_offsets
from ..words.conversion import recode
from . import dense_pooling, epilogue, geometry, pool_windows
from .options import MaxPoolOptions

_T = TypeVar("_T", QuantArray, Array)
_BYTE = 8  # planes that are unpacked at once


@overload
def max_pool1d(
    x: _T,
    size: Single,
    *,
    return_indices: Literal[False] = False,
    requantize: None = None,
    **options: Unpack[MaxPoolOptions[Single, LinePadding, LineFormat]],
) -> _T: ...
@overload
def max_pool1d(
    x: _T,
    size: Single,
    *,
    return_indices: Literal[True],
    requantize: None = None,
    **options: Unpack[MaxPoolOptions[Single, LinePadding, LineFormat]],
) -> tuple[_T, Array]: ...
@overload
def max_pool1d(
    x: Array,
    size: Single,
    *,
    return_indices: Literal[False] = False,
    requantize: Thresholds,
    **options: Unpack[MaxPoolOptions[Single, LinePadding, LineFormat]],
) -> QuantArray: ...
def max_pool1d(
    x: Any,
    size: Single,
    *,
    stride: Single | None = None,
    padding: LinePadding = 0,
    dilation: Single = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    falling: Flags = False,
    requantize: Thresholds | None = None,
    data_format: LineFormat = "NWC",
) -> Any:
    """Return the largest value in each window of lines x [n w c]: `max_pool2d` of images of one row.

    Arguments as in `max_pool2d`; `data_format="NCW"` has x [n c w]. padding: an integer, (before, after), "same" or
    "valid".

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([3, 1, 2, 2, 0]).reshape(1, 5, 1), values=range(4))
    >>> top, at = qa.max_pool1d(x, 2, ceil_mode=True, return_indices=True)
    >>> top.dequantize().ravel(), at.ravel()
    (array([3, 2, 0], dtype=int32), array([0, 2, 4]))
    """
    pool = stride, padding, dilation, ceil_mode, data_format
    return on_gpu(_max_pool, x, 1, size, pool, return_indices, falling, requantize)


@overload
def max_pool2d(
    x: _T,
    size: Pair,
    *,
    return_indices: Literal[False] = False,
    requantize: None = None,
    **options: Unpack[MaxPoolOptions[Pair, Padding, DataFormat]],
) -> _T: ...
@overload
def max_pool2d(
    x: _T,
    size: Pair,
    *,
    return_indices: Literal[True],
    requantize: None = None,
    **options: Unpack[MaxPoolOptions[Pair, Padding, DataFormat]],
) -> tuple[_T, Array]: ...
@overload
def max_pool2d(
    x: Array,
    size: Pair,
    *,
    return_indices: Literal[False] = False,
    requantize: Thresholds,
    **options: Unpack[MaxPoolOptions[Pair, Padding, DataFormat]],
) -> QuantArray: ...
def max_pool2d(
    x: Any,
    size: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    falling: Flags = False,
    requantize: Thresholds | None = None,
    data_format: DataFormat = "NHWC",
) -> Any:
    """Return the largest value in each window: codes of the same law, none of them decoded, or a dense array.

        out[n, i, j, c] = max_{a, b} x[n, i*sh + a*dh - top, j*sw + b*dw - left, c]

    x: QuantArray [n h w c] (or [n c h w]) packed on c, whose values are compared by rank, so unordered bases, tables
    and negative scales give the right maximum; or a dense array of integers, floats or bools, such as the result of
    `conv2d`, which gives its own dtype. A window with a NaN gives NaN. size, stride (= size by default), dilation: an
    integer or (height, width). padding as in `conv2d`; padded places never win, and a window of padding alone is
    refused. `ceil_mode=True` rounds the number of windows up: the last one may end after the padding, but begins in the
    image or before it.

    falling: channels of which the smallest value is taken, a bool or one a channel. `requantize=T`, of a dense x: the
    codes `T(max_pool2d(x, size, ..))`, by thresholds first and then the largest codes, or the smallest in channels
    where a larger value passes fewer thresholds. `conv2d(..., requantize=T)` pooled with `falling=~T.greater` is the
    same, and no integers are written.

    With `return_indices` also int64 [n i j c], in the layout of the result: the place of the largest value in the
    image, row * w + column, the first of equal ones and of NaNs. These are PyTorch's indices; ONNX' MaxPool adds
    (n * c + channel) * h * w.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.arange(16).reshape(1, 4, 4, 1) % 7, values=range(8))
    >>> qa.max_pool2d(x, 2).dequantize()[0, :, :, 0]
    array([[5, 6],
           [6, 4]], dtype=int32)
    >>> qa.max_pool2d(np.arange(8).reshape(1, 2, 4, 1) - 9, 2).ravel()
    array([-4, -2])
    >>> qa.max_pool2d(x, 2, return_indices=True)[1].ravel()
    array([ 5,  6, 13, 11])
    """
    pool = stride, padding, dilation, ceil_mode, data_format
    return on_gpu(_max_pool, x, 2, size, pool, return_indices, falling, requantize)


@overload
def max_pool3d(
    x: _T,
    size: Triple,
    *,
    return_indices: Literal[False] = False,
    requantize: None = None,
    **options: Unpack[MaxPoolOptions[Triple, VolumePadding, VolumeFormat]],
) -> _T: ...
@overload
def max_pool3d(
    x: _T,
    size: Triple,
    *,
    return_indices: Literal[True],
    requantize: None = None,
    **options: Unpack[MaxPoolOptions[Triple, VolumePadding, VolumeFormat]],
) -> tuple[_T, Array]: ...
@overload
def max_pool3d(
    x: Array,
    size: Triple,
    *,
    return_indices: Literal[False] = False,
    requantize: Thresholds,
    **options: Unpack[MaxPoolOptions[Triple, VolumePadding, VolumeFormat]],
) -> QuantArray: ...
def max_pool3d(
    x: Any,
    size: Triple,
    *,
    stride: Triple | None = None,
    padding: VolumePadding = 0,
    dilation: Triple = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
    falling: Flags = False,
    requantize: Thresholds | None = None,
    data_format: VolumeFormat = "NDHWC",
) -> Any:
    """Return the largest value in each window of volumes x [n d h w c]; arguments as in `max_pool2d`.

    `data_format="NCDHW"` has x [n c d h w]. size, stride, dilation: an integer or (depth, height, width). padding: an
    integer, one for each axis, ((front, back), (top, bottom), (left, right)), "same" or "valid". Indices are
    (frame * h + row) * w + column.

    >>> import quantarray as qa, numpy as np
    >>> qa.max_pool3d(np.arange(8).reshape(1, 2, 2, 2, 1), (2, 1, 2)).ravel()
    array([5, 7])
    """
    pool = stride, padding, dilation, ceil_mode, data_format
    return on_gpu(_max_pool, x, 3, size, pool, return_indices, falling, requantize)


def _max_pool(
    x: Any, axes: int, size: Any, options: tuple[Any, Any, Any, Any, str], return_indices: Any, falling: Any,
    requantize: Thresholds | None,
) -> Any:  # fmt: skip
    op = f"max_pool{axes}d"
    pool = pool_windows.prepare(op, x, size, *options, axes)
    packed, shape = isinstance(pool.x, QuantArray), pool.shape
    indices, channels = checks.flag(op, "return_indices", return_indices), shape[-1]
    turned = pool_windows.channels_of(op, "falling", falling, channels)
    into = epilogue.check(op, requantize, channels) or (pool.x.dtype if packed else None)
    geometry.room(op, pool.window, shape, into)
    if requantize is not None:
        if packed or indices:
            got = "x is packed" if packed else "return_indices=True"
            raise TypeError(f"{op}: requantize takes dense x and gives no indices, got {got}")
        return pool.ordered(_thresholded(requantize, pool.x, pool.window, turned))
    if indices:
        largest = _codes_and_places if packed else dense_pooling.largest_and_places
        return tuple(map(pool.ordered, largest(pool.x, pool.window, turned)))
    return pool.ordered((_codes if packed else dense_pooling.largest)(pool.x, pool.window, turned))


def _thresholded(law: Thresholds, x: Any, window: Window, turned: Array | None) -> QuantArray:
    """Return the codes of the largest values: those with the largest count of thresholds, or the smallest where a
    larger value passes fewer. So no value is pooled, and codes are a fraction of their bytes."""
    q, counts = law(x), law._codes
    down = np.broadcast_to(~law.greater, q.shape[-1:])
    turned = down if turned is None else turned ^ down
    if (counts == np.arange(len(counts))).all():
        return _with_law(q, _pool(q, None, window, 0, turned)[0], window, None)
    by_code = (-1, *(1,) * q.ndim)
    ranks = np.argsort(counts).reshape(by_code)
    return _with_law(q, _pool(q, ranks, window, 0, turned)[0], window, counts.astype(np.int64).reshape(by_code))


def _codes(q: QuantArray, window: Window, turned: Array | None) -> QuantArray:
    ranks = _ranks(q)
    words, _ = _pool(q, ranks, window, 0, turned)
    return _with_law(q, words, window, None if ranks is None else np.argsort(ranks, axis=0))


def _codes_and_places(q: QuantArray, window: Window, turned: Array | None) -> tuple[QuantArray, Array]:
    """Return the largest codes, and the place of each in the image, int64."""
    ranks = None if _ranks(q) is None else _ranks_of_values(q)
    codes = None
    if ranks is not None:  # of codes of equal value the lowest is used for all
        codes = np.zeros_like(ranks)
        by_code = np.arange(len(ranks))[::-1].reshape(-1, *(1,) * q.ndim)
        np.put_along_axis(codes, ranks[::-1], np.broadcast_to(by_code, ranks.shape), axis=0)
    words, numbers = _pool(q, ranks, window, max(1, (window.taps - 1).bit_length()), turned)
    return _with_law(q, words, window, codes), _places(q, numbers, window)


def _with_law(q: QuantArray, words: Array, window: Window, codes: Array | None) -> QuantArray:
    """Wrap pooled codes, or ranks into `codes` [n_levels, *q's axes]."""
    shape = (q.shape[0], *window.output, q.shape[-1])
    pooled = QuantArray(words, q.dtype, shape, q.axis, q.constants)
    if codes is None:
        return pooled
    return QuantArray(recode(pooled, codes, q.bits), q.dtype, shape, q.axis, q.constants)


def _ranks(q: QuantArray) -> Array | None:
    """Return the rank of each code's value, [n_levels, *q's axes]; None where the code is its rank."""
    if q.dtype.ascending and not q.constants.shapes:
        return None
    ranks = level_ranks(q.dtype, q.constants)
    one = (1,) * q.ndim
    ranks = ranks.reshape(len(ranks), *(ranks.shape[1:] or one))
    return None if (ranks == np.arange(len(ranks)).reshape(-1, *one)).all() else ranks


def _ranks_of_values(q: QuantArray) -> Array:
    """Count the smaller values of each code's value: equal ones, whose first tap wins, rank the same."""
    levels = level_values(q.dtype, q.constants)
    order = np.argsort(levels, axis=0, kind="stable")
    rises = np.diff(np.take_along_axis(levels, order, axis=0), axis=0) > 0
    ranks = np.zeros(levels.shape, np.int64)
    np.put_along_axis(ranks, order[1:], rises.cumsum(axis=0), axis=0)
    return ranks.reshape(len(ranks), *(ranks.shape[1:] or (1,) * q.ndim))


def _pool(q: QuantArray, ranks: Array | None, window: Window, places: int, turned: Array | None) -> tuple[Array, Array]:
    """Return words [bits n .. word] of the largest codes or ranks, and [places rows word] of their taps' numbers.

    In channels that are `turned` the smallest.
    """
    words = q.words if ranks is None else recode(q, ranks, q.bits)
    count = words.shape[-1]
    out = empty(q.device, (q.bits + places, q.shape[0] * window.pixels, count))
    if out.size:
        flip = pool_windows.words_of(turned, count)
        kernel(q.device, "max_pool")(contiguous(words).reshape(q.bits, -1), plan(window, count, 1, 1), flip, out)
    return out[: q.bits].reshape(q.bits, q.shape[0], *window.output, count), out[q.bits :]


def _places(q: QuantArray, numbers: Array, window: Window) -> Array:
    """Compute places in the image, int64 [n .. c], from planes of the numbers of taps."""
    xp, rows, channels = namespace(q.device), numbers.shape[1], q.shape[-1]
    taps = xp.zeros((rows, channels), np.int64)
    for first in range(0, len(numbers), _BYTE):
        part = empty(q.device, (rows, channels), np.uint8)
        if part.size:
            kernel(q.device, "unpack")(numbers[first : first + _BYTE], part)
        taps |= part.astype(np.int64) << first
    places = xp.asarray(tap_offsets(window))[taps].reshape(q.shape[0], window.pixels, channels)
    places += xp.asarray(classes(window).origin)[:, None]
    result: Array = places.reshape(q.shape[0], *window.output, channels)
    return result
