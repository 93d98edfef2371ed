"""Hold indices of max pooling as places within their windows, of 1, 2 or 3 axes."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch

from .layout import layout_of


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
        offsets = self._offsets()
        places = torch.zeros(offsets[-1] + 1, dtype=torch.uint8)
        places[offsets] = torch.arange(len(offsets), dtype=torch.uint8)
        after = indices.int() - self._corners(indices.device)  # of half the memory, which matters at the peak
        return _looked_up(places.to(indices.device), after)

    def indices(self, local: torch.Tensor) -> torch.Tensor:
        """Turn places within each window back to int64 indices into a plane of the input."""
        offsets = torch.tensor(self._offsets(), device=local.device)
        return _looked_up(offsets, local.int()).add_(self._corners(local.device))

    def _offsets(self) -> list[int]:
        """Return the difference of each element's index from that of its window's first element."""
        steps = [range(0, n * step, step) for n, step in zip(self.shape, self.dilation, strict=True)]
        return [self._index(at) for at in itertools.product(*steps)]

    def _corners(self, device: torch.device) -> torch.Tensor:
        """Return the index of each window's first element, negative in padding, int32 of the result's size."""
        count = len(self.starts)
        starts = [
            torch.tensor(start, dtype=torch.int32, device=device).view(-1, *(1,) * (count - 1 - d))
            for d, start in enumerate(self.starts)
        ]
        return self._index(starts)

    def _index(self, at: Any) -> Any:
        """Return the index into a plane of places on each axis, numbers or tensors."""
        index = at[0]
        for size, place in zip(self.size[1:], at[1:], strict=True):
            index = index * size + place
        return index


def _looked_up(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return table[places], in the order in memory of the places."""
    layout = layout_of(places)
    return layout.restore(table.index_select(0, layout.flat(places)), table.dtype)


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
