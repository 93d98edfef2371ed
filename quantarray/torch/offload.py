"""Pack tensors of a GPU there, and let the words wait in host memory: ActNN's level L4, swapping."""

from __future__ import annotations

from typing import Any

import torch

from ..arrays.array import QuantArray
from ..backends.registry import cupy, to_host
from ..core.dtypes import Array
from ..ops.quantize.quantization import quantize
from ..ops.words import conversion
from ..quantizers.base import Quantizer


def on_gpu(tensor: torch.Tensor) -> bool:
    """True for a tensor in the memory of an NVIDIA GPU."""
    return bool(tensor.device.type == "cuda")


def rounded_there(flat: torch.Tensor, scheme: Quantizer) -> QuantArray:
    """Quantise float32 values on their GPU; return the array with its words in host memory."""
    return quantize(as_array(flat), scheme).to_device("cpu")


def packed_there(flags: torch.Tensor) -> Array:
    """Pack bools on their GPU; return words uint64[1 words] in host memory."""
    words: Array = to_host(conversion.pack_codes(as_array(flags.view(torch.uint8)), 0, 1))
    return words


def values_there(q: QuantArray, device: torch.device) -> torch.Tensor:
    """Move words to a GPU; return the values as a tensor there."""
    return as_tensor(conversion.dequantize(q.to_device(name_of(device))))


def name_of(device: torch.device) -> str:
    """Return a device's name, such as "cuda:0"."""
    return str(device)


def as_array(flat: torch.Tensor) -> Any:
    """View a tensor of a GPU as a CuPy array."""
    return cupy("compressed_activations").from_dlpack(flat)


def as_tensor(values: Any) -> torch.Tensor:
    """View a CuPy array as a tensor."""
    tensor: torch.Tensor = torch.utils.dlpack.from_dlpack(values)
    return tensor
