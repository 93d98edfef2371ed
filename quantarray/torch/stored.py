"""Forms in which a saved tensor waits for the backward pass, each with its size in bytes and how it is restored."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import torch

from ..arrays.array import QuantArray
from ..core.dtypes import Constants, uniform
from ..ops.quantize.flat_groups import round_flat
from ..ops.quantize.mixed_rows import MixedRows
from ..ops.words.conversion import pack_codes
from ..quantizers.grouped import Grouped
from . import gpu
from .gpu import Groups
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
    """Return a tensor's values in order of memory, without a copy if it is dense, and the `Layout` that restores it."""
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
    """A tensor's values as a packed array with one axis, in host memory; device: that of the tensor."""

    q: QuantArray
    layout: Layout
    device: torch.device

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return self.q.nbytes

    @property
    def bits(self) -> int:
        """Return the bits of all elements, without constants."""
        return self.q.bits * self.q.size

    def restore(self) -> torch.Tensor:
        """Return the values of the codes."""
        flat = torch.empty(self.q.shape, dtype=torch.float32)
        self.q.dequantize(out=flat)
        return self.layout.restore(flat.to(self.device))

    def half_steps(self) -> torch.Tensor:
        """Return half a step for each element, and 0 in groups of one value, whose step says nothing."""
        assert self.q.scale is not None
        group = self.q.group or max(self.q.size, 1)
        varies = np.maximum.reduceat(self.q.codes(), np.arange(0, self.q.size, group)) > 0
        half = np.where(varies, self.q.scale * np.float32(0.5), np.float32(0))
        return self.layout.restore(torch.from_numpy(np.repeat(half, group)[: self.q.size]).to(self.device))


class PackedOnGpu(NamedTuple):
    """A GPU tensor's values, whose words are there or in host memory."""

    groups: Groups
    layout: Layout
    device: torch.device

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return self.groups.nbytes

    @property
    def bits(self) -> int:
        """Return the bits of all elements, without constants."""
        return len(self.groups.words) * self.groups.size

    def restore(self) -> torch.Tensor:
        """Return the values of the codes."""
        return self.layout.restore(gpu.values_of(self.groups, self.device))

    def half_steps(self) -> torch.Tensor:
        """Return half a step for each element, and 0 in groups of one value, whose step says nothing."""
        return self.layout.restore(gpu.half_steps(self.groups, self.device))

    def in_host_memory(self) -> PackedOnGpu:
        """Return the same with words that wait in host memory."""
        return self._replace(groups=self.groups.in_host_memory())


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
        """Return the values of the codes."""
        values = torch.empty((len(self.rows.bits), self.rows.length), dtype=torch.float32)
        self.rows.dequantize(values.numpy())
        return self.layout.restore(values.view(-1))


class LogProbabilities(NamedTuple):
    """A form of results of log_softmax: the backward pass reads exp(result), which is what is rounded."""

    probabilities: Stored

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return self.probabilities.nbytes

    def restore(self) -> torch.Tensor:
        """Return logarithms, of the smallest number for a probability that was rounded to 0."""
        values = self.probabilities.restore()
        return values.clamp_min(torch.finfo(values.dtype).tiny).log()


class Signs(NamedTuple):
    """A tensor's signs: -1 or 1 by `positive`, and 0 where `zero` has 1; None if no sign is 0."""

    positive: Packed | PackedOnGpu
    zero: Packed | PackedOnGpu | None

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return self.positive.nbytes + (0 if self.zero is None else self.zero.nbytes)

    def restore(self) -> torch.Tensor:
        """Return -1, 0 and 1."""
        signs = self.positive.restore()
        return signs if self.zero is None else signs.masked_fill(self.zero.restore() > 0, 0)


class Restorable(Protocol):
    """A tensor that waits in some form."""

    def restore(self) -> torch.Tensor:
        """Return the tensor."""
        ...


class Beside(NamedTuple):
    """A tensor that is compared with bounds: its sign is 1 above `high`, -1 below `low`, and 0 at or between them.

    A bound is a number, a saved tensor that waits anyway, or None.
    """

    signs: Stored
    low: Restorable | float | None
    high: Restorable | float | None

    @property
    def nbytes(self) -> int:
        """Return the bytes of signs."""
        return self.signs.nbytes

    def restore(self) -> torch.Tensor:
        """Return numbers that compare with the bounds as the tensor did."""
        signs = self.signs.restore()
        low, high = (b if b is None or isinstance(b, float) else b.restore() for b in self[1:])
        below = None if low is None else low - 1 - abs(low)
        above = None if high is None else high + 1 + abs(high)
        if low is None or high is None:
            between = below if low is None else low + 1 + abs(low)
            between = high - 1 - abs(high) if high is not None else between
        else:
            between = low / 2 + high / 2 if isinstance(low, float) else low
        values = signs if between is None else torch.where(signs == 0, between, signs)
        values = values if above is None else torch.where(signs > 0, above, values)
        values = values if below is None else torch.where(signs < 0, below, values)
        return values.to(signs.dtype)


class Negative(NamedTuple):
    """A tensor's signs, and its values where they are negative: -`magnitudes`."""

    positive: Packed | PackedOnGpu
    magnitudes: Stored

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return self.positive.nbytes + self.magnitudes.nbytes

    def restore(self) -> torch.Tensor:
        """Return 1 for positive values, and the others."""
        # Magnitudes begin at 0, which bfloat16 holds: none is rounded to below 0
        return torch.where(self.positive.restore() > 0, 1, -self.magnitudes.restore())


class Places(NamedTuple):
    """A tensor of indices of max pooling as places within windows, one byte each."""

    local: torch.Tensor
    window: Window
    device: torch.device

    @property
    def nbytes(self) -> int:
        """Return a byte an index."""
        return int(self.local.nbytes)

    def restore(self) -> torch.Tensor:
        """Return the int64 indices."""
        return self.window.indices(self.local.to(self.device, non_blocking=True))

    def in_host_memory(self) -> Places:
        """Return the same with places that wait in host memory."""
        return self._replace(local=gpu.to_host(self.local))


class Shape(NamedTuple):
    """A tensor of which the backward pass reads the shape alone."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    nbytes: int = 0

    def restore(self) -> torch.Tensor:
        """Return zeros of the shape that take the memory of one."""
        return torch.zeros((), dtype=self.dtype, device=self.device).expand(self.shape)


def in_host_memory(stored: Stored) -> Stored:
    """Return a form whose words wait in host memory, if they are a GPU's, and those of its parts."""
    if isinstance(stored, (PackedOnGpu, Places)):
        return stored.in_host_memory()
    if isinstance(stored, (Signs, Beside, Negative, LogProbabilities)):
        return type(stored)(*(in_host_memory(part) for part in stored))  # type: ignore[arg-type]
    return stored


def rounded(tensor: torch.Tensor, bits: int, group: int, seed: int) -> Packed | PackedOnGpu:
    """Round a tensor stochastically in groups along its memory."""
    return round_flattened(*flattened(tensor), Grouped(bits, group, seed))


def round_flattened(
    flat: torch.Tensor, layout: Layout, scheme: Grouped, wrong: torch.Tensor | None = None
) -> Packed | PackedOnGpu:
    """Round values in the order of their memory.

    wrong: of values on a GPU, uint8[1] there that becomes 1 where no grid holds them, for the caller to read later;
    without it they are waited for and, where large, rounded on the CPU. Raises ValueError for NaN and infinity.
    """
    values = flat.detach().float()
    if gpu.on_gpu(values) and gpu.is_packable(values.numel(), scheme.group or values.numel()):
        flag = torch.zeros(1, dtype=torch.uint8, device=values.device) if wrong is None else wrong
        groups = gpu.round_groups(values, scheme, flag)
        if wrong is not None or not flag.item():
            return PackedOnGpu(groups, layout, flat.device)
    return Packed(round_flat(values.cpu().numpy(), scheme), layout, flat.device)


def signs_of(positive: torch.Tensor, negative: torch.Tensor, dtype: torch.dtype) -> Signs:
    """Pack signs: a bit each, and another where some may be 0. A GPU is not asked, and has both."""
    zero = ~(positive | negative)
    some = gpu.on_gpu(zero) or bool(zero.any())
    return Signs(two_valued(positive, -1, 1, dtype), two_valued(zero, 0, 1, dtype) if some else None)


def two_valued(flags: torch.Tensor, low: float, high: float, dtype: torch.dtype) -> Packed | PackedOnGpu:
    """Pack a tensor of bools to a bit each, which come back as two values of a dtype."""
    flat, layout = flattened(flags)
    layout = layout._replace(dtype=dtype)
    if gpu.on_gpu(flat):
        return PackedOnGpu(gpu.pack_flags(flat, low, high), layout, flat.device)
    step = np.array([np.float32(high) - np.float32(low)], np.float32)
    start = np.array([low], np.float32)
    for constant in (step, start):
        constant.setflags(write=False)
    q = QuantArray(pack_codes(flat.numpy(), 0, 1), uniform(1), (flat.numel(),), 0, Constants(step, start))
    return Packed(q, layout, flat.device)
