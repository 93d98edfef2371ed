"""Pooling of dense arrays [n .. c]: float32 and int32 of up to three axes by a kernel.

All others go by one axis of the window after the other: kh + kw passes, not kh * kw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...backends.registry import device_of, empty, kernel, namespace
from ...core.dtypes import Array
from ...kernels.windows import Window, classes

_AXES = 3  # of an image that the kernel takes
_SIGN, _ALL = 1 << 31, (1 << 32) - 1  # bits that turn the order of floats and of integers
_EXACT = 2**53  # up to which float64 holds every integer


def largest(x: Any, window: Window, turned: Array | None = None) -> Any:
    """Find the largest element of each window, in x's dtype, or the smallest in channels that are `turned`; NaN where a
    window has one."""
    if takes(x):
        before = [first for first, _ in window.pads]
        return pooled(x, window.size, window.stride, window.dilation, before, window.output, turned=turned)
    x = _turned_over(x, turned)
    return _turned_over(_reduced(x, window, namespace(device_of(x)).maximum, _least(x.dtype), x.dtype), turned)


def takes(x: Any) -> bool:
    """Return True if the kernel takes an array [n .. c]: float32 or int32, in C order, of one to three axes."""
    return x.dtype in (np.float32, np.int32) and 3 <= x.ndim <= _AXES + 2 and bool(x.flags.c_contiguous)


def pooled(
    x: Array, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int], before: Sequence[int],
    output: Sequence[int], counts: Array | None = None, turned: Array | None = None,
) -> Array:  # fmt: skip
    """Return the largest value of each window of an x that the kernel `takes`, or of floats its sum by `counts`.

    before: places of padding in front of each axis. counts [output]: sums are float64 if they are, else float32; taps
    in order. turned: channels of which the smallest value is taken.
    """
    missing = _AXES - (x.ndim - 2)
    axes = zip(size, stride, dilation, before, strict=True)
    grid = np.array([(1, 1, 1, 0)] * missing + list(axes), np.int64)
    wide = x.reshape(len(x), *(1,) * missing, *x.shape[1:])
    out = empty(device_of(x), (len(x), *(1,) * missing, *output, x.shape[-1]), x.dtype)
    kind = np.float64 if counts is not None and counts.dtype == np.float64 else np.float32
    divisors = np.empty(0, kind) if counts is None else np.ascontiguousarray(counts, kind).reshape(-1)
    flip = np.zeros(x.shape[-1], np.uint32)
    if turned is not None:
        flip[turned] = _SIGN if x.dtype == np.float32 else _ALL
    kernel(device_of(x), "pool_values")(wide, grid, divisors, flip, out)
    return out.reshape(len(x), *output, x.shape[-1])


def _turned_over(x: Any, turned: Array | None) -> Any:
    """Return x in the opposite order in some channels, without an overflow: ~x of integers, -x of floats."""
    if turned is None:
        return x
    xp = namespace(device_of(x))
    return xp.where(xp.asarray(turned), -x if x.dtype.kind == "f" else ~x, x)


def largest_and_places(x: Any, window: Window, turned: Array | None = None) -> tuple[Any, Any]:
    """Find the largest element of each window, the first of equal ones or of NaNs, and its place in the image."""
    xp, x = namespace(device_of(x)), _turned_over(x, turned)
    places = xp.arange(math.prod(window.image), dtype=np.int64).reshape(1, *window.image, 1)
    places = xp.broadcast_to(places, x.shape)
    for axis in range(len(window.image)):
        best = _full(x, window, axis, _least(x.dtype), x.dtype)
        where = _full(x, window, axis, np.iinfo(np.int64).max, np.dtype(np.int64))
        for source, to in _taps_of(window, axis):
            new, at, old, held = x[source], places[source], best[to], where[to]
            better = (new > old) | ((new == old) & (at < held))
            if x.dtype.kind == "f":
                better |= xp.isnan(new) & (~xp.isnan(old) | (at < held))
            xp.copyto(old, new, where=better)
            xp.copyto(held, at, where=better)
        x, places = best, where
    return _turned_over(x, turned), places


def _least(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


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
        means = total / xp.asarray(_counted(window))
        return means if x.dtype == np.float64 else means.astype(np.float32)


def _check_reach(op: str, x: Any, window: Window) -> None:
    taps = int(np.prod([min(k, n) for k, n in zip(window.size, window.image, strict=True)]))
    if x.dtype.kind == "b" or taps * np.iinfo(x.dtype).max < _EXACT:
        return
    reach = taps * max(-int(x.min()), int(x.max()))
    if reach >= _EXACT:
        raise OverflowError(f"{op}: sums of {taps} elements of x may reach {reach}, beyond 2**53; divide x before")


def _counted(window: Window) -> Any:
    """float64[.. 1]: how many elements of each window count in its mean."""
    of = classes(window)
    return of.counted[of.of_pixel].astype(np.float64).reshape(*window.output, 1)


def _reduced(x: Any, window: Window, combine: Any, neutral: Any, dtype: np.dtype[Any]) -> Any:
    """Combine the elements of each window, in memory of the same order of axes as x."""
    for axis in range(len(window.image)):
        out = _full(x, window, axis, neutral, dtype)
        for source, to in _taps_of(window, axis):
            view = out[to]
            combine(view, x[source], out=view, casting="unsafe")
        x = out
    return x


def _full(x: Any, window: Window, axis: int, value: Any, dtype: np.dtype[Any]) -> Any:
    """Allocate what a pass along an axis makes of x."""
    shape = list(x.shape)
    shape[1 + axis] = window.output[axis]
    return namespace(device_of(x)).full_like(x, value, dtype=dtype, shape=tuple(shape))


def _taps_of(window: Window, axis: int) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Yield, for each tap of an axis, the elements of x under it and the outputs whose window has it inside."""
    n, stride, before = window.image[axis], window.stride[axis], window.pads[axis][0]
    lead = (slice(None),) * (1 + axis)
    for tap in range(window.size[axis]):
        ahead = before - tap * window.dilation[axis]  # the image begins so many places after the tap of output 0
        first = max(0, -(-ahead // stride))
        last = min(window.output[axis], (n - 1 + ahead) // stride + 1)
        if first < last:
            start = first * stride - ahead
            source = slice(start, start + (last - first - 1) * stride + 1, stride)
            yield (*lead, source), (*lead, slice(first, last))
