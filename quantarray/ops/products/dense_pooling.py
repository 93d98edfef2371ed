"""Pooling of dense arrays [n h w c], one axis of the window after the other: kh + kw passes, not kh * kw."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.registry import device_of, namespace
from ...kernels.windows import Window

_EXACT = 2**53  # up to which float64 holds every integer


def largest(x: Any, window: Window) -> Any:
    """Find the largest element of each window, in x's dtype; NaN where a window has one."""
    least = -np.inf if x.dtype.kind == "f" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min
    return _reduced(x, window, namespace(device_of(x)).maximum, least, x.dtype)


def mean(op: str, x: Any, window: Window) -> Any:
    """Compute the mean of each window's elements: their sum in int64 or float64, divided in float64, rounded to float32
    once.

    float64 arrays give float64. OverflowError where a sum of integers may not be exact in float64.
    """
    real = x.dtype.kind == "f"
    if not real and x.size:
        _check_reach(op, x, window)
    xp = namespace(device_of(x))
    with np.errstate(invalid="ignore", over="ignore"):
        total = _reduced(x, window, xp.add, 0, np.dtype(np.float64 if real else np.int64))
        means = total / xp.asarray(_inside(window))
        return means if x.dtype == np.float64 else means.astype(np.float32)


def _check_reach(op: str, x: Any, window: Window) -> None:
    taps = int(np.prod([min(k, n) for k, n in zip(window.size, window.image, strict=True)]))
    if x.dtype.kind == "b" or taps * np.iinfo(x.dtype).max < _EXACT:
        return
    reach = taps * max(-int(x.min()), int(x.max()))
    if reach >= _EXACT:
        raise OverflowError(f"{op}: sums of {taps} elements of x may reach {reach}, beyond 2**53; divide x before")


def _inside(window: Window) -> Any:
    """float64[oh ow 1]: how many elements of each window are inside the image."""
    counts = [np.zeros(n) for n in window.output]
    for axis, count in enumerate(counts):
        for _, to in _taps(window, axis):
            count[to] += 1
    return counts[0][:, None, None] * counts[1][:, None]


def _reduced(x: Any, window: Window, combine: Any, neutral: Any, dtype: np.dtype[Any]) -> Any:
    """Combine the elements of each window, in memory of the same order of axes as x."""
    xp = namespace(device_of(x))
    for axis in (0, 1):
        shape = list(x.shape)
        shape[1 + axis] = window.output[axis]
        out = xp.full_like(x, neutral, dtype=dtype, shape=tuple(shape))
        lead = (slice(None),) * (1 + axis)
        for source, to in _taps(window, axis):
            view = out[(*lead, to)]
            combine(view, x[(*lead, source)], out=view, casting="unsafe")
        x = out
    return x


def _taps(window: Window, axis: int) -> list[tuple[slice, slice]]:
    """Yield, for each tap of an axis, the elements of the image under it and the outputs whose window has it inside."""
    n, size, stride, before = window.image[axis], window.size[axis], window.stride[axis], window.pads[axis][0]
    pairs = []
    for tap in range(max(0, before - (window.output[axis] - 1) * stride), min(size, n + before)):
        first = max(0, -(-(before - tap) // stride))
        last = min(window.output[axis], (n - 1 + before - tap) // stride + 1)
        if first < last:
            start = first * stride + tap - before
            pairs.append((slice(start, start + (last - first - 1) * stride + 1, stride), slice(first, last)))
    return pairs
