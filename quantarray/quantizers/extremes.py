"""Find the least and the largest value, which most constants are fitted to."""

from __future__ import annotations

import math

import numpy as np

from ..backends.registry import contiguous, device_of, empty, kernel, to_host
from ..core.dtypes import Array

_ALONE = 1 << 17  # values of a row that is a task of its own; longer ones are cut
_OF_WARP = 1 << 12  # the same on a GPU
TAKEN = (np.float16, np.float32, np.float64, np.int8, np.uint8)  # dtypes that kernels of a GPU read


def extremes(x: Array, axes: tuple[int, ...]) -> Array:
    """float64 [2, ..]: min and max of x over `axes`, kept as 1; NaN where there is one. x has elements.

    >>> extremes(np.float32([[1, -2, 3], [4, 0, 5]]), (1,)).tolist()
    [[[-2.0], [0.0]], [[3.0], [5.0]]]
    """
    varying = x.ndim - len(axes)
    device = device_of(x)
    if device != "cpu" and x.dtype in TAKEN:
        return _on_gpu(device, x, axes)
    floats = isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.itemsize <= 8 and x.dtype.isnative
    if not (floats and x.flags.c_contiguous and x.flags.aligned and (not varying or min(axes) == varying)):
        return np.stack([to_host(f(axis=axes, keepdims=True)).astype(np.float64) for f in (x.min, x.max)])
    outer = x.shape[:varying]
    rows = math.prod(outer)
    pieces = max(1, x.size // (rows * _ALONE))
    out = empty(device, (2, rows, pieces), np.float64)
    kernel("cpu", "extremes")(x.reshape(rows, -1), out)
    if pieces > 1:
        out = np.stack([out[0].min(axis=1), out[1].max(axis=1)])
    return out.reshape(2, *outer, *(1,) * len(axes))


def _on_gpu(device: str, x: Array, axes: tuple[int, ...]) -> Array:
    """Find them in one launch, after a copy where the axes are not the last."""
    varying = [d for d in range(x.ndim) if d not in axes]
    channels = math.prod(x.shape[d] for d in varying)
    rows = contiguous(x.transpose(*varying, *sorted(axes))).reshape(channels, -1)
    out = empty(device, (2, len(rows), -(-rows.shape[1] // _OF_WARP)), np.float64)
    kernel(device, "extremes")(rows, out)
    ends = to_host(out)
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    return np.stack([ends[0].min(axis=1), ends[1].max(axis=1)]).reshape(2, *shape)
