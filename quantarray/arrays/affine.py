"""An affine map of each channel: what a last batch norm does to exact integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.registry import device_of, namespace
from ..core.dtypes import Array
from ..core.format import locked
from ..core.hints import Vector
from . import checks
from .array import QuantArray


class Affine:
    """A scale and an offset for each channel, which turn a last layer's integers into scores.

        scores[.., o] = scale[o] * v[.., o] + offset[o]

    scale, offset: finite numbers [channels], kept as float64. v is a dense result, int32, int64 or float32; scores are
    float64: the product and the sum are rounded once each, and integers below 2**53 not at all.

    `fold_batchnorm(..., into=None)` makes one. Its scores are within 2**-50 * (|scale * v| + |gamma * mean /
    deviation| + |beta|) of the unrounded batch norm's, so `scores.argmax` is exact unless two scores are closer than
    that. A network evaluated in float32 rounds 2**29 times as coarsely: if its two best scores are as close as
    float32's rounding, its argmax may differ.

    The last of the layers of `qa.nn.Sequential` may be an Affine.

    Raises TypeError or ValueError for anything but numbers [channels], and when called with another number of channels.

    >>> import quantarray as qa, numpy as np
    >>> scores = qa.Affine([0.5, 2.0], [0.0, -1.0])
    >>> scores(np.array([[3, 1], [4, 2]]))
    array([[1.5, 1. ],
           [2. , 3. ]])
    """

    def __init__(self, scale: Any, offset: Any) -> None:
        self.scale, self.offset = (_constant(name, a) for name, a in (("scale", scale), ("offset", offset)))
        if self.scale.shape != self.offset.shape:
            raise ValueError(
                f"Affine: scale and offset must be [channels] alike, got {self.scale.shape} and {self.offset.shape}"
            )
        self._on_device: dict[str, tuple[Any, Any]] = {"cpu": (self.scale, self.offset)}

    @property
    def channels(self) -> int:
        return len(self.scale)

    def __call__(self, values: Vector, axis: int = -1) -> Array:
        """float64 scores of a dense result whose channels are `axis`."""
        op = "Affine"
        if isinstance(values, QuantArray):
            raise TypeError(f"{op}: takes the dense result of an operation, got a QuantArray; .dequantize() gives one")
        v = checks.dense(op, "values", values)
        at = checks.axis(op, axis, v.ndim)
        if v.shape[at] != self.channels:
            raise ValueError(f"{op}: has {self.channels} channels, axis {at} of the values {v.shape} has {v.shape[at]}")
        scale, offset = self._constants(device_of(v))
        by_channel = (-1, *(1,) * (v.ndim - 1 - at))
        scores: Array = scale.reshape(by_channel) * v + offset.reshape(by_channel)
        return scores

    def _constants(self, device: str) -> tuple[Any, Any]:
        if device not in self._on_device:
            xp = namespace(device)
            self._on_device[device] = xp.asarray(self.scale), xp.asarray(self.offset)
        return self._on_device[device]

    def __repr__(self) -> str:
        return f"Affine({self.channels} channels)"


def _constant(name: str, value: Any) -> Array:
    a = checks.numbers("Affine", name, value).astype(np.float64)
    if a.ndim != 1:
        raise ValueError(f"Affine: {name} must be numbers [channels], got the shape {a.shape}")
    checks.finite("Affine", name, a)
    return locked(a)
