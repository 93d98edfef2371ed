"""Find the order in memory of a tensor's axes: values are packed in that order, without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch


class Layout(NamedTuple):
    """A layout in memory of tensors of a shape and strides.

    order, back: the order of axes in memory, and the order that brings them back; shape: in the order of memory.
    dense: in memory of its own size, where an expanded tensor is cheaper as it is. in_order: contiguous.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    back: tuple[int, ...]
    size: int
    dense: bool
    in_order: bool

    def flat(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's values in order of memory, without a copy if they are in some order there."""
        return tensor.reshape(-1) if self.in_order else tensor.permute(self.order).reshape(-1)

    def restore(self, flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Give values in the order of memory their shape, axes and dtype."""
        values = flat.view(self.shape)
        return (values if self.in_order else values.permute(self.back)).to(dtype)


class _Layouts(dict[tuple[tuple[int, ...], tuple[int, ...]], Layout]):
    """A table of the layouts of shapes and strides."""

    def __missing__(self, key: tuple[tuple[int, ...], tuple[int, ...]]) -> Layout:
        if len(self) >= _MOST:
            self.clear()
        shape, stride = key
        axes = range(len(shape))
        dense = all(n <= 1 or step for n, step in zip(shape, stride, strict=True))
        order = tuple(axes) if _runs(shape, stride, axes) else tuple(sorted(axes, key=stride.__getitem__, reverse=True))
        if not _runs(shape, stride, order):
            order = tuple(axes)  # a copy is in order
        laid, back = tuple(shape[d] for d in order), tuple(order.index(d) for d in axes)
        self[key] = layout = Layout(laid, order, back, math.prod(shape), dense, order == tuple(axes))
        return layout


def _runs(shape: tuple[int, ...], stride: tuple[int, ...], order: Sequence[int]) -> bool:
    """True if axes in this order are a run of memory without gaps."""
    length = 1
    for d in reversed(order):
        if shape[d] != 1 and stride[d] != length:
            return not math.prod(shape)
        length *= shape[d]
    return True


_MOST = 1 << 12
LAYOUTS = _Layouts()


def layout_of(tensor: torch.Tensor) -> Layout:
    """Return a tensor's layout."""
    return LAYOUTS[tensor.shape, tensor.stride()]
