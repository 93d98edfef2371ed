"""Pooling."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..array import QuantArray
from ..device import contiguous, empty, kernel
from ..dtypes import Array, level_ranks
from ..thresholds import Thresholds
from ..window import Window, plan
from . import channelwise, checks, geometry, hints, thresholding
from .conversion import recode
from .operand import lower, reach

_FEW = 1 << 20  # weights of 1, 10 MiB as kernels have them, that are kept for the next call


def max_pool2d(
    x: QuantArray, size: Any, *, stride: Any = None, padding: Any = 0, data_format: str = "NHWC"
) -> QuantArray:
    """The largest value in each window, as codes of the same law; nothing is decoded.

    x: QuantArray [n h w c] (or [n c h w]) packed on c. size, stride (= size by default): an integer or (height,
    width). padding as in `conv2d`; padded places never win. Values are compared by rank, so unordered bases, tables
    and negative scales give the right maximum.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.arange(16).reshape(1, 4, 4, 1) % 7, values=range(8))
    >>> qa.max_pool2d(x, 2).dequantize()[0, :, :, 0]
    array([[5, 6],
           [6, 4]], dtype=int32)
    """
    op = "max_pool2d"
    q, window = _prepare(op, x, size, stride, padding, data_format)
    shape = (q.shape[0], *window.output, q.shape[3])
    geometry.room(op, window, shape, q.dtype)
    ranks = _ranks(q)
    words = _pool(q, q.words if ranks is None else recode(q, ranks, q.bits), window)
    made = QuantArray(words, q.dtype, shape, 3, q.constants)
    if ranks is not None:
        words = recode(made, np.argsort(ranks, axis=0), q.bits)
        made = QuantArray(words, q.dtype, shape, 3, q.constants)
    return made.transpose(0, 3, 1, 2) if data_format == "NCHW" else made


def avg_pool2d(
    x: QuantArray,
    size: Any,
    *,
    stride: Any = None,
    padding: Any = 0,
    requantize: Thresholds | None = None,
    data_format: str = "NHWC",
) -> Any:
    """The mean of the values in each window; padded places do not count.

    Returns float32, the exact sum divided in float64 and rounded once, or with `requantize` the codes of exactly that.
    Arguments as in `max_pool2d`.

    >>> import quantarray as qa, numpy as np
    >>> x = qa.encode(np.array([-1, 1, 1, 1]).reshape(1, 2, 2, 1), values=(-1, 1))
    >>> qa.avg_pool2d(x, 2).ravel()
    array([0.5], dtype=float32)
    """
    op = "avg_pool2d"
    q, window = _prepare(op, x, size, stride, padding, data_format)
    channels = q.shape[3]
    shape = (q.shape[0], *window.output, channels)
    geometry.room(op, window, shape, thresholding.check(op, requantize, channels))
    a = lower(op, "x", q)
    means = _means if window.taps * channels <= _FEW else _means.__wrapped__
    run = means(q.device, a.terms.tobytes(), window, requantize, shape)
    made = run(q, a)
    return made.transpose(0, 3, 1, 2) if data_format == "NCHW" else made


@lru_cache(maxsize=16)
def _means(
    device: str, terms: bytes, window: Window, requantize: Thresholds | None, shape: tuple[int, ...]
) -> channelwise.Channelwise:
    """A convolution with weights of 1 and a division, for x of some terms."""
    channels, x_terms = shape[3], np.frombuffer(terms, np.int64).reshape(-1, 4)
    ones = np.broadcast_to(np.int64(1), (1, window.taps, channels))
    weights, real = channelwise.Weights(ones, np.ones((1, channels)), np.zeros(channels)), np.dtype(np.float32)
    job = channelwise.Job(device, channels, x_terms, weights, window, real, 0, None, requantize, shape, mean=True)
    return channelwise.prepare(job, len(x_terms) == 1 and window.taps * reach(x_terms) < 2**31)


def _prepare(op: str, x: Any, size: Any, stride: Any, padding: Any, data_format: str) -> tuple[QuantArray, Window]:
    """The array channels last, and the checked window."""
    checks.choice(op, "data_format", data_format, ("NHWC", "NCHW"))
    q = checks.packed(op, "x", x)
    at = 3 if data_format == "NHWC" else 1
    if q.ndim != 4 or q.axis != at:
        hint = "; x[None] adds the batch axis" if q.ndim == 3 else hints.packed_axis(q, data_format)
        got = f"got shape {q.shape} packed on axis {q.axis}{hint}"
        raise ValueError(f"{op}: {data_format} needs x with 4 axes packed on axis {at}, {got}")
    q = q.transpose(0, 2, 3, 1) if data_format == "NCHW" else q
    for name, a, lead in q.constants.items():
        if a.shape[lead + 1] > 1 or a.shape[lead + 2] > 1:
            raise ValueError(f"{op}: the {name} of x varies inside the image {q.shape}, so a window has no one law")
    kernel_size = checks.pair(op, "size", size, 1)
    height, width = q.shape[1:3]
    window = geometry.window(op, (height, width), kernel_size, kernel_size if stride is None else stride, padding)
    if window.padding_only:
        raise ValueError(f"{op}: padding {window.pads} leaves windows of {kernel_size} without a single element")
    return q, window


def _ranks(q: QuantArray) -> Array | None:
    """The rank of each code's value, [n_levels, *q's axes]; None where the code is its rank."""
    if q.dtype.ascending and not q.constants.shapes:
        return None
    ranks = level_ranks(q.dtype, q.constants)
    one = (1,) * q.ndim
    ranks = ranks.reshape(len(ranks), *(ranks.shape[1:] or one))
    return None if (ranks == np.arange(len(ranks)).reshape(-1, *one)).all() else ranks


def _pool(q: QuantArray, words: Array, window: Window) -> Array:
    """Words [bits n oh ow word] of the largest codes of words [bits n h w word]."""
    count = words.shape[-1]
    out = empty(q.device, (q.bits, q.shape[0] * window.pixels, count))
    if out.size:
        flat = contiguous(words).reshape(q.bits, -1)
        kernel(q.device, "max_pool")(flat, plan(window, count, 1, 1), out)
    return out.reshape(q.bits, q.shape[0], *window.output, count)
