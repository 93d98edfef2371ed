"""Pack and unpack values in host memory, whose words are in an `Arena`; `gpu` is its twin."""

from __future__ import annotations

import threading

import numpy as np
import torch

from ..backends.registry import kernel
from ..core.bfloat16 import bfloat16_values
from ..core.dtypes import Array
from ..core.format import WORD_BITS
from ..ops.quantize.quantization import quantize
from ..quantizers.grouped import DIGITS, ROUNDING, Grouped
from .arena import Arena
from .layout import Layout

_DIGITS = DIGITS["bfloat16"]
_MOST = 64  # buffers of constants that a thread keeps


class Packed:
    """A tensor's values in groups in host memory.

    words uint64[bits 1 words]; constants [2 1 groups], steps and first levels, are float32, or bfloat16 as its bits in
    uint16. bits: of all elements. device: that of the tensor.
    """

    __slots__ = ("bits", "constants", "device", "dtype", "group", "layout", "nbytes", "words")

    def __init__(
        self, words: Array, constants: Array, group: int, layout: Layout, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.words, self.constants, self.group = words, constants, group
        self.layout, self.dtype, self.device = layout, dtype, device
        self.nbytes, self.bits = words.nbytes + constants.nbytes, words.shape[0] * layout.size

    def restore(self) -> torch.Tensor:
        """Return the values of the codes."""
        layout, constants = self.layout, self.constants
        values = torch.empty(layout.shape)
        if constants.dtype is _HALF:
            count, known = constants.shape[2], _CONSTANTS.buffers
            single, upper = known[count] if count in known else _CONSTANTS.of(count)
            upper[...] = constants
            constants = single
        out = np.ndarray((1, layout.size), np.float32, values.numpy())
        kernel("cpu", "decode_spaced")(self.words, constants[1], constants[0], 0, 1, self.group, out)
        if self.device.type != "cpu":
            values = values.to(self.device)
        return values if layout.in_order and self.dtype is torch.float32 else layout.restore(values, self.dtype)

    def half_steps(self) -> torch.Tensor:
        """Return half a step for each element, and 0 in groups of one value, whose step says nothing."""
        plain, size = np.zeros(self.constants.shape, np.float32), self.layout.size
        plain[0] = 1
        codes = np.empty((1, size), np.float32)
        kernel("cpu", "decode_uniform")(self.words, plain[1], plain[0], self.group, codes)
        step = self.constants[0, 0]
        step = step if step.dtype == np.float32 else bfloat16_values(step)
        varies = np.maximum.reduceat(codes[0], np.arange(0, size, self.group)) > 0
        half = np.repeat(np.where(varies, step * np.float32(0.5), np.float32(0)), self.group)[:size]
        return self.layout.restore(torch.from_numpy(half).to(self.device), self.dtype)


class _Constants(threading.local):
    """A thread's buffers float32[2 1 groups] by the number of groups, with their upper halves, which are bfloat16.

    Their lower halves are always 0.
    """

    def __init__(self) -> None:
        self.buffers: dict[int, tuple[Array, Array]] = {}

    def of(self, groups: int) -> tuple[Array, Array]:
        """Make a buffer of a number of groups."""
        if len(self.buffers) >= _MOST:
            self.buffers.clear()
        single = np.zeros((2, 1, groups), np.float32)
        self.buffers[groups] = both = single, single.view(np.uint16)[..., 1::2]
        return both


_CONSTANTS = _Constants()


class Packer:
    """A rounding of arrays to words in an arena, one after the other: the kernel's scratch memory is used again."""

    def __init__(self) -> None:
        self.arena, self._wrong, self._key = Arena(), np.zeros(1, np.bool_), np.zeros(3, np.uint32)
        self._key[2] = ROUNDING

    def round_off(self, tensor: torch.Tensor, layout: Layout, bits: int, group: int, seed: int) -> Packed:
        """Round a tensor stochastically in groups as `Grouped` does; ValueError for NaN and infinity."""
        size, key, wrong, floats = layout.size, self._key, self._wrong, tensor
        if tensor.dtype is not torch.float32 or tensor.device.type != "cpu":
            floats = tensor.float().cpu()
        values = (floats if layout.in_order else floats.permute(layout.order)).numpy()
        if not size or (size > group and group % WORD_BITS):
            return _quantized(tensor, values, layout, bits, group, seed)
        x = np.ndarray((1, size), np.float32, values if values.flags.c_contiguous else values.copy())
        run = group if group < size else size
        groups, count, known = -(-size // run), (size + WORD_BITS - 1) // WORD_BITS, _CONSTANTS.buffers
        single, upper = known[groups] if groups in known else _CONSTANTS.of(groups)
        words = self.arena.take(bits, count)
        key[0], key[1], wrong[0] = seed & 0xFFFFFFFF, seed >> 32, False
        kernel("cpu", "encode_groups")(x, run, _DIGITS, key, wrong, single[:, 0], words)
        if wrong[0]:
            single[...] = 0
            return _quantized(tensor, values, layout, bits, group, seed)
        return Packed(words, upper.copy(), run, layout, tensor.dtype, tensor.device)

    def pack_flags(self, flags: torch.Tensor, layout: Layout, low: float, high: float, dtype: torch.dtype) -> Packed:
        """Pack bools to a bit each, which come back as `low` or `high` of a dtype."""
        size = layout.size
        words = self.arena.take(1, (size + WORD_BITS - 1) // WORD_BITS)
        if size:
            values = (flags if layout.in_order else flags.permute(layout.order)).numpy()
            codes = np.ndarray((1, size), np.uint8, values if values.flags.c_contiguous else values.copy())
            kernel("cpu", "pack")(codes, words)
        return Packed(words, _ends(low, high), size or 1, layout, dtype, flags.device)

    def pack_compared(
        self, tensor: torch.Tensor, layout: Layout, low: float, high: float, between: bool,
        values: tuple[float, float],
    ) -> Packed | None:  # fmt: skip
        """Pack low <= x < high of float32, or x >= high where no x is in between if not `between`, as `pack_flags`.

        None where an x is in between then, or not finite.
        """
        size, wrong = layout.size, self._wrong
        x = (tensor if layout.in_order else tensor.permute(layout.order)).numpy()
        x = np.ndarray((1, size), np.float32, x if x.flags.c_contiguous else x.copy())
        words, wrong[0] = self.arena.take(1, (size + WORD_BITS - 1) // WORD_BITS), False
        kernel("cpu", "pack_compared")(x, low, high, between, wrong, words)
        if wrong[0]:
            self.arena.give_back(words)
            return None
        return Packed(words, _ends(*values), size, layout, tensor.dtype, tensor.device)


def _ends(low: float, high: float) -> Array:
    """Return constants of two values."""
    if (low, high) not in _ENDS:
        _ENDS[low, high] = np.array([[[np.float32(high) - np.float32(low)]], [[low]]], np.float32)
    return _ENDS[low, high]


_ENDS: dict[tuple[float, float], Array] = {}  # constants of two values
_HALF = np.dtype(np.uint16)


def _quantized(tensor: torch.Tensor, values: Array, layout: Layout, bits: int, group: int, seed: int) -> Packed:
    """Round by `quantize`: groups that are not of whole words, and values beyond what the kernel takes."""
    q = quantize(values.reshape(-1), Grouped(bits, group, seed))
    constants = np.stack([a for _, a, _ in q.constants.items()])  # scale and offset
    return Packed(
        q.words[:, None], constants[:, None], q.group or max(layout.size, 1), layout, tensor.dtype, tensor.device
    )
