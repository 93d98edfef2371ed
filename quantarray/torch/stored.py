"""Forms in which a saved tensor waits for the backward pass, each with its bytes and its way back."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ..arrays.array import QuantArray
from ..core.dtypes import Constants, uniform
from ..ops.quantize.flat_groups import round_flat
from ..ops.quantize.mixed_rows import MixedRows
from ..ops.words.conversion import pack_codes
from ..quantizers.grouped import Grouped
from . import offload
from .operations import Window


class Stored(Protocol):
    """A form of a saved tensor."""

    @property
    def nbytes(self) -> int:
        """Return the bytes that it holds beyond what the program holds anyway."""

    def restore(self) -> torch.Tensor:
        """Return a tensor of the shape, dtype and layout that was saved."""


class Layout(NamedTuple):
    """A tensor's shape in the order of its memory, and the order that brings the axes back."""

    shape: torch.Size
    order: tuple[int, ...]
    dtype: torch.dtype

    def restore(self, flat: torch.Tensor) -> torch.Tensor:
        """Give values in the order of memory their shape, dtype and axes."""
        return flat.view(self.shape).permute(self.order).to(self.dtype)


def flattened(tensor: torch.Tensor) -> tuple[torch.Tensor, Layout]:
    """Return a tensor's values in the order of its memory, without a copy where it is dense, and the way back."""
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    laid = tensor.permute(order)
    if not laid.is_contiguous():
        order, laid = list(range(tensor.ndim)), tensor.contiguous()
    back = tuple(order.index(d) for d in range(tensor.ndim))
    return laid.reshape(-1), Layout(laid.shape, back, tensor.dtype)


class Whole(NamedTuple):
    """A tensor that is left as it is. Parameters count no bytes."""

    tensor: torch.Tensor
    nbytes: int

    def restore(self) -> torch.Tensor:
        """Return the tensor itself."""
        return self.tensor


class Packed(NamedTuple):
    """A tensor's values as a packed array with one axis, in host memory; device: the GPU that they are of, or None."""

    q: QuantArray
    layout: Layout
    device: torch.device | None = None

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return self.q.nbytes

    @property
    def bits(self) -> int:
        """Return the bits of all elements, without constants."""
        return self.q.bits * self.q.size

    def restore(self) -> torch.Tensor:
        """Return the values that the codes stand for."""
        if self.device is not None:
            return self.layout.restore(offload.values_there(self.q, self.device))
        flat = torch.empty(self.q.shape, dtype=torch.float32)
        self.q.dequantize(out=flat)
        return self.layout.restore(flat)


class Mixed(NamedTuple):
    """A tensor's samples as rows of bits of their own."""

    rows: MixedRows
    layout: Layout

    @property
    def nbytes(self) -> int:
        """Return the bytes of words, constants, bits and places of rows."""
        return self.rows.nbytes

    @property
    def bits(self) -> int:
        """Return the bits of all elements, without constants."""
        return int(self.rows.bits.sum()) * self.rows.length

    def restore(self) -> torch.Tensor:
        """Return the values that the codes stand for."""
        values = torch.empty((len(self.rows.bits), self.rows.length), dtype=torch.float32)
        self.rows.dequantize(values.numpy())
        return self.layout.restore(values.view(-1))


class Places(NamedTuple):
    """A tensor of indices of max pooling as places within windows, one byte each, in host memory."""

    local: torch.Tensor
    window: Window
    device: torch.device | None = None

    @property
    def nbytes(self) -> int:
        """Return a byte an index."""
        return int(self.local.nbytes)

    def restore(self) -> torch.Tensor:
        """Return the int64 indices."""
        return self.window.indices(self.local if self.device is None else self.local.to(self.device))


class Shape(NamedTuple):
    """A tensor of which the backward pass reads the shape alone."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device | None = None
    nbytes: int = 0

    def restore(self) -> torch.Tensor:
        """Return zeros of the shape that take the memory of one."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape)


def rounded(tensor: torch.Tensor, bits: int, group: int, seed: int) -> Packed:
    """Round a tensor stochastically in groups along its memory."""
    return round_flattened(*flattened(tensor), Grouped(bits, group, seed))


def round_flattened(flat: torch.Tensor, layout: Layout, scheme: Grouped) -> Packed:
    """Round values in the order of their memory."""
    if offload.on_gpu(flat):
        return Packed(offload.rounded_there(flat.detach().float(), scheme), layout, flat.device)
    values: Any = flat.detach().float().numpy()
    return Packed(round_flat(values, scheme), layout)


def two_valued(flags: torch.Tensor, low: float, high: float, dtype: torch.dtype) -> Packed:
    """Pack a tensor of bools to a bit each, which come back as two values of a dtype."""
    flat, layout = flattened(flags)
    step = np.array([np.float32(high) - np.float32(low)], np.float32)
    start = np.array([low], np.float32)
    for constant in (step, start):
        constant.setflags(write=False)
    elsewhere = offload.on_gpu(flat)
    words = offload.packed_there(flat) if elsewhere else pack_codes(flat.numpy(), 0, 1)
    q = QuantArray(words, uniform(1), (flat.numel(),), 0, Constants(step, start))
    return Packed(q, layout._replace(dtype=dtype), flat.device if elsewhere else None)
