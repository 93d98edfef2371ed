"""Pack and unpack tensors of an NVIDIA GPU there: words and constants are tensors, and none goes through the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from ..backends.registry import cupy, kernel
from ..core.format import WORD_BITS, word_count
from ..quantizers.grouped import DIGITS, Grouped, kernel_key

_OP = "quantarray.torch"


class Groups(NamedTuple):
    """A pair of words int64[bits words] of `size` elements and constants [2 groups]: steps and first levels."""

    words: torch.Tensor
    constants: torch.Tensor
    size: int
    group: int

    @property
    def nbytes(self) -> int:
        """Return the bytes of words and constants."""
        return int(self.words.nbytes + self.constants.nbytes)

    def in_host_memory(self) -> Groups:
        """Move words and constants to page-locked memory of the host, without waiting for the copy."""
        return self._replace(words=to_host(self.words), constants=to_host(self.constants))


def on_gpu(tensor: torch.Tensor) -> bool:
    """True for a tensor in the memory of an NVIDIA GPU."""
    return bool(tensor.device.type == "cuda")


def is_packable(size: int, group: int) -> bool:
    """True for the sizes that `round_groups` takes: some elements, and groups of whole words or one group."""
    return size > 0 and (size <= group or group % WORD_BITS == 0)


def round_groups(flat: torch.Tensor, scheme: Grouped, wrong: torch.Tensor) -> Groups:
    """Round float32 values of a GPU in groups there, each with a range of its own.

    wrong: uint8[1], which becomes 1 where no grid holds the values: NaN, and magnitudes from 1e30 on.
    """
    size, device = flat.numel(), flat.device
    group = min(scheme.group or size, size)
    constants = torch.empty((2, -(-size // group)), dtype=torch.float32, device=device)
    words = torch.empty((scheme.bits, word_count(size)), dtype=torch.int64, device=device)
    with stream_of(device):
        kernel(name_of(device), "encode_groups")(
            as_array(flat, np.float32, (1, size)), group, DIGITS[scheme.constants], kernel_key(scheme),
            as_array(wrong, np.bool_, (1,)), as_array(constants, np.float32, constants.shape), _as_words(words),
        )  # fmt: skip
    # Constants for bfloat16 have its eight digits
    return Groups(words, constants.bfloat16() if scheme.constants == "bfloat16" else constants, size, group)


def pack_flags(flags: torch.Tensor, low: float, high: float) -> Groups:
    """Pack bools of a GPU to a bit each, which means `low` or `high`."""
    words = torch.empty((1, word_count(flags.numel())), dtype=torch.int64, device=flags.device)
    with stream_of(flags.device):
        kernel(name_of(flags.device), "pack")(as_array(flags, np.uint8, (1, flags.numel())), _as_words(words))
    constants = torch.full((2, 1), low, dtype=torch.float32, device=flags.device)
    constants[0] = float(np.float32(high) - np.float32(low))
    return Groups(words, constants, flags.numel(), flags.numel())


def values_of(groups: Groups, device: torch.device) -> torch.Tensor:
    """Return the float32 values as a tensor of a GPU."""
    words, constants = (tensor.to(device, non_blocking=True) for tensor in groups[:2])
    out, single = torch.empty(groups.size, dtype=torch.float32, device=device), constants.float()
    with stream_of(device):
        step, low = (as_array(row, np.float32, (1, len(row))) for row in single)
        target = as_array(out, np.float32, (1, groups.size))
        kernel(name_of(device), "decode_uniform")(_as_words(words), low, step, groups.group, target)
    return out


def half_steps(groups: Groups, device: torch.device) -> torch.Tensor:
    """Return half a step for each element, and 0 in groups of one value, whose step says nothing."""
    plain = torch.ones_like(groups.constants)
    plain[1] = 0
    codes = values_of(groups._replace(constants=plain), device)
    count = groups.constants.shape[1]
    codes = torch.nn.functional.pad(codes, (0, count * groups.group - groups.size)).view(count, -1)
    step = groups.constants[0].to(device).float()
    half = torch.where(codes.amax(dim=1) > 0, step * 0.5, torch.zeros_like(step))
    return half.repeat_interleave(groups.group)[: groups.size]


def as_tensor(values: Any) -> torch.Tensor:
    """View a CuPy array as a tensor."""
    tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(values)
    return tensor


def as_array(tensor: torch.Tensor, dtype: Any, shape: tuple[int, ...]) -> Any:
    """View the memory of a contiguous tensor of a GPU as a CuPy array: ten times as fast as by DLPack."""
    xp = cupy(_OP)
    memory = xp.cuda.UnownedMemory(tensor.data_ptr(), tensor.nbytes, tensor, tensor.device.index or 0)
    return xp.ndarray(shape, dtype, xp.cuda.MemoryPointer(memory, 0))


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor of a GPU to page-locked memory, in the order of its stream: the host may not read it before."""
    held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return held.copy_(tensor, non_blocking=True)


def name_of(device: torch.device) -> str:
    """Return a device's name, such as "cuda:0"."""
    return str(device)


def _as_words(words: torch.Tensor) -> Any:
    """View int64[bits words] as uint64[bits 1 words] of CuPy."""
    return as_array(words, np.uint64, (words.shape[0], 1, words.shape[1]))


@contextmanager
def stream_of(device: torch.device) -> Iterator[None]:
    """Make PyTorch's current stream of a GPU CuPy's, so that kernels come in order with PyTorch's operations."""
    number, of_cupy = torch.cuda.current_stream(device).cuda_stream, cupy(_OP).cuda
    with of_cupy.Device(device.index or 0):
        with of_cupy.ExternalStream(number) if number else of_cupy.Stream.null:
            yield
