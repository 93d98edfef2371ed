"""Pools of any number of axes."""

from __future__ import annotations

import math
from itertools import product

import numpy as np

from ...backends.registry import contiguous, device_of, moveaxis, namespace, zeros
from ...core.bounded_cache import cached
from ...core.dtypes import Array
from ...ops.products import dense_pooling
from .record import Attributes, Constants, Operator, Shapes, array, of_first, rises
from .windows import Windows, grid, tap


def _max_pool(a: Attributes, x: Array) -> Array | tuple[Array, Array]:
    """Return the largest value of each window; with two outputs also its index in x, int64."""
    windows = grid(a, x.shape[2:], tuple(a["kernel_shape"]))
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    wide = np.pad(x, [(0, 0), (0, 0), *windows.pads], constant_values=lowest)
    taps = list(product(*(range(k) for k in windows.kernel)))
    best = tap(wide, windows, taps[0]).copy()
    for at in taps[1:]:
        np.maximum(best, tap(wide, windows, at), out=best)
    if a.get("outputs", 1) == 1:
        return best
    order = x.shape if a.get("storage_order", 0) == 0 else (*x.shape[:2], *x.shape[2:][::-1])
    xp = namespace(device_of(x))
    places = xp.arange(x.size).reshape(order)
    if a.get("storage_order", 0):
        places = places.transpose(0, 1, *range(x.ndim - 1, 1, -1))
    numbers = np.pad(places, [(0, 0), (0, 0), *windows.pads], constant_values=-1)
    where = xp.full(best.shape, -1)
    for at in taps[::-1]:
        seen, number = tap(wide, windows, at), tap(numbers, windows, at)
        where = np.where((seen == best) & (number >= 0), number, where)
    return best, where


def _sum_pool(a: Attributes, x: Array) -> Array:
    """Sum each window, with padding as 0; sums of integers are int64."""
    windows = grid(a, x.shape[2:], tuple(a["kernel_shape"]))
    wide = np.pad(x if x.dtype.kind == "f" else x.astype(np.int64), [(0, 0), (0, 0), *windows.pads])
    total = zeros(device_of(x), (*x.shape[:2], *windows.output), wide.dtype)
    for at in product(*(range(k) for k in windows.kernel)):
        total += tap(wide, windows, at)
    return total


def counts(a: Attributes, image: tuple[int, ...]) -> Array:
    """Count the elements that AveragePool divides by in each window, [1 1 ..]; not to be written to."""
    return _counts(grid(a, image, tuple(a["kernel_shape"])), image, bool(a.get("count_include_pad")))


@cached
def _counts(windows: Windows, image: tuple[int, ...], padding_too: bool) -> Array:
    inside = np.ones((1, 1, *image), np.int64)
    once = np.pad(inside, [(0, 0), (0, 0), *windows.counted], constant_values=int(padding_too))
    rest = [(0, after - plain) for (_, after), (_, plain) in zip(windows.pads, windows.counted, strict=True)]
    ones = np.pad(once, [(0, 0), (0, 0), *rest])
    taps = [tap(ones, windows, at) for at in product(*(range(k) for k in windows.kernel))]
    return np.asarray(np.add.reduce(taps))


def _average_pool(a: Attributes, x: Array) -> Array:
    last = x.transpose(0, *range(2, x.ndim), 1)
    if x.dtype == np.float32 and dense_pooling.takes(last):
        windows = grid(a, x.shape[2:], tuple(a["kernel_shape"]))
        before = [first for first, _ in windows.pads]
        divisors = counts(a, x.shape[2:])
        means = dense_pooling.pooled(
            last, windows.kernel, windows.strides, windows.dilations, before, windows.output, divisors
        )
        return means.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    divisors = namespace(device_of(x)).asarray(counts(a, x.shape[2:]).astype(x.dtype))
    return array((_sum_pool(a, x) / divisors).astype(x.dtype))


def _global_average(a: Attributes, x: Array) -> Array:
    """Return the mean of each channel: sums in float64, rounded once."""
    image = x.shape[2:]
    last = contiguous(moveaxis(x, 1, -1)) if x.dtype == np.float32 and x.ndim > 2 else x
    if x.dtype == np.float32 and dense_pooling.takes(last) and last is not x:
        one, count = (1,) * len(image), np.array(math.prod(image), np.float64)
        means = dense_pooling.pooled(last, image, one, one, (0,) * len(image), one, count)
        return means.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    return array(contiguous(x).mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=np.float64).astype(x.dtype))


def _global_max(a: Attributes, x: Array) -> Array:
    return array(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))


def _pool_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x = shapes[0]
    if len(x) < 3 or 0 in x or "kernel_shape" not in a:
        raise ValueError(f"x {x} has no image for kernel_shape {a.get('kernel_shape')}")
    windows = grid(a, x[2:], tuple(a["kernel_shape"]))
    for (before, after), k, d in zip(windows.counted, windows.kernel, windows.dilations, strict=True):
        if max(before, after) > d * (k - 1):
            raise ValueError(f"pads {windows.counted} leave windows of {windows.kernel} without a single element")
    return [(*x[:2], *windows.output)] * a.get("outputs", 1)


def _global_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    if len(shapes[0]) < 3 or 0 in shapes[0]:
        raise ValueError(f"x {shapes[0]} has no image")
    return [(*shapes[0][:2], *(1,) * (len(shapes[0]) - 2))]


OPERATORS = {
    "MaxPool": Operator(run=_max_pool, shape=_pool_shape, direction=rises, of_images=True, others=("int64",)),
    "AveragePool": Operator(run=_average_pool, shape=_pool_shape, order="any", launches=True, images=1, rows=of_first),
    "GlobalAveragePool": Operator(
        run=_global_average, shape=_global_shape, order="any", launches=True, images=1, rows=of_first
    ),
    "GlobalMaxPool": Operator(run=_global_max, shape=_global_shape),
    "sum_pool": Operator(
        run=_sum_pool,
        shape=lambda a, shapes, constants: _pool_shape(a, shapes, constants)[:1],
        dtype=lambda a, dtypes: dtypes[0] if dtypes[0].kind == "f" else "int64",
    ),
}
