"""Hold indices of max pooling as places within their windows, of 1, 2 or 3 axes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch


class Window(NamedTuple):
    """A window of max pooling over an input of a size, with where it starts on each axis, by index of the result.

    dilation: steps between the elements of a window.
    """

    starts: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    dilation: tuple[int, ...]
    size: tuple[int, ...]

    def local(self, indices: torch.Tensor) -> torch.Tensor:
        """Turn indices into a plane of the input to places within each window, uint8."""
        rest = indices.int()  # of half the memory, which matters at the peak
        place = torch.zeros_like(rest)
        for d, start in enumerate(self._starts(indices.device)):
            after = math.prod(self.size[d + 1 :])
            at = rest.div(after, rounding_mode="floor")
            rest.sub_(at, alpha=after)
            at.sub_(start).div_(self.dilation[d], rounding_mode="floor")
            place.mul_(self.shape[d]).add_(at)
        return place.byte()

    def indices(self, local: torch.Tensor) -> torch.Tensor:
        """Turn places within each window back to int64 indices into a plane of the input."""
        rest = local.int()
        index = torch.zeros_like(rest)
        for d, start in enumerate(self._starts(local.device)):
            after = math.prod(self.shape[d + 1 :])
            at = rest.div(after, rounding_mode="floor")
            rest.sub_(at, alpha=after)
            index.mul_(self.size[d]).add_(at.mul_(self.dilation[d]).add_(start))
        return index.long()

    def _starts(self, device: torch.device) -> list[torch.Tensor]:
        """Return where windows start on each axis, as tensors that broadcast against indices."""
        last = len(self.starts) - 1
        return [
            torch.tensor(start, dtype=torch.int32, device=device).view(-1, *(1,) * (last - d))
            for d, start in enumerate(self.starts)
        ]


def window_of(node: Any, size: tuple[int, ...], result: tuple[int, ...]) -> Window | None:
    """Return the window of a node of max pooling from planes of a size to results of another.

    None for a window of more elements than a byte counts.
    """
    axes = range(len(size))
    if hasattr(node, "_saved_kernel_size"):
        shape, stride, padding, dilation = (
            _numbers(getattr(node, f"_saved_{name}"), len(size))
            for name in ("kernel_size", "stride", "padding", "dilation")
        )
        stride = stride if any(stride) else shape
        starts = [tuple(i * stride[d] - padding[d] for i in range(result[d])) for d in axes]
    else:  # adaptive
        ends = [[-(-(i + 1) * size[d] // result[d]) for i in range(result[d])] for d in axes]
        starts = [tuple(i * size[d] // result[d] for i in range(result[d])) for d in axes]
        shape = tuple(max(map(int.__sub__, ends[d], starts[d]), default=1) for d in axes)
        dilation = (1,) * len(size)
    return Window(tuple(starts), shape, dilation, tuple(size)) if math.prod(shape) <= 256 else None


def _numbers(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a number for each axis, of as many, of one for all, or of none."""
    return tuple(values) if len(values) == count else tuple(values or (0,)) * count
