"""Real products of one term a side: exact int32 sums by the kernel of integers, in the memory of the result, and then
the constants, in the order of docs/decisions/0001.

`conv_real` multiplies counts as it goes, tile by tile in float64. One pass over the results at the end takes less, and
kernels of integers can choose faster techniques.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...arrays.thresholds import Thresholds
from ...backends.registry import contiguous, empty, has_kernel, kernel
from ...core.dtypes import Array
from ...kernels.operands import Left
from . import calls
from .operand import Operand, inexact

_EMPTY = np.empty(0)


def refusal(device: str, requantize: Thresholds | None, terms: Array, b: Operand, k: int) -> str:
    """Say why results are not rescaled sums of `k` products of integers; "" where they can be."""
    if requantize is not None:
        return "the sums of a thresholded result would need memory of their own"
    if not has_kernel(device, "rescale"):
        return f"there is no kernel for it on {device}"
    return inexact(terms, b, k)


@lru_cache(maxsize=16)
def _no_bias(channels: int) -> Array:
    """Return zeros, shared so that calls by the same weights hold them once."""
    return np.zeros(channels)


class Rescale(NamedTuple):
    """A set of constants by which exact sums become real results, as the kernel `rescale` takes them."""

    kinds: Array  # int64[pixels]: the border class of each output pixel
    scale: Array  # float64[channels]
    ones: Array  # int64[classes channels]: sums of w's levels over the taps inside
    pad: Array  # float64[classes channels], or of no elements
    bias: Array  # float64[channels], no -0.0
    inside: Array = _EMPTY  # float64[classes]: what results are divided by, if they are means


class Scaled(NamedTuple):
    """A call of exact sums and then their constants, called as the `Call` is whose place it takes."""

    sums: calls.Sums
    images: int  # as the plan of the sums counts them
    rescale: Rescale

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    @property
    def device(self) -> str:
        return self.sums.device

    @property
    def shape(self) -> tuple[int, ...]:
        return self.sums.shape

    @classmethod
    def of(cls, sums: calls.Sums, images: int, rescale: Rescale) -> Scaled:
        """Return a call whose constants are shared or left out where they add nothing."""
        pad = rescale.pad if rescale.pad.any() else np.empty((0, 0))
        bias = rescale.bias + 0.0 if rescale.bias.any() else _no_bias(len(rescale.bias))
        return cls(sums, images, rescale._replace(pad=pad, bias=bias))

    def __call__(self, x: Left, out: Array | None = None) -> Array:
        """Compute a dense array, C-contiguous, in `out` if it is passed."""
        result = empty(self.device, self.shape, self.dtype) if out is None else out
        self.sums(x._replace(images=self.images), result.view(np.int32))
        rows = result.reshape(math.prod(self.shape[:-1]), self.shape[-1])
        x_scale, x_offset = contiguous(x.scale[0, 0, :, 0]), contiguous(x.offset[0, :, 0])
        kernel(self.device, "rescale")(rows.view(np.int32), x_scale, x_offset, *self.rescale, rows)
        return result
