"""Forms in which a saved tensor waits for the backward pass, each with its size in bytes and how it is restored."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch

from ..ops.quantize.mixed_rows import MixedRows
from ..quantizers.grouped import Grouped
from . import gpu
from .host import Packed, Packer
from .layout import Layout, layout_of
from .windows import Window


class Stored(Protocol):
    """A form of a saved tensor."""

    @property
    def nbytes(self) -> int:
        """Return the bytes that it holds beyond what the program holds anyway."""

    def restore(self) -> torch.Tensor:
        """Return a tensor of the shape, dtype and layout that was saved."""


class Whole(NamedTuple):
    """A tensor that is left as it is. Parameters count no bytes."""

    tensor: torch.Tensor
    nbytes: int

    def restore(self) -> torch.Tensor:
        """Return the tensor itself."""
        return self.tensor


class PackedOnGpu(NamedTuple):
    """A GPU tensor's values, whose words are there or in host memory."""

    groups: gpu.Groups
    layout: Layout
    dtype: torch.dtype
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
        return self.layout.restore(gpu.values_of(self.groups, self.device), self.dtype)

    def half_steps(self) -> torch.Tensor:
        """Return half a step for each element, and 0 in groups of one value, whose step says nothing."""
        return self.layout.restore(gpu.half_steps(self.groups, self.device), self.dtype)

    def in_host_memory(self) -> PackedOnGpu:
        """Return the same with words that wait in host memory."""
        return self._replace(groups=self.groups.in_host_memory())


class Mixed(NamedTuple):
    """A tensor's samples as rows of bits of their own."""

    rows: MixedRows
    layout: Layout
    dtype: torch.dtype

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
        return self.layout.restore(values, self.dtype)


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
        with torch.no_grad():
            return self._restore()

    def _restore(self) -> torch.Tensor:
        signs = self.signs.restore()
        low, high = (b if b is None or isinstance(b, float) else b.restore() for b in self[1:])
        below = None if low is None else beyond(low, -1, signs.dtype)
        above = None if high is None else beyond(high, 1, signs.dtype)
        if low is None or high is None:
            between = None if low is None else beyond(low, 1, signs.dtype)
            between = between if high is None else beyond(high, -1, signs.dtype)
        else:
            between = low / 2 + high / 2 if isinstance(low, float) else low
        values = signs if between is None else torch.where(signs == 0, between, signs)
        values = values if above is None else torch.where(signs > 0, above, values)
        values = values if below is None else torch.where(signs < 0, below, values)
        return values.to(signs.dtype)


def beyond(bound: Any, side: int, dtype: torch.dtype) -> Any:
    """Return a number, or numbers, above a bound (1) or below it (-1), which a dtype has if there are any."""
    number = bound + side * (1 + abs(bound))
    most = torch.finfo(dtype).max
    return min(max(number, -most), most) if isinstance(number, float) else number


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
    return round_off(tensor.detach(), layout_of(tensor), bits, group, seed, Packer())


def round_off(
    tensor: torch.Tensor,
    layout: Layout,
    bits: int,
    group: int,
    seed: int,
    packer: Packer,
    wrong: torch.Tensor | None = None,
) -> Packed | PackedOnGpu:
    """Round a tensor without a gradient in groups along its memory.

    wrong: of values on a GPU, uint8[1] there that becomes 1 where no grid holds them, for the caller to read later;
    without it they are waited for and, where large, rounded on the CPU. Raises ValueError for NaN and infinity.
    """
    if gpu.on_gpu(tensor) and gpu.is_packable(layout.size, group):
        flag = torch.zeros(1, dtype=torch.uint8, device=tensor.device) if wrong is None else wrong
        groups = gpu.round_groups(layout.flat(tensor.float()), Grouped(bits, group, seed), flag)
        if wrong is not None or not flag.item():
            return PackedOnGpu(groups, layout, tensor.dtype, tensor.device)
    return packer.round_off(tensor, layout, bits, group, seed)


def signs_of(
    positive: torch.Tensor, negative: torch.Tensor, layout: Layout, dtype: torch.dtype, packer: Packer | None
) -> Signs:
    """Pack signs: a bit each, and another where some may be 0. A GPU is not asked, and has both."""
    zero = ~(positive | negative)
    some = packer is None or bool(zero.any())
    return Signs(
        two_valued(positive, layout, -1, 1, dtype, packer),
        two_valued(zero, layout, 0, 1, dtype, packer) if some else None,
    )


def two_valued(
    flags: torch.Tensor, layout: Layout, low: float, high: float, dtype: torch.dtype, packer: Packer | None
) -> Packed | PackedOnGpu:
    """Pack a tensor of bools to a bit each, which come back as two values of a dtype.

    layout: that of a dense tensor which the flags were computed from, whose order in memory they have too.
    """
    if packer is None:  # on a GPU
        return PackedOnGpu(gpu.pack_flags(layout.flat(flags), low, high), layout, dtype, flags.device)
    return packer.pack_flags(flags, layout, low, high, dtype)
