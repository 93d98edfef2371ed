"""A checked window over each channel by itself, and the facts about it that choices ask for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...arrays.array import QuantArray
from ...arrays.thresholds import Thresholds
from ...core.dtypes import Array
from ...core.forks import cached_property
from ...kernels.windows import Window, classes
from . import calls, epilogue
from .lanes import CopyLanes, full_lane
from .operand import Operand, term_values


class Weights(NamedTuple):
    """A set of depthwise weights: values int64[terms taps channels], scale float64[terms channels], offset
    float64[channels]."""

    values: Array
    scale: Array
    offset: Array


def weights(w: QuantArray, b: Operand) -> Weights:
    """Return depthwise weights [o kh kw 1], packed on their outputs, as channels."""
    channels = w.shape[0]
    scale, offset = (c.reshape(*c.shape[: c.ndim - w.ndim + 1], -1)[..., 0] for c in b.constants(w.ndim))
    if w.group is not None:
        index = np.arange(channels) // w.group
        scale, offset = (c if c.shape[-1] == 1 else c[..., index] for c in (scale, offset))
    values = w._cached("depthwise", lambda: term_values(b, channels))
    return Weights(values, full_lane(scale, channels), full_lane(offset, channels))


@dataclass(frozen=True)
class DepthwiseJob:
    """A checked window over each channel: `terms` are those of x, `channels` its channels, `shape` the result's."""

    device: str
    channels: int
    terms: Array
    w: Weights
    window: Window
    dtype: np.dtype[Any]
    pad: float
    bias: Array | None
    requantize: Thresholds | None
    shape: tuple[int, ...]
    inexact: str  # why a real result is not made of one sum of integers, or ""
    mean: bool = False

    @property
    def real(self) -> bool:
        return self.mean or self.dtype == np.float32

    @property
    def of_integers(self) -> DepthwiseJob:
        """Return the exact sums of a real result."""
        return replace(self, dtype=np.dtype(np.int32), pad=0, bias=None, requantize=None, mean=False)

    @property
    def lanes(self) -> CopyLanes:
        return CopyLanes(self.channels, self.shape[-1] // max(self.channels, 1))

    @property
    def divisor(self) -> Array:
        """float64[classes]: what means are divided by; empty where results are no means."""
        return classes(self.window).counted.astype(np.float64) if self.mean else np.empty(0)

    @property
    def packed(self) -> calls.Packed | None:
        return calls.packed(self.device, self.requantize, self.shape)

    @cached_property
    def sums(self) -> Array:
        """int64[classes terms outputs]: sums of the weights over the taps inside."""
        inside = classes(self.window).inside.astype(np.int64)
        return np.asarray(np.einsum("kt,stc->ksc", inside, self.w.values))

    @property
    def real_extras(self) -> tuple[Array, Array]:
        """(pad [classes outputs], bias [outputs]) of a real result."""
        outside, n_outside = self.w.values.sum(axis=1) - self.sums, (~classes(self.window).inside).sum(axis=1)
        return epilogue.real_extras(self.pad, self.bias, outside, n_outside, self.w.scale, self.w.offset)
