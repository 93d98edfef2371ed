"""Measure how far rounded tensors are off, by layer, and choose the bits of norms by it."""

from __future__ import annotations

import math
from typing import Any

import torch

_EVERY = 64  # steps from one measurement to the next
_EPSILON = 1e-5  # of norms whose nodes do not say it


class Errors:
    """A record of errors by layer: sqrt(sum of squares of errors / of values), in the first step and in each 64th.

    Of a norm's input, errors are those of the normalised values: each is divided by its channel's, sample's or group's
    standard deviation, which is what the gradient reads. bound: norms get the fewest bits whose error is not above it.
    """

    def __init__(self, bound: float | None) -> None:
        self._bound, self._step, self.active = bound, 0, False
        self._sums: dict[str, tuple[float, float]] = {}
        self.bits: dict[str, int] = {}  # of norms, by layer

    def start(self) -> None:
        """Start a step."""
        self.active = self._step % _EVERY == 0
        self._step += 1
        if self.active:
            self._sums, self.bits = {}, {}

    @property
    def by_layer(self) -> dict[str, float]:
        """Return {layer: error}."""
        return {name: math.sqrt(off / size) if size else 0.0 for name, (off, size) in self._sums.items()}

    def add(self, layer: str, off: float, size: float) -> None:
        """Count a tensor's squared errors and values."""
        before = self._sums.get(layer, (0.0, 0.0))
        self._sums[layer] = before[0] + off, before[1] + size

    def see(self, layer: str, tensor: torch.Tensor, stored: Any) -> None:
        """Measure a tensor and its form."""
        off = stored.restore().float().sub_(tensor)
        off, size = (float(torch.linalg.vector_norm(x, dtype=torch.float32)) for x in (off, tensor))
        self.add(layer, off**2, size**2)

    def is_enough(self, error: float) -> bool:
        """True for an error of a norm's input that needs no more bits."""
        return self._bound is None or error <= self._bound


class Norm:
    """A norm's input as what it is divided by: the variance of its channels, samples or groups."""

    def __init__(self, node: Any, x: torch.Tensor) -> None:
        kind = node.__class__.__name__
        self._x = x.float()
        if "BatchNorm" in kind:
            self._axes = tuple(d for d in range(x.ndim) if d != 1)
        elif "GroupNorm" in kind:
            self._x, self._axes = self._x.reshape(x.shape[0], node._saved_group, -1), (2,)
        else:
            self._axes = tuple(range(x.ndim - len(node._saved_normalized_shape), x.ndim))
        self._variance = self._x.var(self._axes, correction=0) + (getattr(node, "_saved_eps", None) or _EPSILON)

    def error(self, stored: Any) -> float:
        """Return the error of the normalised values of a form."""
        off = stored.restore().float().reshape(self._x.shape).sub_(self._x).square_()
        return math.sqrt(float((off.mean(self._axes) / self._variance).mean()))
