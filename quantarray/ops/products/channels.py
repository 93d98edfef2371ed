"""Images with their channels first, as kernels read them."""

from __future__ import annotations

import math

import numpy as np

from ...backends.registry import contiguous, device_of, empty, kernel, moveaxis
from ...core.dtypes import Array

_FEW = 16  # channels: the kernel writes those of a pixel one by one
_TYPES = {np.dtype(kind): np.dtype(like) for kind, like in (("u1", "u1"), ("i1", "u1"), ("f4", "f4"))}


def channels_last(x: Array) -> Array:
    """Return a copy of x [n .. c] with its elements in C order."""
    if x.flags.c_contiguous or not _first(x):
        return contiguous(x)
    out = empty(device_of(x), x.shape, x.dtype)
    put(x, out)
    return out


def put(x: Array, out: Array) -> None:
    """Copy x [n .. c] to `out`, in C order; by a kernel if its channels are first in memory: NumPy takes 8 times as
    long."""
    if not x.size or x.flags.c_contiguous or not _first(x):
        out[...] = x
        return
    n, c, pixels, like = len(x), x.shape[-1], math.prod(x.shape[1:-1]), _TYPES[x.dtype]
    source = moveaxis(x, -1, 1).reshape(n, c, pixels)
    kernel(device_of(x), "put_channels_last")(source.view(like), out.reshape(n, pixels, c).view(like))


def _first(x: Array) -> bool:
    """Return True for images [n .. c] of few channels that are stored as [n c ..], of the kernel's types."""
    if x.dtype not in _TYPES or x.ndim < 3 or x.shape[-1] > _FEW:
        return False
    return bool(moveaxis(x, -1, 1).flags.c_contiguous)
